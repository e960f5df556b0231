#include "common/base/dtype.h"

size_t ls_dtype_nbytes(ls_dtype dtype) {
    static const size_t nbytes[] = {
#define LS_ROW(name, type, size) [LS_##name] = (size),
        LS_DTYPE_MAP(LS_ROW)
#undef LS_ROW
    };
    return nbytes[dtype];
}

const char *ls_dtype_name(ls_dtype dtype) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "int32", "int64", "fp64"};
    return names[dtype];
}
