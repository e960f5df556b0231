/* Element types and their sizes; conversions of fp16 and bf16. */
#ifndef LS_BASE_DTYPE_H
#define LS_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* X(name, C storage type, bytes) */
#define LS_DTYPE_MAP(X)                                                                                                \
    X(FP32, float, 4)                                                                                                  \
    X(FP16, uint16_t, 2)                                                                                               \
    X(BF16, uint16_t, 2)                                                                                               \
    X(INT32, int32_t, 4)                                                                                               \
    X(INT64, int64_t, 8)                                                                                               \
    X(FP64, double, 8)

#define LS_DTYPE_ENUM(name, type, nbytes) LS_##name,
typedef enum ls_dtype { LS_DTYPE_MAP(LS_DTYPE_ENUM) LS_DTYPE_COUNT } ls_dtype;
#undef LS_DTYPE_ENUM

/* Bytes of one element. */
size_t ls_dtype_nbytes(ls_dtype dtype);

/* "fp32", "fp16", ... */
const char *ls_dtype_name(ls_dtype dtype);

/* Marks a function that GPU kernels call, too. */
#ifdef __CUDACC__
#define LS_ANYWHERE __host__ __device__
#else
#define LS_ANYWHERE
#endif

/* IEEE binary16 and bfloat16 to and from float; rounding to nearest even, NaN stays NaN, overflow becomes infinity.
 * Inline and free of branches, so that compilers can vectorise loops that call them. */

static inline LS_ANYWHERE uint32_t ls_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline LS_ANYWHERE float ls_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* condition ? yes : no, without a branch. */
static inline uint32_t ls_select(bool condition, uint32_t yes, uint32_t no) {
    uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

static inline float ls_bf16_to_float(uint16_t bits) { return ls_float_of_bits((uint32_t)bits << 16); }

static inline uint16_t ls_bf16_from_float(float value) {
    uint32_t bits = ls_float_bits(value), upper = bits >> 16;
    uint32_t rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
    bool is_nan = (int32_t)(bits & 0x7fffffffu) > 0x7f800000; /* rounding could carry it to infinity */
    return (uint16_t)(is_nan ? upper | 0x40u : rounded);
}

static inline float ls_fp16_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    int32_t magnitude = half & 0x7fff;
    /* the bits go where a float has them, and its bias is larger by 112; infinity and NaN have the largest exponent */
    uint32_t bits = ((uint32_t)magnitude << 13) + 0x38000000u;
    bits += ls_select(magnitude >= 0x7c00, 0x38000000u, 0);
    bits |= ls_select(magnitude > 0x7c00, 0x00400000u, 0); /* a NaN becomes quiet, as in the processor's conversion */
    /* a subnormal is so many times 2^-24, the last bit of a float from 0.5 on */
    uint32_t subnormal = ls_float_bits(ls_float_of_bits(0x3f000000u | (uint32_t)magnitude) - 0.5f);
    return ls_float_of_bits(sign | ls_select(magnitude < 0x400, subnormal, bits));
}

static inline uint16_t ls_fp16_from_float(float value) {
    uint32_t bits = ls_float_bits(value), sign = bits >> 16 & 0x8000u;
    int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
    uint32_t result = ((uint32_t)magnitude + 0xfffu + ((uint32_t)magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    /* below 2^-14, adding 0.5 leaves the subnormal's bits, rounded, at the float's end */
    uint32_t subnormal = ls_float_bits(ls_float_of_bits((uint32_t)magnitude) + 0.5f) - 0x3f000000u;
    result = ls_select(magnitude < 0x38800000, subnormal, result);
    result = ls_select(magnitude >= 0x477ff000, 0x7c00u, result); /* 65520 and above rounds to infinity */
    result = ls_select(magnitude > 0x7f800000, 0x7e00u, result);  /* NaN */
    return (uint16_t)(sign | result);
}

#endif
