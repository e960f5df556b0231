/* CUDA's bf16 type for "CUDA on the CPU": storage and conversions, no arithmetic. */
#ifndef CUDA_ON_CPU_CUDA_BF16_H
#define CUDA_ON_CPU_CUDA_BF16_H

#include <cuda_on_cpu_halves.h>

struct __nv_bfloat16 {
    uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) { return cuda_on_cpu::bfloat_to_float(x.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {cuda_on_cpu::float_to_bfloat(x)}; }

#endif
