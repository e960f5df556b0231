/* The part of cuda_on_cpu.h that concerns kernels: in which order their threads run, and which kernels ran. */
#ifndef CUDA_ON_CPU_THREADS_ORDER_H
#define CUDA_ON_CPU_THREADS_ORDER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces CUDA_ON_CPU_THREADS ("ascending", "descending" or "random:SEED") for kernels that are launched from now on;
 * a kernel of a graph keeps the order of its capture. Anything else aborts. */
void cuda_on_cpu_set_thread_order(const char *order);

struct cuda_on_cpu_geometry {
    unsigned grid[3], block[3];
};

/* Kernels that began to run so far, those of launched graphs included. After a host thread has waited for a stream this
 * counts what was enqueued there. */
unsigned long cuda_on_cpu_kernels_run(void);

/* The geometry of the nth of them, from 0. Nonzero if it does not exist, or is more than 4096 kernels old. */
int cuda_on_cpu_kernel_geometry(unsigned long nth, struct cuda_on_cpu_geometry *geometry);

#ifdef __cplusplus
}
#endif
#endif
