/* Layers and losses against PyTorch's numbers in tests/golden, within the tolerances of the README there. */
#include <math.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"

static void expect_layer(const char *what, const float *got, size_t count) {
    kernel_expect_close(what, got, kernel_golden(what, count), count, 1e-4, 1e-5);
}

TEST_CASE(linear) {
    enum { ROWS = 8, IN = 784, OUT = 256 };
    kernel_golden_open("linear");
    const float *x = kernel_golden("x", ROWS * IN), *w = kernel_golden("w", OUT * IN), *b = kernel_golden("b", OUT);
    const float *dy = kernel_golden("dy", ROWS * OUT);
    float *y = kernel_floats(ROWS * OUT), *dx = kernel_floats(ROWS * IN), *dw = kernel_floats(OUT * IN);
    float *db = kernel_floats(OUT);
    ls_stream *stream = kernel_stream();
    ls_gemm(stream, LS_FP32, false, true, ROWS, OUT, IN, x, w, 0, LS_FP32, y, NULL);
    kernel_done();
    ls_add_bias(stream, LS_FP32, y, b, ROWS, OUT);
    kernel_done();
    ls_gemm(stream, LS_FP32, true, false, OUT, IN, ROWS, dy, x, 0, LS_FP32, dw, NULL);
    kernel_done();
    ls_gemm(stream, LS_FP32, false, false, ROWS, IN, OUT, dy, w, 0, LS_FP32, dx, NULL);
    kernel_done();
    ls_bias_gradient(stream, LS_FP32, db, dy, ROWS, OUT, false);
    kernel_done();
    expect_layer("y", y, ROWS * OUT);
    expect_layer("dx", dx, ROWS * IN);
    expect_layer("dw", dw, OUT * IN);
    expect_layer("db", db, OUT);
}

TEST_CASE(relu) {
    kernel_golden_open("relu");
    float *y = kernel_floats(64), *dx = kernel_floats(64);
    ls_relu_forward(kernel_stream(), LS_FP32, y, kernel_golden("x", 64), 64);
    kernel_done();
    ls_relu_backward(kernel_stream(), LS_FP32, dx, kernel_golden("dy", 64), y, 64);
    kernel_done();
    expect_layer("y", y, 64);
    expect_layer("dx", dx, 64);
}

static void check_conv2d(const char *name, struct ls_conv2d_shape s) {
    kernel_golden_open(name);
    size_t in = (size_t)(s.batch * s.in_channels * s.in_height * s.in_width);
    size_t out = (size_t)(s.batch * s.out_channels * ls_conv2d_out_height(&s) * ls_conv2d_out_width(&s));
    size_t weights = (size_t)(s.out_channels * s.in_channels * s.kernel_h * s.kernel_w);
    size_t channels = (size_t)s.out_channels;
    const float *x = kernel_golden("x", in), *w = kernel_golden("w", weights), *dy = kernel_golden("dy", out);
    float *y = kernel_floats(out), *dx = kernel_floats(in), *dw = kernel_floats(weights), *db = kernel_floats(channels);
    ls_conv2d_forward(kernel_stream(), s, x, w, kernel_golden("b", channels), y, NULL);
    kernel_done();
    ls_conv2d_backward_data(kernel_stream(), s, dy, w, dx, NULL);
    kernel_done();
    ls_conv2d_backward_weights(kernel_stream(), s, x, dy, dw, db, false, NULL);
    kernel_done();
    expect_layer("y", y, out);
    expect_layer("dx", dx, in);
    kernel_expect_close_to_largest("dw", dw, kernel_golden("dw", weights), weights, 1e-3);
    expect_layer("db", db, channels);
}

TEST_CASE(conv2d) {
    check_conv2d("conv2d_1x16k5p2", (struct ls_conv2d_shape){4, 1, 28, 28, 16, 5, 5, 1, 2, LS_FP32});
    check_conv2d("conv2d_16x32k5p2", (struct ls_conv2d_shape){4, 16, 14, 14, 32, 5, 5, 1, 2, LS_FP32});
    check_conv2d("conv2d_3x8k3s2p1_odd", (struct ls_conv2d_shape){3, 3, 11, 9, 8, 3, 3, 2, 1, LS_FP32});
}

TEST_CASE(batchnorm_train) {
    enum { CHANNELS = 16, COUNT = 4 * CHANNELS * 14 * 14 };
    kernel_golden_open("batchnorm2d_train");
    struct ls_batchnorm_shape s = {4, CHANNELS, 14 * 14, 0.1f, 1e-5f, false, LS_FP32};
    const float *x = kernel_golden("x", COUNT), *w = kernel_golden("w", CHANNELS), *b = kernel_golden("b", CHANNELS);
    float *y = kernel_floats(COUNT), *dx = kernel_floats(COUNT), *mean = kernel_floats(CHANNELS);
    float *invstd = kernel_floats(CHANNELS), *dw = kernel_floats(CHANNELS), *db = kernel_floats(CHANNELS);
    float *running_mean = kernel_golden("running_mean_before", CHANNELS);
    float *running_var = kernel_golden("running_var_before", CHANNELS);
    ls_batchnorm_train(kernel_stream(), s, y, x, w, b, mean, invstd, running_mean, running_var);
    kernel_done();
    ls_batchnorm_backward(kernel_stream(), s, dx, dw, db, kernel_golden("dy", COUNT), x, w, b, mean, invstd, false);
    kernel_done();
    expect_layer("y", y, COUNT);
    expect_layer("running_mean_after", running_mean, CHANNELS);
    expect_layer("running_var_after", running_var, CHANNELS);
    expect_layer("dx", dx, COUNT);
    expect_layer("dw", dw, CHANNELS);
    expect_layer("db", db, CHANNELS);
}

TEST_CASE(batchnorm_eval) {
    enum { CHANNELS = 16, COUNT = 4 * CHANNELS * 7 * 7 };
    kernel_golden_open("batchnorm2d_eval");
    struct ls_batchnorm_shape s = {4, CHANNELS, 7 * 7, 0.1f, 1e-5f, false, LS_FP32};
    float *y = kernel_floats(COUNT);
    ls_batchnorm_eval(kernel_stream(), s, y, kernel_golden("x", COUNT), kernel_golden("w", CHANNELS),
                      kernel_golden("b", CHANNELS), kernel_golden("running_mean", CHANNELS),
                      kernel_golden("running_var", CHANNELS));
    kernel_done();
    expect_layer("y", y, COUNT);
}

/* One channel of the values 0, 2, 4, 6. */
TEST_CASE(batchnorm_by_hand) {
    const float *x = kernel_copy((float[]){0, 2, 4, 6}, 4), *dy = kernel_copy((float[]){1, 0, 0, 0}, 4);
    const float *one = kernel_copy(&(float){1}, 1), *zero = kernel_copy(&(float){0}, 1);
    static const float want_y[] = {-1.3416394f, -0.4472131f, 0.4472131f, 1.3416394f};
    static const float want_dx[] = {0.13416435f, -0.17888512f, -0.04472145f, 0.08944222f};
    static const float want[] = {0.3f, 1.5666666f, -1.3416394f, 1};
    struct ls_batchnorm_shape s = {1, 1, 4, 0.1f, 1e-5f, false, LS_FP32};
    float *y = kernel_floats(4), *dx = kernel_floats(4), *mean = kernel_floats(1), *invstd = kernel_floats(1);
    float *got = kernel_floats(4); /* running mean, running variance, dgamma, dbeta */
    got[0] = 0, got[1] = 1;
    ls_batchnorm_train(kernel_stream(), s, y, x, one, zero, mean, invstd, got, got + 1);
    kernel_done();
    ls_batchnorm_backward(kernel_stream(), s, dx, got + 2, got + 3, dy, x, one, zero, mean, invstd, false);
    kernel_done();
    kernel_expect_close("y", y, want_y, 4, 1e-6, 0);
    kernel_expect_close("dx", dx, want_dx, 4, 1e-5, 1e-7);
    kernel_expect_close("statistics", got, want, 4, 1e-6, 0);
}

TEST_CASE(batchnorm_of_one_value_is_an_error) {
    struct ls_batchnorm_shape s = {1, 1, 1, 0.1f, 1e-5f, false, LS_FP32};
    float *v = kernel_random(8, 1);
    ls_batchnorm_train(kernel_stream(), s, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7);
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
    scratch_expect_error("more than one value per channel", NULL);
}

TEST_CASE(maxpool) {
    enum { PLANES = 64, IN = PLANES * 14 * 14, OUT = IN / 4 };
    kernel_golden_open("maxpool2d_k2s2_ties");
    struct ls_pool_shape s = {PLANES, 14, 14, 2, LS_FP32};
    float *y = kernel_floats(OUT), *dx = kernel_floats(IN);
    uint8_t *choice = kernel_bytes(OUT);
    ls_maxpool_forward(kernel_stream(), s, y, choice, kernel_golden("x", IN));
    kernel_done();
    ls_maxpool_backward(kernel_stream(), s, dx, kernel_golden("dy", OUT), choice);
    kernel_done();
    kernel_expect_same("y", y, kernel_golden("y", OUT), OUT * sizeof(float));
    kernel_expect_close("dx", dx, kernel_golden("dx", IN), IN, 0, 0);
}

TEST_CASE(avgpool) {
    enum { PLANES = 15, PLANE = 42, IN = PLANES * PLANE };
    kernel_golden_open("avgpool2d_global");
    float *y = kernel_floats(PLANES), *dx = kernel_floats(IN);
    ls_avgpool_forward(kernel_stream(), LS_FP32, y, kernel_golden("x", IN), PLANES, PLANE);
    ls_avgpool_backward(kernel_stream(), LS_FP32, dx, kernel_golden("dy", PLANES), PLANES, PLANE);
    kernel_done();
    kernel_expect_close("y", y, kernel_golden("y", PLANES), PLANES, 1e-5, 1e-7);
    kernel_expect_close("dx", dx, kernel_golden("dx", IN), IN, 1e-6, 0);
}

static void check_cross_entropy(const char *name, size_t rows) {
    kernel_golden_open(name);
    float *loss = kernel_floats(1), *dx = kernel_floats(rows * 10);
    ls_cross_entropy(kernel_stream(), loss, dx, kernel_golden("x", rows * 10), kernel_golden_labels(rows), rows, 10,
                     1.0f / (float)rows);
    kernel_done();
    expect_layer("loss", loss, 1);
    expect_layer("dx", dx, rows * 10);
}

TEST_CASE(cross_entropy) {
    check_cross_entropy("cross_entropy_mean", 64);
    check_cross_entropy("cross_entropy_extreme", 8);
    const float *logits = kernel_copy((float[]){1, 2, 0.5f, 0.1f, 0.2f, 0.3f}, 6);
    const int64_t *labels = kernel_labels((int64_t[]){1, 2}, 2);
    static const float want = 0.7331558161685945f;
    float *loss = kernel_floats(1), *dx = kernel_floats(6);
    ls_cross_entropy(kernel_stream(), loss, dx, logits, labels, 2, 3, 0.5f);
    kernel_done();
    kernel_expect_close("loss", loss, &want, 1, 2e-7, 0);
}

TEST_CASE(squared_error) {
    enum { COUNT = 32 * 64 };
    kernel_golden_open("mse_mean");
    float *loss = kernel_floats(1), *dx = kernel_floats(COUNT);
    ls_squared_error(kernel_stream(), loss, dx, kernel_golden("x", COUNT), kernel_golden("target", COUNT), COUNT,
                     1.0f / COUNT);
    kernel_done();
    expect_layer("loss", loss, 1);
    kernel_expect_close_to_largest("dx", dx, kernel_golden("dx", COUNT), COUNT, 1e-4);
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(linear),
        ROW(relu),
        ROW(conv2d),
        ROW(batchnorm_train),
        ROW(batchnorm_eval),
        ROW(batchnorm_by_hand),
        ROW(batchnorm_of_one_value_is_an_error),
        ROW(maxpool),
        ROW(avgpool),
        ROW(cross_entropy),
        ROW(squared_error),
    };
    return RUN_EVERYWHERE("layers", tests);
}
