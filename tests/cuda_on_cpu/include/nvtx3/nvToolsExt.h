/* NVTX ranges, as far as this project uses them. The fake counts them and keeps their names: cuda_on_cpu.h,
 * cuda_on_cpu_ranges. */
#ifndef CUDA_ON_CPU_NVTOOLSEXT_H
#define CUDA_ON_CPU_NVTOOLSEXT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NVTX_VERSION 3

typedef uint64_t nvtxRangeId_t;

/* The depth of the range within its thread, from 0; negative: an error (here: a pop without a push). */
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);

/* Ranges that may begin and end in different threads. */
nvtxRangeId_t nvtxRangeStartA(const char *message);
void nvtxRangeEnd(nvtxRangeId_t id);

void nvtxMarkA(const char *message);
void nvtxNameOsThreadA(uint32_t threadId, const char *name);

#ifdef __cplusplus
}
#endif
#endif
