/* Calls that the fake cuBLAS (tests/cuda_on_cpu/cublas.cpp) refuses, the state it keeps and the errors it reports,
 * against cuBLAS's guide. */
#include <cublas_v2.h>
#include <stdbool.h>
#include <string.h>

#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/cuda/arrays.h"

static cublasHandle_t handle;

static void blas(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) fail_msg("%s", cublasGetStatusName(status));
}

static int setup(void **state) {
    (void)state;
    roomy_machine(2, "eager");
    blas(cublasCreate(&handle));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    blas(cublasDestroy(handle));
    return 0;
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

TEST_WITH(setup, teardown, wrong_arguments_are_refused) {
    float x[4] = {1, 2, 3, 4}, one = 1, *d = to_device(x, sizeof x);
    static const struct {
        int transa, transb, m, n, k, lda, ldb, ldc;
    } cases[] = {
        {0, 0, -1, 1, 1, 1, 1, 1}, {0, 0, 1, -1, 1, 1, 1, 1}, {0, 0, 1, 1, -1, 1, 1, 1}, {0, 0, 2, 1, 1, 1, 1, 2},
        {1, 0, 1, 1, 2, 1, 2, 1},  {0, 0, 1, 1, 2, 1, 1, 1},  {0, 1, 1, 2, 1, 1, 1, 1},  {0, 0, 2, 1, 1, 2, 1, 1},
        {0, 0, 0, 1, 1, 0, 1, 1},  {3, 0, 1, 1, 1, 1, 1, 1},  {0, -1, 1, 1, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cublasOperation_t ta = (cublasOperation_t)cases[i].transa, tb = (cublasOperation_t)cases[i].transb;
        cublasStatus_t status = cublasSgemm(handle, ta, tb, cases[i].m, cases[i].n, cases[i].k, &one, d, cases[i].lda,
                                            d, cases[i].ldb, &one, d, cases[i].ldc);
        if (status != CUBLAS_STATUS_INVALID_VALUE) fail_msg("case %zu: %s", i, cublasGetStatusName(status));
    }
    cublasOperation_t n = CUBLAS_OP_N;
    assert_int_equal(cublasSgemm(handle, n, n, 1, 1, 1, NULL, d, 1, d, 1, &one, d, 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, n, n, 1, 1, 1, &one, d, 1, d, 1, NULL, d, 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, n, n, 1, 1, 1, &one, NULL, 1, d, 1, &one, d, 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, n, n, 1, 1, 1, &one, d, 1, d, 1, &one, NULL, 1), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(NULL, n, n, 1, 1, 1, &one, d, 1, d, 1, &one, d, 1), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSgemmStridedBatched(handle, n, n, 1, 1, 1, &one, d, 1, 1, d, 1, 1, &one, d, 1, 1, -1),
                     CUBLAS_STATUS_INVALID_VALUE);
    from_device(x, d, sizeof x); /* the device still works, and the data is unchanged */
    for (int i = 0; i < 4; i++) assert_true(x[i] == (float)(i + 1));
}

TEST_WITH(setup, teardown, types_outside_of_the_table_are_not_supported) {
    static const struct {
        cudaDataType a, b, c;
        cublasComputeType_t compute;
        bool supported;
    } cases[] = {
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, true},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, true},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, true},
        {CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_16BF, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_16F, CUBLAS_COMPUTE_32F, false},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, false},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_64F, false},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F_FAST_TF32, false},
    };
    float x[4] = {0}, one = 1, *d = to_device(x, sizeof x);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cublasStatus_t status =
            cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_C, 1, 1, 1, &one, d, cases[i].a, 1, d + 1, cases[i].b, 1, &one,
                         d + 2, cases[i].c, 1, cases[i].compute, CUBLAS_GEMM_DEFAULT);
        assert_int_equal(status, cases[i].supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
    }
}

TEST_WITH(setup, teardown, a_handle_keeps_what_it_is_told) {
    cublasMath_t math;
    cublasPointerMode_t pointers;
    int version;
    blas(cublasGetMathMode(handle, &math));
    blas(cublasGetPointerMode(handle, &pointers));
    assert_int_equal(math, CUBLAS_DEFAULT_MATH);
    assert_int_equal(pointers, CUBLAS_POINTER_MODE_HOST);
    blas(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
    blas(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    blas(cublasGetMathMode(handle, &math));
    blas(cublasGetPointerMode(handle, &pointers));
    assert_int_equal(math, CUBLAS_TF32_TENSOR_OP_MATH);
    assert_int_equal(pointers, CUBLAS_POINTER_MODE_DEVICE);
    assert_int_equal(cublasSetMathMode(handle, (cublasMath_t)7), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetPointerMode(handle, (cublasPointerMode_t)2), CUBLAS_STATUS_INVALID_VALUE);
    blas(cublasGetVersion(handle, &version));
    assert_int_equal(version, CUBLAS_VERSION);
    assert_int_equal(cublasSetStream(NULL, NULL), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasDestroy(NULL), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasCreate(NULL), CUBLAS_STATUS_INVALID_VALUE);
    assert_string_equal(cublasGetStatusName(CUBLAS_STATUS_EXECUTION_FAILED), "CUBLAS_STATUS_EXECUTION_FAILED");
    assert_string_equal(cublasGetStatusString(CUBLAS_STATUS_ALLOC_FAILED), "the resource allocation failed");
    assert_string_equal(cublasGetStatusName((cublasStatus_t)99), "CUBLAS_STATUS_UNKNOWN");
}

TEST_WITH(setup, teardown, a_workspace_is_used_up_to_the_next_stream) {
    float x = 3, one = 1, zero = 0, *d = to_device(&x, sizeof x);
    unsigned char kept[256] = {0}, *workspace = to_device(kept, sizeof kept);
    assert_int_equal(cublasSetWorkspace(handle, workspace + 16, 64), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetWorkspace(handle, kept, 0),
                     (uintptr_t)kept % 256 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS);
    blas(cublasSetWorkspace(handle, workspace, sizeof kept));
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1));
    from_device(kept, workspace, sizeof kept);
    for (size_t i = 0; i < sizeof kept; i++) assert_int_equal(kept[i], 0xff); /* the earlier contents are lost */
    ok(cudaMemset(workspace, 0, sizeof kept));
    blas(cublasSetStream(handle, NULL)); /* drops the workspace */
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1));
    from_device(kept, workspace, sizeof kept);
    for (size_t i = 0; i < sizeof kept; i++) assert_int_equal(kept[i], 0);
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

TEST_WITH(setup, teardown, faults_can_be_planted) {
    float x = 3, one = 1, zero = 0, *d = to_device(&x, sizeof x);
    cublasHandle_t other;
    cuda_on_cpu_reset_faults("cublasSgemm:2:14,cublasCreate:1:3,kernel:2:700");
    assert_int_equal(cublasCreate(&other), CUBLAS_STATUS_ALLOC_FAILED);
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1));
    assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1),
                     CUBLAS_STATUS_INTERNAL_ERROR);
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1),
                     CUBLAS_STATUS_EXECUTION_FAILED);
}

TEST_WITH(setup, teardown, a_handle_belongs_to_its_device) {
    float x = 3, one = 1, zero = 0, *d = to_device(&x, sizeof x);
    ok(cudaSetDevice(1));
    assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1),
                     CUBLAS_STATUS_EXECUTION_FAILED);
    ok(cudaSetDevice(0));
    (void)cudaGetLastError();
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1, d, 1, &zero, d, 1));
}

TEST_WITH(setup, teardown, without_a_device_there_is_no_handle) {
    cublasHandle_t none = handle;
    setenv("CUDA_ON_CPU_DEVICES", "0", 1);
    cuda_on_cpu_restart();
    assert_int_equal(cublasCreate(&none), CUBLAS_STATUS_NOT_INITIALIZED);
    assert_null(none);
}

TEST_WITH(setup, teardown, matrices_outside_of_the_gpus_memory_break_the_device) {
    for (int which = 0; which < 4; which++) {
        float x[6] = {0}, one = 1, zero = 0, *d = to_device(x, sizeof x), *good[3] = {d, d, d};
        if (which < 3) good[which] = x; /* A, B or C in host memory */
        int n = which < 3 ? 1 : 4;      /* C of 2 x 4 floats in memory for 6 */
        stderr_begin();
        cublasStatus_t status =
            cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, n, 1, &one, good[0], 2, good[1], 1, &zero, good[2], 2);
        cudaError_t error = cudaDeviceSynchronize();
        const char *text = stderr_end();
        assert_int_equal(status, CUBLAS_STATUS_SUCCESS);
        assert_int_equal(error, cudaErrorIllegalAddress);
        assert_non_null(strstr(text, which == 0 ? ": A at" : which == 1 ? ": B at" : ": C at"));
        blas(cublasDestroy(handle));
        setup(NULL);
    }
}
