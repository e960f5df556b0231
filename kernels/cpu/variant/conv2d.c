/* conv2d — 2-d convolution in NCHW: forward, gradient of the input, gradients of weights and bias.
 *   idea  : all three are one product (conv2d_product.h) with two offset tables in place of an im2col matrix:
 *
 *           sums[r][c] = init[c] + sum over i of image[row_offset[r] + step_offset[i]] x matrix[i][c]
 *
 *           forward           r = output pixel   i = tap (kh, ic, kw)   c = out channel   image = padded x, matrix = w
 *           backward weights  r = tap            i = output pixel       c = out channel   image = padded x, matrix = dy^T
 *           backward data     r = input pixel    i = tap (kh, oc, kw)   c = in channel    image = dy spread by the stride
 *
 *           Vectors run along the channels, and `image` is read one float at a time. So one inner loop serves every
 *           kernel, stride, padding and size, without gathers. kh is outermost, so that taps that read only padding
 *           are a range
 *   half  : an image is widened into `wide` before it is packed, and a result is rounded from `wide`; fp32 needs no
 *           `wide`. Weights are widened into `sums`, before it holds any
 *   cost  : one product per image, plus one pass in 4x4 blocks that transposes NCHW to pixel-major or back. Waste:
 *           channels round up to 16; backward data with stride s also multiplies the zeros between the spread dy (s x s
 *           times the work). The operands of one image (about 100 KB for 16 -> 32 channels of 14x14) fit into the L2
 *           cache
 *   order : one chain of fused multiply-adds per sum, in the order of i. Weight and bias gradients are one such chain
 *           per image, and the images' results are added in batch order. No result of one image depends on another
 *           image or on its position in the batch */
#include "kernels/cpu/conv2d_layout.h"
#include "kernels/cpu/variant/conv2d_product.h"
#include "kernels/cpu/variant/half.h"
#include "kernels/cpu/variant/product.h"

/* The parts of the caller's workspace. */
struct parts {
    float *image, *matrix, *sums, *total, *init, *wide;
    int *offsets;
};

static struct parts split(const struct ls_conv2d_layout *l, void *workspace) {
    struct parts p;
    p.image = workspace;
    p.matrix = p.image + l->image_count;
    p.sums = p.matrix + l->matrix_count;
    p.total = p.sums + l->sums_count;
    p.init = p.total + l->total_count;
    p.wide = p.init + l->init_count;
    p.offsets = (int *)(void *)(p.wide + l->wide_count);
    /* borders and padding channels are read as zeros and never written again */
    memset(p.image, 0, l->image_count * sizeof(float));
    memset(p.matrix, 0, l->matrix_count * sizeof(float));
    memset(p.init, 0, l->init_count * sizeof(float));
    return p;
}

static size_t in_image(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l) {
    return (size_t)s->in_channels * (size_t)l->in_pixels;
}

static size_t out_image(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l) {
    return (size_t)s->out_channels * (size_t)l->out_pixels;
}

/* One axis of an offset table: `count` positions, `stride` floats apart. */
struct axis {
    int count, stride;
};

static int *fill_offsets(int *out, struct axis a, struct axis b, struct axis c) {
    for (int i = 0; i < a.count; i++) {
        for (int j = 0; j < b.count; j++) {
            for (int k = 0; k < c.count; k++) *out++ = i * a.stride + j * b.stride + k * c.stride;
        }
    }
    return out;
}

/* Copies one image into the middle of its zero border. */
static void pad_image(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l, const float *x, float *image) {
    size_t row_nbytes = (size_t)s->in_width * sizeof(float);
    float *to = image + (size_t)s->padding * (size_t)l->pad_width + (size_t)s->padding;
    for (int c = 0; c < s->in_channels; c++) {
        for (int h = 0; h < s->in_height; h++, x += s->in_width, to += l->pad_width) memcpy(to, x, row_nbytes);
        to += 2 * (size_t)s->padding * (size_t)l->pad_width;
    }
}

/* dy[oh][ow] goes to (oh x stride + kernel_h - 1 - padding, ...); values outside of the image touch no input pixel. */
static void spread_image(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l, const float *dy,
                         float *image) {
    int left = s->kernel_w - 1 - s->padding;
    for (int c = 0; c < s->out_channels; c++, image += (size_t)l->wide_height * (size_t)l->wide_width) {
        for (int oh = 0; oh < l->out_height; oh++, dy += l->out_width) {
            int h = oh * s->stride + s->kernel_h - 1 - s->padding;
            if (h < 0 || h >= l->wide_height) continue;
            float *row = image + (size_t)h * (size_t)l->wide_width;
            if (s->stride == 1 && left >= 0) {
                memcpy(row + left, dy, (size_t)l->out_width * sizeof(float));
                continue;
            }
            for (int ow = 0; ow < l->out_width; ow++) {
                int w = ow * s->stride + left;
                if (w >= 0 && w < l->wide_width) row[w] = dy[ow];
            }
        }
    }
}

/* Offset tables of forward and of the weight gradient, in padded x: output pixels, then taps (kh, ic, kw). */
static const int *fill_tables(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l, int *offsets) {
    int *taps = fill_offsets(offsets, (struct axis){l->out_height, s->stride * l->pad_width}, (struct axis){1, 0},
                             (struct axis){l->out_width, s->stride});
    fill_offsets(taps, (struct axis){s->kernel_h, l->pad_width},
                 (struct axis){s->in_channels, l->pad_height * l->pad_width}, (struct axis){s->kernel_w, 1});
    return taps;
}

static size_t weights(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l) {
    return (size_t)s->out_channels * (size_t)l->taps;
}

/* The offset of w[0][channel][h][0] */
static size_t weight_row(const struct ls_conv2d_shape *s, int channel, int h) {
    return ((size_t)channel * (size_t)s->kernel_h + (size_t)h) * (size_t)s->kernel_w;
}

ls_status LS_CPU(conv2d_forward)(const struct ls_conv2d_forward_arguments *a) {
    const struct ls_conv2d_shape *s = &a->shape;
    struct ls_conv2d_layout l;
    ls_status status = ls_conv2d_make_layout(s, &l);
    if (status != LS_OK) return status;
    struct parts p = split(&l, a->workspace);
    const int *taps = fill_tables(s, &l, p.offsets);
    const float *w = ls_block(s->dtype, a->w, 0, weights(s, &l), p.sums);
    float *matrix = p.matrix;
    for (int h = 0; h < s->kernel_h; h++) {
        for (int c = 0; c < s->in_channels; c++, matrix += (size_t)s->kernel_w * (size_t)l.out_columns) {
            LS_CPU(transpose)
            (w + weight_row(s, c, h), l.taps, s->out_channels, s->kernel_w, matrix, l.out_columns);
        }
    }
    if (a->bias != NULL) {
        size_t count = (size_t)s->out_channels;
        memcpy(p.init, ls_block(s->dtype, a->bias, 0, count, p.wide), count * sizeof(float));
    }
    struct ls_conv2d_product product = {
        .image = p.image,
        .matrix = p.matrix,
        .init = p.init,
        .row_offset = p.offsets,
        .step_offset = taps,
        .rows = l.out_pixels,
        .row_group = l.out_width,
        .row_lines = s->stride,
        .steps = l.taps,
        .step_group = s->in_channels * s->kernel_w,
        .step_lines = 1,
        .first_line = s->padding,
        .end_line = s->padding + s->in_height,
        .columns = l.out_columns,
        .sums = p.sums,
    };
    size_t in = in_image(s, &l), out = out_image(s, &l);
    for (int n = 0; n < s->batch; n++) {
        pad_image(s, &l, ls_block(s->dtype, a->x, (size_t)n * in, in, p.wide), p.image);
        LS_CPU(conv2d_run_product)(&product);
        float *y = ls_block_to_fill(s->dtype, a->y, (size_t)n * out, p.wide);
        LS_CPU(transpose)(p.sums, l.out_columns, l.out_pixels, s->out_channels, y, l.out_pixels);
        ls_store_block(s->dtype, a->y, (size_t)n * out, y, out);
    }
    return LS_OK;
}

/* The kernel rotated by 180 degrees: [tap (kh, oc, kw)][in channel] */
static void turn_weights(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l, const float *w,
                         float *matrix) {
    size_t area = (size_t)s->kernel_h * (size_t)s->kernel_w;
    for (int h = s->kernel_h - 1; h >= 0; h--) {
        for (int c = 0; c < s->out_channels; c++) {
            const float *from = w + (size_t)c * (size_t)l->taps + weight_row(s, 0, h);
            for (int v = s->kernel_w - 1; v >= 0; v--, matrix += l->in_columns) {
                for (int i = 0; i < s->in_channels; i++) matrix[i] = from[(size_t)i * area + (size_t)v];
            }
        }
    }
}

ls_status LS_CPU(conv2d_backward_data)(const struct ls_conv2d_backward_data_arguments *a) {
    const struct ls_conv2d_shape *s = &a->shape;
    struct ls_conv2d_layout l;
    ls_status status = ls_conv2d_make_layout(s, &l);
    if (status != LS_OK) return status;
    struct parts p = split(&l, a->workspace);
    int *taps = fill_offsets(p.offsets, (struct axis){s->in_height, l.wide_width}, (struct axis){1, 0},
                             (struct axis){s->in_width, 1});
    fill_offsets(taps, (struct axis){s->kernel_h, l.wide_width},
                 (struct axis){s->out_channels, l.wide_height * l.wide_width}, (struct axis){s->kernel_w, 1});
    turn_weights(s, &l, ls_block(s->dtype, a->w, 0, weights(s, &l), p.sums), p.matrix);
    int first_line = s->kernel_h - 1 - s->padding;
    struct ls_conv2d_product product = {
        .image = p.image,
        .matrix = p.matrix,
        .init = p.init,
        .row_offset = p.offsets,
        .step_offset = taps,
        .rows = l.in_pixels,
        .row_group = s->in_width,
        .row_lines = 1,
        .steps = l.back_taps,
        .step_group = s->out_channels * s->kernel_w,
        .step_lines = 1,
        .first_line = first_line,
        .end_line = first_line + (l.out_height - 1) * s->stride + 1,
        .columns = l.in_columns,
        .sums = p.sums,
    };
    size_t in = in_image(s, &l), out = out_image(s, &l);
    for (int n = 0; n < s->batch; n++) {
        spread_image(s, &l, ls_block(s->dtype, a->dy, (size_t)n * out, out, p.wide), p.image);
        LS_CPU(conv2d_run_product)(&product);
        float *dx = ls_block_to_fill(s->dtype, a->dx, (size_t)n * in, p.wide);
        LS_CPU(transpose)(p.sums, l.in_columns, l.in_pixels, s->in_channels, dx, l.in_pixels);
        ls_store_block(s->dtype, a->dx, (size_t)n * in, dx, in);
    }
    return LS_OK;
}

/* One image's bias gradient: its dy^T summed over the pixels, then added to the total. */
static void add_bias_gradient(const struct ls_conv2d_layout *l, const float *matrix, float *total) {
    for (int c = 0; c < l->out_columns; c += LS_CONV2D_CHANNEL_BLOCK) {
        float sum[LS_CONV2D_CHANNEL_BLOCK] = {0};
        const float *value = matrix + c;
        for (int pixel = 0; pixel < l->out_pixels; pixel++, value += l->out_columns) {
            for (int k = 0; k < LS_CONV2D_CHANNEL_BLOCK; k++) sum[k] += value[k];
        }
        for (int k = 0; k < LS_CONV2D_CHANNEL_BLOCK; k++) total[c + k] += sum[k];
    }
}

static void put(float *to, const float *from, size_t count, bool accumulate) {
    for (size_t i = 0; i < count; i++) to[i] = accumulate ? to[i] + from[i] : from[i];
}

/* Rearranges the totals [tap (kh, ic, kw)][out channel] into the order of w, through `scratch`. */
static void put_weight_gradient(const struct ls_conv2d_shape *s, const struct ls_conv2d_layout *l, float *dw,
                                const float *total, float *scratch, bool accumulate) {
    for (int h = 0; h < s->kernel_h; h++) {
        for (int c = 0; c < s->in_channels; c++, total += (size_t)s->kernel_w * (size_t)l->out_columns) {
            LS_CPU(transpose)
            (total, l->out_columns, s->kernel_w, s->out_channels, scratch + weight_row(s, c, h), l->taps);
        }
    }
    put(dw, scratch, (size_t)l->taps * (size_t)s->out_channels, accumulate);
}

ls_status LS_CPU(conv2d_backward_weights)(const struct ls_conv2d_backward_weights_arguments *a) {
    const struct ls_conv2d_shape *s = &a->shape;
    struct ls_conv2d_layout l;
    ls_status status = ls_conv2d_make_layout(s, &l);
    if (status != LS_OK) return status;
    struct parts p = split(&l, a->workspace);
    const int *taps = fill_tables(s, &l, p.offsets);
    size_t sums = (size_t)l.taps * (size_t)l.out_columns;
    float *bias_total = p.total + sums;
    memset(p.total, 0, l.total_count * sizeof(float));
    struct ls_conv2d_product product = {
        .image = p.image,
        .matrix = p.matrix,
        .init = p.init,
        .row_offset = taps,
        .step_offset = p.offsets,
        .rows = l.taps,
        .row_group = s->in_channels * s->kernel_w,
        .row_lines = 1,
        .steps = l.out_pixels,
        .step_group = l.out_width,
        .step_lines = s->stride,
        .first_line = s->padding,
        .end_line = s->padding + s->in_height,
        .columns = l.out_columns,
        .sums = p.sums,
    };
    size_t in = in_image(s, &l), out = out_image(s, &l);
    for (int n = 0; n < s->batch; n++) {
        pad_image(s, &l, ls_block(s->dtype, a->x, (size_t)n * in, in, p.wide), p.image);
        const float *dy = ls_block(s->dtype, a->dy, (size_t)n * out, out, p.wide);
        LS_CPU(transpose)(dy, l.out_pixels, s->out_channels, l.out_pixels, p.matrix, l.out_columns);
        LS_CPU(conv2d_run_product)(&product);
        put(p.total, p.sums, sums, true);
        if (a->dbias != NULL) add_bias_gradient(&l, p.matrix, bias_total);
    }
    put_weight_gradient(s, &l, a->dw, p.total, p.sums, a->accumulate);
    if (a->dbias != NULL) put(a->dbias, bias_total, (size_t)s->out_channels, a->accumulate);
    return LS_OK;
}
