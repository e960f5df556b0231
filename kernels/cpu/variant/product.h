/* Small matrix multiplies in fp32, and transposition. Every sum is one chain of ascending fused multiply-adds. */
#ifndef LS_KERNELS_CPU_VARIANT_PRODUCT_H
#define LS_KERNELS_CPU_VARIANT_PRODUCT_H

#include "kernels/cpu/variant/variant.h"

#define LS_PRODUCT_MOST_COLUMNS 128

/* The part of a product that is computed: all of it; for a lower triangular result, the columns up to the diagonal,
 * rounded up to whole vectors; for a lower or upper triangular left matrix, the terms that are not products with its
 * zeros. */
enum ls_triangle { LS_WHOLE, LS_LOWER_RESULT, LS_LOWER_LEFT, LS_UPPER_LEFT };

/* result[r][c] (+)= sum over i of left[r x left_row + i x left_step] x right[i][c] */
struct ls_product {
    const float *left, *right;
    size_t left_row, left_step, right_stride;
    size_t rows, steps;
    size_t columns; /* a multiple of LS_LANES, at most LS_PRODUCT_MOST_COLUMNS */
    float *result;
    size_t result_stride;
    bool add;
    enum ls_triangle triangle;
};

void LS_CPU(multiply)(const struct ls_product *product);

/* to[c][r] = from[r][c]; a stride is the distance of two rows, in floats. */
void LS_CPU(transpose)(const float *from, int from_stride, int rows, int columns, float *to, int to_stride);

#endif
