#include "common/checkpoint/safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/safetensors_internal.h"

const char *ls_safetensor_dtype_name(ls_safetensor_dtype dtype) {
    static const char *const names[] = {
#define LS_ROW(name, nbytes) #name,
        LS_SAFETENSOR_DTYPE_MAP(LS_ROW)
#undef LS_ROW
    };
    return names[dtype];
}

size_t ls_safetensor_dtype_nbytes(ls_safetensor_dtype dtype) {
    static const size_t sizes[] = {
#define LS_ROW(name, nbytes) (nbytes),
        LS_SAFETENSOR_DTYPE_MAP(LS_ROW)
#undef LS_ROW
    };
    return sizes[dtype];
}

bool ls_safetensor_shape_nbytes(const ls_safetensor *tensor, size_t *nbytes) {
    *nbytes = ls_safetensor_dtype_nbytes(tensor->dtype);
    for (int i = 0; i < tensor->ndim; i++) {
        if (__builtin_mul_overflow(*nbytes, tensor->shape[i], nbytes)) return false;
    }
    return true;
}

static int compare_names(const void *a, const void *b) {
    const ls_safetensor *first = *(const ls_safetensor *const *)a;
    const ls_safetensor *second = *(const ls_safetensor *const *)b;
    return strcmp(first->name, second->name);
}

const char *ls_safetensors_sort_by_name(const ls_safetensor **tensors, size_t count) {
    if (count == 0) return NULL;
    qsort(tensors, count, sizeof *tensors, compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(tensors[i - 1]->name, tensors[i]->name) == 0) return tensors[i]->name;
    }
    return NULL;
}

/* Bytes of the well-formed character at `text`, 0 if there is none. */
static size_t utf8_length(const unsigned char *text, size_t nbytes) {
    /* by the first byte: how many bytes follow, and the least code point that needs them */
    size_t following = text[0] < 0x80 ? 0 : text[0] < 0xe0 ? 1 : text[0] < 0xf0 ? 2 : 3;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    static const unsigned char payload[] = {0x7f, 0x1f, 0x0f, 0x07};
    if ((text[0] & 0xc0) == 0x80 || text[0] >= 0xf8 || following >= nbytes) return 0;
    uint32_t code = text[0] & payload[following];
    for (size_t i = 1; i <= following; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[following] || code > 0x10ffff || surrogate ? 0 : following + 1;
}

bool ls_utf8_is_valid(const char *text, size_t nbytes) {
    const unsigned char *next = (const unsigned char *)text;
    while (nbytes > 0) {
        size_t length = utf8_length(next, nbytes);
        if (length == 0) return false;
        next += length;
        nbytes -= length;
    }
    return true;
}
