/* A matrix multiply is the first call to report that a kernel has failed: cuBLAS reports only a failure, and the
 * message must name the cause. For the CPU's CUDA. */
#include <cuda_runtime.h>

#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

/* Queries CUDA itself, so that the device does not know of the failure yet. */
static void await_failure(void) {
    cudaError_t error = cudaSuccess;
    while (error == cudaSuccess || error == cudaErrorNotReady) error = cudaStreamQuery(0);
    assert_int_equal(error, cudaErrorIllegalAddress);
}

TEST_CASE(product_behind_a_failed_kernel) {
    struct gpus gpus = open_gpus(1);
    ls_stream *compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    float *y = gpu_alloc(gpus.device[0], 3 * sizeof *y);
    ls_fill(compute, y, 1, 2);
    await_failure();
    ls_gemm(compute, LS_FP32, false, false, 1, 1, 1, y, y + 1, 0, LS_FP32, y + 2, NULL);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_SYSTEM);
    scratch_expect_error("gemm failed on GPU 0: ", "cudaErrorIllegalAddress): a kernel that was enqueued earlier");
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_ERR_SYSTEM); /* already reported */
    ls_device_free(gpus.device[0], y);
    close_gpus(&gpus);
}

TEST(a_product_says_which_error_it_was) {
    in_own_process("CUDA_ON_CPU_FAIL=kernel:1:700", product_behind_a_failed_kernel);
}
