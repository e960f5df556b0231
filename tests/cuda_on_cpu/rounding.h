/* Rounding of GPUs' matrix multiplies that the CPU's do not have: for cublas_gemm.cpp. */
#ifndef CUDA_ON_CPU_ROUNDING_H
#define CUDA_ON_CPU_ROUNDING_H

#include <cstdint>

namespace cuda_on_cpu {

struct Rounding;
/* The rounding set in the environment; state.h describes its members. */
const Rounding &rounding();

/* Drops the lowest 13 bits. */
float cut_to_tf32(float x);

/* Replaces a subnormal number by a zero of the same sign. */
float flushed(float x);

/* The sum of a[i] b[i] as tensor cores compute it. The numbers have at most 11 bits of mantissa. */
float tensor_core_sum(const float *a, const float *b, int64_t k);

} // namespace cuda_on_cpu

#endif
