/* Batch norm and max-pooling in half precision against the same kernels in fp32 on the widened values: results are
 * those, rounded once; statistics and gradients of parameters are fp32 and have the same bits. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "tests/kernels/fixture.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

/* --- conversions --------------------------------------------------------------------------------------------------- */

static float widen(ls_dtype dtype, uint16_t half) {
    return dtype == LS_FP16 ? ls_fp16_to_float(half) : ls_bf16_to_float(half);
}

static uint16_t narrow(ls_dtype dtype, float value) {
    return dtype == LS_FP16 ? ls_fp16_from_float(value) : ls_bf16_from_float(value);
}

/* All halves, and of floats those whose rounding is near a tie, with one build's kernels. */
static void check_build(const struct ls_kernels *build, ls_dtype dtype) {
    enum { PATTERNS = 65536 };
    static const uint16_t ends[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
    uint16_t *x = kernel_elements(dtype, PATTERNS), *back = kernel_elements(dtype, PATTERNS);
    float *y = kernel_floats(PATTERNS);
    for (int i = 0; i < PATTERNS; i++) x[i] = (uint16_t)i;
    assert_int_equal(build->cast(&(struct ls_cast_arguments){LS_FP32, y, dtype, x, PATTERNS}), LS_OK);
    for (int i = 0; i < PATTERNS; i++) {
        if (ls_float_bits(y[i]) == ls_float_bits(widen(dtype, x[i]))) continue;
        fail_msg("%s, %s: %#x becomes %a", build->name, ls_dtype_name(dtype), (unsigned)i, (double)y[i]);
    }
    for (size_t e = 0; e < COUNT(ends); e++) {
        for (uint32_t i = 0; i < PATTERNS; i++) y[i] = ls_float_of_bits(i << 16 | ends[e]);
        assert_int_equal(build->cast(&(struct ls_cast_arguments){dtype, back, LS_FP32, y, PATTERNS}), LS_OK);
        for (int i = 0; i < PATTERNS; i++) {
            if (back[i] == narrow(dtype, y[i])) continue;
            fail_msg("%s, %s: %a becomes %#x", build->name, ls_dtype_name(dtype), (double)y[i], (unsigned)back[i]);
        }
    }
}

#if defined(__x86_64__)
extern const struct ls_kernels ls_cpu_kernels_v2, ls_cpu_kernels_v3;
#endif

static void every_build_converts_alike(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(halves); d++) {
        check_build(ls_cpu_kernels(), halves[d]);
#if defined(__x86_64__)
        check_build(&ls_cpu_kernels_v2, halves[d]);
        if (strcmp(ls_cpu_kernels()->name, "v4") == 0) check_build(&ls_cpu_kernels_v3, halves[d]);
#endif
    }
}

/* Rows that end anywhere; what lies behind them is guarded. */
static void rows_of_any_length_are_converted(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT(halves); d++) {
        for (size_t count = 0; count < 70; count++) {
            float *x = kernel_random(count, count), *wide = kernel_floats(count);
            uint16_t *y = kernel_elements(halves[d], count);
            ls_cast(kernel_stream(), halves[d], y, LS_FP32, x, count);
            kernel_done();
            ls_cast(kernel_stream(), LS_FP32, wide, halves[d], y, count);
            kernel_done();
            kernel_expect_same("narrowed", y, kernel_rounded(halves[d], x, count), count * sizeof *y);
            kernel_expect_same("widened", wide, kernel_widened(halves[d], y, count), count * sizeof *wide);
        }
    }
}

/* --- batch norm ----------------------------------------------------------------------------------------------------- */

enum { CHANNELS = 3, BATCH = 4 };

/* One run of every operation; activations are of s.dtype, `numbers` are fp32. */
struct pass {
    struct ls_batchnorm_shape s;
    size_t count;
    void *x, *dy;        /* inputs */
    float *gamma, *beta; /* likewise */
    void *trained, *evaluated, *normalized, *dx, *input_gradient;
    float *numbers; /* mean, invstd, running mean and variance, dgamma and dbeta, sums, dgamma and dbeta of them */
    double *statistics;
};

enum { MEAN, INVSTD, RUNNING_MEAN, RUNNING_VAR, DGAMMA, DBETA, SUMS, SUMS_DGAMMA = SUMS + 2, SUMS_DBETA, NUMBERS };

static float *number(const struct pass *p, int which) { return p->numbers + which * CHANNELS; }

/* x and dy are given in halves, and are widened if `dtype` is fp32. */
static struct pass make_pass(ls_dtype dtype, ls_dtype half, const float *x, const float *dy, int plane, bool relu) {
    struct pass p = {.s = {BATCH, CHANNELS, plane, 0.1f, 1e-5f, relu, dtype}};
    p.count = ls_batchnorm_count(&p.s);
    p.x = kernel_rounded(half, x, p.count);
    p.dy = kernel_rounded(half, dy, p.count);
    if (dtype == LS_FP32) {
        p.x = kernel_widened(half, p.x, p.count);
        p.dy = kernel_widened(half, p.dy, p.count);
    }
    p.gamma = kernel_random(CHANNELS, 3);
    p.beta = kernel_random(CHANNELS, 4);
    p.trained = kernel_elements(dtype, p.count);
    p.evaluated = kernel_elements(dtype, p.count);
    p.normalized = kernel_elements(dtype, p.count);
    p.dx = kernel_elements(dtype, p.count);
    p.numbers = kernel_random(NUMBERS * CHANNELS, 5);
    for (int c = 0; c < CHANNELS; c++) number(&p, RUNNING_VAR)[c] = 0.5f;
    p.statistics = kernel_bytes(ls_batchnorm_statistics_count(&p.s) * sizeof *p.statistics);
    return p;
}

static void run(struct pass *p, bool accumulate) {
    ls_stream *stream = kernel_stream();
    const float *mean = number(p, MEAN), *invstd = number(p, INVSTD);
    double *count = kernel_bytes(sizeof *count);
    *count = 2.5 * BATCH * p->s.plane; /* as if other ranks had values too */
    ls_batchnorm_eval(stream, p->s, p->evaluated, p->x, p->gamma, p->beta, number(p, RUNNING_MEAN),
                      number(p, RUNNING_VAR));
    kernel_done();
    ls_batchnorm_train(stream, p->s, p->trained, p->x, p->gamma, p->beta, number(p, MEAN), number(p, INVSTD),
                       number(p, RUNNING_MEAN), number(p, RUNNING_VAR));
    kernel_done();
    ls_batchnorm_statistics(stream, p->s, p->statistics, p->x);
    kernel_done();
    ls_batchnorm_normalize(stream, p->s, p->normalized, p->x, p->gamma, p->beta, mean, invstd);
    kernel_done();
    ls_batchnorm_backward(stream, p->s, p->dx, number(p, DGAMMA), number(p, DBETA), p->dy, p->x, p->gamma, p->beta,
                          mean, invstd, accumulate);
    kernel_done();
    ls_batchnorm_sums(stream, p->s, number(p, SUMS), number(p, SUMS_DGAMMA), number(p, SUMS_DBETA), p->dy, p->x,
                      p->gamma, p->beta, mean, invstd, accumulate);
    kernel_done();
    p->input_gradient = p->dy; /* dx may be dy */
    ls_batchnorm_input_gradient(stream, p->s, p->input_gradient, p->dy, p->x, p->gamma, p->beta, mean, invstd,
                                number(p, SUMS), count);
    kernel_done();
}

static void expect_rounded(const char *what, const struct pass *half, const void *got, const void *want) {
    kernel_expect_same(what, got, kernel_rounded(half->s.dtype, want, half->count), half->count * sizeof(uint16_t));
}

static void check_batchnorm(ls_dtype dtype, int plane, bool relu, bool accumulate) {
    size_t count = (size_t)(BATCH * CHANNELS * plane);
    float *x = kernel_random(count, 1), *dy = kernel_random(count, 2);
    for (size_t i = 0; i < count; i++) x[i] += 3; /* far from zero, where careless sums cancel */
    struct pass half = make_pass(dtype, dtype, x, dy, plane, relu),
                full = make_pass(LS_FP32, dtype, x, dy, plane, relu);
    run(&half, accumulate);
    run(&full, accumulate);
    expect_rounded("evaluated y", &half, half.evaluated, full.evaluated);
    expect_rounded("trained y", &half, half.trained, full.trained);
    expect_rounded("normalized y", &half, half.normalized, full.normalized);
    expect_rounded("dx", &half, half.dx, full.dx);
    expect_rounded("input gradient", &half, half.input_gradient, full.input_gradient);
    kernel_expect_same("numbers", half.numbers, full.numbers, NUMBERS * CHANNELS * sizeof(float));
    kernel_expect_same("statistics", half.statistics, full.statistics,
                       ls_batchnorm_statistics_count(&half.s) * sizeof(double));
}

static void batchnorm_is_that_of_fp32_rounded(void **state) {
    (void)state;
    static const int planes[] = {1, 7, 16, 33, 196, 1023, 1024};
    for (size_t i = 0; i < COUNT(planes) * COUNT(halves); i++) {
        check_batchnorm(halves[i % 2], planes[i / 2], false, i / 2 % 2 == 0);
        check_batchnorm(halves[i % 2], planes[i / 2], true, i / 2 % 2 == 1);
    }
}

/* Longer planes are summed in blocks, so statistics may differ in their last bits. */
static void long_planes_are_summed_in_blocks(void **state) {
    (void)state;
    enum { PLANE = 2051 };
    for (size_t d = 0; d < COUNT(halves); d++) {
        size_t count = BATCH * CHANNELS * PLANE;
        double step = halves[d] == LS_FP16 ? 0x1p-10 : 0x1p-7;
        float *x = kernel_random(count, 1), *dy = kernel_random(count, 2);
        struct pass half = make_pass(halves[d], halves[d], x, dy, PLANE, true);
        struct pass full = make_pass(LS_FP32, halves[d], x, dy, PLANE, true);
        run(&half, false);
        run(&full, false);
        kernel_expect_close("numbers", half.numbers, full.numbers, NUMBERS * CHANNELS, 1e-5, 1e-5);
        const void *got[] = {half.evaluated, half.trained, half.normalized, half.dx, half.input_gradient};
        const void *want[] = {full.evaluated, full.trained, full.normalized, full.dx, full.input_gradient};
        for (size_t i = 0; i < COUNT(got); i++) {
            kernel_expect_close("long plane", kernel_widened(halves[d], got[i], count), want[i], count, step, 1e-5);
        }
    }
}

/* Behind the ReLU, what the forward pass stored as 0 lets no gradient through, however positive it was before rounding;
 * what it stored as infinity does. x = dy = 1, y = gamma. */
static void check_mask(ls_dtype dtype, float gamma, bool passes) {
    const struct ls_batchnorm_shape s = {1, 1, 1, 0.1f, 1e-5f, true, dtype};
    const float one = 1, zero = 0, no_sums[2] = {0, 0};
    const double count = 1;
    void *x = kernel_rounded(dtype, &one, 1), *y = kernel_elements(dtype, 1), *dx = kernel_elements(dtype, 1);
    float *dgamma = kernel_floats(1), *dbeta = kernel_floats(3), *sums = dbeta + 1;
    ls_stream *stream = kernel_stream();
    ls_batchnorm_normalize(stream, s, y, x, &gamma, &zero, &zero, &one);
    kernel_done();
    ls_batchnorm_backward(stream, s, dx, dgamma, dbeta, x, x, &gamma, &zero, &zero, &one, false);
    kernel_done();
    assert_true(*kernel_widened(dtype, y, 1) == (passes ? kernel_round(dtype, gamma) : 0));
    assert_true(*dbeta == (float)passes && *dgamma == (float)passes);
    ls_batchnorm_sums(stream, s, sums, dgamma, dbeta, x, x, &gamma, &zero, &zero, &one, false);
    kernel_done();
    assert_true(sums[0] == (float)passes && sums[1] == (float)passes);
    if (gamma <= 1) return;
    ls_batchnorm_input_gradient(stream, s, dx, x, x, &gamma, &zero, &zero, &one, no_sums, &count);
    kernel_done();
    assert_true(*kernel_widened(dtype, dx, 1) == kernel_round(dtype, gamma));
}

static void the_mask_is_that_of_the_stored_y(void **state) {
    (void)state;
    check_mask(LS_FP16, 0x1p-25f, false);
    check_mask(LS_FP16, 0x1.000002p-25f, true);
    check_mask(LS_FP16, 0x1p-24f, true);
    check_mask(LS_FP16, 70000, true);
    check_mask(LS_FP16, -1, false);
    check_mask(LS_BF16, 0x1p-134f, false);
    check_mask(LS_BF16, 0x1.0002p-134f, true);
    check_mask(LS_BF16, 0x1p-25f, true);
    check_mask(LS_BF16, 0x1.ffffp127f, true);
    check_mask(LS_FP32, 0x1p-149f, true);
    check_mask(LS_FP32, 0, false);
}

/* --- max-pooling ---------------------------------------------------------------------------------------------------- */

/* Many ties, and what comparisons could get wrong. */
static float *make_numbers(size_t count) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0x1p-24f, -0x1p-24f};
    float *values = kernel_random(count, 1);
    for (size_t i = 0; i < count; i++) {
        values[i] = i % 5 == 2 ? odd[i / 5 % COUNT(odd)] : (float)(int)(values[i] * 4);
    }
    return values;
}

static void check_maxpool(ls_dtype dtype, struct ls_pool_shape s) {
    struct ls_pool_shape full_shape = s;
    s.dtype = dtype;
    size_t in = ls_pool_count(&s), out = ls_pool_windows(&s);
    void *x = kernel_rounded(dtype, make_numbers(in), in), *y = kernel_elements(dtype, out);
    void *dx = kernel_elements(dtype, in), *dy = kernel_rounded(dtype, kernel_random(out, 2), out);
    float *full_y = kernel_floats(out), *full_dx = kernel_floats(in);
    uint8_t *choice = kernel_bytes(out), *full_choice = kernel_bytes(out);
    ls_stream *stream = kernel_stream();
    ls_maxpool_forward(stream, full_shape, full_y, full_choice, kernel_widened(dtype, x, in));
    kernel_done();
    ls_maxpool_forward(stream, s, y, choice, x);
    kernel_done();
    ls_maxpool_backward(stream, full_shape, full_dx, kernel_widened(dtype, dy, out), full_choice);
    kernel_done();
    ls_maxpool_backward(stream, s, dx, dy, choice);
    kernel_done();
    kernel_expect_same("choice", choice, full_choice, out);
    kernel_expect_same("y", y, kernel_rounded(dtype, full_y, out), out * sizeof(uint16_t));
    kernel_expect_same("dx", dx, kernel_rounded(dtype, full_dx, in), in * sizeof(uint16_t));
}

/* Planes that go in one, in several rows, and in parts of a row; windows that fit and that leave something over;
 * none. */
static void maxpool_is_that_of_fp32(void **state) {
    (void)state;
    static const struct ls_pool_shape shapes[] = {
        {3, 14, 14, 2, LS_FP32}, {2, 7, 9, 2, LS_FP32},     {2, 4, 3, 2, LS_FP32},    {2, 70, 47, 2, LS_FP32},
        {2, 7, 512, 2, LS_FP32}, {2, 7, 513, 2, LS_FP32},   {2, 3, 1541, 2, LS_FP32}, {2, 10, 11, 3, LS_FP32},
        {2, 7, 700, 3, LS_FP32}, {1, 31, 100, 15, LS_FP32}, {2, 1, 5, 2, LS_FP32},    {2, 5, 1, 2, LS_FP32},
        {0, 4, 4, 2, LS_FP32},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        check_maxpool(LS_FP16, shapes[i]);
        check_maxpool(LS_BF16, shapes[i]);
    }
}

/* The first of equals, and the last NaN, without the fp32 kernels. */
static void maxpool_by_hand(void **state) {
    (void)state;
    const float x[] = {1, 1, -2, -1, 0, NAN, 3, NAN, 1, 1, -1, -2, NAN, 5, 3, 3}, dy[] = {1, 2, 4, 8};
    static const uint8_t want[] = {0, 1, 2, 1};
    const float want_dx[] = {1, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 4, 0, 0, 0};
    for (size_t d = 0; d < COUNT(halves); d++) {
        const struct ls_pool_shape s = {1, 2, 8, 2, halves[d]};
        uint8_t *choice = kernel_bytes(4);
        void *y = kernel_elements(halves[d], 4), *dx = kernel_elements(halves[d], 16);
        ls_maxpool_forward(kernel_stream(), s, y, choice, kernel_rounded(halves[d], x, 16));
        kernel_done();
        ls_maxpool_backward(kernel_stream(), s, dx, kernel_rounded(halves[d], dy, 4), choice);
        kernel_done();
        const float *wide = kernel_widened(halves[d], y, 4);
        assert_true(wide[0] == 1 && wide[1] == -1 && isnan(wide[2]) && isnan(wide[3]));
        kernel_expect_same("choice", choice, want, sizeof want);
        kernel_expect_same("dx", kernel_widened(halves[d], dx, 16), want_dx, sizeof want_dx);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kernel_setup, kernel_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_build_converts_alike),
        TEST(rows_of_any_length_are_converted),
        TEST(batchnorm_is_that_of_fp32_rounded),
        TEST(long_planes_are_summed_in_blocks),
        TEST(the_mask_is_that_of_the_stored_y),
        TEST(maxpool_is_that_of_fp32),
        TEST(maxpool_by_hand),
    };
    return cmocka_run_group_tests_name("half layers", tests, NULL, NULL);
}
