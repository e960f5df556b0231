/* conv2d_product — a product whose left matrix is read through two offset tables.
 *   idea  : ROWS x 2 vectors of sums stay in registers. A step reads two vectors of the matrix and, for each row, one
 *           float of the image, which it multiplies with both
 *   cost  : a step takes ROWS broadcasts and 2 ROWS multiply-adds; the multiply-adds are the limit. Steps in which a
 *           tile meets only padding, above or below the image, are a range at either end and are skipped (9 % for 5x5
 *           on 14x14). Waste: rows rounded up to ROWS
 *   order : every sum is one chain of fused multiply-adds over the steps in ascending order, starting at init. Lanes
 *           and rows are independent sums, so for finite operands no bit depends on LANES or ROWS. (ROWS decides which
 *           products with padding are skipped. Such a product adds a zero, which can change only the sign of a zero
 *           sum, so -0 becomes +0 in the end. An infinite weight times padding may or may not give NaN.) */
#include "kernels/cpu/variant/conv2d_product.h"

/* LANES and ROWS: as many as 2 ROWS sums fit into the registers (32 of 64 bytes, 16 of 32 or 16). They change no
 * bits. */
#if defined(__AVX512F__)
#define LANES 16
#if defined(__clang__)
#define ROWS 10 /* clang 14 spills more than 20 of the 32 registers */
#else
#define ROWS 14
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
typedef float quad __attribute__((vector_size(16)));

/* Written lane by lane so that it is a fused multiply-add by the language; gcc and clang make one instruction of it. */
ALWAYS_INLINE vector fma_vector(vector a, float b, vector c) {
    for (int lane = 0; lane < LANES; lane++) c[lane] = __builtin_fmaf(a[lane], b, c[lane]);
    return c;
}

/* ROWS x vectors sums over steps begin .. end - 1, in registers. `vectors` (1 or 2) is a constant in each caller; the
 * sums are two arrays, because clang keeps one array of pairs in memory. */
ALWAYS_INLINE void tile(const struct ls_conv2d_product *p, const float *const source[ROWS], int vectors, int begin,
                        int end, int column, float *out) {
    size_t stride = (size_t)p->columns;
    const float *matrix = p->matrix + (size_t)begin * stride + column;
    vector low[ROWS], high[ROWS], low_value, high_value;
    for (int row = 0; row < ROWS; row++) {
        memcpy(&low[row], p->init + column, sizeof(vector));
        if (vectors == 2) memcpy(&high[row], p->init + column + LANES, sizeof(vector));
    }
    for (int step = begin; step < end; step++, matrix += stride) {
        int offset = p->step_offset[step];
        memcpy(&low_value, matrix, sizeof(vector));
        if (vectors == 2) memcpy(&high_value, matrix + LANES, sizeof(vector));
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++) {
            low[row] = fma_vector(low_value, source[row][offset], low[row]);
            if (vectors == 2) high[row] = fma_vector(high_value, source[row][offset], high[row]);
        }
    }
    for (int row = 0; row < ROWS; row++, out += stride) {
        low[row] += 0.0f; /* -0 becomes +0 */
        memcpy(out, &low[row], sizeof(vector));
        if (vectors == 2) {
            high[row] += 0.0f;
            memcpy(out + LANES, &high[row], sizeof(vector));
        }
    }
}

void LS_CPU(conv2d_run_product)(const struct ls_conv2d_product *p) {
    for (int first = 0; first < p->rows; first += ROWS) {
        /* The last tile repeats the last row; its surplus sums lie in the spare rows. */
        int last = first + ROWS < p->rows ? first + ROWS - 1 : p->rows - 1;
        const float *source[ROWS];
        for (int row = 0; row < ROWS; row++) {
            source[row] = p->image + p->row_offset[first + row < last ? first + row : last];
        }
        /* Steps that meet only padding for every row of the tile would add zeros. */
        int low = first / p->row_group * p->row_lines, high = last / p->row_group * p->row_lines;
        int begin = 0, end = p->steps / p->step_group;
        while (begin < end && begin * p->step_lines + high < p->first_line) begin++;
        while (begin < end && (end - 1) * p->step_lines + low >= p->end_line) end--;
        begin *= p->step_group;
        end *= p->step_group;
        float *out = p->sums + (size_t)first * (size_t)p->columns;
        int column = 0;
        for (; column + 2 * LANES <= p->columns; column += 2 * LANES) {
            tile(p, source, 2, begin, end, column, out + column);
        }
        if (column < p->columns) tile(p, source, 1, begin, end, column, out + column);
    }
}

/* 4x4 values; strides in floats. */
ALWAYS_INLINE void transpose_block(const float *from, size_t from_stride, float *to, size_t to_stride) {
    quad a, b, c, d;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + from_stride, sizeof b);
    memcpy(&c, from + 2 * from_stride, sizeof c);
    memcpy(&d, from + 3 * from_stride, sizeof d);
    quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    memcpy(to, &a, sizeof a);
    memcpy(to + to_stride, &b, sizeof b);
    memcpy(to + 2 * to_stride, &c, sizeof c);
    memcpy(to + 3 * to_stride, &d, sizeof d);
}

void LS_CPU(conv2d_transpose)(const float *from, int from_stride, int rows, int columns, float *to, int to_stride) {
    size_t fs = (size_t)from_stride, ts = (size_t)to_stride;
    int row = 0;
    for (; row + 4 <= rows; row += 4) {
        const float *f = from + (size_t)row * fs;
        float *t = to + row;
        int column = 0;
        for (; column + 4 <= columns; column += 4, f += 4, t += 4 * ts) transpose_block(f, fs, t, ts);
        for (; column < columns; column++, f++, t += ts) {
            for (size_t k = 0; k < 4; k++) t[k] = f[k * fs];
        }
    }
    for (; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            to[(size_t)column * ts + (size_t)row] = from[(size_t)row * fs + (size_t)column];
        }
    }
}
