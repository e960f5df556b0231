/* exponentials — exp of many floats, each with the bits of ls_exp_float (exponential.h).
 *   idea: the steps of exp in two loops. In one loop each step would wait for the step before: the latency of an
 *         element is four times its work, and the processor cannot look ahead far enough to fill the gaps with later
 *         elements */
#ifndef LS_KERNELS_CPU_VARIANT_EXPONENTIALS_H
#define LS_KERNELS_CPU_VARIANT_EXPONENTIALS_H

#include "kernels/cpu/variant/variant.h"
#include "kernels/exponential.h"

/* Most elements at a time: few enough for the L1 cache. */
#define LS_EXP_BLOCK 1024

static inline size_t ls_exp_count(size_t rest) { return rest < LS_EXP_BLOCK ? rest : LS_EXP_BLOCK; }

/* x = exp(scale x - shift[r]), without shift exp(scale x), of rows `stride` floats apart; rows x count is at most
 * LS_EXP_BLOCK. Rows of whole vectors are faster if the compiler sees that: count / LS_LANES * LS_LANES. */
static LS_ALWAYS_INLINE void ls_exp_rows(float *x, size_t stride, size_t rows, size_t count, float scale,
                                         const float *shift) {
    uint32_t biased[LS_EXP_BLOCK];
    for (size_t r = 0; r < rows; r++) {
        const float subtrahend = shift ? shift[r] : 0;
        for (size_t i = 0; i < count; i++)
            x[r * stride + i] = ls_exp_remainder(x[r * stride + i] * scale - subtrahend, &biased[r * count + i]);
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < count; i++)
            x[r * stride + i] = ls_exp_of_remainder(x[r * stride + i], biased[r * count + i]);
    }
}

#endif
