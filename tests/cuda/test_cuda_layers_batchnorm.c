/* Batch norm on a GPU against its formulas in double: both rungs, from one value a channel and rank to several slices
 * a channel and several groups a slice, in planes that can be read by fours and others. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/cuda/batchnorm_runs.h"

/* --- the formulas, in double -------------------------------------------------------------------------------------- */

struct reference {
    double *y, *dx;
    double mean, m2, invstd, running_mean, running_var, dgamma, dbeta;
};

static size_t place(const struct batchnorm *b, size_t i, size_t c) {
    size_t plane = (size_t)b->s.plane;
    return (i / plane * b->channels + c) * plane + i % plane;
}

/* Of channel c; `before` the operations have run. What the ReLU let through is read from b->y: the sign of a value
 * that is 0 but for rounding may be either. */
static void refer_channel(const struct batchnorm *b, const struct batchnorm *before, size_t c, struct reference *r) {
    size_t m = (size_t)b->s.batch * (size_t)b->s.plane;
    const float *x = b->x, *y_stored = b->y, *dy = b->dy;
    double n = (double)m, gamma = (double)b->gamma[c], sums[2] = {0, 0};
    r->mean = r->m2 = 0;
    for (size_t i = 0; i < m; i++) r->mean += (double)x[place(b, i, c)] / n;
    for (size_t i = 0; i < m; i++) r->m2 += pow((double)x[place(b, i, c)] - r->mean, 2);
    r->invstd = 1 / sqrt(r->m2 / n + 1e-5);
    r->running_mean = 0.9 * (double)before->running_mean[c] + 0.1 * r->mean;
    r->running_var = 0.9 * (double)before->running_var[c] + 0.1 * r->m2 / (n - 1);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < m; i++) {
            size_t at = place(b, i, c);
            double xhat = ((double)x[at] - r->mean) * r->invstd, y = gamma * xhat + (double)b->beta[c];
            double d = b->s.relu && y_stored[at] <= 0 ? 0 : (double)dy[at];
            r->y[at] = b->s.relu && y <= 0 ? 0 : y;
            r->dx[at] = gamma * r->invstd * (d - sums[0] / n - xhat * sums[1] / n);
            sums[0] += pass == 0 ? d : 0;
            sums[1] += pass == 0 ? d * xhat : 0;
        }
    }
    r->dbeta = sums[0] + (b->accumulate ? (double)before->dbeta[c] : 0);
    r->dgamma = sums[1] + (b->accumulate ? (double)before->dgamma[c] : 0);
}

static void expect_reference(const struct batchnorm *b, const struct batchnorm *before) {
    struct reference r = {.y = calloc(b->count + 1, sizeof(double)), .dx = calloc(b->count + 1, sizeof(double))};
    assert_true(r.y && r.dx);
    double m = (double)b->s.batch * b->s.plane, scale = 1;
    for (size_t c = 0; c < b->channels; c++) {
        refer_channel(b, before, c, &r);
        scale = fmax(scale, r.invstd * r.invstd);
        kernel_expect_sum("mean", &b->mean[c], &r.mean, 1, 16 * (1 + r.mean * r.mean));
        kernel_expect_sum("invstd", &b->invstd[c], &r.invstd, 1, 16 * r.invstd * r.invstd);
        kernel_expect_sum("running_mean", &b->running_mean[c], &r.running_mean, 1, 16);
        kernel_expect_sum("running_var", &b->running_var[c], &r.running_var, 1, 16);
        kernel_expect_sum("dgamma", &b->dgamma[c], &r.dgamma, 1, 100 + 4 * m);
        kernel_expect_sum("dbeta", &b->dbeta[c], &r.dbeta, 1, 100 + 4 * m);
    }
    kernel_expect_sum("y", b->y, r.y, b->count, 100);
    kernel_expect_sum("dx", b->dx, r.dx, b->count, 100 * scale);
    free(r.y), free(r.dx);
}

/* --- the tests ---------------------------------------------------------------------------------------------------- */

static struct ls_batchnorm_shape shape_of(int batch, int channels, int plane, bool relu) {
    return (struct ls_batchnorm_shape){batch, channels, plane, 0.1f, 1e-5f, relu, LS_FP32};
}

/* On one device, and as the operations for several ranks of which there is one: to the bit the same, but for dx,
 * since there the sums go through float. */
static void check(struct ls_batchnorm_shape s, int rung, int turn) {
    struct batchnorm whole = batchnorm_make(s, 3, rung, turn), piece = batchnorm_make(s, 3, rung, turn);
    struct batchnorm before = batchnorm_make(s, 3, rung, turn);
    size_t small = whole.channels * sizeof(float);
    assert_int_equal(batchnorm_train(&whole), LS_OK);
    assert_int_equal(batchnorm_backward(&whole), LS_OK);
    expect_reference(&whole, &before);
    assert_int_equal(batchnorm_statistics(&piece), LS_OK);
    assert_int_equal(batchnorm_merge(&piece), LS_OK);
    assert_int_equal(batchnorm_normalize(&piece), LS_OK);
    assert_int_equal(batchnorm_sums(&piece), LS_OK);
    assert_int_equal(batchnorm_input_gradient(&piece), LS_OK);
    assert_true(*piece.m == (double)s.batch * s.plane);
    kernel_expect_same("mean", piece.mean, whole.mean, small);
    kernel_expect_same("invstd", piece.invstd, whole.invstd, small);
    kernel_expect_same("running_mean", piece.running_mean, whole.running_mean, small);
    kernel_expect_same("running_var", piece.running_var, whole.running_var, small);
    kernel_expect_same("y", piece.y, whole.y, whole.count * sizeof(float));
    kernel_expect_same("dgamma", piece.dgamma, whole.dgamma, small);
    kernel_expect_same("dbeta", piece.dbeta, whole.dbeta, small);
    kernel_expect_close("dx", piece.dx, whole.dx, whole.count, 1e-6, 1e-6);
}

static const int shapes[][3] = {/* batch, channels, plane */
                                {2, 1, 1},   {4, 3, 1},   {1, 3, 50},  {3, 2, 16},   {7, 4, 33},
                                {33, 5, 49}, {2, 3, 784}, {5, 1, 999}, {40, 2, 196}, {3, 300, 4}};

static void check_shapes(int rung, int turns) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int turn = 0; turn < turns; turn++) {
            check(shape_of(shapes[i][0], shapes[i][1], shapes[i][2], turn % 2 == 0), rung, turn + (int)i);
        }
    }
}

static void naive_rung(void **state) {
    (void)state;
    check_shapes(RUNG_NAIVE, 2);
}

static void fast_rung(void **state) {
    (void)state;
    check_shapes(RUNG_FAST, 4);
}

/* As many slices as there may be, each of several groups, by fours and one by one; and as many channels as leave one
 * slice to each. */
static void large_ones(void **state) {
    (void)state;
    check(shape_of(5, 1, 420004, true), RUNG_FAST, 0);
    check(shape_of(3, 1, 700003, false), RUNG_FAST, 0);
    check(shape_of(2, 1100, 100, true), RUNG_FAST, 2);
}

/* A mean that is large beside the deviations must not swallow them. */
static void far_from_zero(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        struct batchnorm b = batchnorm_make(shape_of(9, 2, 1000, false), 1000, rung, 0);
        struct reference r = {.y = calloc(b.count, sizeof(double)), .dx = calloc(b.count, sizeof(double))};
        assert_true(r.y && r.dx);
        assert_int_equal(batchnorm_statistics(&b), LS_OK);
        for (size_t c = 0; c < b.channels; c++) {
            refer_channel(&b, &b, c, &r); /* (no ReLU: y is not read) */
            assert_true(fabs(b.statistics[c] - r.mean) <= 1e-4);
            assert_true(fabs(b.statistics[b.channels + c] - r.m2) <= 1e-5 * r.m2);
        }
        free(r.y), free(r.dx);
    }
}

/* A rank without samples adds nothing. */
static void an_empty_batch(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        for (int turn = 0; turn < 2; turn++) {
            struct batchnorm b = batchnorm_make(shape_of(0, 3, 5, true), 0, rung, turn);
            struct batchnorm before = batchnorm_make(shape_of(0, 3, 5, true), 0, rung, turn);
            for (size_t c = 0; c < b.channels; c++) b.mean[c] = b.invstd[c] = 1;
            *b.m = 2;
            assert_int_equal(batchnorm_statistics(&b), LS_OK);
            for (size_t i = 0; i < ls_batchnorm_statistics_count(&b.s); i++) assert_true(b.statistics[i] == 0);
            assert_int_equal(batchnorm_merge(&b), LS_OK); /* nor does anybody else: what is known stays */
            assert_true(*b.m == 0);
            for (size_t c = 0; c < b.channels; c++) assert_true(b.mean[c] == 1 && b.invstd[c] == 1);
            kernel_expect_same("running_mean", b.running_mean, before.running_mean, b.channels * sizeof(float));
            kernel_expect_same("running_var", b.running_var, before.running_var, b.channels * sizeof(float));
            assert_int_equal(batchnorm_normalize(&b), LS_OK);
            assert_int_equal(batchnorm_sums(&b), LS_OK);
            for (size_t i = 0; i < 2 * b.channels; i++) assert_true(b.sums[i] == 0);
            assert_int_equal(batchnorm_input_gradient(&b), LS_OK);
            assert_int_equal(batchnorm_backward(&b), LS_OK);
            for (size_t c = 0; c < b.channels; c++) {
                assert_true(b.dgamma[c] == (b.accumulate ? before.dgamma[c] : 0));
                assert_true(b.dbeta[c] == (b.accumulate ? before.dbeta[c] : 0));
            }
        }
    }
}

/* Known on the host before anything is launched. */
static void one_value_is_an_error(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        struct batchnorm b = batchnorm_make(shape_of(1, 2, 1, false), 0, rung, 0);
        assert_int_equal(batchnorm_train(&b), LS_ERR_INVALID);
        scratch_expect_error("more than one value per channel", "this batch has 1");
        (void)ls_stream_synchronize(transplant_stream());
    }
}

/* Known only to the GPU: the host hears of it when it waits. */
static void one_value_over_all_ranks_is_an_error(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        struct batchnorm b = batchnorm_make(shape_of(1, 300, 1, false), 0, rung, 0);
        assert_int_equal(batchnorm_statistics(&b), LS_OK);
        assert_int_equal(batchnorm_merge(&b), LS_ERR_INVALID);
        scratch_expect_error("more than one value per channel", "this batch has 1");
    }
}

/* The lane's scratch memory bounds the channels. */
static void too_many_channels_are_an_error(void **state) {
    (void)state;
    struct batchnorm b = batchnorm_make(shape_of(2, 300000, 1, false), 0, RUNG_FAST, 0);
    assert_int_equal(batchnorm_train(&b), LS_ERR_UNSUPPORTED);
    scratch_expect_error("batchnorm_train of 300000 channels", "room for 262144");
    (void)ls_stream_synchronize(transplant_stream());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(naive_rung),
        TEST(fast_rung),
        TEST_SO(fast_rung, "CUDA_ON_CPU_THREADS=descending"),
        TEST_SO(fast_rung, "CUDA_ON_CPU_THREADS=random:1"),
        TEST(large_ones),
        TEST(far_from_zero),
        TEST(an_empty_batch),
        TEST(one_value_is_an_error),
        TEST(one_value_over_all_ranks_is_an_error),
        TEST(too_many_channels_are_an_error),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("batch norm on GPUs", tests, NULL, NULL);
}
