/* The engine of "CUDA on the CPU", shared by the fakes of cudart, kernels, cuBLAS and NCCL. C++, internal to this
 * folder; tests use include/cuda_on_cpu.h.
 *
 * Host threads enqueue work on streams; one engine thread per process runs it, in an order that streams and events
 * allow, and only that thread may touch device memory. So a Work may read and write device memory and pinned host
 * memory, and must not call any cuda*, cublas* or nccl* function, nor enqueue anything. */
#ifndef CUDA_ON_CPU_ENGINE_H
#define CUDA_ON_CPU_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <functional>

#include <cuda_runtime_api.h>

namespace cuda_on_cpu {

/* later: the work cannot continue yet (a collective operation whose peers have not arrived) and will be called again;
 * meanwhile other work runs. A Work is called until it returns done. */
enum class Progress { done, later };
using Work = std::function<Progress()>;

/* Puts `work` at the end of the stream and returns at once. On a stream that is being captured it becomes a node of the
 * graph, and a new copy of it, as it was when captured, runs at every launch: changes to its own members do not affect
 * the next launch, changes through its pointers do. `label` names it in messages and must never be freed. `owner`
 * identifies it for is_recorded. */
cudaError_t enqueue(cudaStream_t stream, const char *label, Work work, const void *owner = nullptr);

/* Whether a graph, executable or not, or an unfinished capture contains work of this owner. */
bool is_recorded(const void *owner);

/* The same for a kernel: the stream must be of the thread's current device (cudaErrorInvalidResourceHandle otherwise,
 * as in CUDA), the kernel counts in kernels_launched(), and the nth fails when CUDA_ON_CPU_FAIL says kernel:n:code. */
cudaError_t enqueue_kernel(cudaStream_t stream, const char *label, Work work);

/* Every entry point of a fake begins with one of these two, passing its own name, which counts the call. enter: for
 * functions of cudart; returns cudaSuccess, or the error that the call must return at once: no driver or device, a
 * broken context of the current device, an error requested by CUDA_ON_CPU_FAIL. injected: for functions of other
 * libraries; returns only an error requested by CUDA_ON_CPU_FAIL, as the library's own number; 0: continue. */
cudaError_t enter(const char *function);
cudaError_t injected(const char *function);

/* Stores an error for cudaGetLastError and returns it. */
cudaError_t fail(cudaError_t error);

/* Breaks the device on which the calling work runs (outside of work: the thread's current device): work enqueued there
 * is dropped, and every call that concerns it returns `error`. */
void break_context(cudaError_t error);

/* Kernels enqueued on streams so far, those of launched graphs included. */
unsigned long kernels_launched();

int device_count(); /* that this process can see; 0 without a driver */
int current_device();
cudaError_t device_of_stream(cudaStream_t stream, int *device);
bool is_capturing(cudaStream_t stream);

/* Whether all of [address, address + nbytes) is in one live allocation of device memory; *device (may be NULL) becomes
 * its device. */
bool in_device_memory(const void *address, size_t nbytes, int *device);
/* Whether the range is pinned host memory. */
bool in_pinned_memory(const void *address, size_t nbytes);

/* Whether the calling thread is the engine's. */
bool on_engine_thread();

} // namespace cuda_on_cpu

#endif
