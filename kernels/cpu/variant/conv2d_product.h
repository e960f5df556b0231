/* conv2d_product — the matrix multiplies of convolutions. Private to conv2d.c. */
#ifndef LS_KERNELS_CPU_VARIANT_CONV2D_PRODUCT_H
#define LS_KERNELS_CPU_VARIANT_CONV2D_PRODUCT_H

#include "kernels/cpu/variant/variant.h"

/* sums[r][c] = init[c] + sum over i of image[row_offset[r] + step_offset[i]] x matrix[i][c]
 *
 * Rows and steps both come in groups that share a line of the image: row group g and step group h read only line
 * g x row_lines + h x step_lines. Lines outside first_line .. end_line - 1 hold nothing but padding. */
struct ls_conv2d_product {
    const float *image, *matrix, *init;
    const int *row_offset, *step_offset;
    int rows, row_group, row_lines;
    int steps, step_group, step_lines;
    int first_line, end_line;
    int columns; /* a multiple of LS_CONV2D_CHANNEL_BLOCK */
    float *sums; /* [rows + LS_CONV2D_SPARE_ROWS][columns] */
};

void LS_CPU(conv2d_run_product)(const struct ls_conv2d_product *product);

#endif
