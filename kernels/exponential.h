/* exp and GELU of floats: ours, so that they are vectorised, and have the same bits in every build for CPUs and on GPUs.
 *   idea  : exp(x) = 2^n exp(r) with n the integer nearest to x / ln 2, so that |r| is at most ln 2 / 2. ln 2 is
 *           subtracted in two parts, of which the first, times n, is exact. exp(r) = 1 + r + r^2 Q(r), where Q has the
 *           smallest maximum relative error (Remez), its coefficients rounded to float. The factor 2^n is applied in
 *           two halves, so that results reach down into the subnormal numbers and up to infinity.
 *           GELU in the tanh form is 0.5 x (1 + tanh(u)), and 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)): it needs exp
 *           only, and loses nothing where tanh(u) is near -1
 *   cost  : additions, multiplications and selections, no branch: 28 for exp
 *   order : every step is rounded separately: no fused multiply-add, which not every build has
 *   error : exp: at most 1 ulp, over all floats (tests/kernels/test_exponential.c); exp(-inf) = 0, exp(inf) = inf, NaN
 *           stays NaN */
#ifndef LS_KERNELS_EXPONENTIAL_H
#define LS_KERNELS_EXPONENTIAL_H

#include "common/base/dtype.h"

/* r, and n + 2 * 127. */
static inline LS_ANYWHERE float ls_exp_remainder(float x, uint32_t *biased) {
    const float whole = 0x1.8p23f; /* added to a small number, it leaves the nearest integer in the last bits */
    x = x > 89 ? 89 : x;           /* infinite from 88.73 on */
    x = x < -104 ? -104 : x;       /* 0 below -103.98; a NaN passes both */
    float shifted = x * 0x1.715476p0f + whole, n = shifted - whole;
    *biased = ls_float_bits(shifted) - ls_float_bits(whole) + 2 * 127;
    return x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
}

/* exp(r) 2^n */
static inline LS_ANYWHERE float ls_exp_of_remainder(float r, uint32_t biased) {
    float q = 0x1.6a21acp-10f;
    q = q * r + 0x1.123b6ap-7f;
    q = q * r + 0x1.5558fap-5f;
    q = q * r + 0x1.555490p-3f;
    q = q * r + 0x1.fffffcp-2f;
    float y = 1 + (r + r * r * q);
    uint32_t half = biased >> 1;
    return y * ls_float_of_bits(half << 23) * ls_float_of_bits((biased - half) << 23);
}

static inline LS_ANYWHERE float ls_exp_float(float x) {
    uint32_t biased;
    float r = ls_exp_remainder(x, &biased);
    return ls_exp_of_remainder(r, biased);
}

/* GELU uses exp(-2u) = exp(-x (a + b x^2)), 2u = 2 sqrt(2/pi) (x + 0.044715 x^3). */
static inline LS_ANYWHERE float ls_gelu_exponent(float x) { return -(x * (0x1.988454p0f + 0x1.2444f2p-4f * (x * x))); }

static inline LS_ANYWHERE float ls_gelu_of(float x, float e) { return x / (1 + e); }

static inline LS_ANYWHERE float ls_gelu_float(float x) { return ls_gelu_of(x, ls_exp_float(ls_gelu_exponent(x))); }

/* The derivative of GELU: with s = 1 / (1 + exp(-2u)), s + x s (1 - s) 2u'. From e = exp(-2|u|), s (1 - s) loses nothing on
 * either side. */
static inline LS_ANYWHERE float ls_gelu_slope_exponent(float x) {
    return ls_float_of_bits(ls_float_bits(ls_gelu_exponent(x)) | 0x80000000u);
}

static inline LS_ANYWHERE float ls_gelu_slope_of(float x, float e) {
    float above = 1 / (1 + e), share = x < 0 ? e * above : above,
          twice_u_slope = 0x1.988454p0f + 0x1.b6676cp-3f * (x * x);
    return share + x * (e * above * above) * twice_u_slope;
}

static inline LS_ANYWHERE float ls_gelu_slope(float x) {
    return ls_gelu_slope_of(x, ls_exp_float(ls_gelu_slope_exponent(x)));
}

#endif
