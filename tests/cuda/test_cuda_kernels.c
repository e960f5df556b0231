/* Every operation on a GPU against the same on a CPU device: both rungs, all types, many sizes, four alignments, three
 * orders of the threads of a block, several ways to round (CUDA_ON_CPU_ROUNDING); nothing but outputs is written, and
 * the same call twice gives the same bits. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/transplant.h"

/* --- what must agree ---------------------------------------------------------------------------------------------- */

/* Outputs (bit i: the i-th) that are sums, which the rungs take in their own order, or of expf and logf; all others
 * have the CPU's bits. */
static const struct {
    unsigned naive, fast;
    double double_rtol; /* 0: floats or halves */
} near[LS_OP_COUNT] = {
    [LS_OP_gemm] = {1, 1, 0},
    [LS_OP_bias_gradient] = {0, 1, 0},
    [LS_OP_relu_bias_gradient] = {0, 1, 0},
    [LS_OP_conv2d_forward] = {1, 1, 0},
    [LS_OP_conv2d_backward_data] = {1, 1, 0},
    [LS_OP_conv2d_backward_weights] = {3, 3, 0},
    [LS_OP_batchnorm_train] = {~0u, ~0u, 0},
    [LS_OP_batchnorm_backward] = {~0u, ~0u, 0},
    [LS_OP_batchnorm_statistics] = {1, 1, 1e-6},
    [LS_OP_batchnorm_sums] = {7, 7, 0},
    [LS_OP_cross_entropy] = {3, 3, 0},
    [LS_OP_squared_error] = {1, 1, 0},
    [LS_OP_square_sum_list] = {1, 1, 1e-12},
};

/* Arrays of halves begin 2 bytes behind a multiple of 64: fixture.h. */
static bool holds_halves(const void *memory) { return (uintptr_t)memory % 64 == sizeof(uint16_t); }

/* Two sums that differ little may round to halves next to each other. */
static double unit_of(ls_dtype dtype) { return dtype == LS_FP16 ? 0x1p-10 : dtype == LS_BF16 ? 0x1p-7 : 0; }

static void expect_near(const char *what, const struct problem *got, const struct problem *want, int output, int size,
                        double double_rtol) {
    const void *a = got->outputs[output].memory, *b = want->outputs[output].memory;
    ls_dtype dtype = holds_halves(b) ? want->dtype : LS_FP32;
    bool doubles = double_rtol > 0;
    size_t count = want->outputs[output].nbytes / (doubles ? sizeof(double) : ls_dtype_nbytes(dtype));
    const float *x = doubles ? NULL : kernel_widened(dtype, a, count),
                *y = doubles ? NULL : kernel_widened(dtype, b, count);
    double atol = doubles ? double_rtol : 1e-6 * (2 + sqrt(size)), rtol = atol + unit_of(dtype);
    for (size_t i = 0; i < count; i++) {
        double u = doubles ? ((const double *)a)[i] : (double)x[i], v = doubles ? ((const double *)b)[i] : (double)y[i];
        if (!(fabs(u - v) <= atol + rtol * fabs(v)))
            fail_msg("%s: output %d[%zu] is %.9g, not %.9g", what, output, i, u, v);
    }
}

static void expect_same_bits(const char *what, const struct problem *got, const struct problem *want, int output) {
    char text[200];
    snprintf(text, sizeof text, "%s: output %d", what, output);
    kernel_expect_same(text, got->outputs[output].memory, want->outputs[output].memory, got->outputs[output].nbytes);
}

/* --- the walk ----------------------------------------------------------------------------------------------------- */

static void check(ls_op_id id, int size, ls_dtype dtype, int rung, transplant_alignment alignment) {
    const struct ls_cuda_rungs *rungs = transplant_rungs();
    struct problem want = make_problem(id, size, dtype), first = make_problem(id, size, dtype);
    struct problem second = make_problem(id, size, dtype);
    char what[160];
    snprintf(what, sizeof what, "%s %s of %s, size %d, alignment %d", rungs->rungs[rung].name, ls_op_name(id),
             ls_dtype_name(dtype), size, (int)alignment);
    ls_enqueue(kernel_stream(), &want.op);
    kernel_done();
    if (transplant_run(&first, rungs->rungs[rung].enqueue, alignment) != LS_OK) fail_msg("%s failed", what);
    if (transplant_run(&second, rungs->rungs[rung].enqueue, alignment) != LS_OK) fail_msg("%s failed", what);
    unsigned sums = rung == RUNG_NAIVE ? near[id].naive : near[id].fast;
    for (int i = 0; i < want.output_count; i++) {
        expect_same_bits(what, &second, &first, i);
        if (sums >> i & 1) {
            expect_near(what, &first, &want, i, size, near[id].double_rtol);
        } else {
            expect_same_bits(what, &first, &want, i);
        }
    }
}

static bool is_possible(ls_op_id id, int size) { return !(id == LS_OP_gemm && size == 0); }

/* LS_ONE_OPERATION=gemm LS_ONE_RUNG=fast: only these (gpu_check, where all together have failed). */
static bool is_wanted(ls_op_id id, int rung) {
    const char *operation = getenv("LS_ONE_OPERATION"), *one = getenv("LS_ONE_RUNG");
    if (operation && strcmp(operation, ls_op_name(id)) != 0) return false;
    return !one || strcmp(one, rung == RUNG_NAIVE ? "naive" : "fast") == 0;
}

static void check_all(int rung, ls_dtype dtype, const int *sizes, size_t size_count) {
    for (int id = 0; id < LS_OP_COUNT; id++) {
        if (!is_wanted((ls_op_id)id, rung) || (dtype != LS_FP32 && !op_has_dtype((ls_op_id)id))) continue;
        for (size_t s = 0; s < size_count; s++) {
            if (is_possible((ls_op_id)id, sizes[s]))
                check((ls_op_id)id, sizes[s], dtype, rung, (transplant_alignment)(s % TRANSPLANT_ALIGNMENTS));
        }
    }
}

/* A size meets several alignments, since the walks shift the list by one. */
static const int sizes[] = {0, 1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 67, 255, 257};
static const int few_sizes[] = {1, 4, 17, 64, 67};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void naive_rungs(void **state) {
    (void)state;
    check_all(RUNG_NAIVE, LS_FP32, sizes, COUNT(sizes));
}

static void fast_rungs(void **state) {
    (void)state;
    check_all(RUNG_FAST, LS_FP32, sizes, COUNT(sizes));
}

static void fast_rungs_of_other_alignments(void **state) {
    (void)state;
    check_all(RUNG_FAST, LS_FP32, sizes + 1, COUNT(sizes) - 1);
    check_all(RUNG_FAST, LS_FP32, sizes + 2, COUNT(sizes) - 2);
}

static void few_sizes_of_both_rungs(void **state) {
    (void)state;
    for (size_t first = 0; first < 3; first++) {
        check_all(RUNG_NAIVE, LS_FP32, few_sizes + first, COUNT(few_sizes) - first);
        check_all(RUNG_FAST, LS_FP32, few_sizes + first, COUNT(few_sizes) - first);
    }
}

/* The same text as that of floats but for loads and stores: fewer sizes are enough. */
static void halves(void **state) {
    (void)state;
    static const int half_sizes[] = {0, 1, 3, 16, 67, 2, 33, 8};
    for (int d = 1; d < PROBLEM_DTYPES; d++) {
        check_all(RUNG_NAIVE, problem_dtypes[d], half_sizes, COUNT(half_sizes));
        check_all(RUNG_FAST, problem_dtypes[d], half_sizes, COUNT(half_sizes));
        check_all(RUNG_FAST, problem_dtypes[d], half_sizes + 2, COUNT(half_sizes) - 2);
    }
}

static void few_sizes_of_halves(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        check_all(rung, LS_FP16, few_sizes, COUNT(few_sizes));
        check_all(rung, LS_BF16, few_sizes + 1, COUNT(few_sizes) - 1);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_WITH(name, setting)                                                                                       \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(naive_rungs),
        TEST(fast_rungs),
        TEST(fast_rungs_of_other_alignments),
        TEST(halves),
        TEST_WITH(few_sizes_of_both_rungs, "CUDA_ON_CPU_THREADS=descending CUDA_ON_CPU_ROUNDING=slices:2,ulps"),
        TEST_WITH(few_sizes_of_halves, "CUDA_ON_CPU_THREADS=descending CUDA_ON_CPU_ROUNDING=cut"),
        TEST_WITH(few_sizes_of_halves, "CUDA_ON_CPU_THREADS=random:2 CUDA_ON_CPU_ROUNDING=slices:8,place,cut,flush"),
        TEST_WITH(few_sizes_of_both_rungs, "CUDA_ON_CPU_THREADS=random:1 CUDA_ON_CPU_ROUNDING=slices:4,place"),
        TEST_WITH(few_sizes_of_both_rungs, "CUDA_ON_CPU_STREAMS=shuffle:1 CUDA_ON_CPU_ROUNDING=slices:8,ulps,flush"),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("kernels of GPUs", tests, NULL, NULL);
}
