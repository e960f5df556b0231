/* Casts, products and biases of halves. Where numbers are whole, sums are exact and a result is known to the bit: it is
 * rounded once. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/kernels/fixture.h"

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

/* --- casts: every half, and the floats around which rounding changes --------------------------------------------- */

enum { PATTERNS = 1 << 16 };

static uint16_t infinity_of(ls_dtype dtype) { return dtype == LS_FP16 ? 0x7c00 : 0x7f80; }

static void *cast_up(ls_dtype from, const uint16_t *x, size_t count) {
    float *y = kernel_floats(count);
    ls_cast(kernel_stream(), LS_FP32, y, from, x, count);
    kernel_done();
    return y;
}

static uint16_t *cast_down(ls_dtype to, const float *x, size_t count) {
    uint16_t *y = kernel_elements(to, count);
    ls_cast(kernel_stream(), to, y, LS_FP32, x, count);
    kernel_done();
    return y;
}

/* Whatever way the loop takes to an element: in a long row, in a short one, at the end of either. */
static void casts_of_every_half(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        uint16_t *all = kernel_elements(halves[d], PATTERNS);
        for (int i = 0; i < PATTERNS; i++) all[i] = (uint16_t)i;
        const float *want = kernel_widened(halves[d], all, PATTERNS);
        kernel_expect_same("every half", cast_up(halves[d], all, PATTERNS), want, PATTERNS * sizeof *want);
        for (size_t i = 0, n = 0; i + 70 < PATTERNS; i += 7 * n + 1, n = (n + 1) % 70) {
            kernel_expect_same("a row of halves", cast_up(halves[d], all + i, n), want + i, n * sizeof *want);
            const uint16_t *rounded = kernel_rounded(halves[d], want + i, n);
            kernel_expect_same("a row of floats", cast_down(halves[d], want + i, n), rounded, n * sizeof *rounded);
        }
    }
}

/* The half above, as if there were one above the largest. */
static double next_above(ls_dtype dtype, const float *all, int i) {
    if (i + 1 < infinity_of(dtype)) return (double)all[i + 1];
    return dtype == LS_FP16 ? 0x1p16 : 0x1p128;
}

/* Midway between two neighbours a float goes to the even one, beside that to the nearer one. */
static void casts_round_to_nearest_even(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        int finite = infinity_of(halves[d]);
        uint16_t *all = kernel_elements(halves[d], PATTERNS), *want = kernel_elements(halves[d], 8 * PATTERNS);
        for (int i = 0; i < PATTERNS; i++) all[i] = (uint16_t)i;
        float *value = kernel_widened(halves[d], all, PATTERNS), *x = kernel_floats(8 * PATTERNS);
        size_t n = 0;
        for (int i = 0; i < finite; i++) {
            float middle = (float)(((double)value[i] + next_above(halves[d], value, i)) / 2);
            const float around[] = {value[i], nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
            const int rounded[] = {i, i, i + i % 2, i + 1};
            for (int k = 0; k < 4; k++, n += 2) {
                x[n] = around[k], want[n] = (uint16_t)rounded[k];
                x[n + 1] = -around[k], want[n + 1] = (uint16_t)(0x8000 | rounded[k]);
            }
        }
        kernel_expect_same("rounded", cast_down(halves[d], x, n), want, n * sizeof *want);
    }
}

static void special_casts(void **state) {
    (void)state;
    const float x[] = {70000, -70000, 1e-8f, -1e-8f, NAN, -INFINITY, 3.4e38f, 6e-8f, 1e-40f};
    const float *fp16 = kernel_widened(LS_FP16, cast_down(LS_FP16, x, 9), 9);
    const float *bf16 = kernel_widened(LS_BF16, cast_down(LS_BF16, x, 9), 9);
    assert_true(fp16[0] == INFINITY && fp16[1] == -INFINITY && fp16[2] == 0 && signbit(fp16[3]) && fp16[3] == 0);
    assert_true(isnan(fp16[4]) && fp16[5] == -INFINITY && fp16[6] == INFINITY && fp16[7] == 0x1p-24f && fp16[8] == 0);
    assert_true(bf16[0] == 70144 && bf16[1] == -70144 && isnan(bf16[4]) && bf16[5] == -INFINITY);
    assert_true(bf16[6] == INFINITY && bf16[8] == 0x1p-133f);
    kernel_expect_same("fp32 to fp32", cast_down(LS_FP32, x, 9), x, sizeof x);
}

static void casts_that_are_errors(void **state) {
    (void)state;
    static const struct {
        ls_dtype to, from;
    } bad[] = {{LS_FP16, LS_BF16}, {LS_FP16, LS_FP16}, {LS_FP32, LS_INT32}, {LS_INT64, LS_FP32}};
    float x[8] = {0}, y[8];
    for (int i = 0; i < 4; i++) {
        ls_cast(kernel_stream(), bad[i].to, y, bad[i].from, x, 2);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        scratch_expect_error("cast from", ls_dtype_name(bad[i].from));
    }
    ls_cast_divide(kernel_stream(), LS_FP32, y, x, 2, 2);
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
    scratch_expect_error("cast_divide to fp32", NULL);
}

/* PyTorch's fp16_compress_hook; with two ranks what has overflowed stays so, because it is divided afterwards. */
static void cast_divide(void **state) {
    (void)state;
    const float x[] = {1e-8f, 1.0001f, 70000, 3.14159f, NAN}, golden[] = {0, 1, INFINITY, 3.140625f};
    uint16_t *y = kernel_elements(LS_FP16, 5);
    ls_cast_divide(kernel_stream(), LS_FP16, y, x, 1, 5);
    kernel_done();
    const float *got = kernel_widened(LS_FP16, y, 5);
    for (int i = 0; i < 4; i++) assert_true(got[i] == golden[i]);
    assert_true(isnan(got[4]));
    ls_cast_divide(kernel_stream(), LS_FP16, y, x, 2, 5);
    kernel_done();
    assert_true(ls_fp16_to_float(y[2]) == INFINITY);
    enum { COUNT = 3001 }; /* three blocks */
    for (int d = 0; d < 2; d++) {
        float *many = kernel_random(COUNT, 1), divisor = 3;
        int differ = 0;
        y = kernel_elements(halves[d], COUNT);
        ls_cast_divide(kernel_stream(), halves[d], y, many, divisor, COUNT);
        kernel_done();
        got = kernel_widened(halves[d], y, COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_true(got[i] == kernel_round(halves[d], kernel_round(halves[d], many[i]) / divisor));
            differ += got[i] != kernel_round(halves[d], many[i] / divisor);
        }
        assert_true(differ > COUNT / 10); /* so the order of the two is seen */
    }
}

/* --- products ---------------------------------------------------------------------------------------------------- */

struct product {
    ls_dtype dtype;
    bool transpose_a, transpose_b;
    size_t m, n, k;
    float *a, *b, *sums; /* sums = op(a) op(b) */
};

static void reference(const struct product *p) {
    size_t a_row = p->transpose_a ? 1 : p->k, a_column = p->transpose_a ? p->m : 1;
    size_t b_row = p->transpose_b ? 1 : p->n, b_column = p->transpose_b ? p->k : 1;
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            float sum = 0;
            for (size_t l = 0; l < p->k; l++) sum += p->a[i * a_row + l * a_column] * p->b[l * b_row + j * b_column];
            p->sums[i * p->n + j] = sum;
        }
    }
}

static void check_result(const struct product *p, ls_dtype c_dtype, float beta) {
    size_t count = p->m * p->n;
    float *c = kernel_integers(count, 3, 99);
    void *got = beta != 0 ? kernel_rounded(c_dtype, c, count) : kernel_elements(c_dtype, count);
    void *workspace = kernel_bytes(ls_gemm_workspace_nbytes(LS_DEVICE_CPU, p->dtype, p->m, p->n, p->k));
    ls_gemm(kernel_stream(), p->dtype, p->transpose_a, p->transpose_b, p->m, p->n, p->k,
            kernel_rounded(p->dtype, p->a, p->m * p->k), kernel_rounded(p->dtype, p->b, p->k * p->n), beta, c_dtype,
            got, workspace);
    kernel_done();
    const float *values = kernel_widened(c_dtype, got, count);
    for (size_t i = 0; i < count; i++) {
        float want = kernel_round(c_dtype, p->sums[i] + beta * c[i]);
        if (values[i] == want) continue;
        fail_msg("%s gemm of %zu x %zu x %zu, transposed %d %d: c[%zu] is %.9g, not %.9g", ls_dtype_name(p->dtype),
                 p->m, p->n, p->k, p->transpose_a, p->transpose_b, i, values[i], want);
    }
}

/* Less than a tile, whole tiles, and some beyond; sums of thousands, which both types round. */
static void gemm_rounds_once(void **state) {
    (void)state;
    static const size_t sizes[][3] = {{0, 3, 2},      {3, 0, 2},     {3, 5, 0},    {1, 1, 1},
                                      {3, 5, 7},      {17, 10, 330}, {130, 3, 9},  {128, 256, 16},
                                      {129, 257, 33}, {4, 513, 130}, {300, 40, 18}};
    assert_int_equal(ls_device_bind_thread(ls_stream_device(kernel_stream())), LS_OK); /* oneDNN on one thread */
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        for (int way = 0; way < 8; way++) {
            struct product p = {halves[way / 4],
                                way % 2,
                                way / 2 % 2,
                                m,
                                n,
                                k,
                                kernel_integers(m * k, 1, 40),
                                kernel_integers(k * n, 2, 40),
                                kernel_floats(m * n)};
            reference(&p);
            check_result(&p, p.dtype, 0);
            check_result(&p, LS_FP32, 0);
            check_result(&p, LS_FP32, 1);
        }
    }
}

static void types_that_do_not_go_together(void **state) {
    (void)state;
    static const ls_dtype pairs[][2] = {
        {LS_FP32, LS_FP16}, {LS_FP16, LS_BF16}, {LS_INT32, LS_INT32}, {LS_INT64, LS_FP32}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        float one[2] = {1}, c[1] = {7};
        ls_gemm(kernel_stream(), pairs[i][0], false, false, 1, 1, 1, one, one, 0, pairs[i][1], c, NULL);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        assert_true(c[0] == 7);
        scratch_expect_error("matrix product", ls_dtype_name(pairs[i][0]));
    }
}

static void gemm_overflow_and_nan(void **state) {
    (void)state;
    const float a[] = {300, -300, NAN, 0x1p-14f}, b[] = {300, 0x1p-10f};
    for (int d = 0; d < 2; d++) {
        void *c = kernel_elements(halves[d], 8), *workspace = kernel_bytes(1024);
        ls_gemm(kernel_stream(), halves[d], false, false, 4, 2, 1, kernel_rounded(halves[d], a, 4),
                kernel_rounded(halves[d], b, 2), 0, halves[d], c, workspace);
        kernel_done();
        const float *got = kernel_widened(halves[d], c, 8);
        float large = halves[d] == LS_FP16 ? INFINITY : 90112;
        assert_true(got[0] == large && got[2] == -large && isnan(got[4]) && isnan(got[5]) && got[7] == 0x1p-24f);
    }
}

static void gemm_workspace(void **state) {
    (void)state;
    assert_int_equal(ls_gemm_workspace_nbytes(LS_DEVICE_CPU, LS_FP32, 1000, 1000, 1000), 0);
    size_t nbytes = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, LS_BF16, 1000, 1000, 1000);
    assert_true(nbytes > 0 && nbytes < 2 << 20);
    assert_int_equal(ls_gemm_workspace_nbytes(LS_DEVICE_CPU, LS_FP16, 1000000, 9000000, 1000), nbytes);
    float x[4] = {0};
    ls_gemm(kernel_stream(), LS_BF16, false, false, 1, 1, 1, x, x, 1, LS_BF16, x, x);
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
    scratch_expect_error("adds to fp32 only", NULL);
}

/* --- biases ------------------------------------------------------------------------------------------------------ */

static const struct {
    size_t rows, columns;
} shapes[] = {{0, 3}, {1, 1}, {2, 0}, {3, 5}, {5, 16}, {7, 255}, {9, 257}, {33, 10}, {4, 1024}, {5, 2051}};

#define SHAPES (sizeof shapes / sizeof *shapes)

/* Random numbers, every 5th of which is something that comparisons, sums or masks could get wrong. */
static float *make_numbers(size_t count, uint64_t seed) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 60000, -60000, 6e-8f, -6e-8f, -1e-6f};
    float *values = kernel_random(count, seed);
    for (size_t i = 0; i < count; i += 5) values[i] = odd[(i / 5 + seed) % (sizeof odd / sizeof *odd)];
    return values;
}

/* Which NaN comes of two is the processor's choice. */
static void expect_rounded(const char *what, ls_dtype dtype, const void *got, const float *want, size_t count) {
    float *values = kernel_widened(dtype, got, count), *rounded = kernel_copy(want, count);
    for (size_t i = 0; i < count; i++) {
        rounded[i] = isnan(want[i]) ? NAN : kernel_round(dtype, want[i]);
        if (isnan(values[i])) values[i] = NAN;
    }
    kernel_expect_same(what, values, rounded, count * sizeof *values);
}

static void check_add_bias(ls_dtype dtype, size_t rows, size_t columns) {
    size_t count = rows * columns;
    void *y = kernel_rounded(dtype, make_numbers(count, 1), count), *bias = make_numbers(columns, 2);
    bias = kernel_rounded(dtype, bias, columns);
    float *want = kernel_widened(dtype, y, count), *added = kernel_widened(dtype, bias, columns);
    void *fused = kernel_rounded(dtype, want, count);
    ls_add_bias(kernel_stream(), dtype, y, bias, rows, columns);
    kernel_done();
    for (size_t i = 0; i < count; i++) want[i] += added[i % columns];
    expect_rounded("add_bias", dtype, y, want, count);
    ls_add_bias_relu(kernel_stream(), dtype, fused, bias, rows, columns);
    kernel_done();
    float *relu = kernel_widened(dtype, y, count);
    ls_relu_forward(kernel_stream(), relu, relu, count);
    kernel_done();
    expect_rounded("add_bias_relu", dtype, fused, relu, count);
}

static void check_bias_gradient(ls_dtype dtype, size_t rows, size_t columns, bool accumulate) {
    size_t count = rows * columns;
    void *dy = kernel_rounded(dtype, make_numbers(count, 3), count);
    float *values = kernel_widened(dtype, dy, count), *dbias = kernel_random(columns, 5);
    float *want = kernel_copy(dbias, columns);
    ls_bias_gradient(kernel_stream(), dtype, dbias, dy, rows, columns, accumulate);
    kernel_done();
    for (size_t c = 0; c < columns; c++) {
        float sum = 0;
        for (size_t r = 0; r < rows; r++) sum += values[r * columns + c];
        want[c] = accumulate ? want[c] + sum : sum;
    }
    expect_rounded("bias_gradient", LS_FP32, dbias, want, columns);
    void *y = kernel_rounded(dtype, make_numbers(count, 4), count), *masked = kernel_elements(dtype, count);
    const float *outputs = kernel_widened(dtype, y, count);
    memcpy(masked, dy, count * ls_dtype_nbytes(dtype));
    for (size_t i = 0; i < count; i++) {
        if (outputs[i] <= 0) ((uint16_t *)masked)[i] = 0;
    }
    ls_bias_gradient(kernel_stream(), dtype, want, masked, rows, columns, accumulate);
    kernel_done();
    ls_relu_bias_gradient(kernel_stream(), dtype, dbias, dy, y, rows, columns, accumulate);
    kernel_done();
    kernel_expect_same("dy", dy, masked, count * ls_dtype_nbytes(dtype));
    expect_rounded("relu_bias_gradient", LS_FP32, dbias, want, columns);
}

static void biases(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (size_t s = 0; s < SHAPES; s++) {
            check_add_bias(halves[d], shapes[s].rows, shapes[s].columns);
            check_bias_gradient(halves[d], shapes[s].rows, shapes[s].columns, false);
            check_bias_gradient(halves[d], shapes[s].rows, shapes[s].columns, true);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kernel_setup, kernel_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(casts_of_every_half),
        TEST(casts_round_to_nearest_even),
        TEST(special_casts),
        TEST(casts_that_are_errors),
        TEST(cast_divide),
        TEST(gemm_rounds_once),
        TEST(types_that_do_not_go_together),
        TEST(gemm_overflow_and_nan),
        TEST(gemm_workspace),
        TEST(biases),
    };
    return cmocka_run_group_tests_name("products of halves", tests, NULL, NULL);
}
