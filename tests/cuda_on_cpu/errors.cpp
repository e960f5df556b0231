/* Names and texts of CUDA's errors, and the last error of each thread. The texts are those CUDA gives, so that
 * messages in tests look as they will on a GPU. */
#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

#define ROW(name, text)                                                                                                \
    ErrorText { cuda##name, "cuda" #name, text }
const ErrorText rows[] = {
    ROW(Success, "no error"),
    ROW(ErrorInvalidValue, "invalid argument"),
    ROW(ErrorMemoryAllocation, "out of memory"),
    ROW(ErrorInitializationError, "initialization error"),
    ROW(ErrorInvalidConfiguration, "invalid configuration argument"),
    ROW(ErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ROW(ErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ROW(ErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ROW(ErrorInvalidDeviceFunction, "invalid device function"),
    ROW(ErrorNoDevice, "no CUDA-capable device is detected"),
    ROW(ErrorInvalidDevice, "invalid device ordinal"),
    ROW(ErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ROW(ErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ROW(ErrorDeviceAlreadyInUse, "exclusive-thread device already in use by a different thread"),
    ROW(ErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution"),
    ROW(ErrorContained, "Invalid access of peer GPU memory over nvlink or a hardware error"),
    ROW(ErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    ROW(ErrorInvalidResourceHandle, "invalid resource handle"),
    ROW(ErrorIllegalState, "the operation cannot be performed in the present state"),
    ROW(ErrorNotReady, "device not ready"),
    ROW(ErrorIllegalAddress, "an illegal memory access was encountered"),
    ROW(ErrorLaunchTimeout, "the launch timed out and was terminated"),
    ROW(ErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ROW(ErrorContextIsDestroyed, "context is destroyed"),
    ROW(ErrorAssert, "device-side assert triggered"),
    ROW(ErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ROW(ErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ROW(ErrorHardwareStackError, "hardware stack error"),
    ROW(ErrorIllegalInstruction, "an illegal instruction was encountered"),
    ROW(ErrorMisalignedAddress, "misaligned address"),
    ROW(ErrorInvalidAddressSpace, "operation not supported on global/shared address space"),
    ROW(ErrorInvalidPc, "invalid program counter"),
    ROW(ErrorLaunchFailure, "unspecified launch failure"),
    ROW(ErrorNotSupported, "operation not supported"),
    ROW(ErrorSystemNotReady, "system not yet initialized"),
    ROW(ErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination"),
    ROW(ErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ROW(ErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ROW(ErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    ROW(ErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ROW(ErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ROW(ErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ROW(ErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    ROW(ErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"),
    ROW(ErrorExternalDevice, "an async error has occurred in external entity outside of CUDA"),
    ROW(ErrorUnknown, "unknown error"),
};
#undef ROW

const ErrorText *find(cudaError_t error) {
    for (const ErrorText &row : rows) {
        if (row.error == error) return &row;
    }
    return nullptr;
}

thread_local cudaError_t last = cudaSuccess;

} // namespace

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

/* A broken context answers with its error for ever. */
static cudaError_t context_error() {
    if (forked_too_late()) return cudaSuccess;
    State &s = state();
    Guard guard(s.lock);
    auto device = static_cast<size_t>(current_device());
    return device < s.devices.size() ? s.devices[device].broken : cudaSuccess;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaGetLastError(void) {
    cudaError_t broken = context_error(), error = last;
    last = cudaSuccess;
    return broken != cudaSuccess ? broken : error;
}

const char *cudaGetErrorName(cudaError_t error) {
    const ErrorText *row = find(error);
    return row ? row->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const ErrorText *row = find(error);
    return row ? row->text : "unrecognized error code";
}

} // extern "C"
