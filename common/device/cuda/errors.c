/* errors — reports the errors of CUDA and cuBLAS in one line that says what to do.
 *
 * Most errors concern one call: the call has no effect, and the program continues. A kernel that failed, or a GPU that
 * disappeared, breaks the process's context on that GPU for good: every later call on it returns that error again, in
 * every thread. So such an error is reported where it shows first, which is seldom the operation that caused it. Later
 * calls return its status without another line. */
#include "common/device/cuda/cuda_device.h"

#include <string.h>

#include "common/base/log.h"

enum breaks { LASTS, BREAKS };

/* The common errors; for others, CUDA's own text is printed. */
static const struct ls_cuda_error {
    cudaError_t error;
    enum breaks breaks;
    const char *advice;
} errors[] = {
#define KERNEL_FAILED                                                                                                  \
    "a kernel that was enqueued earlier has failed; restart this process: the GPU can be used again by a new one. "    \
    "--debug-launches names the operation"
    {cudaErrorIllegalAddress, BREAKS, KERNEL_FAILED},
    {cudaErrorLaunchFailure, BREAKS, KERNEL_FAILED},
    {cudaErrorMisalignedAddress, BREAKS, KERNEL_FAILED},
    {cudaErrorIllegalInstruction, BREAKS, KERNEL_FAILED},
    {cudaErrorInvalidAddressSpace, BREAKS, KERNEL_FAILED},
    {cudaErrorInvalidPc, BREAKS, KERNEL_FAILED},
    {cudaErrorHardwareStackError, BREAKS, KERNEL_FAILED},
    {cudaErrorAssert, BREAKS, KERNEL_FAILED},
    {cudaErrorLaunchTimeout, BREAKS, KERNEL_FAILED},
    {(cudaError_t)226, BREAKS, KERNEL_FAILED}, /* cudaErrorContained, which older headers do not have */
#undef KERNEL_FAILED
#define GPU_LOST                                                                                                       \
    "the GPU or its memory has failed, or was taken away; restart this process, and if it happens again look at "      \
    "nvidia-smi and dmesg. --debug-launches names the operation"
    {cudaErrorECCUncorrectable, BREAKS, GPU_LOST},
    {cudaErrorNvlinkUncorrectable, BREAKS, GPU_LOST},
    {cudaErrorExternalDevice, BREAKS, GPU_LOST},
    {cudaErrorContextIsDestroyed, BREAKS, GPU_LOST},
    {cudaErrorUnknown, BREAKS, GPU_LOST},
#undef GPU_LOST
    {cudaErrorDevicesUnavailable, LASTS,
     "another process has the GPU for itself, or the GPU is gone; nvidia-smi shows its processes and its compute mode"},
    {cudaErrorDeviceAlreadyInUse, LASTS,
     "another process has the GPU for itself; nvidia-smi shows its processes and its compute mode"},
    {cudaErrorMemoryAllocation, LASTS,
     "other programs, or devices that share the GPU, may hold its memory (nvidia-smi shows which); lower the batch "
     "size, or use another GPU"},
    {cudaErrorInitializationError, LASTS,
     "CUDA cannot start in this process; one that was forked from a process with GPUs open must start a new program"},
    {cudaErrorInsufficientDriver, LASTS, "install a newer NVIDIA driver"},
    {cudaErrorSystemDriverMismatch, LASTS, "the driver's library and its kernel module differ; restart the machine"},
    {cudaErrorSystemNotReady, LASTS, "the machine's GPU services are not running (nvidia-fabricmanager?)"},
    {cudaErrorNoKernelImageForDevice, LASTS,
     "the kernels were not built for this GPU; build again with CUDA_ARCH= its compute capability, such as 90"},
    {cudaErrorStreamCaptureUnsupported, LASTS, "this cannot be part of a graph; leave --cuda-graph away"},
    {cudaErrorStreamCaptureInvalidated, LASTS,
     "something that cannot be part of a graph was enqueued while it was recorded"},
    {cudaErrorStreamCaptureUnjoined, LASTS, "a stream that joined the recording was not joined back before its end"},
    {cudaErrorStreamCaptureIsolation, LASTS, "the recording would have to wait for work outside of it"},
};

static const struct ls_cuda_error *find_error(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) return &errors[i];
    return NULL;
}

static _Atomic bool broken[LS_CUDA_MAX_GPUS];

bool ls_cuda_is_broken(int gpu) { return gpu >= 0 && gpu < LS_CUDA_MAX_GPUS && atomic_load(&broken[gpu]); }

/* LS_CUDA passes the source text of the call; messages omit its arguments. */
static int name_length(const char *call) { return (int)strcspn(call, "("); }

ls_status ls_cuda_check(cudaError_t error, int gpu, const char *call) {
    if (error == cudaSuccess) return LS_OK;
    (void)cudaGetLastError(); /* clears the error, so that later calls do not return it */
    const struct ls_cuda_error *known = find_error(error);
    if (known && known->breaks == BREAKS && gpu >= 0 && gpu < LS_CUDA_MAX_GPUS && atomic_exchange(&broken[gpu], true)) {
        return LS_ERR_SYSTEM; /* already reported */
    }
    return ls_fail(error == cudaErrorMemoryAllocation ? LS_ERR_NO_MEMORY : LS_ERR_SYSTEM,
                   "%.*s failed on GPU %d: %s (%s)%s%s", name_length(call), call, gpu, cudaGetErrorString(error),
                   cudaGetErrorName(error), known ? ": " : "", known ? known->advice : "");
}

static const char *cublas_advice(cublasStatus_t status) {
    switch ((int)status) {
    case CUBLAS_STATUS_NOT_INITIALIZED: return "cuBLAS could not start; the GPU's memory may be full (nvidia-smi)";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the GPU's memory is full (nvidia-smi); lower the batch size";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "this cuBLAS does not know the GPU";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "a kernel has failed; --debug-launches names the operation";
    default: return "see cuBLAS's documentation of cublasStatus_t";
    }
}

/* cuBLAS only reports that a kernel failed; CUDA still has the specific error. */
ls_status ls_cublas_check(cublasStatus_t status, int gpu, const char *call) {
    if (status == CUBLAS_STATUS_SUCCESS) return LS_OK;
    if (ls_cuda_is_broken(gpu)) return LS_ERR_SYSTEM;
    cudaError_t error = status == CUBLAS_STATUS_EXECUTION_FAILED ? cudaStreamQuery(0) : cudaSuccess;
    if (error != cudaSuccess && error != cudaErrorNotReady) return ls_cuda_check(error, gpu, call);
    return ls_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? LS_ERR_NO_MEMORY : LS_ERR_SYSTEM,
                   "%.*s failed on GPU %d: cuBLAS status %d: %s", name_length(call), call, gpu, (int)status,
                   cublas_advice(status));
}

ls_status ls_cuda_use(int gpu) {
    static _Thread_local int current = -1;
    if (current == gpu) return LS_OK;
    ls_status status = LS_CUDA(gpu, cudaSetDevice(gpu));
    current = status == LS_OK ? gpu : -1; /* a broken GPU may have become current all the same */
    return status;
}
