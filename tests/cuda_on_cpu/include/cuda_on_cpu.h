/* What tests ask of "CUDA on the CPU", and tell it. The environment says what machine it pretends to be, read at the
 * first CUDA call:
 *
 *   CUDA_ON_CPU_DEVICES=n            GPUs of the machine (0: "no device"); CUDA_VISIBLE_DEVICES then counts as in
 *                                    CUDA
 *   CUDA_ON_CPU_MEMORY=bytes         of each GPU (2 GiB)
 *   CUDA_ON_CPU_DRIVER=none|old      no driver, or one older than the runtime
 *   CUDA_ON_CPU_STREAMS=eager        work runs as soon as it can (the default)
 *                       shuffle:SEED nothing runs until a host thread waits or queries, then in any order that streams
 *                                    and events allow
 *   CUDA_ON_CPU_THREADS=ascending|descending|random:SEED   the order in which a block's threads run
 *   CUDA_ON_CPU_ROUNDING=...,...     what CUDA and cuBLAS leave open about rounding, each by a word (none: the CPU's bits)
 *                        slices:N    products add up N slices (1 to 64) of the inner dimension apart, then those
 *                        place       one slice more where a matrix does not begin at a multiple of 16 bytes
 *                        cut         tensor cores: fp32 inputs of TF32 lose their low bits, and sums of TF32's and of
 *                                    halves' products lose what lies below the 24 bits of the largest in each block
 *                        ulps        expf and logf are up to 2 units of the last place off
 *                        flush       products take and give zeros instead of what is subnormal as fp32
 *   CUDA_ON_CPU_NO_POOLS=1           GPUs that say they have no memory pools, as old ones
 *   CUDA_ON_CPU_FAIL=name:nth:code,...   the nth call of that function returns that error (0th: every call); the name
 *                                    "kernel": the nth launched kernel fails asynchronously and its device is broken
 *                                    from then on
 *
 * In shuffle mode device memory is not accessible while host threads run: a host access is SIGSEGV. In eager mode that
 * holds from the moment a host thread has waited and nothing is left to run, until the next work is enqueued. */
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets everything (devices, streams, memory, counts, faults) and reads the environment again at the next CUDA
 * call. Waits for nothing: what is enqueued is dropped. Handles and addresses from before are invalid. No other
 * thread may be in a CUDA call. */
void cuda_on_cpu_restart(void);

/* Replaces CUDA_ON_CPU_FAIL from now on, counting calls from here; NULL or "": no faults. A device that is broken
 * stays so. */
void cuda_on_cpu_reset_faults(const char *faults);

/* Whether CUDA_ON_CPU_ROUNDING has this word: "place", "cut", "ulps", "flush"; "slices" for more than one. */
int cuda_on_cpu_rounds(const char *how);

/* Kernels enqueued so far, those of launched graphs included. */
unsigned long cuda_on_cpu_kernel_launches(void);
/* Successful calls so far of cudaMalloc and cudaMallocFromPoolAsync. */
unsigned long cuda_on_cpu_device_allocations(void);
/* Bytes of device memory, of all devices, that are allocated now; what cudaFreeAsync was called for is not. */
size_t cuda_on_cpu_device_bytes(void);
/* Calls so far that made the host wait for a device: synchronise, cudaMemcpy, a copy to pageable memory, cudaFree.
 * Queries do not wait: cuda_on_cpu_calls counts them. */
unsigned long cuda_on_cpu_host_waits(void);
/* Calls so far of the function of that name, of cudart, cuBLAS or NCCL. */
unsigned long cuda_on_cpu_calls(const char *function);

/* NVTX: how many ranges of that name began so far (NULL: of any name); how many are open now, in all threads. */
unsigned long cuda_on_cpu_ranges(const char *name);
unsigned long cuda_on_cpu_open_ranges(void);

/* Reads device memory as a debugger would, whatever is running: for looking at what a test must not disturb by
 * waiting. Nonzero: that is no live device memory. */
int cuda_on_cpu_peek(void *to, const void *device_memory, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
