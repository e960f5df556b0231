/* The kernels of GPUs: declarations shared by the files of this folder and by tests. (The device back-end calls
 * dispatch.c: lane.h.)
 *
 * There are two rungs for every operation. The naive one is the simplest correct kernel: one thread for each result,
 * which it computes by the formula of kernels.h. Training runs the fast one. Tests run both.
 *
 * Rules for kernels, so that nvcc and the C++ compiler of tests/cuda_on_cpu compile the same text:
 *   - launched by ls_cuda::launch (launch.cuh), never by <<<>>>; __global__ functions are in an anonymous namespace
 *   - shared memory in static __shared__ arrays; __syncthreads, __syncwarp and shuffles of whole warps; no atomics
 *   - compiled without contraction: a*b + c is two roundings, fmaf one, as in kernels/cpu
 *   - the order of a sum depends on the operation's arguments alone, not on the GPU: the same bits on all GPUs
 * Plain C, and C++ for .cu files. */
#ifndef LS_KERNELS_CUDA_CUDA_H
#define LS_KERNELS_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/base/dtype.h"
#include "common/base/log.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
}
#endif

#include "common/device/cuda/lane.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ls_cuda_fill(a, lane) and so on: enqueue the operation on the lane's stream, which belongs to the calling thread's
 * current GPU; no operation waits. Failures are reported with the operation's name. */
#define LS_OP(op, flops, bytes, aliasing)                                                                              \
    ls_status ls_cuda_##op(const struct ls_##op##_arguments *a, const struct ls_cuda_lane *lane);                      \
    ls_status ls_cuda_naive_##op(const struct ls_##op##_arguments *a, const struct ls_cuda_lane *lane);
#include "kernels/ops.def"
#undef LS_OP

/* A matrix multiply, or `batch` of them: c = op(a) op(b) + beta c, row-major and dense, as ls_gemm. Sums
 * are fp32, and c is rounded once; with lane->tf32, inputs of fp32 are rounded to TF32. beta 0: c is not read. Matrix
 * i begins stride_a * i elements after the first; a stride of 0 uses one matrix for all (not for c). Rows of a stored
 * matrix are row_a elements apart; 0: dense. */
struct ls_cuda_product {
    ls_dtype dtype;   /* of a and b: LS_FP32, LS_FP16 or LS_BF16 */
    ls_dtype c_dtype; /* the same, or LS_FP32 */
    bool transpose_a, transpose_b;
    size_t m, n, k;
    const void *a, *b;
    float beta;
    void *c;
    size_t batch; /* 1: the strides are ignored */
    size_t stride_a, stride_b, stride_c;
    size_t row_a, row_b, row_c;
};

/* Enqueues it, by cuBLAS; `op` names it in errors. For one shape on one GPU, cuBLAS sums in the same order at every
 * call. */
ls_status ls_cuda_matmul(const struct ls_cuda_lane *lane, const char *op, const struct ls_cuda_product *product);

/* The symbol ls_cuda_rungs of the plug-in: for tests and for programs that measure kernels. */
struct ls_cuda_rungs {
    unsigned version; /* LS_PLUGIN_VERSION */
    int count;
    struct {
        const char *name, *text;
        ls_op_launcher enqueue;
    } rungs[2];
    /* ls_cuda_matmul on a device's compute stream */
    ls_status (*matmul)(ls_stream *stream, const struct ls_cuda_product *product);
};
extern const struct ls_cuda_rungs ls_cuda_rungs;

#ifdef __cplusplus
}
#endif
#endif
