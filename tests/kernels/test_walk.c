/* Every operation of ops.def against this processor's best build: at many sizes, from empty on, of all types and
 * alignments; and twice, with the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/problems.h"

/* Two sums that differ slightly may round to neighbouring halves. */
static double unit_of(ls_dtype dtype) { return dtype == LS_FP16 ? 0x1p-10 : dtype == LS_BF16 ? 0x1p-7 : 0; }

/* Arrays of halves begin 2 bytes after a multiple of 64: fixture.h. */
static bool holds_halves(const void *memory) { return (uintptr_t)memory % 64 == sizeof(uint16_t); }

/* Operands of matrix multiplies that the operation itself has computed, and rounded to the type of its results. */
static bool rounds_within(ls_op_id id) { return id == LS_OP_attention_forward || id == LS_OP_attention_backward; }

static void expect_near(const char *what, const struct problem *got, const struct problem *want, int output, int size) {
    const void *a = got->outputs[output].memory, *b = want->outputs[output].memory;
    ls_dtype dtype = holds_halves(b) ? want->dtype : LS_FP32;
    bool statistics = want->op.id == LS_OP_batchnorm_statistics,
         doubles = statistics || want->op.id == LS_OP_square_sum_list;
    size_t count = want->outputs[output].nbytes / (doubles ? sizeof(double) : ls_dtype_nbytes(dtype));
    const float *x = doubles ? NULL : kernel_widened(dtype, a, count),
                *y = doubles ? NULL : kernel_widened(dtype, b, count);
    double atol = statistics ? 1e-6 : doubles ? 1e-12 : 1e-6 * (2 + sqrt(size)), rtol = atol + unit_of(dtype);
    if (rounds_within(want->op.id)) atol += unit_of(dtype) / 4;
    for (size_t i = 0; i < count; i++) {
        double u = doubles ? ((const double *)a)[i] : (double)x[i], v = doubles ? ((const double *)b)[i] : (double)y[i];
        if (!(fabs(u - v) <= atol + rtol * fabs(v)))
            fail_msg("%s: output %d[%zu] is %.9g, not %.9g", what, output, i, u, v);
    }
}

static struct problem run_problem(ls_op_id id, int size, ls_dtype dtype, bool best) {
    struct problem problem = make_problem(id, size, dtype);
    kernel_use_best(best);
    ls_enqueue(kernel_stream(), &problem.op);
    kernel_use_best(false);
    kernel_done();
    return problem;
}

/* Close to the best build's outputs, where backends.h does not require the same bits; and the same bits twice. */
static void check(ls_op_id id, int size, ls_dtype dtype, int alignment) {
    char what[160];
    snprintf(what, sizeof what, "%s of %s, size %d, alignment %d", ls_op_name(id), ls_dtype_name(dtype), size,
             alignment);
    kernel_align((kernel_alignment)alignment);
    struct problem want = run_problem(id, size, dtype, true), first = run_problem(id, size, dtype, false), second;
    second = run_problem(id, size, dtype, false);
    for (int i = 0; i < want.output_count; i++) {
        kernel_expect_same(what, second.outputs[i].memory, first.outputs[i].memory, first.outputs[i].nbytes);
        if (kernel_own_way(id) >> i & 1) expect_near(what, &first, &want, i, size);
    }
}

/* LS_ONE_OPERATION=gemm: only that operation (gpu_check, after all together have failed). */
static void check_all(ls_dtype dtype, const int *sizes, size_t size_count, int turn) {
    const char *one = getenv("LS_ONE_OPERATION");
    for (int id = 0; id < LS_OP_COUNT; id++) {
        if ((one && strcmp(one, ls_op_name((ls_op_id)id)) != 0) || (dtype != LS_FP32 && !op_has_dtype((ls_op_id)id)))
            continue;
        for (size_t s = 0; s < size_count; s++) {
            if (id == LS_OP_gemm && sizes[s] == 0) continue;
            check((ls_op_id)id, sizes[s], dtype, ((int)s + turn) % KERNEL_IN_TURN);
        }
    }
}

static const int sizes[] = {0, 1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 67, 255, 257};
static const int half_sizes[] = {0, 1, 3, 16, 67, 2, 33, 8};
static const int few_sizes[] = {1, 4, 17, 64, 67};

/* Each size is tested at several alignments, except for the two largest ones. */
TEST_CASE(every_operation) {
    size_t count = sizeof sizes / sizeof *sizes;
    check_all(LS_FP32, sizes, count, 0);
    for (int turn = 1; turn < 3 && kernel_is_on(ON_FAST); turn++) check_all(LS_FP32, sizes, count - 2, turn);
}

/* The source is that of floats except for loads and stores: fewer sizes are enough. */
TEST_CASE(every_operation_of_halves) {
    for (int turn = 0; turn < 3; turn += 2) {
        check_all(LS_FP16, half_sizes, sizeof half_sizes / sizeof *half_sizes, turn);
        check_all(LS_BF16, half_sizes, sizeof half_sizes / sizeof *half_sizes, turn + 1);
    }
}

/* For back-ends with another order or other rounding. */
TEST_CASE(few_sizes_of_every_operation) {
    for (int turn = 0; turn < 3; turn++) check_all(LS_FP32, few_sizes, sizeof few_sizes / sizeof *few_sizes, turn);
    check_all(LS_FP16, few_sizes, sizeof few_sizes / sizeof *few_sizes, 0);
    check_all(LS_BF16, few_sizes, sizeof few_sizes / sizeof *few_sizes, 1);
}

/* At the ends of vectors. */
TEST_CASE(every_size_to_forty) {
    for (int size = 0; size < 40; size++)
        for (int d = 0; d < PROBLEM_DTYPES; d++) check_all(problem_dtypes[d], &size, 1, size);
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW_ON(ON_OTHER_BUILDS | ON_NAIVE | ON_FAST, every_operation),
        ROW_ON(ON_OTHER_BUILDS | ON_NAIVE | ON_FAST, every_operation_of_halves),
        ROW_ON(ON_FAST_OTHERWISE, few_sizes_of_every_operation),
        ROW_ON(ON_BUILDS, every_size_to_forty),
    };
    return RUN_EVERYWHERE("every operation", tests);
}
