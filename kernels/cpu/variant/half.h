/* Blocks: how kernels that compute in fp32 read and write activations of any type. A block of fp32 elements is used in
 * place. A block of fp16 or bf16 elements is converted to fp32 in a small buffer on the stack, which stays in the L1
 * cache.
 *     float in[LS_BLOCK], out[LS_BLOCK];
 *     for (size_t i = 0, count; (count = ls_block_count(dtype, total - i)) > 0; i += count) {
 *         const float *x = ls_block(dtype, a->x, i, count, in);
 *         float *y = ls_block_to_fill(dtype, a->y, i, out);
 *         ...
 *         ls_store_block(dtype, a->y, i, y, count);
 *     }
 * Converting to fp32 is exact; storing rounds, once. */
#ifndef LS_KERNELS_CPU_HALF_H
#define LS_KERNELS_CPU_HALF_H

#include "kernels/cpu/variant/variant.h"

/* Elements of the largest block: a multiple of LS_LANES. */
#define LS_BLOCK 1024

/* y = x, where x has the type `dtype`, fp16 or bf16. */
void LS_CPU(widen)(ls_dtype dtype, float *restrict y, const uint16_t *restrict x, size_t count);

/* y = x, rounded to `dtype`, fp16 or bf16. */
void LS_CPU(narrow)(ls_dtype dtype, uint16_t *restrict y, const float *restrict x, size_t count);

/* Elements of the next block if `rest` are left: all of them for fp32, else at most LS_BLOCK. */
static inline size_t ls_block_count(ls_dtype dtype, size_t rest) {
    return dtype == LS_FP32 || rest < LS_BLOCK ? rest : LS_BLOCK;
}

/* x[at] .. x[at + count - 1] as floats: fp32 in place, fp16 and bf16 in the buffer. */
static inline const float *ls_block(ls_dtype dtype, const void *x, size_t at, size_t count, float *buffer) {
    if (dtype == LS_FP32) return (const float *)x + at;
    LS_CPU(widen)(dtype, buffer, (const uint16_t *)x + at, count);
    return buffer;
}

/* The same for a y that the kernel changes and then stores. */
static inline float *ls_block_to_change(ls_dtype dtype, void *y, size_t at, size_t count, float *buffer) {
    if (dtype == LS_FP32) return (float *)y + at;
    LS_CPU(widen)(dtype, buffer, (const uint16_t *)y + at, count);
    return buffer;
}

/* Where to write a result for y[at] and on: into y itself if it is fp32; else into the buffer, which ls_store_block
 * rounds into y. */
static inline float *ls_block_to_fill(ls_dtype dtype, void *y, size_t at, float *buffer) {
    return dtype == LS_FP32 ? (float *)y + at : buffer;
}

static inline void ls_store_block(ls_dtype dtype, void *y, size_t at, const float *block, size_t count) {
    if (dtype != LS_FP32) LS_CPU(narrow)(dtype, (uint16_t *)y + at, block, count);
}

#endif
