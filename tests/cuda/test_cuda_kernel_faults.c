/* Operations that cannot be launched: the message names the operation, whichever call of CUDA or cuBLAS fails. For the
 * CPU's CUDA. */
#include <stdio.h>

#include <cuda_on_cpu.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/problems.h"

/* cudaErrorInvalidConfiguration and CUBLAS_STATUS_EXECUTION_FAILED, at every call. */
static const char refusals[] =
    "cudaLaunchKernelEx:0:9,cudaMemsetAsync:0:9,cublasGemmEx:0:13,cublasGemmStridedBatchedEx:0:13";

static void refuse(bool begin) { cuda_on_cpu_reset_faults(begin ? refusals : NULL); }

TEST_CASE(what_cannot_be_launched_is_named) {
    kernel_around_launches(refuse);
    for (int i = 0; i < LS_OP_COUNT * PROBLEM_DTYPES; i++) {
        ls_op_id id = (ls_op_id)(i / PROBLEM_DTYPES);
        if (i % PROBLEM_DTYPES > 0 && !op_has_dtype(id)) continue;
        struct problem problem = make_problem(id, 17, problem_dtypes[i % PROBLEM_DTYPES]);
        ls_enqueue(kernel_stream(), &problem.op);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_SYSTEM);
        char said[80];
        snprintf(said, sizeof said, "%s failed on GPU 0: ", ls_op_name(id));
        scratch_expect_error(said, NULL);
    }
}

int main(void) {
    static const struct kernel_test tests[] = {ROW_ON(ON_NAIVE | ON_FAST, what_cannot_be_launched_is_named)};
    return RUN_EVERYWHERE("operations that fail on GPUs", tests);
}
