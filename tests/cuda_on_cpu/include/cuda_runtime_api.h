/* The part of CUDA's runtime interface that this project uses, for "CUDA on the CPU": the same names, numbers and
 * signatures as those of CUDA 12 and 13 (where the two differ, 13), so that the same sources compile against this
 * header or against NVIDIA's. The file in tests/cuda_on_cpu that implements a function describes at its top what it
 * does, and where it is stricter than CUDA. */
#ifndef CUDA_ON_CPU_CUDA_RUNTIME_API_H
#define CUDA_ON_CPU_CUDA_RUNTIME_API_H

#include <stddef.h>

#define CUDART_VERSION 13000
#define CUDART_CB

#ifdef __cplusplus
extern "C" {
#endif

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* X(name without "cuda", number, CUDA's text) */
#define CUDA_ON_CPU_ERRORS(X)                                                                                          \
    X(Success, 0, "no error")                                                                                          \
    X(ErrorInvalidValue, 1, "invalid argument")                                                                        \
    X(ErrorMemoryAllocation, 2, "out of memory")                                                                       \
    X(ErrorInitializationError, 3, "initialization error")                                                             \
    X(ErrorInvalidConfiguration, 9, "invalid configuration argument")                                                  \
    X(ErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                            \
    X(ErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")                     \
    X(ErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")                                \
    X(ErrorInvalidDeviceFunction, 98, "invalid device function")                                                       \
    X(ErrorNoDevice, 100, "no CUDA-capable device is detected")                                                        \
    X(ErrorInvalidDevice, 101, "invalid device ordinal")                                                               \
    X(ErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")                    \
    X(ErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                                               \
    X(ErrorDeviceAlreadyInUse, 216, "exclusive-thread device already in use by a different thread")                    \
    X(ErrorNvlinkUncorrectable, 220, "uncorrectable NVLink error detected during the execution")                       \
    X(ErrorContained, 226, "Invalid access of peer GPU memory over nvlink or a hardware error")                        \
    X(ErrorOperatingSystem, 304, "OS call failed or operation not supported on this OS")                               \
    X(ErrorInvalidResourceHandle, 400, "invalid resource handle")                                                      \
    X(ErrorIllegalState, 401, "the operation cannot be performed in the present state")                                \
    X(ErrorNotReady, 600, "device not ready")                                                                          \
    X(ErrorIllegalAddress, 700, "an illegal memory access was encountered")                                            \
    X(ErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                              \
    X(ErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                                            \
    X(ErrorContextIsDestroyed, 709, "context is destroyed")                                                            \
    X(ErrorAssert, 710, "device-side assert triggered")                                                                \
    X(ErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped")            \
    X(ErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")                  \
    X(ErrorHardwareStackError, 714, "hardware stack error")                                                            \
    X(ErrorIllegalInstruction, 715, "an illegal instruction was encountered")                                          \
    X(ErrorMisalignedAddress, 716, "misaligned address")                                                               \
    X(ErrorInvalidAddressSpace, 717, "operation not supported on global/shared address space")                         \
    X(ErrorInvalidPc, 718, "invalid program counter")                                                                  \
    X(ErrorLaunchFailure, 719, "unspecified launch failure")                                                           \
    X(ErrorNotSupported, 801, "operation not supported")                                                               \
    X(ErrorSystemNotReady, 802, "system not yet initialized")                                                          \
    X(ErrorSystemDriverMismatch, 803, "system has unsupported display driver / cuda driver combination")               \
    X(ErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                          \
    X(ErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")                   \
    X(ErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences")                 \
    X(ErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began")                        \
    X(ErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                                           \
    X(ErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")                     \
    X(ErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream")              \
    X(ErrorStreamCaptureWrongThread, 908, "attempt to terminate a thread-local capture sequence from another thread")  \
    X(ErrorExternalDevice, 911, "an async error has occurred in external entity outside of CUDA")                      \
    X(ErrorUnknown, 999, "unknown error")

#define CUDA_ON_CPU_ERROR(name, number, text) cuda##name = (number),
enum cudaError { CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_ERROR) };
#undef CUDA_ON_CPU_ERROR
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};

enum cudaDeviceAttr {
    cudaDevAttrPciBusId = 33,
    cudaDevAttrPciDeviceId = 34,
    cudaDevAttrPciDomainId = 50,
    cudaDevAttrMemoryPoolsSupported = 115
};

enum cudaMemPoolAttr {
    cudaMemPoolAttrReleaseThreshold = 4,
    cudaMemPoolAttrReservedMemCurrent = 5,
    cudaMemPoolAttrUsedMemCurrent = 7
};

enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };

enum cudaMemAccessFlags { cudaMemAccessFlagsProtReadWrite = 3 };

enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};

#define cudaStreamNonBlocking 0x01

#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventWaitDefault 0x00

#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01

#define cudaInvalidDeviceId ((int)-2)

/* --- handles and types -------------------------------------------------------------------------------------------- */

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;
typedef void(CUDART_CB *cudaHostFn_t)(void *user_data);

/* CUDA's has many more members, in a different order. */
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    int major;
    int minor;
    int multiProcessorCount;
};

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer;
    void *hostPointer;
};

struct cudaMemLocation {
    enum cudaMemLocationType type;
    int id;
};

struct cudaMemAccessDesc {
    struct cudaMemLocation location;
    enum cudaMemAccessFlags flags;
};

/* CUDA's has more members. */
struct cudaMemPoolProps {
    enum cudaMemAllocationType allocType;
    struct cudaMemLocation location;
};

/* --- devices and errors ------------------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *driverVersion);
cudaError_t cudaRuntimeGetVersion(int *runtimeVersion);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice);
cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags);

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

/* --- memory ------------------------------------------------------------------------------------------------------- */

cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMalloc(void **devPtr, size_t size);
cudaError_t cudaFree(void *devPtr);
cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags);
cudaError_t cudaHostUnregister(void *ptr);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr);

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *devPtr, int value, size_t count);
cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream);

cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep);
cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream);

/* --- streams and events ------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData);

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

/* --- graphs (cudaStreamGetCaptureInfo is left out: CUDA 12 and 13 give it different arguments) -------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec);

#ifdef __cplusplus
}
#endif
#endif
