/* softmax — the steps of a softmax over rows of scores, for attention.
 *   idea  : a row is processed in whole vectors, with up to LS_LANES - 1 unused scores after the last one. They are set
 *           to -infinity, whose exponential is 0. Attention's tiles set them to a valid score instead, and their
 *           exponentials to 0 afterwards: for -infinity, exp's last steps produce subnormal numbers, which are many
 *           times slower
 *   order : sums over a row in LS_LANES parts */
#ifndef LS_KERNELS_CPU_VARIANT_SOFTMAX_H
#define LS_KERNELS_CPU_VARIANT_SOFTMAX_H

#include "kernels/cpu/variant/exponentials.h"

/* Sets the scores after the first `count` to `filler`, up to a multiple of LS_LANES, which it returns. */
static LS_ALWAYS_INLINE size_t whole_lanes(float *s, size_t count, float filler) {
    const int rest = (int)(count % LS_LANES);
    if (rest == 0) return count;
    s += count - (size_t)rest;
#pragma GCC unroll 1 /* if unrolled, gcc does not vectorize it */
    for (int l = 0; l < LS_LANES; l++) {
        float value = s[l];
        s[l] = l < rest ? value : filler;
    }
    return count - (size_t)rest + LS_LANES;
}

/* The largest of `count` scores, a multiple of LS_LANES, and of one more. */
static LS_ALWAYS_INLINE float largest_of(const float *s, size_t count, float largest) {
    float lanes[LS_LANES];
    for (int l = 0; l < LS_LANES; l++) lanes[l] = largest;
    for (size_t u = 0; u < count; u += LS_LANES) {
#pragma GCC unroll 1 /* likewise */
        for (int l = 0; l < LS_LANES; l++) lanes[l] = ls_larger(lanes[l], s[u + (size_t)l]);
    }
    return ls_largest_lane(lanes);
}

static inline float sum_of(const float *s, size_t count) {
    float lanes[LS_LANES] = {0};
    for (size_t u = 0; u < count; u += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += s[u + (size_t)l];
    }
    return ls_sum_lanes(lanes);
}

static inline void multiply_row(float *x, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] *= factor;
}

/* s = exp(scale s - shift), of `count` scores, a multiple of LS_LANES; returns their sum. */
static inline float exponentials(float *s, size_t count, float scale, float shift) {
    for (size_t u = 0; u < count; u += LS_EXP_BLOCK)
        ls_exp_rows(s + u, 0, 1, ls_exp_count(count - u) / LS_LANES * LS_LANES, scale, &shift);
    return sum_of(s, count);
}

static inline float dot(const float *a, const float *b, size_t count) {
    float lanes[LS_LANES] = {0};
    for (size_t i = 0; i < count; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += a[i + (size_t)l] * b[i + (size_t)l];
    }
    return ls_sum_lanes(lanes);
}

#endif
