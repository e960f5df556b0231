/* product_tile — the inner loop of all products that are not oneDNN's: a tile of sums in registers.
 *   idea  : ROWS x 2 vectors of sums. A step reads two vectors of the right matrix and, for each row, one float of the
 *           left one, which it multiplies with both
 *   cost  : a step takes ROWS broadcasts and 2 ROWS multiply-adds; the multiply-adds are the limit
 *   order : every sum is one chain of fused multiply-adds over the steps in ascending order, starting at init; then -0
 *           becomes +0. Lanes and rows are independent sums, so for finite operands no bit depends on LANES or ROWS
 * Private to conv2d_product.c and product.c. */
#ifndef LS_KERNELS_CPU_VARIANT_PRODUCT_TILE_H
#define LS_KERNELS_CPU_VARIANT_PRODUCT_TILE_H

#include "kernels/cpu/variant/variant.h"

/* LANES and ROWS: as many as 2 ROWS sums fit into the registers (32 of 64 bytes, 16 of 32 or 16). They change no
 * bits. */
#if defined(__AVX512F__)
#define LANES 16
#if defined(__clang__)
#define ROWS 10 /* clang 14 spills more than 20 of the 32 registers */
#else
#define ROWS 13
#endif
#else
#if defined(__AVX__)
#define LANES 8
#else
#define LANES 4 /* on x86 without FMA every fmaf is a call: correct and slow */
#endif
#define ROWS 6
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

/* Written lane by lane so that it is a fused multiply-add by the language; gcc and clang make one instruction of it. */
ALWAYS_INLINE vector fma_vector(vector a, float b, vector c) {
    for (int lane = 0; lane < LANES; lane++) c[lane] = __builtin_fmaf(a[lane], b, c[lane]);
    return c;
}

struct tile {
    const int *step_offset; /* of step i in the left matrix; NULL: i x step_stride */
    size_t step_stride, steps;
    const float *matrix; /* the right one */
    size_t matrix_stride;
    const float *init; /* a row of the first sums for all rows, or with init_stride one for each row; may be sums */
    size_t init_stride;
    float *sums;
    size_t sums_stride;
};

/* sums[r][c] = init[c] + sum over i of source[r][offset of i] x matrix[i][c], of 1 or 2 vectors of columns from `column`
 * on. `vectors` and `offsets` are constants in each caller; the sums are two arrays, because clang keeps one array of
 * pairs in memory. */
ALWAYS_INLINE void multiply_tile(const struct tile *t, const float *const source[ROWS], size_t column, int vectors,
                                 bool offsets) {
    const float *matrix = t->matrix + column, *init = t->init + column;
    float *out = t->sums + column;
    vector low[ROWS], high[ROWS], low_value, high_value;
#pragma GCC unroll 16 /* or the sums pass through memory */
    for (int row = 0; row < ROWS; row++, init += t->init_stride) {
        memcpy(&low[row], init, sizeof(vector));
        if (vectors == 2) memcpy(&high[row], init + LANES, sizeof(vector));
    }
    for (size_t step = 0; step < t->steps; step++, matrix += t->matrix_stride) {
        size_t offset = offsets ? (size_t)t->step_offset[step] : step * t->step_stride;
        memcpy(&low_value, matrix, sizeof(vector));
        if (vectors == 2) memcpy(&high_value, matrix + LANES, sizeof(vector));
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++) {
            low[row] = fma_vector(low_value, source[row][offset], low[row]);
            if (vectors == 2) high[row] = fma_vector(high_value, source[row][offset], high[row]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++, out += t->sums_stride) {
        low[row] += 0.0f; /* -0 becomes +0 */
        memcpy(out, &low[row], sizeof(vector));
        if (vectors == 2) {
            high[row] += 0.0f;
            memcpy(out + LANES, &high[row], sizeof(vector));
        }
    }
}

/* ROWS rows of so many columns, a multiple of 16. */
ALWAYS_INLINE void multiply_row_of_tiles(const struct tile *t, const float *const source[ROWS], int columns,
                                         bool offsets) {
    int column = 0;
    for (; column + 2 * LANES <= columns; column += 2 * LANES) multiply_tile(t, source, (size_t)column, 2, offsets);
    if (column < columns) multiply_tile(t, source, (size_t)column, 1, offsets);
}

#endif
