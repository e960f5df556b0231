/* exp, tanh and GELU of floats: ours, so that they are vectorised, and have the same bits in every build for CPUs and on GPUs.
 *   idea  : exp(x) = 2^n exp(r) with n the whole number next to x / ln 2, and |r| at most ln 2 / 2; ln 2 is subtracted
 *           in two parts, of which the first, times n, is exact. exp(r) = 1 + r + r^2 Q(r). 2^n is multiplied on in
 *           two halves, so that results reach down into the subnormal numbers and up to infinity.
 *           tanh(x) = a + a^3 P(a^2) for a = |x| below 0.625, 1 - 2 / (exp(2 a) + 1) above, with the sign of x.
 *           Q and P have the smallest largest relative error (Remez), coefficients rounded to float
 *   cost  : additions, multiplications and selections only, no branch: 20 for exp, 35 and a division for tanh
 *   order : every step is rounded by itself: no fused multiply-add, which not every build has
 *   error : at most 2 ulp, over all floats (tests/kernels/test_exponential.c); exp(-inf) = 0, exp(inf) = inf,
 *           tanh(+-inf) = +-1, a zero keeps its sign, NaN stays NaN */
#ifndef LS_KERNELS_EXPONENTIAL_H
#define LS_KERNELS_EXPONENTIAL_H

#include "common/base/dtype.h"

static inline LS_ANYWHERE float ls_exp_float(float x) {
    const float whole = 0x1.8p23f; /* added to a small number, it leaves the nearest whole number in the last bits */
    x = x > 89 ? 89 : x;           /* infinite from 88.73 on */
    x = x < -104 ? -104 : x;       /* 0 below -103.98; a NaN passes both */
    float shifted = x * 0x1.715476p0f + whole, n = shifted - whole;
    float r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    float q = 0x1.6a21acp-10f;
    q = q * r + 0x1.123b6ap-7f;
    q = q * r + 0x1.5558fap-5f;
    q = q * r + 0x1.555490p-3f;
    q = q * r + 0x1.fffffcp-2f;
    float y = 1 + (r + r * r * q);
    uint32_t biased = ls_float_bits(shifted) - ls_float_bits(whole) + 2 * 127, half = biased >> 1; /* n + 254 */
    return y * ls_float_of_bits(half << 23) * ls_float_of_bits((biased - half) << 23);
}

static inline LS_ANYWHERE float ls_tanh_float(float x) {
    uint32_t sign = ls_float_bits(x) & 0x80000000u;
    float a = ls_float_of_bits(ls_float_bits(x) ^ sign), z = a * a;
    float p = -0x1.75e1e0p-8f;
    p = p * z + 0x1.5226a0p-6f;
    p = p * z - 0x1.b83c5ap-5f;
    p = p * z + 0x1.110726p-3f;
    p = p * z - 0x1.555532p-2f;
    float small = a + a * z * p, large = 1 - 2 / (ls_exp_float(2 * a) + 1);
    float y = a < 0.625f ? small : large;
    return ls_float_of_bits(ls_float_bits(y) | sign);
}

/* tanh(sqrt(2/pi) (x + 0.044715 x^3)), as x times a polynomial of x^2; below, that argument's derivative. */
static inline LS_ANYWHERE float ls_gelu_tanh(float x) {
    return ls_tanh_float(x * (0x1.988454p-1f + 0x1.2444f2p-5f * (x * x)));
}

static inline LS_ANYWHERE float ls_gelu_float(float x) { return 0.5f * x * (1 + ls_gelu_tanh(x)); }

/* The derivative of GELU. */
static inline LS_ANYWHERE float ls_gelu_slope(float x) {
    float t = ls_gelu_tanh(x), of_argument = 0x1.988454p-1f + 0x1.b6676cp-4f * (x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * of_argument;
}

#endif
