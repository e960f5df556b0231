/* softmax — softmax of rows of scores, and its parts, for attention.
 *   idea  : a row is worked on in whole vectors, so up to LS_LANES - 1 scores behind the last one that counts. These get a
 *           score that counts until exponentials are taken, and become 0 afterwards. (With -infinity instead, exp's last
 *           steps would give subnormal numbers, for which processors take many times as long.)
 *   order : sums over a row in LS_LANES parts */
#ifndef LS_KERNELS_CPU_VARIANT_SOFTMAX_H
#define LS_KERNELS_CPU_VARIANT_SOFTMAX_H

#include "kernels/cpu/variant/exponentials.h"

/* The scores behind the first `count`, up to a multiple of LS_LANES, which is returned, become `filler`. */
static LS_ALWAYS_INLINE size_t ls_fill_lanes(float *s, size_t count, float filler) {
    const int rest = (int)(count % LS_LANES);
    if (rest == 0) return count;
    s += count - (size_t)rest;
#pragma GCC unroll 1 /* unrolled, gcc would not make vectors of it */
    for (int l = 0; l < LS_LANES; l++) {
        float value = s[l];
        s[l] = l < rest ? value : filler;
    }
    return count - (size_t)rest + LS_LANES;
}

/* The largest of `count` scores, a multiple of LS_LANES, and of one more. */
static LS_ALWAYS_INLINE float ls_largest_of(const float *s, size_t count, float largest) {
    float lanes[LS_LANES];
    for (int l = 0; l < LS_LANES; l++) lanes[l] = largest;
    for (size_t u = 0; u < count; u += LS_LANES) {
#pragma GCC unroll 1 /* likewise */
        for (int l = 0; l < LS_LANES; l++) lanes[l] = ls_larger(lanes[l], s[u + (size_t)l]);
    }
    return ls_largest_lane(lanes);
}

static inline float ls_sum_of(const float *s, size_t count) {
    float lanes[LS_LANES] = {0};
    for (size_t u = 0; u < count; u += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += s[u + (size_t)l];
    }
    return ls_sum_lanes(lanes);
}

static inline void ls_multiply_row(float *x, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] *= factor;
}

/* The row of scores of a position, of which it sees itself and those before it, becomes probabilities: softmax of scale s,
 * and 0 where it does not see. count: a multiple of LS_LANES, above the position. */
static inline void ls_softmax_row(float *s, size_t position, size_t count, float scale) {
    size_t end = ls_fill_lanes(s, position + 1, s[0]);
    float shift = scale * ls_largest_of(s, end, -INFINITY);
    for (size_t u = 0; u < end; u += LS_EXP_BLOCK)
        ls_exp_rows(s + u, 0, 1, ls_exp_count(end - u) / LS_LANES * LS_LANES, scale, &shift);
    ls_fill_lanes(s, position + 1, 0);
    ls_multiply_row(s, 1 / ls_sum_of(s, end), end);
    memset(s + end, 0, (count - end) * sizeof *s);
}

/* Back through it: of a row that gave p, the gradient of p becomes that of s. mean: of the gradient, weighted by p. */
static inline void ls_softmax_gradient(float *restrict gradient, const float *restrict p, size_t count, float mean,
                                       float scale) {
    for (size_t u = 0; u < count; u++) gradient[u] = p[u] * (gradient[u] - mean) * scale;
}

static inline float ls_dot(const float *a, const float *b, size_t count) {
    float lanes[LS_LANES] = {0};
    for (size_t i = 0; i < count; i += LS_LANES) {
        for (int l = 0; l < LS_LANES; l++) lanes[l] += a[i + (size_t)l] * b[i + (size_t)l];
    }
    return ls_sum_lanes(lanes);
}

#endif
