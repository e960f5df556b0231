/* What a GPU's products may do to a sum that the CPU's do not: for cublas_gemm.cpp. */
#ifndef CUDA_ON_CPU_ROUNDING_H
#define CUDA_ON_CPU_ROUNDING_H

#include <cstdint>

namespace cuda_on_cpu {

struct Rounding;
/* The environment's, as the state has read it; state.h says what is in it. */
const Rounding &rounding();

/* Without the lowest 13 bits. */
float cut_to_tf32(float x);

/* A zero of its sign instead of a subnormal number. */
float flushed(float x);

/* The sum of a[i] b[i] as tensor cores take it. The numbers have 11 bits of mantissa at most. */
float tensor_core_sum(const float *a, const float *b, int64_t k);

} // namespace cuda_on_cpu

#endif
