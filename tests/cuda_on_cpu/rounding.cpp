/* Rounding that CUDA does not specify, selected by CUDA_ON_CPU_ROUNDING (include/cuda_on_cpu.h). A test that passes
 * with all of it will not fail on a GPU because of rounding alone.
 *
 *   slices  cuBLAS may cut the inner dimension into pieces, one to a group of threads, and add up their sums ("split k").
 *           Here each piece is summed in oneDNN's order, and the pieces' sums one after the other, in fp32.
 *   place   cuBLAS selects its kernel by the matrices' addresses, among other things: the same GEMM has the same bits
 *           only on arrays with the same alignment (seen on an H100, with fp16)
 *   cut     tensor cores read fp32 as TF32 by dropping the lowest 13 bits, and add a block of products to the previous
 *           sum like fixed-point numbers: each is shifted to the exponent of the largest, bits below the 24th are lost,
 *           and the result is rounded to fp32 towards zero. GPUs differ in the block size (4 to 16 products) and keep
 *           up to two more bits; this uses blocks of 16 and no more bits, which is worse than any of them.
 *   ulps    CUDA's documented bound for expf; the one for logf is 1. The error of a result, -2 to 2 units in the last
 *           place, depends only on its argument: equal arguments give equal bits, as on a GPU.
 *   flush   numbers of A, B, C and results that are subnormal as fp32 are zeros ("ftz"): some of fp32, some of bf16, none
 *           of fp16, whose subnormal numbers GPUs always keep
 *   never   more than that: no matrix multiply or exponential function has a larger error than a real one may have */
#include "tests/cuda_on_cpu/rounding.h"

#include <cmath>
#include <cstring>

#include <cuda_on_cpu_halves.h>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

const Rounding &rounding() { return state().settings.rounding; }

/* --- products ----------------------------------------------------------------------------------------------------- */

float cut_to_tf32(float x) { return float_of(bits_of(x) & ~0x1fffu); }

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

namespace {

constexpr int BLOCK = 16, DIGITS = 24;

/* To fp32, towards zero; infinity beyond the largest number. */
float cut_to_float(double x) {
    auto y = static_cast<float>(x);
    bool away = std::isfinite(y) && std::fabs(static_cast<double>(y)) > std::fabs(x);
    return away ? std::nextafterf(y, 0) : y;
}

} // namespace

/* Products of two numbers of 11 bits are exact in double, and so are sums of 17 numbers of 24 bits with a common
 * exponent. */
float tensor_core_sum(const float *a, const float *b, int64_t k) {
    float sum = 0;
    for (int64_t begin = 0; begin < k; begin += BLOCK) {
        double addends[BLOCK + 1] = {static_cast<double>(sum)}, largest = std::fabs(addends[0]), total = 0;
        int count = 1;
        for (int64_t i = begin; i < k && i < begin + BLOCK; i++) {
            addends[count] = static_cast<double>(a[i]) * static_cast<double>(b[i]);
            largest = std::fmax(largest, std::fabs(addends[count++]));
        }
        int exponent = 0;
        if (std::isfinite(largest)) std::frexp(largest, &exponent);
        double unit = std::ldexp(1.0, exponent - DIGITS), per_unit = std::ldexp(1.0, DIGITS - exponent);
        for (int i = 0; i < count; i++) {
            bool finite = std::isfinite(addends[i]);
            total += finite ? std::trunc(addends[i] * per_unit) * unit : addends[i];
        }
        sum = cut_to_float(total);
    }
    return sum;
}

/* --- functions of kernels ----------------------------------------------------------------------------------------- */

namespace {

/* Neither zeros nor infinities nor NaN, which are exact. */
float put_off(float result, float argument) {
    if (!std::isnormal(result)) return result;
    int ulps = static_cast<int>(bits_of(argument) * 0x9e3779b1u >> 16) % 5 - 2;
    float nudged = float_of(bits_of(result) + static_cast<uint32_t>(ulps));
    return std::isnormal(nudged) ? nudged : result;
}

} // namespace

float kernel_expf(float x) {
    float y = std::exp(x);
    return rounding().ulps ? put_off(y, x) : y;
}

float kernel_logf(float x) {
    float y = std::log(x);
    return rounding().ulps ? put_off(y, x) : y;
}

} // namespace cuda_on_cpu
