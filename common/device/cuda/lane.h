/* What a GPU's stream offers to those who put work on it: the kernels (kernels/cuda) and NCCL groups (common/comm/nccl). Plain C, and
 * C++ for .cu files. */
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

/* What kernels found wrong with their input; the host looks when it synchronises, and reports. */
typedef enum ls_cuda_fault_kind {
    LS_CUDA_FAULT_NONE,
    LS_CUDA_FAULT_LABEL,     /* cross_entropy, count_correct: a label outside [0, classes); value = the label */
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
    cublasHandle_t blas; /* bound to the stream, with a workspace of its own: the same bits at every call */
    int multiprocessors;
    bool tf32;
    void *scratch;               /* LS_CUDA_SCRATCH_NBYTES of device memory, aligned to 256 */
    struct ls_cuda_fault *fault; /* as kernels see it */
};

/* The lane of a stream of a GPU. The calling thread's current device becomes the stream's. */
const struct ls_cuda_lane *ls_cuda_lane_of(ls_stream *stream);

/* LS_OK, or the error reported: "CALL failed on device 0: out of memory (cudaErrorMemoryAllocation): what to do". Errors after which the GPU cannot be
 * used any more (a kernel that failed, a device that disappeared) say so. */
ls_status ls_cuda_check(cudaError_t error, int gpu, const char *call);
ls_status ls_cublas_check(cublasStatus_t status, int gpu, const char *call);

#define LS_CUDA(gpu, call) ls_cuda_check((call), (gpu), #call)
#define LS_CUBLAS(gpu, call) ls_cublas_check((call), (gpu), #call)

/* While it is recorded into a graph, a stream must not be waited for, nor may anything be allocated. */
bool ls_cuda_is_recording(ls_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
