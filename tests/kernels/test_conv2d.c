/* The three convolutions against seven nested loops: floats within a tolerance, halves with integer values exactly,
 * because then only the result is rounded. Any stride, padding, kernel and batch; all algorithms of GPUs (direct,
 * unfolded, in pieces). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/conv2d_plan.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/backends.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct sizes {
    int out_height, out_width;
    size_t x, w, y;
};

static struct sizes sizes_of(const struct ls_conv2d_shape *s) {
    struct sizes z = {ls_conv2d_out_height(s), ls_conv2d_out_width(s), 0, 0, 0};
    z.x = (size_t)(s->batch * s->in_channels * s->in_height * s->in_width);
    z.w = (size_t)(s->out_channels * s->in_channels * s->kernel_h * s->kernel_w);
    z.y = (size_t)(s->batch * s->out_channels * z.out_height * z.out_width);
    return z;
}

/* Sums in double. */
struct reference {
    const float *x, *w, *dy;
    double *y, *dx, *dw, *dbias;
};

/* The inputs of one output element, and the elements that its gradient contributes to. */
static void reference_element(const struct ls_conv2d_shape *s, const struct reference *r, int n, int o, int oh, int ow,
                              size_t at) {
    double dy = (double)r->dy[at];
    r->dbias[o] += dy;
    for (int c = 0; c < s->in_channels; c++) {
        for (int kh = 0; kh < s->kernel_h; kh++) {
            for (int kw = 0; kw < s->kernel_w; kw++) {
                int h = oh * s->stride + kh - s->padding, v = ow * s->stride + kw - s->padding;
                if (h < 0 || v < 0 || h >= s->in_height || v >= s->in_width) continue;
                size_t xi = (size_t)(((n * s->in_channels + c) * s->in_height + h) * s->in_width + v);
                size_t wi = (size_t)(((o * s->in_channels + c) * s->kernel_h + kh) * s->kernel_w + kw);
                r->y[at] += (double)r->x[xi] * (double)r->w[wi];
                r->dx[xi] += dy * (double)r->w[wi];
                r->dw[wi] += dy * (double)r->x[xi];
            }
        }
    }
}

static void run_reference(const struct ls_conv2d_shape *s, const struct reference *r) {
    struct sizes z = sizes_of(s);
    size_t at = 0;
    for (int n = 0; n < s->batch; n++) {
        for (int o = 0; o < s->out_channels; o++) {
            for (int oh = 0; oh < z.out_height; oh++) {
                for (int ow = 0; ow < z.out_width; ow++) reference_element(s, r, n, o, oh, ow, at++);
            }
        }
    }
}

static double *zeros(size_t count) {
    double *values = calloc(count, sizeof *values);
    assert_non_null(values);
    return values;
}

static float *make_numbers(ls_dtype dtype, size_t count, uint64_t seed) {
    return dtype == LS_FP32 ? kernel_random(count, seed) : kernel_integers(count, seed, 40);
}

static void expect(const char *what, ls_dtype dtype, const void *got, const double *want, size_t count, double terms) {
    float *values = kernel_widened(dtype, got, count);
    if (dtype == LS_FP32) {
        kernel_expect_sum(what, values, want, count, terms);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float rounded = kernel_round(dtype, (float)want[i]);
        if (values[i] != rounded) fail_msg("%s[%zu] is %.9g, not %.9g", what, i, values[i], rounded);
    }
}

/* dw and dbias are floats for any type, and added to 1 if they accumulate. */
static void expect_gradient(const char *what, ls_dtype dtype, const float *got, double *want, size_t count,
                            double terms, bool accumulate) {
    for (size_t i = 0; i < count && accumulate; i++) want[i] += 1;
    if (dtype == LS_FP32) kernel_expect_sum(what, got, want, count, terms);
    for (size_t i = 0; i < count && dtype != LS_FP32; i++) {
        if ((double)got[i] != want[i]) fail_msg("%s[%zu] is %.9g, not %.9g", what, i, (double)got[i], want[i]);
    }
}

/* Arguments and outputs of an operation; void: elements of s.dtype. */
struct convolution {
    struct ls_conv2d_shape s;
    struct sizes z;
    float *bias_values;
    const void *x, *w, *bias, *dy;
    void *y, *dx;
    float *dw, *dbias;
    bool accumulate;
};

static struct convolution make(struct ls_conv2d_shape s, const float *x, const float *w, const float *dy,
                               bool with_bias, bool accumulate) {
    struct convolution c = {.s = s, .z = sizes_of(&s), .accumulate = accumulate};
    size_t channels = (size_t)s.out_channels;
    c.x = kernel_rounded(s.dtype, x, c.z.x), c.w = kernel_rounded(s.dtype, w, c.z.w);
    c.dy = kernel_rounded(s.dtype, dy, c.z.y);
    if (with_bias) c.bias_values = make_numbers(s.dtype, channels, 4);
    if (with_bias) c.bias = kernel_rounded(s.dtype, c.bias_values, channels);
    c.y = kernel_elements(s.dtype, c.z.y), c.dx = kernel_elements(s.dtype, c.z.x);
    c.dw = kernel_floats(c.z.w), c.dbias = with_bias ? kernel_floats(channels) : NULL;
    for (size_t i = 0; i < c.z.w && accumulate; i++) c.dw[i] = 1;
    for (size_t i = 0; i < channels && with_bias && accumulate; i++) c.dbias[i] = 1;
    return c;
}

static void run(const struct convolution *c) {
    ls_conv2d_forward(kernel_stream(), c->s, c->x, c->w, c->bias, c->y, NULL);
    kernel_done();
    ls_conv2d_backward_data(kernel_stream(), c->s, c->dy, c->w, c->dx, NULL);
    kernel_done();
    ls_conv2d_backward_weights(kernel_stream(), c->s, c->x, c->dy, c->dw, c->dbias, c->accumulate, NULL);
    kernel_done();
}

/* The same bits at any alignment of the arrays; at the same alignment only, if a GPU may round according to it. */
static void expect_again(const struct convolution *c, const float *x, const float *w, const float *dy, int turn) {
    struct convolution again = make(c->s, x, w, dy, c->bias, c->accumulate);
    size_t each = ls_dtype_nbytes(c->s.dtype), channels = (size_t)c->s.out_channels;
    kernel_align((kernel_alignment)((gpu_may_round("place") ? turn : turn + 1) % KERNEL_IN_TURN));
    run(&again);
    kernel_expect_same("y again", again.y, c->y, c->z.y * each);
    kernel_expect_same("dx again", again.dx, c->dx, c->z.x * each);
    kernel_expect_same("dw again", again.dw, c->dw, c->z.w * sizeof(float));
    if (c->dbias) kernel_expect_same("dbias again", again.dbias, c->dbias, channels * sizeof(float));
}

/* `turn` varies the settings that do not depend on the shape. */
static void check(struct ls_conv2d_shape s, ls_dtype dtype, int turn) {
    s.dtype = dtype;
    struct sizes z = sizes_of(&s);
    float *x = make_numbers(dtype, z.x, 1), *w = make_numbers(dtype, z.w, 2), *dy = make_numbers(dtype, z.y, 3);
    struct reference r = {x, w, dy, zeros(z.y), zeros(z.x), zeros(z.w), zeros((size_t)s.out_channels)};
    struct convolution c = make(s, x, w, dy, turn % 4 != 3, turn % 3 == 2);
    double area = s.kernel_h * s.kernel_w, plane = z.out_height * z.out_width, pixels = s.batch * plane;
    run_reference(&s, &r);
    for (size_t i = 0; i < z.y && c.bias; i++)
        r.y[i] += (double)c.bias_values[i / (size_t)plane % (size_t)s.out_channels];
    kernel_align((kernel_alignment)(turn % KERNEL_IN_TURN));
    run(&c);
    expect("y", dtype, c.y, r.y, z.y, 4 * s.in_channels * area);
    expect("dx", dtype, c.dx, r.dx, z.x, 4 * s.out_channels * area);
    expect_gradient("dw", dtype, c.dw, r.dw, z.w, 4 * pixels, c.accumulate);
    if (c.dbias) expect_gradient("dbias", dtype, c.dbias, r.dbias, (size_t)s.out_channels, 4 * pixels, c.accumulate);
    if (turn % 2 == 0 && kernel_is_on(ON_FAST)) expect_again(&c, x, w, dy, turn);
    free(r.y), free(r.dx), free(r.dw), free(r.dbias);
}

/* --- shapes ------------------------------------------------------------------------------------------------------ */

/* batch, in_channels, in_height, in_width, out_channels, kernel_h, kernel_w, stride, padding */
static const int direct_shapes[][9] = {
    {2, 1, 28, 28, 16, 5, 5, 1, 2}, {1, 16, 14, 14, 32, 5, 5, 1, 2}, {7, 5, 6, 7, 4, 3, 3, 1, 1},
    {1, 2, 5, 41, 17, 5, 5, 1, 4},  {1, 3, 45, 3, 1, 3, 3, 1, 2},    {33, 1, 3, 3, 2, 3, 3, 1, 0},
    {2, 18, 5, 9, 31, 3, 3, 1, 1},  {1, 1, 36, 36, 3, 3, 3, 1, 1},   {0, 3, 5, 5, 4, 5, 5, 1, 2},
    {2, 4, 5, 5, 9, 5, 5, 1, 0},    {3, 2, 1, 1, 3, 3, 3, 1, 1},     {1, 2, 8, 40, 5, 5, 5, 1, 2},
};
/* Cases that only larger shapes reach; in one turn each, because they differ from the others only in how they are
 * cut. */
static const int large_direct_shapes[][9] = {
    /* weights' gradients: blocks with several images and groups, with several strips, with chunks that memory limits;
     * images: enough threads for four channels each */
    {34, 17, 3, 5, 30, 3, 3, 1, 1}, {140, 2, 1, 3, 5, 5, 5, 1, 3},   {5, 2, 13, 70, 5, 3, 3, 1, 0},
    {26, 1, 28, 9, 3, 5, 5, 1, 2},  {1, 2120, 31, 1, 1, 3, 3, 1, 1}, {33, 6, 9, 5, 17, 5, 5, 1, 2},
};
static const int unfolded_shapes[][9] = {
    {2, 17, 5, 6, 33, 1, 1, 1, 0}, {1, 2, 4, 4, 3, 1, 1, 2, 3},   {1, 4, 4, 5, 34, 3, 3, 1, 1},
    {0, 3, 5, 5, 4, 2, 3, 1, 1},   {2, 3, 11, 9, 8, 3, 3, 2, 1},  {3, 1, 20, 20, 2, 4, 4, 1, 3},
    {33, 1, 4, 3, 2, 2, 2, 1, 0},  {2, 2, 6, 6, 40, 5, 5, 1, 2},  {1, 3, 3, 3, 5, 3, 3, 1, 3},
    {2, 1, 17, 18, 3, 5, 5, 3, 2}, {1, 1, 40, 33, 1, 1, 1, 1, 0}, {1, 2, 3, 300, 2, 2, 5, 1, 2},
};

static struct ls_conv2d_shape shape_of(const int *s) {
    return (struct ls_conv2d_shape){s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], LS_FP32};
}

static const ls_dtype types[] = {LS_FP32, LS_FP16, LS_BF16, LS_FP32};

static void check_all(const int (*shapes)[9], size_t count) {
    for (size_t i = 0; i < count; i++)
        for (int turn = 0; turn < 4; turn++) check(shape_of(shapes[i]), types[turn], (int)i + turn);
}

TEST_CASE(direct) { check_all(direct_shapes, COUNT(direct_shapes)); }

TEST_CASE(large_direct) {
    for (size_t i = 0; i < COUNT(large_direct_shapes); i++) {
        check(shape_of(large_direct_shapes[i]), LS_FP32, (int)i);
        check(shape_of(large_direct_shapes[i]), types[1 + i % 2], (int)i + 1);
    }
}

TEST_CASE(unfolded) { check_all(unfolded_shapes, COUNT(unfolded_shapes)); }

TEST_CASE(random_shapes) {
    static const int batches[] = {1, 2, 7, 33, 0};
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 240; i++) {
        int r[9], narrow = i % 2;
        for (int k = 0; k < 9; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            r[k] = (int)(x >> 40);
        }
        struct ls_conv2d_shape s = {narrow ? batches[r[0] % 5] : 1 + r[0] % 3,
                                    1 + r[1] % (narrow ? 5 : 9),
                                    1 + r[2] % 11,
                                    1 + r[3] % 11,
                                    1 + r[4] % (narrow ? 6 : 35),
                                    1 + r[5] % 5,
                                    1 + r[6] % 5,
                                    1 + r[7] % 3,
                                    r[8] % 4,
                                    LS_FP32};
        if (i % 3 == 0)
            s.kernel_h = s.kernel_w = 3 + r[5] % 2 * 2, s.stride = 1; /* direct convolutions are rare otherwise */
        if (s.in_height + 2 * s.padding < s.kernel_h || s.in_width + 2 * s.padding < s.kernel_w) continue;
        for (int t = 0; t < 3; t++)
            if (kernel_is_on(ON_BEST) || i / 2 % 3 == t) check(s, types[t], i);
    }
}

/* Convolutions of halves are those of floats with the same values, rounded at the end: the same bits. */
static void check_rounding(const int *shape, ls_dtype dtype) {
    struct ls_conv2d_shape s = shape_of(shape);
    struct sizes z = sizes_of(&s);
    s.dtype = dtype;
    struct convolution half =
        make(s, kernel_random(z.x, 1), kernel_random(z.w, 2), kernel_random(z.y, 3), false, false);
    s.dtype = LS_FP32;
    struct convolution wide = make(s, kernel_widened(dtype, half.x, z.x), kernel_widened(dtype, half.w, z.w),
                                   kernel_widened(dtype, half.dy, z.y), false, false);
    run(&half);
    run(&wide);
    kernel_expect_same("y", half.y, kernel_rounded(dtype, wide.y, z.y), z.y * sizeof(uint16_t));
    kernel_expect_same("dx", half.dx, kernel_rounded(dtype, wide.dx, z.x), z.x * sizeof(uint16_t));
}

TEST_CASE(halves_are_floats_rounded_once) {
    for (size_t i = 0; i < COUNT(direct_shapes); i += 2) check_rounding(direct_shapes[i], types[1 + i / 2 % 2]);
    for (size_t i = 0; i < COUNT(large_direct_shapes); i += 2)
        check_rounding(large_direct_shapes[i], types[1 + i / 2 % 2]);
}

/* More samples than are unfolded at a time: 61 in two pieces, the second one smaller (test_conv2d_plans.c). */
TEST_CASE(a_batch_in_pieces) {
    for (int t = 0; t < 2; t++) {
        struct ls_conv2d_shape s = {61, 64, 16, 16, 3, 4, 4, 1, 2, t ? LS_BF16 : LS_FP32};
        struct sizes z = sizes_of(&s);
        struct ls_cuda_conv2d_plan plan;
        assert_true(ls_cuda_conv2d_make_plan(&s, LS_CUDA_CONV2D_UNFOLDED_NBYTES, &plan) && plan.samples == 31);
        const float *x = kernel_random(z.x, 1), *w = kernel_random(z.w, 2), *dy = kernel_random(z.y, 3);
        struct convolution want = make(s, x, w, dy, true, true), got = make(s, x, w, dy, true, true);
        kernel_use_best(true);
        run(&want);
        kernel_use_best(false);
        run(&got);
        double unit = t ? 0x1p-7 : 0, pixels = 61 * 17 * 17;
        kernel_expect_close("y", kernel_widened(s.dtype, got.y, z.y), kernel_widened(s.dtype, want.y, z.y), z.y, unit,
                            1e-6 * (1 + 4 * sqrt(64 * 16)));
        kernel_expect_close("dx", kernel_widened(s.dtype, got.dx, z.x), kernel_widened(s.dtype, want.dx, z.x), z.x,
                            unit, 1e-6 * (1 + 4 * sqrt(3 * 16)));
        kernel_expect_close("dw", got.dw, want.dw, z.w, 0, 1e-6 * (1 + 4 * sqrt(pixels)));
        kernel_expect_close("dbias", got.dbias, want.dbias, 3, 0, 1e-6 * (1 + 4 * sqrt(pixels)));
    }
}

/* --- limits of rounding and shapes -------------------------------------------------------------------------------- */

/* Values beyond the largest half become infinity; a NaN affects only the results that depend on it. */
TEST_CASE(overflow_and_nan) {
    struct ls_conv2d_shape s = {1, 1, 1, 3, 1, 1, 1, 1, 0, LS_FP16};
    const float x[] = {279.75f, -280, NAN}, w = 234, want[] = {65472, -INFINITY, NAN};
    void *y = kernel_elements(LS_FP16, 3);
    ls_conv2d_forward(kernel_stream(), s, kernel_rounded(LS_FP16, x, 3), kernel_rounded(LS_FP16, &w, 1), NULL, y, NULL);
    kernel_done();
    const float *got = kernel_widened(LS_FP16, y, 3);
    assert_true(got[0] == want[0] && got[1] == want[1] && isnan(got[2]));
}

TEST_CASE(no_output_is_an_error) {
    static const struct ls_conv2d_shape bad[] = {
        {1, 1, 3, 3, 1, 5, 3, 1, 0, LS_FP32},          /* the kernel is taller than the padded image */
        {1, 1, 3, 3, 1, 3, 4, 1, 0, LS_FP32},          /* and wider */
        {1, 1, 2, 9, 1, 3, 3, 1, 0, LS_FP32},          /* the kernel is larger than the image */
        {1, 1, 9, 9, 1, 3, 3, 1, -1, LS_FP32},         /* negative padding */
        {1, 0, 3, 3, 1, 3, 3, 1, 0, LS_FP32},          /* no channels */
        {1, 1, 3, 3, 1, 3, 3, 0, 0, LS_FP32},          /* no stride */
        {1, 4000, 4000, 4000, 1, 3, 3, 1, 0, LS_FP32}, /* one image is too large */
        {1, 1, 30000, 30000, 1000, 1, 1, 1, 0, LS_FP32},
    };
    float *v = kernel_random(4, 1), *out = kernel_random(4, 2);
    for (size_t i = 0; i < COUNT(bad) * 3; i++) {
        struct ls_conv2d_shape s = bad[i / 3];
        assert_int_equal(ls_conv2d_workspace_nbytes(kernel_device_kind(), &s), 0);
        if (i % 3 == 0) ls_conv2d_forward(kernel_stream(), s, v, v, v, out, NULL);
        if (i % 3 == 1) ls_conv2d_backward_data(kernel_stream(), s, v, v, out, NULL);
        if (i % 3 == 2) ls_conv2d_backward_weights(kernel_stream(), s, v, v, out, out, false, NULL);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        scratch_expect_error("has no output", "conv2d of a");
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(direct),
        ROW_ON(ON_BEST | ON_GPUS, large_direct),
        ROW(unfolded),
        ROW_ON(EACH_ONCE, random_shapes),
        ROW_ON(ON_FAST, halves_are_floats_rounded_once),
        ROW_ON(ON_FAST, a_batch_in_pieces),
        ROW(overflow_and_nan),
        ROW(no_output_is_an_error),
    };
    return RUN_EVERYWHERE("conv2d", tests);
}
