/* The interface of "CUDA on the CPU" for tests. Environment variables, read at the first CUDA call, describe the
 * machine that it simulates:
 *
 *   CUDA_ON_CPU_DEVICES=n            GPUs of the machine (0: "no device"); CUDA_VISIBLE_DEVICES then counts as in
 *                                    CUDA
 *   CUDA_ON_CPU_MEMORY=bytes         of each GPU (2 GiB)
 *   CUDA_ON_CPU_DRIVER=none|old      no driver, or one older than the runtime
 *   CUDA_ON_CPU_STREAMS=eager        work runs as soon as it can (the default)
 *                       shuffle:SEED nothing runs until a host thread waits or queries, then in any order that streams
 *                                    and events allow
 *   CUDA_ON_CPU_THREADS=ascending|descending|random:SEED   the order in which a block's threads run
 *   CUDA_ON_CPU_ROUNDING=...,...     how to round where CUDA and cuBLAS do not specify it, a word for each (none: the
 *                                    CPU's bits)
 *                        slices:N    matrix multiplies sum N slices (1 to 64) of the inner dimension separately, then
 *                                    the slices
 *                        place       one more slice if a matrix does not begin at a multiple of 16 bytes
 *                        cut         tensor cores: fp32 inputs of TF32 lose their low bits, and sums of TF32, fp16 and
 *                                    bf16 products lose the bits below the 24 bits of the largest in each block
 *                        ulps        expf and logf are off by up to 2 units in the last place
 *                        flush       matrix multiplies read and write zeros instead of subnormal fp32 numbers
 *   CUDA_ON_CPU_NO_POOLS=1           GPUs that report no memory pools, as old ones do
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

/* Resets everything (devices, streams, memory, counts, faults); the next CUDA call reads the environment again. Does
 * not wait: enqueued work is dropped. Earlier handles and addresses are invalid. No other thread may be in a CUDA
 * call. */
void cuda_on_cpu_restart(void);

/* Replaces CUDA_ON_CPU_FAIL from now on, counting calls from here; NULL or "": no faults. A device that is broken stays
 * broken. */
void cuda_on_cpu_reset_faults(const char *faults);

/* Whether CUDA_ON_CPU_ROUNDING has this word: "place", "cut", "ulps" or "flush"; "slices" if there is more than one
 * slice. */
int cuda_on_cpu_rounds(const char *how);

/* Kernels enqueued so far, those of launched graphs included. */
unsigned long cuda_on_cpu_kernel_launches(void);
/* Successful calls so far of cudaMalloc and cudaMallocFromPoolAsync. */
unsigned long cuda_on_cpu_device_allocations(void);
/* Bytes of device memory that are allocated now, on all devices, without memory for which cudaFreeAsync was called. */
size_t cuda_on_cpu_device_bytes(void);
/* Calls so far that made the host wait for a device: synchronise, cudaMemcpy, a copy to pageable memory, cudaFree.
 * Queries do not wait: cuda_on_cpu_calls counts them. */
unsigned long cuda_on_cpu_host_waits(void);
/* Calls so far of the function of that name, of cudart, cuBLAS or NCCL. */
unsigned long cuda_on_cpu_calls(const char *function);

/* NVTX: how many ranges of that name began so far (NULL: of any name); how many are open now, in all threads. */
unsigned long cuda_on_cpu_ranges(const char *name);
unsigned long cuda_on_cpu_open_ranges(void);

/* Reads device memory as a debugger would, without waiting for the work that is running. Nonzero if this is not live
 * device memory. */
int cuda_on_cpu_peek(void *to, const void *device_memory, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
