/* What a GPU's stream offers to those who put work on it: the kernels (kernels/cuda) and NCCL groups
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

/* What kernels found wrong with their input; the host looks when it waits for the stream, and reports. */
typedef enum ls_cuda_fault_kind {
    LS_CUDA_FAULT_NONE,
    LS_CUDA_FAULT_LABEL,     /* cross_entropy: a label outside of [0, limit); value = the label */
    LS_CUDA_FAULT_TOKEN,     /* embedding: a token outside of [0, limit); value = the token */
    LS_CUDA_FAULT_BATCHNORM, /* batchnorm_merge: fewer than two values per channel in all; value = how many */
} ls_cuda_fault_kind;

/* Page-locked host memory that kernels write into. Any one of several faults may win; none is lost altogether. */
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
    /* the compute stream's: bound to it, with a workspace of its own, so that the same call gives the same bits. NULL
     * on the other streams, where no matrix products run */
    cublasHandle_t blas;
    int multiprocessors;
    bool tf32;
    void *scratch;               /* LS_CUDA_SCRATCH_NBYTES of device memory, aligned to 256 */
    struct ls_cuda_fault *fault; /* this stream's; kernels and the host see it at the same address */
};

/* The lane of a stream of a GPU. The calling thread's current device becomes the stream's. */
const struct ls_cuda_lane *ls_cuda_lane_of(ls_stream *stream);

/* Makes `gpu` the calling thread's current device. All of the project selects devices through here, so that CUDA is
 * called only if it was another one. */
ls_status ls_cuda_use(int gpu);

/* LS_OK, or the error reported: "CALL failed on GPU 0: out of memory (cudaErrorMemoryAllocation): what to do". Errors
 * after which the GPU cannot be used any more (a kernel that failed, a device that disappeared) say so, once: the
 * same GPU's later ones return the status without another line. */
ls_status ls_cuda_check(cudaError_t error, int gpu, const char *call);
ls_status ls_cublas_check(cublasStatus_t status, int gpu, const char *call);

#define LS_CUDA(gpu, call) ls_cuda_check((call), (gpu), #call)
#define LS_CUBLAS(gpu, call) ls_cublas_check((call), (gpu), #call)

/* Whether the calling thread captures the stream into a graph: it must then not be waited for. */
bool ls_cuda_is_capturing(ls_stream *stream);

/* With options.check_launches: waits for the stream, and reports a failure as that of `label`, the operation enqueued
 * just now. Otherwise, and during a capture, it does nothing. */
ls_status ls_cuda_check_launch(ls_stream *stream, const char *label);

/* While the probes are on (ls_probing, which the caller has asked), around what puts a piece of work on a stream: the
 * probes will be told when the GPU ran it. False: this one cannot be timed, and has no end. */
bool ls_cuda_time_begin(ls_stream *stream, const char *label);
void ls_cuda_time_end(ls_stream *stream);

/* Puts an operation on a stream: kernels/cuda/dispatch.c. Called unless the device has failed, which it has if this
 * fails. */
struct ls_op;
ls_status ls_cuda_enqueue_op(ls_stream *stream, const struct ls_op *op);

/* What struct ls_cuda_plugin offers as matmul: kernels/cuda/dispatch.c. It asks ls_device_status itself. */
ls_status ls_cuda_enqueue_matmul(ls_stream *stream, int dtype, size_t m, size_t n, size_t k, const void *a,
                                 const void *b, void *c);

#ifdef __cplusplus
}
#endif
#endif
