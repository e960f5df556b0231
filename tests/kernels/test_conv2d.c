/* The three convolutions against seven nested loops, on random shapes: of floats within a tolerance, of halves made of
 * whole numbers exactly, for then nothing rounds but the result. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/kernels/fixture.h"

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

/* What one output element reads and what its gradient touches. */
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

/* dw and dbias are floats whatever the type, and added to 1 if halves are. */
static void expect_gradient(const char *what, ls_dtype dtype, const float *got, double *want, size_t count,
                            double terms) {
    for (size_t i = 0; i < count && dtype != LS_FP32; i++) {
        if ((double)got[i] != want[i] + 1) fail_msg("%s[%zu] is %.9g, not %.9g", what, i, got[i], want[i] + 1);
    }
    if (dtype == LS_FP32) kernel_expect_sum(what, got, want, count, terms);
}

static float *make_gradient(size_t count) {
    float *gradient = kernel_floats(count);
    for (size_t i = 0; i < count; i++) gradient[i] = 1;
    return gradient;
}

static void run(const struct ls_conv2d_shape *s, const struct reference *r, bool with_bias) {
    struct sizes z = sizes_of(s);
    ls_dtype dtype = s->dtype;
    size_t channels = (size_t)s->out_channels, plane = (size_t)(z.out_height * z.out_width);
    float *bias = with_bias ? make_numbers(dtype, channels, 4) : NULL;
    for (size_t i = 0; i < z.y && bias; i++) r->y[i] += (double)bias[i / plane % channels];
    const void *x = kernel_rounded(dtype, r->x, z.x), *w = kernel_rounded(dtype, r->w, z.w);
    const void *dy = kernel_rounded(dtype, r->dy, z.y), *b = bias ? kernel_rounded(dtype, bias, channels) : NULL;
    void *y = kernel_elements(dtype, z.y), *dx = kernel_elements(dtype, z.x);
    float *dw = make_gradient(z.w), *db = make_gradient(channels);
    void *workspace = kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, s)); /* full of NaN */
    ls_stream *stream = kernel_stream();
    ls_conv2d_forward(stream, *s, x, w, b, y, workspace);
    kernel_done();
    ls_conv2d_backward_data(stream, *s, dy, w, dx, workspace);
    kernel_done();
    ls_conv2d_backward_weights(stream, *s, x, dy, dw, with_bias ? db : NULL, dtype != LS_FP32, workspace);
    kernel_done();
    double area = s->kernel_h * s->kernel_w, pixels = (double)s->batch * (double)plane;
    expect("y", dtype, y, r->y, z.y, 4 * s->in_channels * area);
    expect("dx", dtype, dx, r->dx, z.x, 4 * s->out_channels * area);
    expect_gradient("dw", dtype, dw, r->dw, z.w, 4 * pixels);
    if (with_bias) expect_gradient("dbias", dtype, db, r->dbias, channels, 4 * pixels);
}

static void check_type(struct ls_conv2d_shape s, ls_dtype dtype, bool with_bias) {
    s.dtype = dtype;
    struct sizes z = sizes_of(&s);
    struct reference r = {make_numbers(dtype, z.x, 1),
                          make_numbers(dtype, z.w, 2),
                          make_numbers(dtype, z.y, 3),
                          zeros(z.y),
                          zeros(z.x),
                          zeros(z.w),
                          zeros((size_t)s.out_channels)};
    run_reference(&s, &r);
    run(&s, &r, with_bias);
    free(r.y), free(r.dx), free(r.dw), free(r.dbias);
}

static void check(const struct ls_conv2d_shape *s, bool with_bias) {
    check_type(*s, LS_FP32, with_bias);
    check_type(*s, LS_FP16, with_bias);
    check_type(*s, LS_BF16, with_bias);
}

static void chosen_shapes(void **state) {
    (void)state;
    static const struct ls_conv2d_shape shapes[] = {
        {2, 1, 28, 28, 16, 5, 5, 1, 2, LS_FP32}, {1, 16, 14, 14, 32, 5, 5, 1, 2, LS_FP32},
        {2, 17, 5, 6, 33, 1, 1, 1, 0, LS_FP32},  {1, 2, 4, 4, 3, 1, 1, 2, 3, LS_FP32},
        {1, 48, 4, 4, 64, 3, 3, 1, 1, LS_FP32},  {0, 3, 5, 5, 4, 3, 3, 1, 1, LS_FP32},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(&shapes[i], i % 2 == 0);
}

static void random_shapes(void **state) {
    (void)state;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 120; i++) {
        int r[9];
        for (int k = 0; k < 9; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            r[k] = (int)(x >> 40);
        }
        struct ls_conv2d_shape s = {1 + r[0] % 3, 1 + r[1] % 9, 1 + r[2] % 11, 1 + r[3] % 11, 1 + r[4] % 35,
                                    1 + r[5] % 5, 1 + r[6] % 5, 1 + r[7] % 3,  r[8] % 4,      LS_FP32};
        bool fits = s.in_height + 2 * s.padding >= s.kernel_h && s.in_width + 2 * s.padding >= s.kernel_w;
        if (fits) check(&s, i % 2 == 0);
    }
}

/* Beyond the largest half lies infinity; a NaN reaches what it touches, and nothing else. */
static void overflow_and_nan(void **state) {
    (void)state;
    struct ls_conv2d_shape s = {1, 1, 1, 3, 1, 1, 1, 1, 0, LS_FP16};
    const float x[] = {279.75f, -280, NAN}, w = 234, want[] = {65472, -INFINITY, NAN};
    void *y = kernel_elements(LS_FP16, 3), *workspace = kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s));
    ls_conv2d_forward(kernel_stream(), s, kernel_rounded(LS_FP16, x, 3), kernel_rounded(LS_FP16, &w, 1), NULL, y,
                      workspace);
    kernel_done();
    const float *got = kernel_widened(LS_FP16, y, 3);
    assert_true(got[0] == want[0] && got[1] == want[1] && isnan(got[2]));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kernel_setup, kernel_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(chosen_shapes), TEST(random_shapes), TEST(overflow_and_nan)};
    return cmocka_run_group_tests_name("conv2d", tests, NULL, NULL);
}
