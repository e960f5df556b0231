/* Products of small matrices in fp32, and transposition. Every sum is one chain of fused multiply-adds in ascending order. */
#ifndef LS_KERNELS_CPU_VARIANT_PRODUCT_H
#define LS_KERNELS_CPU_VARIANT_PRODUCT_H

#include "kernels/cpu/variant/variant.h"

#define LS_PRODUCT_MOST_COLUMNS 128

/* What of a product is computed: all of it; or of a lower triangular result (columns up to the row's own number) what is
 * not above its diagonal, rounded up; or what is not a product with zeros, of a lower or upper triangular left matrix. */
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

/* to[c][r] = from[r][c]; strides are the distance of two lines in floats. */
void LS_CPU(transpose)(const float *from, int from_stride, int rows, int columns, float *to, int to_stride);

#endif
