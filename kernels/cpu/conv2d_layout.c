/* conv2d_layout — sizes of one image's operands, which kernels/cpu/variant/conv2d.c describes. */
#include "kernels/cpu/conv2d_layout.h"

#include "kernels/cpu/cpu.h"

#include <limits.h>

#include "common/base/log.h"

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* Fills the layout; false if the shape has no output or is too large. */
static bool fill_layout(const struct ls_conv2d_shape *s, struct ls_conv2d_layout *l) {
    if (s->batch < 0 || s->in_channels < 1 || s->out_channels < 1 || s->kernel_h < 1 || s->kernel_w < 1 ||
        s->stride < 1 || s->padding < 0 || s->in_height < 1 || s->in_width < 1) {
        return false;
    }
    l->pad_height = s->in_height + 2 * s->padding;
    l->pad_width = s->in_width + 2 * s->padding;
    if (l->pad_height < s->kernel_h || l->pad_width < s->kernel_w) return false;
    l->out_height = ls_conv2d_out_height(s);
    l->out_width = ls_conv2d_out_width(s);
    l->wide_height = s->in_height + s->kernel_h - 1;
    l->wide_width = s->in_width + s->kernel_w - 1;
    size_t in_columns = round_up((size_t)s->in_channels, LS_CONV2D_CHANNEL_BLOCK);
    size_t out_columns = round_up((size_t)s->out_channels, LS_CONV2D_CHANNEL_BLOCK);
    size_t area = (size_t)s->kernel_h * (size_t)s->kernel_w;
    size_t taps = (size_t)s->in_channels * area, back_taps = (size_t)s->out_channels * area;
    size_t in_pixels = (size_t)s->in_height * (size_t)s->in_width;
    size_t out_pixels = (size_t)l->out_height * (size_t)l->out_width;
    size_t padded = (size_t)s->in_channels * (size_t)l->pad_height * (size_t)l->pad_width;
    size_t wide = (size_t)s->out_channels * (size_t)l->wide_height * (size_t)l->wide_width;
    l->image_count = round_up(max_size(padded, wide), 16);
    l->matrix_count = max_size(max_size(taps, out_pixels) * out_columns, back_taps * in_columns);
    l->sums_count = max_size((max_size(out_pixels, taps) + LS_CONV2D_SPARE_ROWS) * out_columns,
                             (in_pixels + LS_CONV2D_SPARE_ROWS) * in_columns);
    l->total_count = (taps + 1) * out_columns;
    l->init_count = max_size(in_columns, out_columns);
    size_t in_image = (size_t)s->in_channels * in_pixels, out_image = (size_t)s->out_channels * out_pixels;
    l->wide_count = s->dtype == LS_FP32 ? 0 : round_up(max_size(in_image, out_image), 16);
    l->offsets_count = round_up(max_size(out_pixels + taps, in_pixels + back_taps), 16);
    size_t largest = max_size(max_size(l->image_count, l->matrix_count), max_size(l->sums_count, l->offsets_count));
    if (largest > INT_MAX) return false;
    l->in_columns = (int)in_columns;
    l->out_columns = (int)out_columns;
    l->taps = (int)taps;
    l->back_taps = (int)back_taps;
    l->in_pixels = (int)in_pixels;
    l->out_pixels = (int)out_pixels;
    return true;
}

ls_status ls_conv2d_make_layout(const struct ls_conv2d_shape *s, struct ls_conv2d_layout *l) {
    if (fill_layout(s, l)) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "conv2d of a %dx%d image with a %dx%d kernel, stride %d and padding %d (%d to %d channels) has no "
                   "output or is too large for one image's workspace",
                   s->in_height, s->in_width, s->kernel_h, s->kernel_w, s->stride, s->padding, s->in_channels,
                   s->out_channels);
}

/* 0 if the shape has no output: the operations themselves report that. */
size_t ls_cpu_conv2d_workspace_nbytes(const struct ls_conv2d_shape *s) {
    struct ls_conv2d_layout l;
    if (!fill_layout(s, &l)) return 0;
    size_t floats = l.image_count + l.matrix_count + l.sums_count + l.total_count + l.init_count + l.wide_count;
    return floats * sizeof(float) + l.offsets_count * sizeof(int);
}
