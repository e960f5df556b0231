/* fp16 and bf16 for "CUDA on the CPU": the conversions of <cuda_fp16.h>, <cuda_bf16.h> and the fake cuBLAS. Rounding is
 * to the nearest, ties to even; values beyond the largest become infinity, NaN stays NaN. */
#ifndef CUDA_ON_CPU_HALVES_H
#define CUDA_ON_CPU_HALVES_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_on_cpu {

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

/* Drops the lowest `count` bits, to the nearest, ties to even; rounds up to infinity if necessary. NaN stays NaN (and
 * quiet). */
inline uint32_t drop_bits(float x, unsigned count) {
    uint32_t bits = bits_of(x);
    if (std::isnan(x)) return (bits | 0x00400000u) >> count << count;
    uint32_t half = (1u << (count - 1)) - 1 + (bits >> count & 1);
    return (bits + half) >> count << count;
}

inline float bfloat_to_float(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bfloat(float x) { return static_cast<uint16_t>(drop_bits(x, 16) >> 16); }

inline float half_to_float(uint16_t bits) {
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023u;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent > 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -tiny : tiny;
}

inline uint16_t float_to_half(float x) {
    auto sign = static_cast<uint16_t>(bits_of(x) >> 16 & 0x8000u);
    float size = std::fabs(x);
    if (std::isnan(x)) return sign | 0x7e00u;
    if (size >= 65520.0f) return sign | 0x7c00u; /* halfway to the number that would follow the largest, 65504 */
    if (size < 0x1p-14f) { /* multiples of 2^-24, in the rounding mode of the machine: to the nearest, ties to even */
        return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f)));
    }
    return static_cast<uint16_t>(sign | ((drop_bits(size, 13) >> 13) - (112u << 10)));
}

} // namespace cuda_on_cpu

#endif
