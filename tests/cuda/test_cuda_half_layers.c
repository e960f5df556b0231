/* Batch norm of fp16 and bf16 on a GPU: to the bit what the operation makes of the same values in fp32, rounded once,
 * on both rungs; and the CPU's bits for every element that there is, infinities and NaNs included. Runs on real GPUs
 * too. (fp32: test_cuda_layers_batchnorm.c; max-pooling of all types: test_cuda_layers.c.) */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/cuda/batchnorm_runs.h"

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct ls_batchnorm_shape shape_of(int batch, int channels, int plane, bool relu, ls_dtype dtype) {
    return (struct ls_batchnorm_shape){batch, channels, plane, 0.1f, 1e-5f, relu, dtype};
}

static const struct {
    const char *name;
    ls_status (*run)(struct batchnorm *b);
} operations[] = {
    {"train", batchnorm_train},
    {"backward", batchnorm_backward},
    {"statistics", batchnorm_statistics},
    {"merge", batchnorm_merge},
    {"normalize", batchnorm_normalize},
    {"sums", batchnorm_sums},
    {"input_gradient", batchnorm_input_gradient},
    {"eval", batchnorm_eval},
};

/* --- the same in fp32, rounded ------------------------------------------------------------------------------------ */

/* With y and dx as they are before the first operation writes them. */
static struct batchnorm make_halves(struct ls_batchnorm_shape s, int rung, int turn) {
    struct batchnorm b = batchnorm_make(s, 3, rung, turn);
    memcpy(b.y, b.x, ls_batchnorm_nbytes(&s));
    memcpy(b.dx, b.dy, ls_batchnorm_nbytes(&s));
    return b;
}

static struct batchnorm make_twin(const struct batchnorm *half, int turn) {
    struct ls_batchnorm_shape s = half->s;
    s.dtype = LS_FP32;
    struct batchnorm b = batchnorm_make(s, 3, half->rung, turn);
    b.x = kernel_widened(half->s.dtype, half->x, b.count);
    b.y = kernel_widened(half->s.dtype, half->x, b.count);
    b.dy = kernel_widened(half->s.dtype, half->dy, b.count);
    b.dx = kernel_widened(half->s.dtype, half->dy, b.count);
    return b;
}

static void expect_twins(const char *operation, const struct batchnorm *half, const struct batchnorm *wide) {
    const struct {
        const char *name;
        const void *got, *want;
        size_t nbytes;
    } arrays[] = {
        {"y", half->y, kernel_rounded(half->s.dtype, wide->y, wide->count), ls_batchnorm_nbytes(&half->s)},
        {"dx", half->dx, kernel_rounded(half->s.dtype, wide->dx, wide->count), ls_batchnorm_nbytes(&half->s)},
        {"mean", half->mean, wide->mean, 4 * half->channels},
        {"invstd", half->invstd, wide->invstd, 4 * half->channels},
        {"running_mean", half->running_mean, wide->running_mean, 4 * half->channels},
        {"running_var", half->running_var, wide->running_var, 4 * half->channels},
        {"dgamma", half->dgamma, wide->dgamma, 4 * half->channels},
        {"dbeta", half->dbeta, wide->dbeta, 4 * half->channels},
        {"sums", half->sums, wide->sums, 8 * half->channels},
        {"statistics", half->statistics, wide->statistics, 8 * ls_batchnorm_statistics_count(&half->s)},
        {"m", half->m, wide->m, 8},
    };
    for (size_t i = 0; i < COUNT(arrays); i++) {
        char what[100];
        snprintf(what, sizeof what, "%s's %s (%s)", operation, arrays[i].name, ls_dtype_name(half->s.dtype));
        kernel_expect_same(what, arrays[i].got, arrays[i].want, arrays[i].nbytes);
    }
}

static void check(struct ls_batchnorm_shape s, int rung, int turn) {
    struct batchnorm half = make_halves(s, rung, turn), wide = make_twin(&half, turn);
    for (size_t i = 0; i < COUNT(operations); i++) {
        assert_int_equal(operations[i].run(&half), LS_OK);
        assert_int_equal(operations[i].run(&wide), LS_OK);
        expect_twins(operations[i].name, &half, &wide);
    }
}

/* Planes that are taken by fours and others, of several slices and groups too. */
static const int shapes[][3] = {/* batch, channels, plane */
                                {2, 1, 1},
                                {3, 2, 16},
                                {7, 4, 33},
                                {2, 3, 784},
                                {5, 1, 999}};

static void halves_are_floats_rounded_once(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(shapes) * COUNT(halves) * 2; i++) {
        const int *shape = shapes[i % COUNT(shapes)], turn = (int)(i / COUNT(shapes));
        struct ls_batchnorm_shape s = shape_of(shape[0], shape[1], shape[2], turn > 1, halves[turn % 2]);
        for (int rung = 0; rung < RUNG_COUNT; rung++) check(s, rung, (int)i);
    }
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* Not bytes: a NaN may be any NaN. */
static void expect_same_elements(const char *what, ls_dtype dtype, const uint16_t *got, const uint16_t *want,
                                 size_t count) {
    const float *x = kernel_widened(dtype, got, count), *y = kernel_widened(dtype, want, count);
    for (size_t i = 0; i < count; i++) {
        if (got[i] != want[i] && !(isnan(x[i]) && isnan(y[i])))
            fail_msg("%s[%zu] of %s is %a, not %a", what, i, ls_dtype_name(dtype), (double)x[i], (double)y[i]);
    }
}

/* All 65536 elements as x, and as dy in another order. Channels scale them up beyond what a half can hold, and down
 * into the subnormal numbers. */
static struct batchnorm make_all_elements(ls_dtype dtype, bool relu, int rung) {
    enum { CHANNELS = 8, PLANE = 65536 / CHANNELS };
    static const float gamma[CHANNELS] = {1, 0.3f, -1.7f, 300, -3e-6f, 1e30f, 1e-38f, 0};
    struct batchnorm b = batchnorm_make(shape_of(1, CHANNELS, PLANE, relu, dtype), 0, rung, 0);
    for (uint32_t i = 0; i < 65536; i++) {
        ((uint16_t *)b.x)[i] = (uint16_t)(i * 8 + i / PLANE);
        ((uint16_t *)b.dy)[i] = (uint16_t)(i * 40503u + 12345);
    }
    for (size_t c = 0; c < CHANNELS; c++) {
        b.gamma[c] = gamma[c];
        b.mean[c] = b.running_mean[c] = (float)c * 0.1f;
        b.invstd[c] = 1 + (float)c * 0.2f;
        b.sums[c] = b.sums[CHANNELS + c] = (float)c - 3.3f;
    }
    *b.m = 100;
    return b;
}

static void every_element_has_the_cpus_bits(void **state) {
    (void)state;
    for (int i = 0; i < 2 * 2 * RUNG_COUNT; i++) {
        ls_dtype dtype = halves[i % 2];
        struct batchnorm got = make_all_elements(dtype, i / 2 % 2, i / 4);
        struct batchnorm want = make_all_elements(dtype, i / 2 % 2, ON_THE_CPU);
        assert_int_equal(batchnorm_normalize(&got) | batchnorm_normalize(&want), LS_OK);
        expect_same_elements("normalize's y", dtype, got.y, want.y, got.count);
        assert_int_equal(batchnorm_eval(&got) | batchnorm_eval(&want), LS_OK);
        expect_same_elements("eval's y", dtype, got.y, want.y, got.count);
        assert_int_equal(batchnorm_input_gradient(&got) | batchnorm_input_gradient(&want), LS_OK);
        expect_same_elements("dx", dtype, got.dx, want.dx, got.count);
    }
}

/* --- what the ReLU lets through ----------------------------------------------------------------------------------- */

enum { SMALL_CHANNELS = 64 };

static float smallest(ls_dtype dtype) {
    if (dtype == LS_FP32) return 0x1p-149f;
    return dtype == LS_FP16 ? 0x1p-24f : 0x1p-133f;
}

/* A value a channel, y = gamma x and dx = gamma dy, of the smallest elements that there are. */
static struct batchnorm make_small_elements(ls_dtype dtype, int rung) {
    static const float gamma[] = {1, 0.5f, 0.25f, 0.75f, 0.50001f, 0.49999f, -0.5f, -0.50001f};
    struct batchnorm b = batchnorm_make(shape_of(1, SMALL_CHANNELS, 1, true, dtype), 0, rung, 0);
    float x[SMALL_CHANNELS], dy[SMALL_CHANNELS];
    for (int c = 0; c < SMALL_CHANNELS; c++) {
        x[c] = (float)(c / 8 - 3) * smallest(dtype);
        b.gamma[c] = gamma[c % 8];
        dy[c] = b.invstd[c] = 1;
        b.beta[c] = b.mean[c] = b.sums[c] = b.sums[SMALL_CHANNELS + c] = 0;
    }
    b.x = kernel_rounded(dtype, x, SMALL_CHANNELS), b.dy = kernel_rounded(dtype, dy, SMALL_CHANNELS);
    *b.m = 1;
    return b;
}

/* dy counts where y as it is stored is larger than 0, not where it was before it was rounded. */
static void a_y_that_is_stored_as_zero_passes_nothing(void **state) {
    (void)state;
    for (int i = 0; i < PROBLEM_DTYPES * RUNG_COUNT; i++) {
        ls_dtype dtype = problem_dtypes[i % PROBLEM_DTYPES];
        struct batchnorm b = make_small_elements(dtype, i / PROBLEM_DTYPES);
        assert_int_equal(batchnorm_normalize(&b), LS_OK);
        assert_int_equal(batchnorm_input_gradient(&b), LS_OK); /* before the sums are written */
        assert_int_equal(batchnorm_sums(&b), LS_OK);
        const float *y = kernel_widened(dtype, b.y, SMALL_CHANNELS), *dx = kernel_widened(dtype, b.dx, SMALL_CHANNELS);
        int passed = 0;
        for (int c = 0; c < SMALL_CHANNELS; c++) {
            bool passes = y[c] > 0;
            passed += passes;
            if (b.dbeta[c] != (passes ? 1 : 0) || (dx[c] != 0) != passes)
                fail_msg("%s: y = %a, dbeta = %a, dx = %a", ls_dtype_name(dtype), (double)y[c], (double)b.dbeta[c],
                         (double)dx[c]);
        }
        assert_in_range(passed, 24, 30);
    }
}

/* --- types that there are no kernels for -------------------------------------------------------------------------- */

static void integers_are_refused(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        struct batchnorm b = batchnorm_make(shape_of(2, 3, 4, true, LS_FP32), 0, rung, 0);
        b.s.dtype = LS_INT32;
        for (size_t i = 0; i < COUNT(operations); i++) {
            if (operations[i].run == batchnorm_merge) continue; /* has no elements */
            char said[80];
            snprintf(said, sizeof said, "batchnorm_%s: there are no kernels for int32", operations[i].name);
            assert_int_equal(operations[i].run(&b), LS_ERR_INVALID);
            scratch_expect_error(said, NULL);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(halves_are_floats_rounded_once),
        TEST_SO(halves_are_floats_rounded_once, "CUDA_ON_CPU_THREADS=descending"),
        TEST_SO(halves_are_floats_rounded_once, "CUDA_ON_CPU_THREADS=random:1"),
        TEST(every_element_has_the_cpus_bits),
        TEST(a_y_that_is_stored_as_zero_passes_nothing),
        TEST(integers_are_refused),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("layers of halves on GPUs", tests, NULL, NULL);
}
