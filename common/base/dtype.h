/* Element types and their sizes; conversions of the two half types. */
#ifndef LS_BASE_DTYPE_H
#define LS_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(name, C storage type, bytes) */
#define LS_DTYPE_MAP(X)                                                                                                \
    X(FP32, float, 4)                                                                                                  \
    X(FP16, uint16_t, 2)                                                                                               \
    X(BF16, uint16_t, 2)                                                                                               \
    X(INT32, int32_t, 4)                                                                                               \
    X(INT64, int64_t, 8)

#define LS_DTYPE_ENUM(name, type, nbytes) LS_##name,
typedef enum ls_dtype { LS_DTYPE_MAP(LS_DTYPE_ENUM) LS_DTYPE_COUNT } ls_dtype;
#undef LS_DTYPE_ENUM

/* Bytes of one element. */
size_t ls_dtype_nbytes(ls_dtype dtype);

/* "fp32", "fp16", ... */
const char *ls_dtype_name(ls_dtype dtype);

/* IEEE binary16 and bfloat16 to and from float; rounding to nearest even, NaN stays NaN, overflow becomes infinity. */
float ls_fp16_to_float(uint16_t bits);
uint16_t ls_fp16_from_float(float value);
float ls_bf16_to_float(uint16_t bits);
uint16_t ls_bf16_from_float(float value);

#endif
