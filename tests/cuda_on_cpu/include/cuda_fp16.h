/* CUDA's fp16 type for "CUDA on the CPU": storage and conversions, no arithmetic. */
#ifndef CUDA_ON_CPU_CUDA_FP16_H
#define CUDA_ON_CPU_CUDA_FP16_H

#include <cuda_on_cpu_halves.h>

struct __half {
    uint16_t bits;
};

inline float __half2float(__half x) { return cuda_on_cpu::half_to_float(x.bits); }
inline __half __float2half_rn(float x) { return {cuda_on_cpu::float_to_half(x)}; }

#endif
