/* Casts from and to halves: every half, and the floats at which rounding changes. */
#include <math.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

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

/* On every path of the loop: in a long row, in a short one, at the end of either. */
TEST_CASE(casts_of_every_half) {
    for (int d = 0; d < 2; d++) {
        uint16_t *all = kernel_elements(halves[d], PATTERNS);
        for (int i = 0; i < PATTERNS; i++) all[i] = (uint16_t)i;
        const float *want = kernel_widened(halves[d], all, PATTERNS);
        kernel_expect_elements("every half", LS_FP32, cast_up(halves[d], all, PATTERNS), want, PATTERNS);
        for (size_t i = 0, n = 0; i + 70 < PATTERNS; i += 7 * n + 1, n = (n + 1) % 70) {
            const uint16_t *row = memcpy(kernel_elements(halves[d], n), all + i, n * sizeof *row);
            kernel_expect_elements("a row of halves", LS_FP32, cast_up(halves[d], row, n), want + i, n);
            const uint16_t *rounded = kernel_rounded(halves[d], want + i, n);
            const float *wide = kernel_copy(want + i, n);
            kernel_expect_elements("a row of floats", halves[d], cast_down(halves[d], wide, n), rounded, n);
        }
    }
}

/* Floats whose rounding is near a tie, and NaNs of every kind. */
TEST_CASE(casts_of_floats_of_every_exponent) {
    static const uint32_t ends[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (size_t i = 0; i < 2 * sizeof ends / sizeof *ends; i++) {
        float *x = kernel_floats(PATTERNS);
        for (uint32_t k = 0; k < PATTERNS; k++) x[k] = ls_float_of_bits(k << 16 | ends[i / 2]);
        kernel_expect_elements("rounded", halves[i % 2], cast_down(halves[i % 2], x, PATTERNS),
                               kernel_rounded(halves[i % 2], x, PATTERNS), PATTERNS);
    }
}

/* The next larger half; for the largest, the next one in a larger range. */
static double next_above(ls_dtype dtype, const float *all, int i) {
    if (i + 1 < infinity_of(dtype)) return (double)all[i + 1];
    return dtype == LS_FP16 ? 0x1p16 : 0x1p128;
}

/* Midway between two neighbours a float is rounded to the even one, otherwise to the nearer one. */
TEST_CASE(casts_round_to_nearest_even) {
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

TEST_CASE(special_casts) {
    const float *x = kernel_copy((float[]){70000, -70000, 1e-8f, -1e-8f, NAN, -INFINITY, 3.4e38f, 6e-8f, 1e-40f}, 9);
    const float *fp16 = kernel_widened(LS_FP16, cast_down(LS_FP16, x, 9), 9);
    const float *bf16 = kernel_widened(LS_BF16, cast_down(LS_BF16, x, 9), 9);
    assert_true(fp16[0] == INFINITY && fp16[1] == -INFINITY && fp16[2] == 0 && signbit(fp16[3]) && fp16[3] == 0);
    assert_true(isnan(fp16[4]) && fp16[5] == -INFINITY && fp16[6] == INFINITY && fp16[7] == 0x1p-24f && fp16[8] == 0);
    assert_true(bf16[0] == 70144 && bf16[1] == -70144 && isnan(bf16[4]) && bf16[5] == -INFINITY);
    assert_true(bf16[6] == INFINITY && bf16[8] == 0x1p-133f);
    kernel_expect_elements("fp32 to fp32", LS_FP32, cast_down(LS_FP32, x, 9), x, 9);
}

TEST_CASE(casts_that_are_errors) {
    static const struct {
        ls_dtype to, from;
    } bad[] = {{LS_FP16, LS_BF16}, {LS_FP16, LS_FP16}, {LS_FP32, LS_INT32}, {LS_INT64, LS_FP32}};
    float *x = kernel_random(8, 1), *y = kernel_floats(8);
    for (int i = 0; i < 4; i++) {
        ls_cast(kernel_stream(), bad[i].to, y, bad[i].from, x, 2);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        scratch_expect_error("cast from", ls_dtype_name(bad[i].from));
    }
    ls_cast_divide(kernel_stream(), LS_FP32, y, x, 2, 2);
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
    scratch_expect_error("cast_divide cannot write fp32", NULL);
}

/* PyTorch's fp16_compress_hook; with two ranks a value that has overflowed stays infinite, because it is divided
 * afterwards. */
TEST_CASE(cast_divide) {
    const float *x = kernel_copy((float[]){1e-8f, 1.0001f, 70000, 3.14159f, NAN}, 5),
                golden[] = {0, 1, INFINITY, 3.140625f};
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
        assert_true(differ > COUNT / 10); /* so the test distinguishes the two orders */
    }
}

/* An average is rounded before it is divided, and after: 65520 is infinite at once, and the last one is not x / 3. */
TEST_CASE(averages_are_rounded_twice) {
    static const float x[][5] = {{65520, 65519, -65520, NAN, 0x1.001p0f}, {65520, 65519, -0x1p-133f, NAN, 0x1.011p0f}};
    static const float want[][5] = {{INFINITY, 21840, -INFINITY, NAN, 0x1.554p-2f},
                                    {21888, 21888, -0.0f, NAN, 0x1.58p-2f}};
    for (int d = 0; d < 2; d++) {
        void *y = kernel_elements(halves[d], 5);
        ls_cast_divide(kernel_stream(), halves[d], y, kernel_copy(x[d], 5), 3, 5);
        kernel_done();
        for (int i = 0; i < 5; i++) assert_true(i == 3 || kernel_widened(halves[d], y, 5)[i] == want[d][i]);
        assert_true(isnan(kernel_widened(halves[d], y, 5)[3]));
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(casts_of_every_half),         ROW(casts_of_floats_of_every_exponent),
        ROW(casts_round_to_nearest_even), ROW(special_casts),
        ROW(casts_that_are_errors),       ROW(cast_divide),
        ROW(averages_are_rounded_twice),
    };
    return RUN_EVERYWHERE("casts", tests);
}
