/* Operations that cannot be launched: the message names the operation, whichever call of CUDA or cuBLAS refuses. For
 * the CPU's CUDA. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdio.h>

#include <cuda_on_cpu.h>

#include "tests/base/scratch.h"
#include "tests/cuda/transplant.h"

/* cudaErrorInvalidConfiguration and CUBLAS_STATUS_EXECUTION_FAILED, at every call. */
static const char refusals[] =
    "cudaLaunchKernelEx:0:9,cudaMemsetAsync:0:9,cublasGemmEx:0:13,cublasGemmStridedBatchedEx:0:13";

static ls_status enqueue_refused(int rung, ls_stream *stream, const struct ls_op *op) {
    cuda_on_cpu_reset_faults(refusals);
    ls_status status = transplant_rungs()->rungs[rung].enqueue(stream, op);
    cuda_on_cpu_reset_faults(NULL);
    return status;
}

static ls_status naive_refused(ls_stream *stream, const struct ls_op *op) {
    return enqueue_refused(RUNG_NAIVE, stream, op);
}

static ls_status fast_refused(ls_stream *stream, const struct ls_op *op) {
    return enqueue_refused(RUNG_FAST, stream, op);
}

static void check(ls_op_id id, ls_dtype dtype, int rung) {
    struct problem problem = make_problem(id, 17, dtype);
    ls_op_launcher refused = rung == RUNG_NAIVE ? naive_refused : fast_refused;
    assert_int_equal(transplant_run(&problem, refused, TRANSPLANT_ALIGNED), LS_ERR_SYSTEM);
    char said[80];
    snprintf(said, sizeof said, "%s failed on GPU 0: ", ls_op_name(id));
    scratch_expect_error(said, NULL);
}

static void what_cannot_be_launched_is_named(void **state) {
    (void)state;
    for (int id = 0; id < LS_OP_COUNT; id++) {
        for (int d = 0; d < (op_has_dtype((ls_op_id)id) ? PROBLEM_DTYPES : 1); d++) {
            for (int rung = 0; rung < RUNG_COUNT; rung++) check((ls_op_id)id, problem_dtypes[d], rung);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(what_cannot_be_launched_is_named)};
    return cmocka_run_group_tests_name("operations that fail on GPUs", tests, NULL, NULL);
}
