/* The view of a GPU's stream for code that enqueues on it: the kernels (kernels/cuda) and NCCL groups
 * (common/comm/nccl). Plain C, and C++ for .cu files. */
#ifndef LS_DEVICE_CUDA_LANE_H
#define LS_DEVICE_CUDA_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "common/base/status.h"
#include "common/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Input faults that kernels find; the host checks for them when it waits for the stream, and reports them. */
typedef enum ls_cuda_fault_kind {
    LS_CUDA_FAULT_NONE,
    LS_CUDA_FAULT_LABEL,     /* cross_entropy: a label outside of [0, limit); value = the label */
    LS_CUDA_FAULT_TOKEN,     /* embedding: a token outside of [0, limit); value = the token */
    LS_CUDA_FAULT_BATCHNORM, /* batchnorm_merge: fewer than two values per channel in all; value = how many */
} ls_cuda_fault_kind;

/* Pinned host memory that kernels write to. If several faults occur, any one of them is kept. */
struct ls_cuda_fault {
    int32_t kind; /* ls_cuda_fault_kind */
    int32_t limit;
    int64_t value;
};

/* Each stream has its own scratch memory: operations of one stream follow one another. */
#define LS_CUDA_SCRATCH_NBYTES ((size_t)4 << 20)

struct ls_cuda_lane {
    /* constant after open */
    int gpu; /* CUDA's number */
    cudaStream_t stream;
    /* of the compute stream only: bound to it, with its own workspace, so that the same call gives the same bits. NULL
     * on the other streams, which run no matrix multiplies */
    cublasHandle_t blas;
    int multiprocessors;
    bool tf32;
    void *scratch;               /* LS_CUDA_SCRATCH_NBYTES of device memory, aligned to 256 */
    struct ls_cuda_fault *fault; /* this stream's; kernels and the host see it at the same address */
};

/* The lane of a stream of a GPU. The calling thread's current device becomes the stream's. */
const struct ls_cuda_lane *ls_cuda_lane_of(ls_stream *stream);

/* Makes `gpu` the calling thread's current device. All device selection goes through this function, so that CUDA is
 * called only when the device changes. */
ls_status ls_cuda_use(int gpu);

/* LS_OK, or the error reported: "CALL failed on GPU 0: out of memory (cudaErrorMemoryAllocation): what to do". An error
 * after which the GPU is unusable (a failed kernel, a lost device) says so; later errors of the same GPU return the
 * status without another message. */
ls_status ls_cuda_check(cudaError_t error, int gpu, const char *call);
ls_status ls_cublas_check(cublasStatus_t status, int gpu, const char *call);

#define LS_CUDA(gpu, call) ls_cuda_check((call), (gpu), #call)
#define LS_CUBLAS(gpu, call) ls_cublas_check((call), (gpu), #call)

/* Whether the calling thread is capturing the stream into a graph. If so, do not wait for the stream. */
bool ls_cuda_is_capturing(ls_stream *stream);

/* With options.check_launches: waits for the stream, and reports a failure as that of `label`, the operation enqueued
 * just now. Otherwise, and during a capture, it does nothing. */
ls_status ls_cuda_check_launch(ls_stream *stream, const char *label);

/* Enclose the enqueueing of a piece of work while ls_probing(): the probes will record when the GPU ran it. False: this
 * work cannot be timed; do not call end. */
bool ls_cuda_time_begin(ls_stream *stream, const char *label);
void ls_cuda_time_end(ls_stream *stream);

/* Enqueues an operation on a stream: kernels/cuda/dispatch.c. Not called after the device has failed; a failure poisons
 * the device. */
struct ls_op;
ls_status ls_cuda_enqueue_op(ls_stream *stream, const struct ls_op *op);

/* The matmul of struct ls_cuda_plugin: kernels/cuda/dispatch.c. Checks ls_device_status itself. */
ls_status ls_cuda_enqueue_matmul(ls_stream *stream, int dtype, size_t m, size_t n, size_t k, const void *a,
                                 const void *b, void *c);

#ifdef __cplusplus
}
#endif
#endif
