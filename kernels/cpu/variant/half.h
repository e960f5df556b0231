/* Activations of any type for kernels that are written in fp32: these work on blocks, which lie where they are if the
 * type is fp32, and in a small buffer on the stack, in the L1 cache, if it is a half type.
 *     float in[LS_BLOCK], out[LS_BLOCK];
 *     for (size_t i = 0, count; (count = ls_block_count(dtype, total - i)) > 0; i += count) {
 *         const float *x = ls_block(dtype, a->x, i, count, in);
 *         float *y = ls_block_to_fill(dtype, a->y, i, out);
 *         ...
 *         ls_store_block(dtype, a->y, i, y, count);
 *     }
 * Widening is exact; storing rounds, once. */
#ifndef LS_KERNELS_CPU_HALF_H
#define LS_KERNELS_CPU_HALF_H

#include "kernels/cpu/variant/variant.h"

/* Elements of the largest block: a multiple of LS_LANES. */
#define LS_BLOCK 1024

/* y = x, of the half type `dtype`. */
void LS_CPU(widen)(ls_dtype dtype, float *restrict y, const uint16_t *restrict x, size_t count);

/* y = x, rounded to the half type `dtype`. */
void LS_CPU(narrow)(ls_dtype dtype, uint16_t *restrict y, const float *restrict x, size_t count);

/* Elements of the next block where `rest` are left: all of them if they are fp32. */
static inline size_t ls_block_count(ls_dtype dtype, size_t rest) {
    return dtype == LS_FP32 || rest < LS_BLOCK ? rest : LS_BLOCK;
}

/* The `count` elements of x from place `at` on, in the buffer unless they are fp32. */
static inline const float *ls_block(ls_dtype dtype, const void *x, size_t at, size_t count, float *buffer) {
    if (dtype == LS_FP32) return (const float *)x + at;
    LS_CPU(widen)(dtype, buffer, (const uint16_t *)x + at, count);
    return buffer;
}

/* Where a result is to be written that ls_store_block then puts to y, from place `at` on. */
static inline float *ls_block_to_fill(ls_dtype dtype, void *y, size_t at, float *buffer) {
    return dtype == LS_FP32 ? (float *)y + at : buffer;
}

static inline void ls_store_block(ls_dtype dtype, void *y, size_t at, const float *block, size_t count) {
    if (dtype != LS_FP32) LS_CPU(narrow)(dtype, (uint16_t *)y + at, block, count);
}

#endif
