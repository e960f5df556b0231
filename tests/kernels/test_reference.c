/* Each kernel against the simplest loop that computes its formula: bitwise where the formula determines the rounding,
 * otherwise against double. (Convolutions: test_conv2d.c; batch norm: test_batchnorm.c; optimizers:
 * test_optimizers.c.) */
#include <math.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"

static const size_t counts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 257, 2047, 2049, 5000};
#define COUNT_COUNT (sizeof counts / sizeof *counts)

/* --- elementwise ------------------------------------------------------------------------------------------------- */

static void check_elementwise(size_t n) {
    ls_stream *stream = kernel_stream();
    float *x = kernel_random(n, 1), *factor = kernel_random(1, 2), *want = kernel_floats(n), *y = kernel_floats(n);
    ls_fill(stream, y, 0.7f, n);
    kernel_done();
    for (size_t i = 0; i < n; i++) want[i] = 0.7f;
    kernel_expect_same("fill", y, want, n * sizeof *y);
    y = kernel_copy(x, n);
    ls_scale(stream, y, 0.7f, n);
    kernel_done();
    for (size_t i = 0; i < n; i++) want[i] = x[i] * 0.7f;
    kernel_expect_same("scale", y, want, n * sizeof *y);
    ls_divide(stream, y, 3, n);
    kernel_done();
    for (size_t i = 0; i < n; i++) want[i] /= 3;
    kernel_expect_same("divide", y, want, n * sizeof *y);
    ls_scale_by(stream, y, factor, n);
    kernel_done();
    for (size_t i = 0; i < n; i++) want[i] *= *factor;
    kernel_expect_same("scale_by", y, want, n * sizeof *y);
    const float *sources[] = {kernel_random(n, 3), kernel_random(n, 4), kernel_random(n, 5)};
    ls_reduce_add(stream, y, sources, 3, n);
    kernel_done();
    for (size_t i = 0; i < n; i++) want[i] = ((want[i] + sources[0][i]) + sources[1][i]) + sources[2][i];
    kernel_expect_same("reduce_add", y, want, n * sizeof *y);
    ls_reduce_add(stream, y, sources, 0, n);
    kernel_done();
    kernel_expect_same("reduce_add of nothing", y, want, n * sizeof *y);
}

/* Two tensors, the second of which is one element longer. */
static void check_square_sum(size_t n) {
    float *x = kernel_random(n, 1), *y = kernel_random(n + 1, 2);
    double *sum = kernel_bytes(sizeof *sum), want = 0; /* overwrites the earlier NaN */
    size_t chunks = (n + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
    struct ls_update_tensor *list = kernel_bytes(2 * sizeof *list);
    list[0] = (struct ls_update_tensor){.gradient = x, .count = n};
    list[1] = (struct ls_update_tensor){.gradient = y, .count = n + 1, .first_chunk = chunks};
    chunks += n / LS_UPDATE_CHUNK + 1;
    ls_square_sum_list(kernel_stream(), sum, list, 2, chunks, 2 * n + 1);
    kernel_done();
    for (size_t i = 0; i < n; i++) want += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < n + 1; i++) want += (double)y[i] * (double)y[i];
    assert_true(fabs(*sum - want) <= 1e-14 * want * (double)(n + 1));
    y[n / 2] = -INFINITY;
    ls_square_sum_list(kernel_stream(), sum, list, 2, chunks, 2 * n + 1);
    kernel_done();
    assert_false(isfinite(*sum));
}

TEST_CASE(elementwise) {
    for (size_t c = 0; c < COUNT_COUNT; c++) check_elementwise(counts[c]);
}

TEST_CASE(square_sum) {
    for (size_t c = 0; c < COUNT_COUNT; c++) check_square_sum(counts[c]);
}

/* --- linear ------------------------------------------------------------------------------------------------------ */

static void check_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float beta) {
    float *a = kernel_random(m * k, 1), *b = kernel_random(k * n, 2), *c = kernel_random(m * n, 3);
    double *want = kernel_bytes(m * n * sizeof *want);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = beta != 0 ? (double)beta * (double)c[i * n + j] : 0;
            for (size_t l = 0; l < k; l++) {
                float left = transpose_a ? a[l * m + i] : a[i * k + l];
                sum += (double)left * (double)(transpose_b ? b[j * k + l] : b[l * n + j]);
            }
            want[i * n + j] = sum;
            if (beta == 0) c[i * n + j] = NAN; /* must not be read */
        }
    }
    ls_gemm(kernel_stream(), LS_FP32, transpose_a, transpose_b, m, n, k, a, b, beta, LS_FP32, c, NULL);
    kernel_done();
    kernel_expect_sum("gemm", c, want, m * n, (double)k);
}

/* A batch may be empty: matrix multiplies without rows, or with an empty inner dimension. */
TEST_CASE(gemm) {
    static const size_t shapes[][3] = {{1, 1, 1},    {1, 7, 5},   {7, 1, 5},    {5, 7, 1},    {3, 5, 7},
                                       {33, 17, 65}, {64, 10, 9}, {17, 10, 33}, {1, 10, 129}, {0, 3, 5},
                                       {3, 0, 5},    {3, 5, 0},   {2, 300, 70}};
    static const float betas[] = {0, 1, -0.5f};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes * 12; i++) {
        const size_t *s = shapes[i / 12];
        bool some = s[0] && s[1] && s[2]; /* oneDNN refuses rows without elements */
        if (some || kernel_is_on(ON_GPUS)) check_gemm(i & 1, i & 2, s[0], s[1], s[2], betas[i % 12 / 4]);
    }
}

static void check_bias(size_t rows, size_t columns) {
    float *dy = kernel_random(rows * columns, 1), *y = kernel_copy(dy, rows * columns), *want = kernel_floats(columns);
    float *bias = kernel_random(columns, 2), *dbias = kernel_floats(columns);
    ls_add_bias(kernel_stream(), LS_FP32, y, bias, rows, columns);
    kernel_done();
    ls_bias_gradient(kernel_stream(), LS_FP32, dbias, dy, rows, columns, false);
    kernel_done();
    for (size_t c = 0; c < columns; c++) {
        want[c] = 0;
        for (size_t r = 0; r < rows; r++) {
            want[c] += dy[r * columns + c];
            assert_true(y[r * columns + c] == dy[r * columns + c] + bias[c]);
        }
    }
    kernel_expect_close("bias_gradient", dbias, want, columns, 0,
                        kernel_unless_in_order(1e-6 * (2 + sqrt((double)rows))));
}

TEST_CASE(bias) {
    for (size_t rows = 0; rows < 20; rows += 3) {
        for (size_t c = 0; c < 12; c++) check_bias(rows, counts[c]);
        check_bias(rows, 300); /* more than one block */
    }
}

/* --- relu -------------------------------------------------------------------------------------------------------- */

TEST_CASE(relu) {
    for (size_t c = 0; c < COUNT_COUNT; c++) {
        size_t n = counts[c];
        float *x = kernel_random(n, 1), *dy = kernel_random(n, 2), *y = kernel_floats(n), *dx = kernel_floats(n);
        for (size_t i = 0; i < n; i += 5) x[i] = i % 2 ? NAN : 0;
        ls_relu_forward(kernel_stream(), LS_FP32, y, x, n);
        kernel_done();
        ls_relu_backward(kernel_stream(), LS_FP32, dx, dy, y, n);
        kernel_done();
        for (size_t i = 0; i < n; i++) {
            assert_true(isnan(x[i]) ? isnan(y[i]) : y[i] == fmaxf(x[i], 0));
            assert_true(dx[i] == (x[i] <= 0 ? 0 : dy[i]));
        }
    }
}

/* --- max-pooling ------------------------------------------------------------------------------------------------- */

/* The rule of kernels.h, window by window. */
static void check_maxpool(struct ls_pool_shape s) {
    int height = s.in_height / s.size, width = s.in_width / s.size, count = s.planes * height * width;
    size_t in = ls_pool_count(&s), out = (size_t)count;
    float *x = kernel_random(in, 1), *y = kernel_floats(out), *dy = kernel_random(out, 2), *dx = kernel_floats(in);
    float *want_dx = kernel_floats(in);
    uint8_t *choice = kernel_bytes(out);
    for (size_t i = 0; i < in; i++) x[i] = i % 11 == 3 ? NAN : i % 7 == 2 ? -INFINITY : (float)(int)(x[i] * 3);
    ls_maxpool_forward(kernel_stream(), s, y, choice, x);
    kernel_done();
    ls_maxpool_backward(kernel_stream(), s, dx, dy, choice);
    kernel_done();
    for (size_t i = 0; i < in; i++) want_dx[i] = 0;
    for (int o = 0; o < count; o++) {
        int top = o / width / height * s.in_height + o / width % height * s.size, left = o % width * s.size, at = 0;
        float best = -INFINITY;
        for (int k = 0; k < s.size * s.size; k++) {
            float v = x[(top + k / s.size) * s.in_width + left + k % s.size];
            if (v > best || isnan(v)) best = v, at = k;
        }
        assert_int_equal(choice[o], at);
        assert_true(isnan(best) ? isnan(y[o]) : y[o] == best);
        want_dx[(top + at / s.size) * s.in_width + left + at % s.size] = dy[o];
    }
    kernel_expect_same("dx", dx, want_dx, in * sizeof *dx);
}

TEST_CASE(maxpool) {
    for (int size = 2; size <= 5; size++) {
        for (int width = 1; width < 24; width++) {
            check_maxpool((struct ls_pool_shape){2, 2 * size, width, size, LS_FP32});
            check_maxpool((struct ls_pool_shape){3, 2 * size + 1, width, size, LS_FP32});
        }
    }
    check_maxpool((struct ls_pool_shape){1, 31, 45, 15, LS_FP32});
    check_maxpool((struct ls_pool_shape){0, 4, 4, 2, LS_FP32});
    check_maxpool((struct ls_pool_shape){32, 28, 28, 2, LS_FP32}); /* windows by twos */
    check_maxpool((struct ls_pool_shape){40, 14, 14, 2, LS_FP32}); /* one by one, and many blocks */
}

/* --- losses ------------------------------------------------------------------------------------------------------ */

static void check_cross_entropy(size_t rows, size_t classes) {
    float *logits = kernel_random(rows * classes, 1), *d = kernel_floats(rows * classes), *loss = kernel_floats(1);
    int64_t *labels = kernel_bytes(rows * sizeof *labels), *correct = kernel_bytes(sizeof *correct), want_correct = 7;
    double total = 0;
    *correct = 7;
    for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)((r * 5 + 1) % classes);
    for (size_t i = 0; i < rows * classes; i++) logits[i] *= 50; /* exp would overflow without the shift */
    ls_cross_entropy(kernel_stream(), loss, d, logits, labels, rows, classes, 0.25f);
    kernel_done();
    ls_count_correct(kernel_stream(), correct, logits, labels, rows, classes);
    kernel_done();
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * classes;
        double largest = -INFINITY, sum = 0;
        size_t best = 0, label = (size_t)labels[r];
        for (size_t c = 0; c < classes; c++) {
            if ((double)x[c] > largest) largest = (double)x[c], best = c;
        }
        want_correct += best == label;
        for (size_t c = 0; c < classes; c++) sum += exp((double)x[c] - largest);
        total += largest + log(sum) - (double)x[label];
        for (size_t c = 0; c < classes; c++) {
            double want = 0.25 * (exp((double)x[c] - largest) / sum - (c == label));
            kernel_expect_sum("dlogits", &d[r * classes + c], &want, 1, 1);
        }
    }
    total *= 0.25;
    kernel_expect_sum("loss", loss, &total, 1, 25 * total * total);
    assert_int_equal(*correct, want_correct);
}

static void check_squared_error(size_t n) {
    float *prediction = kernel_random(n, 1), *target = kernel_random(n, 2), *d = kernel_floats(n);
    float *loss = kernel_floats(1), *want = kernel_floats(n);
    double total = 0;
    ls_squared_error(kernel_stream(), loss, d, prediction, target, n, 0.25f);
    kernel_done();
    for (size_t i = 0; i < n; i++) {
        total += 0.25 * pow((double)prediction[i] - (double)target[i], 2);
        want[i] = 0.5f * (prediction[i] - target[i]);
    }
    kernel_expect_sum("loss", loss, &total, 1, total * total);
    kernel_expect_same("dprediction", d, want, n * sizeof *d);
}

TEST_CASE(losses) {
    for (size_t rows = 0; rows < 12; rows += 3) {
        for (size_t c = 1; c < 10; c++) check_cross_entropy(rows, counts[c]);
    }
    for (size_t c = 0; c < COUNT_COUNT; c++) check_squared_error(counts[c]);
}

TEST_CASE(a_nan_logit_makes_the_loss_nan) {
    const int64_t *labels = kernel_labels((int64_t[]){0, 1}, 2);
    float *loss = kernel_floats(1), *logits = kernel_random(6, 1), *d = kernel_floats(6);
    logits[4] = NAN;
    *loss = 0;
    ls_cross_entropy(kernel_stream(), loss, d, logits, labels, 2, 3, 1);
    kernel_done();
    assert_true(isnan(*loss) && !isnan(d[0]) && isnan(d[3]) && isnan(d[4]) && isnan(d[5]));
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(elementwise), ROW(square_sum), ROW(gemm),   ROW(bias),
        ROW(relu),        ROW(maxpool),    ROW(losses), ROW(a_nan_logit_makes_the_loss_nan),
    };
    return RUN_EVERYWHERE("reference", tests);
}
