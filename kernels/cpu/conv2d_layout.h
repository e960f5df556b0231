/* conv2d_layout — how the convolution's workspace is divided, from its shape. Nothing here depends on the vector width,
 * so that one workspace serves every build. */
#ifndef LS_KERNELS_CPU_CONV2D_LAYOUT_H
#define LS_KERNELS_CPU_CONV2D_LAYOUT_H

#include "kernels/kernels.h"

/* Channels are rounded up to this many, the widest vector. */
#define LS_CONV2D_CHANNEL_BLOCK 16
/* Spare rows of sums, since the last tile is rounded up: at least the rows of any build's tile. */
#define LS_CONV2D_SPARE_ROWS 48

struct ls_conv2d_layout {
    int out_height, out_width, in_pixels, out_pixels;
    int in_columns, out_columns; /* channels rounded up */
    int pad_height, pad_width;   /* x with its border */
    int wide_height, wide_width; /* dy spread by the stride, with the border that backward data needs */
    int taps;                    /* in_channels x kernel_h x kernel_w */
    int back_taps;               /* out_channels x kernel_h x kernel_w */
    /* the parts of the workspace, in this order: floats (the offsets: ints), each a multiple of 16 */
    size_t image_count, matrix_count, sums_count, total_count, init_count, wide_count, offsets_count;
};

/* LS_ERR_INVALID if the shape has no output or one image's parts have more elements than an int counts. */
ls_status ls_conv2d_make_layout(const struct ls_conv2d_shape *shape, struct ls_conv2d_layout *layout);

#endif
