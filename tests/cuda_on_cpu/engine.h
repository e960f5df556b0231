/* The engine of "CUDA on the CPU": what the fakes of cudart, of kernels, of cuBLAS and of NCCL share. C++, internal
 * to this folder; tests use include/cuda_on_cpu.h.
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

/* later: the work cannot go on yet (a collective operation whose peers have not come) and is asked again; meanwhile
 * everything that may run does. A Work is called until it says done. */
enum class Progress { done, later };
using Work = std::function<Progress()>;

/* Puts `work` at the end of the stream and returns at once. On a stream that is being captured it becomes a node of
 * the graph, and a fresh copy of it, as it was when captured, runs at every launch: what it changes in itself does
 * not reach the next launch, what it shares by pointer does. `label` names it in messages and must live for ever.
 * `owner` is whom is_recorded knows it by. */
cudaError_t enqueue(cudaStream_t stream, const char *label, Work work, const void *owner = nullptr);

/* Whether a graph, executable or not, or a capture that goes on holds work of this owner. */
bool is_recorded(const void *owner);

/* The same for a kernel: the stream must be of the thread's current device (cudaErrorInvalidResourceHandle otherwise,
 * as in CUDA), the kernel counts in kernels_launched(), and the nth fails when CUDA_ON_CPU_FAIL says kernel:n:code. */
cudaError_t enqueue_kernel(cudaStream_t stream, const char *label, Work work);

/* Every entry point of a fake begins with one of these two, giving its own name, which counts the call. enter: for
 * functions of cudart; cudaSuccess, or what the call has to return at once: no driver or device, a broken context of
 * the current device, the error that CUDA_ON_CPU_FAIL asks for. injected: for functions of other libraries: only what
 * CUDA_ON_CPU_FAIL asks for, the library's own number cast; 0: go on. */
cudaError_t enter(const char *function);
cudaError_t injected(const char *function);

/* Remembers an error for cudaGetLastError and returns it. */
cudaError_t fail(cudaError_t error);

/* The device on which the calling work runs (elsewhere: the thread's current device) can do nothing any more: what is
 * enqueued there is dropped, and every call that concerns it returns `error`. */
void break_context(cudaError_t error);

/* Kernels enqueued so far on streams, those of launched graphs included. */
unsigned long kernels_launched();

int device_count(); /* that this process can see; 0 without a driver */
int current_device();
cudaError_t device_of_stream(cudaStream_t stream, int *device);
bool is_capturing(cudaStream_t stream);

/* Whether all of [address, address + nbytes) lies in one live allocation of device memory; *device (may be NULL) says
 * whose. */
bool in_device_memory(const void *address, size_t nbytes, int *device);
/* Whether the range is pinned host memory. */
bool in_pinned_memory(const void *address, size_t nbytes);

/* Whether the calling thread is the engine's. */
bool on_engine_thread();

} // namespace cuda_on_cpu

#endif
