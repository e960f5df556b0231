/* Activations of any type for kernels that are written in fp32: they work on blocks, which lie where they are if the
 * type is fp32, and in a small buffer on the stack, in the L1 cache, if it is a half type.
 *   float buffer[LS_BLOCK];
 *   const float *x = ls_block(dtype, a->x, at, count, buffer);          count <= LS_BLOCK, or any for fp32
 *   float *y = ls_block_to_fill(dtype, a->y, at, buffer);  ...  ls_store_block(dtype, a->y, at, y, count);
 * `at` and `count` are elements. Widening is exact; storing rounds, once. The processor's conversions of fp16, where
 * this build may use them, give the bits of dtype.h, quiet NaNs included. */
#ifndef LS_KERNELS_CPU_HALF_H
#define LS_KERNELS_CPU_HALF_H

#include "kernels/cpu/variant/variant.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

/* Elements of a block: a multiple of LS_LANES. */
#define LS_BLOCK 1024

/* Kernels step through `count` elements in pieces of so many: all at once if the type is fp32. */
static inline size_t ls_block_count(ls_dtype dtype, size_t count) {
    return dtype == LS_FP32 || count < LS_BLOCK ? count : LS_BLOCK;
}

/* --- rows of halves ---------------------------------------------------------------------------------------------- */

static inline void ls_widen_fp16(float *restrict y, const uint16_t *restrict x, size_t count) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
#endif
    for (; i < count; i++) y[i] = ls_fp16_to_float(x[i]);
}

static inline void ls_narrow_fp16(uint16_t *restrict y, const float *restrict x, size_t count) {
    size_t i = 0;
#ifdef __F16C__
    const __m128i magnitude = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00),
                  payload = _mm_set1_epi16(0x01ff);
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i is_nan = _mm_cmpgt_epi16(_mm_and_si128(half, magnitude), infinity);
        half = _mm_andnot_si128(_mm_and_si128(is_nan, payload), half); /* 0x7e00 remains, as in ls_fp16_from_float */
        _mm_storeu_si128((__m128i *)(void *)(y + i), half);
    }
#endif
    for (; i < count; i++) y[i] = ls_fp16_from_float(x[i]);
}

static inline void ls_widen_bf16(float *restrict y, const uint16_t *restrict x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = ls_bf16_to_float(x[i]);
}

static inline void ls_narrow_bf16(uint16_t *restrict y, const float *restrict x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = ls_bf16_from_float(x[i]);
}

/* y = x; x is of the half type `dtype`. */
static inline void ls_widen(ls_dtype dtype, float *restrict y, const uint16_t *restrict x, size_t count) {
    if (dtype == LS_FP16) ls_widen_fp16(y, x, count);
    if (dtype == LS_BF16) ls_widen_bf16(y, x, count);
}

/* y = x, rounded to the half type `dtype`. */
static inline void ls_narrow(ls_dtype dtype, uint16_t *restrict y, const float *restrict x, size_t count) {
    if (dtype == LS_FP16) ls_narrow_fp16(y, x, count);
    if (dtype == LS_BF16) ls_narrow_bf16(y, x, count);
}

/* --- blocks ------------------------------------------------------------------------------------------------------ */

static inline const float *ls_block(ls_dtype dtype, const void *x, size_t at, size_t count, float *buffer) {
    if (dtype == LS_FP32) return (const float *)x + at;
    ls_widen(dtype, buffer, (const uint16_t *)x + at, count);
    return buffer;
}

static inline float *ls_block_to_fill(ls_dtype dtype, void *y, size_t at, float *buffer) {
    return dtype == LS_FP32 ? (float *)y + at : buffer;
}

static inline void ls_store_block(ls_dtype dtype, void *y, size_t at, const float *block, size_t count) {
    if (dtype != LS_FP32) ls_narrow(dtype, (uint16_t *)y + at, block, count);
}

#endif
