/* The part of NVTX's ranges that this project uses. The fake counts them and keeps their names: cuda_on_cpu.h,
 * cuda_on_cpu_ranges. */
#ifndef CUDA_ON_CPU_NVTOOLSEXT_H
#define CUDA_ON_CPU_NVTOOLSEXT_H

#ifdef __cplusplus
extern "C" {
#endif

#define NVTX_VERSION 3

/* The depth of the range within its thread, from 0; negative: an error (here: a pop without a push). */
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);

#ifdef __cplusplus
}
#endif
#endif
