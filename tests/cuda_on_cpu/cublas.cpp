/* cuBLAS on the CPU: handles, and the checks of its calls.
 *
 *   handle    belongs to the device that is current when it is created; calls with another device current fail
 *             (CUBLAS_STATUS_EXECUTION_FAILED), as do kernels on the stream of another device
 *   calls     arguments are checked as cuBLAS documents: a missing handle is NOT_INITIALIZED, sizes below 0, leading
 *             dimensions below the rows that are stored, missing alpha, beta or matrices INVALID_VALUE, combinations of
 *             types outside its table NOT_SUPPORTED
 *   run       the GEMM (cublas_gemm.cpp) is one kernel on the handle's stream; faults of kernels
 *             (CUDA_ON_CPU_FAIL=kernel:n:code) apply to it, and a matrix or workspace that does not lie within memory
 *             the device can reach breaks the device
 *   stream    cublasSetStream drops the workspace, as in cuBLAS: set the stream first
 *   stricter  a workspace must be device memory, aligned to 256 bytes; types: fp32, or fp16 and bf16 with fp32 sums;
 *             alpha and beta are floats */
#include <cstdio>
#include <mutex>
#include <set>

#include "tests/cuda_on_cpu/cublas_gemm.h"
#include "tests/cuda_on_cpu/engine.h"

struct cublasContext {
    int device;
    cudaStream_t stream;
    cublasMath_t math;
    cublasPointerMode_t pointers;
    void *workspace;
    size_t workspace_nbytes;
};

namespace cuda_on_cpu {

namespace {

cublasStatus_t begin(cublasHandle_t handle, const char *function) {
    auto fault = static_cast<cublasStatus_t>(injected(function));
    if (fault != CUBLAS_STATUS_SUCCESS) return fault;
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

bool is_operation(cublasOperation_t operation) {
    return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

/* Rows and columns of a matrix as it is stored. */
int64_t rows_of_a(const Gemm &gemm) { return gemm.transpose_a ? gemm.k : gemm.m; }
int64_t columns_of_a(const Gemm &gemm) { return gemm.transpose_a ? gemm.m : gemm.k; }
int64_t rows_of_b(const Gemm &gemm) { return gemm.transpose_b ? gemm.n : gemm.k; }
int64_t columns_of_b(const Gemm &gemm) { return gemm.transpose_b ? gemm.k : gemm.n; }

bool leads(const Matrix &matrix, int64_t rows) { return matrix.leading >= (rows > 1 ? rows : 1); }

bool is_reachable(const char *what, const void *data, size_t nbytes) {
    if (nbytes == 0 || in_device_memory(data, nbytes, nullptr) || in_pinned_memory(data, nbytes)) return true;
    std::fprintf(stderr, "cuda_on_cpu: cuBLAS: %s at %p with %zu bytes lies outside of memory that the GPU can reach\n",
                 what, data, nbytes);
    return false;
}

bool all_reachable(const Gemm &gemm) {
    bool reads = gemm.k > 0 && (gemm.alpha_on_device || gemm.alpha != 0);
    size_t a = reads ? extent_nbytes(gemm.a, rows_of_a(gemm), columns_of_a(gemm), gemm.batch) : 0;
    size_t b = reads ? extent_nbytes(gemm.b, rows_of_b(gemm), columns_of_b(gemm), gemm.batch) : 0;
    return is_reachable("A", gemm.a.data, a) && is_reachable("B", gemm.b.data, b) &&
           is_reachable("C", gemm.c.data, extent_nbytes(gemm.c, gemm.m, gemm.n, gemm.batch)) &&
           is_reachable("the workspace", gemm.workspace, gemm.workspace_nbytes) &&
           is_reachable("alpha", gemm.alpha_on_device, gemm.alpha_on_device ? sizeof(float) : 0) &&
           is_reachable("beta", gemm.beta_on_device, gemm.beta_on_device ? sizeof(float) : 0);
}

/* `gemm` has sizes and matrices; the handle's settings are filled in here. */
cublasStatus_t enqueue_gemm(cublasHandle_t handle, const char *function, Gemm gemm, const void *alpha,
                            const void *beta) {
    bool sizes = gemm.m >= 0 && gemm.n >= 0 && gemm.k >= 0 && gemm.batch >= 0;
    bool leading = leads(gemm.a, rows_of_a(gemm)) && leads(gemm.b, rows_of_b(gemm)) && leads(gemm.c, gemm.m);
    if (!sizes || !leading || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return CUBLAS_STATUS_SUCCESS;
    if (!gemm.c.data || (gemm.k > 0 && (!gemm.a.data || !gemm.b.data))) return CUBLAS_STATUS_INVALID_VALUE;
    if (handle->pointers == CUBLAS_POINTER_MODE_DEVICE) {
        gemm.alpha_on_device = static_cast<const float *>(alpha);
        gemm.beta_on_device = static_cast<const float *>(beta);
    } else {
        gemm.alpha = *static_cast<const float *>(alpha);
        gemm.beta = *static_cast<const float *>(beta);
    }
    gemm.adds_in_output = !(handle->math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    gemm.workspace = handle->workspace;
    gemm.workspace_nbytes = handle->workspace_nbytes;
    if (current_device() != handle->device) return CUBLAS_STATUS_EXECUTION_FAILED;
    cudaError_t error = enqueue_kernel(handle->stream, function, [gemm] {
        if (all_reachable(gemm)) {
            compute_gemm(gemm);
        } else {
            break_context(cudaErrorIllegalAddress);
        }
        return Progress::done;
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* The rows of cuBLAS's table of types that are supported here; *tf32 is whether fp32 inputs are rounded. */
cublasStatus_t choose_arithmetic(cublasHandle_t handle, const Gemm &gemm, cublasComputeType_t compute, bool *tf32) {
    bool known = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                 compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    cudaDataType type = gemm.a.type, sums = gemm.c.type;
    bool narrow = type == CUDA_R_16F || type == CUDA_R_16BF;
    if (!known || gemm.b.type != type || (type != CUDA_R_32F && !narrow)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (sums != CUDA_R_32F && sums != type) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (narrow && compute == CUBLAS_COMPUTE_32F_FAST_TF32) return CUBLAS_STATUS_NOT_SUPPORTED;
    bool by_mode = compute == CUBLAS_COMPUTE_32F && (handle->math & 15) == CUBLAS_TF32_TENSOR_OP_MATH;
    *tf32 = !narrow && (by_mode || compute == CUBLAS_COMPUTE_32F_FAST_TF32);
    return CUBLAS_STATUS_SUCCESS;
}

Matrix matrix_of(const void *data, cudaDataType type, int leading, long long stride) {
    return Matrix{const_cast<void *>(data), type, leading, stride};
}

/* All four functions, after their own begin(). */
cublasStatus_t gemm_of(cublasHandle_t handle, const char *function, cublasOperation_t transa, cublasOperation_t transb,
                       int m, int n, int k, int batch, const void *alpha, const Matrix &a, const Matrix &b,
                       const void *beta, const Matrix &c, cublasComputeType_t compute) {
    if (!is_operation(transa) || !is_operation(transb)) return CUBLAS_STATUS_INVALID_VALUE;
    Gemm gemm = {};
    gemm.transpose_a = transa != CUBLAS_OP_N;
    gemm.transpose_b = transb != CUBLAS_OP_N;
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.batch = batch;
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    cublasStatus_t status = choose_arithmetic(handle, gemm, compute, &gemm.tf32);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return enqueue_gemm(handle, function, gemm, alpha, beta);
}

/* Handles of a device that has failed are never destroyed; a reference is kept, so that they are not leaks. */
void keep_handle(cublasHandle_t handle, bool keep) {
    static std::mutex lock;
    static auto *handles = new std::set<cublasHandle_t>; /* never destroyed */
    std::lock_guard<std::mutex> guard(lock);
    if (keep) handles->insert(handle);
    if (!keep) handles->erase(handle);
}

} // namespace

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

/* --- handles ------------------------------------------------------------------------------------------------------ */

cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    auto fault = static_cast<cublasStatus_t>(injected("cublasCreate"));
    if (fault != CUBLAS_STATUS_SUCCESS) return fault;
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = nullptr;
    if (device_count() == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext();
    (*handle)->device = current_device();
    keep_handle(*handle, true);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    cublasStatus_t status = begin(handle, "cublasDestroy");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    keep_handle(handle, false);
    delete handle;
    return status;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version) {
    (void)handle;
    if (!version) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t streamId) {
    cublasStatus_t status = begin(handle, "cublasSetStream");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    handle->stream = streamId;
    handle->workspace = nullptr;
    handle->workspace_nbytes = 0;
    return status;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t workspaceSizeInBytes) {
    cublasStatus_t status = begin(handle, "cublasSetWorkspace");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (workspaceSizeInBytes > 0 && !in_device_memory(workspace, workspaceSizeInBytes, nullptr)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = workspace;
    handle->workspace_nbytes = workspace ? workspaceSizeInBytes : 0;
    return status;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    cublasStatus_t status = begin(handle, "cublasSetMathMode");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    int base = mode & ~static_cast<int>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    bool known = base == CUBLAS_DEFAULT_MATH || base == CUBLAS_PEDANTIC_MATH || base == CUBLAS_TF32_TENSOR_OP_MATH;
    if (!known) return CUBLAS_STATUS_INVALID_VALUE;
    handle->math = mode;
    return status;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
    cublasStatus_t status = begin(handle, "cublasSetPointerMode");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) return CUBLAS_STATUS_INVALID_VALUE;
    handle->pointers = mode;
    return status;
}

namespace {

template <class T> cublasStatus_t get(cublasHandle_t handle, T cublasContext::*member, T *to) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!to) return CUBLAS_STATUS_INVALID_VALUE;
    *to = handle->*member;
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t *streamId) {
    return get(handle, &cublasContext::stream, streamId);
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
    return get(handle, &cublasContext::math, mode);
}

cublasStatus_t cublasGetPointerMode(cublasHandle_t handle, cublasPointerMode_t *mode) {
    return get(handle, &cublasContext::pointers, mode);
}

/* X(status, cuBLAS's text) */
#define STATUS_MAP(X)                                                                                                  \
    X(CUBLAS_STATUS_SUCCESS, "success")                                                                                \
    X(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized")                                                \
    X(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed")                                                    \
    X(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function")                     \
    X(CUBLAS_STATUS_ARCH_MISMATCH, "an absent device architectural feature is required")                               \
    X(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed")                                             \
    X(CUBLAS_STATUS_EXECUTION_FAILED, "the GPU program failed to execute")                                             \
    X(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed")                                                    \
    X(CUBLAS_STATUS_NOT_SUPPORTED, "the requested functionality is not supported")                                     \
    X(CUBLAS_STATUS_LICENSE_ERROR, "the required license was not found")

const char *cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
#define STATUS_NAME(name, text)                                                                                        \
    case name: return #name;
        STATUS_MAP(STATUS_NAME)
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
#define STATUS_TEXT(name, text)                                                                                        \
    case name: return text;
        STATUS_MAP(STATUS_TEXT)
    }
    return "unknown status";
}

/* --- products ----------------------------------------------------------------------------------------------------- */

namespace {

/* CUBLAS_PEDANTIC_MATH is fp32 in a fixed order, as always in this fake. */
constexpr cublasComputeType_t FP32 = CUBLAS_COMPUTE_32F;

} // namespace

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                           int k, const float *alpha, const float *A, int lda, const float *B, int ldb,
                           const float *beta, float *C, int ldc) {
    cublasStatus_t status = begin(handle, "cublasSgemm");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return gemm_of(handle, "cublasSgemm", transa, transb, m, n, k, 1, alpha, matrix_of(A, CUDA_R_32F, lda, 0),
                   matrix_of(B, CUDA_R_32F, ldb, 0), beta, matrix_of(C, CUDA_R_32F, ldc, 0), FP32);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                         int m, int n, int k, const float *alpha, const float *A, int lda,
                                         long long int strideA, const float *B, int ldb, long long int strideB,
                                         const float *beta, float *C, int ldc, long long int strideC, int batchCount) {
    cublasStatus_t status = begin(handle, "cublasSgemmStridedBatched");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return gemm_of(handle, "cublasSgemmStridedBatched", transa, transb, m, n, k, batchCount, alpha,
                   matrix_of(A, CUDA_R_32F, lda, strideA), matrix_of(B, CUDA_R_32F, ldb, strideB), beta,
                   matrix_of(C, CUDA_R_32F, ldc, strideC), FP32);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void *alpha, const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType, cublasGemmAlgo_t algo) {
    (void)algo; /* ignored by cuBLAS, too, since Ampere */
    cublasStatus_t status = begin(handle, "cublasGemmEx");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return gemm_of(handle, "cublasGemmEx", transa, transb, m, n, k, 1, alpha, matrix_of(A, Atype, lda, 0),
                   matrix_of(B, Btype, ldb, 0), beta, matrix_of(C, Ctype, ldc, 0), computeType);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void *alpha, const void *A, cudaDataType Atype,
                                          int lda, long long int strideA, const void *B, cudaDataType Btype, int ldb,
                                          long long int strideB, const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount, cublasComputeType_t computeType,
                                          cublasGemmAlgo_t algo) {
    (void)algo;
    cublasStatus_t status = begin(handle, "cublasGemmStridedBatchedEx");
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return gemm_of(handle, "cublasGemmStridedBatchedEx", transa, transb, m, n, k, batchCount, alpha,
                   matrix_of(A, Atype, lda, strideA), matrix_of(B, Btype, ldb, strideB), beta,
                   matrix_of(C, Ctype, ldc, strideC), computeType);
}
