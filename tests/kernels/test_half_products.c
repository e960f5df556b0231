/* Matrix multiplies and biases of halves. With integer values sums are exact, so the bits of a result are known: it is
 * rounded once. (Casts: test_casts.c.) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/backends.h"

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

/* --- products ---------------------------------------------------------------------------------------------------- */

struct product {
    bool transpose_a, transpose_b;
    size_t m, n, k;
    float *a, *b, *sums; /* sums = op(a) op(b) */
    ls_dtype dtype;
    void *rounded_a, *rounded_b;
};

static void reference(const struct product *p) {
    size_t a_row = p->transpose_a ? 1 : p->k, a_column = p->transpose_a ? p->m : 1;
    size_t b_row = p->transpose_b ? 1 : p->n, b_column = p->transpose_b ? p->k : 1;
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            const float *a = p->a + i * a_row, *b = p->b + j * b_column;
            float sum = 0;
            for (size_t l = 0; l < p->k; l++, a += a_column, b += b_row) sum += *a * *b;
            p->sums[i * p->n + j] = sum;
        }
    }
}

static void check_result(const struct product *p, ls_dtype c_dtype, float beta) {
    size_t count = p->m * p->n;
    float *c = kernel_integers(count, 3, 99);
    void *got = beta != 0 ? kernel_rounded(c_dtype, c, count) : kernel_elements(c_dtype, count);
    ls_gemm(kernel_stream(), p->dtype, p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->rounded_a, p->rounded_b,
            beta, c_dtype, got, NULL);
    kernel_done();
    const float *values = kernel_widened(c_dtype, got, count);
    for (size_t i = 0; i < count; i++) {
        float want = kernel_round(c_dtype, p->sums[i] + beta * c[i]);
        if (values[i] == want) continue;
        fail_msg("%s gemm of %zu x %zu x %zu, transposed %d %d: c[%zu] is %.9g, not %.9g", ls_dtype_name(p->dtype),
                 p->m, p->n, p->k, p->transpose_a, p->transpose_b, i, values[i], want);
    }
}

/* Less than a tile, whole tiles, and larger sizes; sums of thousands, which both types round. */
TEST_CASE(gemm_rounds_once) {
    static const size_t sizes[][3] = {
        {0, 3, 2},      {3, 0, 2},     {3, 5, 0},     {1, 1, 1}, {3, 5, 7}, {17, 10, 330}, {130, 3, 9}, {128, 256, 16},
        {129, 257, 33}, {4, 513, 130}, {300, 40, 18}, {1, 7, 5}, {7, 1, 5}, {33, 17, 65},  {64, 10, 9}, {2, 300, 70}};
    assert_int_equal(ls_device_bind_thread(ls_stream_device(kernel_stream())), LS_OK); /* oneDNN on one thread */
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        const bool is_large = m * n * k > 100000;
        if (is_large && kernel_is_on(ON_FAST_OTHERWISE)) continue; /* cuBLAS's, and slow on the CPU's GPU */
        struct product p = {.m = m,
                            .n = n,
                            .k = k,
                            .a = kernel_integers(m * k, 1, 40),
                            .b = kernel_integers(k * n, 2, 40),
                            .sums = kernel_floats(m * n)};
        for (int way = 0; way < 8; way++) {
            p.transpose_a = way / 2 % 2, p.transpose_b = way / 4;
            p.dtype = halves[way % 2];
            p.rounded_a = kernel_rounded(p.dtype, p.a, m * k), p.rounded_b = kernel_rounded(p.dtype, p.b, k * n);
            if (way % 2 == 0) reference(&p); /* the sums of integers are the same in both types */
            check_result(&p, p.dtype, 0);
            check_result(&p, LS_FP32, -0.5f);
            if (is_large) continue;
            check_result(&p, LS_FP32, 0);
            check_result(&p, LS_FP32, 1);
        }
    }
}

TEST_CASE(types_that_do_not_go_together) {
    static const ls_dtype pairs[][2] = {
        {LS_FP32, LS_FP16}, {LS_FP16, LS_BF16}, {LS_INT32, LS_INT32}, {LS_INT64, LS_FP32}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        float *one = kernel_copy((float[]){1, 1}, 2), *c = kernel_copy(&(float){7}, 1);
        ls_gemm(kernel_stream(), pairs[i][0], false, false, 1, 1, 1, one, one, 0, pairs[i][1], c, NULL);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        assert_true(c[0] == 7);
        scratch_expect_error(kernel_is_on(ON_BUILDS) ? "matrix multipl" : "gemm", ls_dtype_name(pairs[i][0]));
    }
}

TEST_CASE(gemm_overflow_and_nan) {
    const float a[] = {300, -300, NAN, 0x1p-14f}, b[] = {300, 0x1p-10f};
    for (int d = 0; d < 2; d++) {
        void *c = kernel_elements(halves[d], 8);
        ls_gemm(kernel_stream(), halves[d], false, false, 4, 2, 1, kernel_rounded(halves[d], a, 4),
                kernel_rounded(halves[d], b, 2), 0, halves[d], c, NULL);
        kernel_done();
        const float *got = kernel_widened(halves[d], c, 8);
        float large = halves[d] == LS_FP16 ? INFINITY : 90112;
        assert_true(got[0] == large && got[2] == -large && isnan(got[4]) && isnan(got[5]) && got[7] == 0x1p-24f);
    }
}

/* 1 x k times k x 1, with every product of two elements exact. */
static float multiply(ls_dtype dtype, ls_dtype c_dtype, size_t k, const float *a, const float *b) {
    void *c = kernel_elements(c_dtype, 1);
    ls_gemm(kernel_stream(), dtype, false, true, 1, 1, k, kernel_rounded(dtype, a, k), kernel_rounded(dtype, b, k), 0,
            c_dtype, c, NULL);
    kernel_done();
    return *kernel_widened(c_dtype, c, 1);
}

#define MULTIPLY(dtype, c_dtype, a, b) multiply(dtype, c_dtype, sizeof(a) / sizeof *(a), a, b)

TEST_CASE(results_are_rounded_once) {
    static const float large[] = {300, 300, 60000}, ones[] = {1, 1, 1}, not_a_number[] = {1, NAN, 1};
    static const float overflow[] = {300, 0, 0}, fine[] = {2048, 1, 1}, coarse[] = {256, 1, 1};
    static const float tall[] = {60000, 60000, -60000}, top[] = {0x1p127f, 0x1p127f, 0};
    /* fp16 ends at 65504, floats do not; and a sum may exceed that and return */
    assert_true(MULTIPLY(LS_FP16, LS_FP16, large, overflow) == INFINITY);
    assert_true(MULTIPLY(LS_FP16, LS_FP32, large, overflow) == 90000);
    assert_true(MULTIPLY(LS_FP16, LS_FP16, tall, ones) == 60000);
    assert_true(MULTIPLY(LS_BF16, LS_BF16, top, ones) == INFINITY);
    assert_true(MULTIPLY(LS_BF16, LS_BF16, large, overflow) == 90112);
    for (int h = 0; h < 2; h++) {
        assert_true(isnan(MULTIPLY(halves[h], halves[h], not_a_number, ones)));
        assert_true(isnan(MULTIPLY(halves[h], LS_FP32, ones, not_a_number)));
    }
    /* 2048 + 1 + 1 and 256 + 1 + 1, where sums in halves would not change */
    assert_true(MULTIPLY(LS_FP16, LS_FP16, fine, ones) == 2050);
    assert_true(MULTIPLY(LS_BF16, LS_BF16, coarse, ones) == 258);
}

/* Our own kernels keep subnormal numbers. cuBLAS does not guarantee that: if it reads or writes zero in their place,
 * the test reports it, but does not fail; any other difference fails. */
static int flushed; /* subnormal numbers that cuBLAS replaced by zero */

static void expect_subnormal(const char *what, float got, float want) {
    if (got == want) return;
    if (got != 0 || kernel_is_on(ON_BUILDS | ON_NAIVE) || !gpu_may_round("flush"))
        fail_msg("%s is %a, not %a", what, (double)got, (double)want);
    flushed++;
    print_message("reported, not failed: cuBLAS took zero for a subnormal number: %s is 0, not %a\n", what,
                  (double)want);
}

TEST_CASE(subnormal_numbers_are_kept) {
    static const float ones[] = {1, 1, 1}, tiny[] = {0x1p-24f, 0, 0}, odd[] = {3 * 0x1p-24f, 0, 0};
    static const float half[] = {0.5f, 0, 0}, bottom[] = {0x1p-130f, 0, 0}, small[] = {0x1p-100f, 0, 0};
    flushed = 0;
    expect_subnormal("2^-24 of fp16", MULTIPLY(LS_FP16, LS_FP16, tiny, ones), 0x1p-24f);
    expect_subnormal("2^-24 of fp16 as fp32", MULTIPLY(LS_FP16, LS_FP32, tiny, ones), 0x1p-24f);
    /* halfway between two of them: to the even one */
    expect_subnormal("1.5 * 2^-24 of fp16", MULTIPLY(LS_FP16, LS_FP16, odd, half), 0x1p-23f);
    expect_subnormal("2^-48 of fp16 as fp32", MULTIPLY(LS_FP16, LS_FP32, tiny, tiny), 0x1p-48f);
    expect_subnormal("2^-130 of bf16 as fp32", MULTIPLY(LS_BF16, LS_FP32, bottom, ones), 0x1p-130f);
    assert_true(MULTIPLY(LS_FP16, LS_FP16, tiny, tiny) == 0);
    assert_true(MULTIPLY(LS_BF16, LS_BF16, small, small) == 0);
    const char *rounding = getenv("CUDA_ON_CPU_ROUNDING");
    bool told = rounding && strstr(rounding, "flush") && !gpu_is_real() && !kernel_is_on(ON_NAIVE);
    if (told) assert_int_equal(flushed, 1); /* the number that is subnormal in fp32, too */
}

TEST_CASE(gemm_workspace) {
    assert_int_equal(ls_gemm_workspace_nbytes(LS_DEVICE_CPU, LS_FP32, 1000, 1000, 1000), 0);
    size_t nbytes = ls_gemm_workspace_nbytes(LS_DEVICE_CPU, LS_BF16, 1000, 1000, 1000);
    assert_true(nbytes > 0 && nbytes < 2 << 20);
    assert_int_equal(ls_gemm_workspace_nbytes(LS_DEVICE_CPU, LS_FP16, 1000000, 9000000, 1000), nbytes);
}

TEST_CASE(halves_are_not_added_to) {
    void *x = kernel_rounded(LS_BF16, kernel_random(4, 1), 4), *c = kernel_elements(LS_BF16, 1);
    ls_gemm(kernel_stream(), LS_BF16, false, false, 1, 1, 1, x, x, 1, LS_BF16, c, NULL);
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
    scratch_expect_error("adds only to fp32", NULL);
}

/* --- biases ------------------------------------------------------------------------------------------------------ */

static const struct {
    size_t rows, columns;
} shapes[] = {{0, 3}, {1, 1}, {2, 0}, {3, 5}, {5, 16}, {7, 255}, {9, 257}, {33, 10}, {4, 1024}, {5, 2051}};

#define SHAPES (sizeof shapes / sizeof *shapes)

/* Random numbers, every 5th of which is a value that comparisons, sums or masks could get wrong. */
static float *make_numbers(size_t count, uint64_t seed) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 60000, -60000, 6e-8f, -6e-8f, -1e-6f};
    float *values = kernel_random(count, seed);
    for (size_t i = 0; i < count; i += 5) values[i] = odd[(i / 5 + seed) % (sizeof odd / sizeof *odd)];
    return values;
}

/* The processor chooses which of two NaNs results. */
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
    ls_relu_forward(kernel_stream(), LS_FP32, relu, relu, count);
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
    for (size_t c = 0; c < columns; c++) {
        double tolerance = kernel_unless_in_order(0.06 * (2 + sqrt((double)rows)));
        if (memcmp(&dbias[c], &want[c], sizeof *want) == 0 || (isnan(dbias[c]) && isnan(want[c]))) continue;
        assert_true(fabs((double)dbias[c] - (double)want[c]) <= tolerance);
    }
    memcpy(want, dbias, columns * sizeof *want);
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

/* y + bias of one number by both operations. */
static void check_sum(ls_dtype dtype, float y, float bias, float want) {
    for (int relu = 0; relu < 2; relu++) {
        void *result = kernel_rounded(dtype, &y, 1), *addend = kernel_rounded(dtype, &bias, 1);
        if (relu) ls_add_bias_relu(kernel_stream(), dtype, result, addend, 1, 1);
        if (!relu) ls_add_bias(kernel_stream(), dtype, result, addend, 1, 1);
        kernel_done();
        float got = *kernel_widened(dtype, result, 1), expected = relu && want <= 0 ? 0 : want;
        if (got != expected && !(isnan(got) && isnan(expected)))
            fail_msg("%a + %a of %s is %a", (double)y, (double)bias, ls_dtype_name(dtype), (double)got);
    }
}

TEST_CASE(sums_are_rounded_once) {
    check_sum(LS_FP16, 65504, 15, 65504);
    check_sum(LS_FP16, 65504, 16, INFINITY);
    check_sum(LS_FP16, -65504, -16, -INFINITY);
    check_sum(LS_FP16, 2048, 1, 2048);
    check_sum(LS_FP16, 2050, 1, 2052);
    check_sum(LS_FP16, 0x1p-24f, 0x1p-24f, 0x1p-23f);
    check_sum(LS_FP16, 0x1p-14f, -0x1p-24f, 0x1p-14f - 0x1p-24f);
    check_sum(LS_FP16, INFINITY, -INFINITY, NAN);
    check_sum(LS_BF16, 256, 1, 256);
    check_sum(LS_BF16, 258, 1, 260);
    check_sum(LS_BF16, 0x1.fep127f, 0x1p119f, INFINITY);
    check_sum(LS_BF16, 0x1p-133f, -0x1p-132f, -0x1p-133f);
    check_sum(LS_BF16, NAN, 1, NAN);
}

/* Sums of gradients are floats: they neither end at 65504 nor stop growing. A zero of either sign passes no gradient,
 * the smallest half and NaN do. */
TEST_CASE(gradients_are_sums_of_floats) {
    enum { ROWS = 300, COLUMNS = 4, COUNT = ROWS * COLUMNS };
    static const float columns[COLUMNS] = {60000, 0.25f, 60000, 0x1p-24f}, masks[COLUMNS] = {0x1p-24f, NAN, -0.0f, 0};
    float dy[COUNT], y[COUNT], *dbias = kernel_floats(COLUMNS);
    for (int i = 0; i < COUNT; i++) dy[i] = columns[i % COLUMNS], y[i] = masks[i % COLUMNS];
    void *masked = kernel_rounded(LS_FP16, dy, COUNT);
    ls_bias_gradient(kernel_stream(), LS_FP16, dbias, masked, ROWS, COLUMNS, false);
    kernel_done();
    for (int c = 0; c < COLUMNS; c++) assert_true(dbias[c] == ROWS * columns[c]);
    ls_relu_bias_gradient(kernel_stream(), LS_FP16, dbias, masked, kernel_rounded(LS_FP16, y, COUNT), ROWS, COLUMNS,
                          true);
    kernel_done();
    const float *left = kernel_widened(LS_FP16, masked, COUNT);
    for (int i = 0; i < COUNT; i++) assert_true(left[i] == (i % COLUMNS < 2 ? dy[i] : 0));
    for (int c = 0; c < COLUMNS; c++) assert_true(dbias[c] == (c < 2 ? 2 : 1) * ROWS * columns[c]);
}

TEST_CASE(biases) {
    for (int d = 0; d < 2; d++) {
        for (size_t s = 0; s < SHAPES; s++) {
            check_add_bias(halves[d], shapes[s].rows, shapes[s].columns);
            check_bias_gradient(halves[d], shapes[s].rows, shapes[s].columns, false);
            check_bias_gradient(halves[d], shapes[s].rows, shapes[s].columns, true);
        }
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(gemm_rounds_once),           ROW(types_that_do_not_go_together),
        ROW(gemm_overflow_and_nan),      ROW(results_are_rounded_once),
        ROW(subnormal_numbers_are_kept), ROW_ON(ON_BEST, gemm_workspace),
        ROW(halves_are_not_added_to),    ROW(biases),
        ROW(sums_are_rounded_once),      ROW(gradients_are_sums_of_floats),
    };
    return RUN_EVERYWHERE("products of halves", tests);
}
