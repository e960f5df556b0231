/* Shared by the files of this folder. Each is compiled once per instruction set LS_ISA; LS_CPU(name) is the name of
 * this build's function. All loops are plain C that the compiler vectorises; see cpu.h for why every build gives the
 * same bits. */
#ifndef LS_KERNELS_CPU_VARIANT_H
#define LS_KERNELS_CPU_VARIANT_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#define LS_PASTE3(a, b, c) a##b##_##c
#define LS_PASTE(a, b, c) LS_PASTE3(a, b, c)
#define LS_CPU(name) LS_PASTE(ls_cpu_, name, LS_ISA)

#define LS_OP(op, flops, bytes, aliasing) ls_status LS_CPU(op)(const struct ls_##op##_arguments *a);
#include "kernels/ops.def"
#undef LS_OP

#define LS_ALWAYS_INLINE inline __attribute__((always_inline))

/* Sums are taken in this many interleaved parts: enough for the widest vectors, and the same in every build. */
#define LS_LANES 16

/* Adds the parts pairwise: 8 + 8, 4 + 4, ... */
static inline float ls_sum_lanes(float lanes[LS_LANES]) {
#pragma GCC unroll 4 /* so that the parts stay in registers */
    for (int width = LS_LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

static inline float ls_larger(float a, float b) { return b > a ? b : a; }

static inline float ls_largest_lane(float lanes[LS_LANES]) {
#pragma GCC unroll 4
    for (int width = LS_LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) lanes[i] = ls_larger(lanes[i], lanes[i + width]);
    }
    return lanes[0];
}

/* y += x */
static inline void ls_add_floats(float *restrict y, const float *restrict x, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += x[i];
}

/* Stores a complete gradient: overwrites the present value, or adds to it. */
static inline void ls_put_sum(float *restrict gradient, const float *restrict sum, size_t count, bool accumulate) {
    if (accumulate) {
        ls_add_floats(gradient, sum, count);
    } else {
        memcpy(gradient, sum, count * sizeof *sum);
    }
}

#endif
