/* half — converts rows of fp16 or bf16 values to and from fp32.
 *   idea  : 16 elements at a time, in plain C that compilers vectorise or, for fp16, by the processor's own conversions
 *           if this build may use them. The last group of a row overlaps the one before, so that no row ends in single
 *           elements. The overlap is written twice, with the same values
 *   order : element by element. The processor's conversions give the bits of dtype.h: widening is exact, rounding is to
 *           nearest even in both, and NaNs are converted alike */
#include "kernels/cpu/variant/half.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

#define GROUP 16

/* --- groups ------------------------------------------------------------------------------------------------------ */

#ifdef __F16C__
static inline void widen_fp16_group(float *restrict y, const uint16_t *restrict x) {
    for (int i = 0; i < GROUP; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
}

static inline void narrow_fp16_group(uint16_t *restrict y, const float *restrict x) {
    const __m128i magnitude = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00),
                  payload = _mm_set1_epi16(0x01ff);
    for (int i = 0; i < GROUP; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i is_nan = _mm_cmpgt_epi16(_mm_and_si128(half, magnitude), infinity);
        half = _mm_andnot_si128(_mm_and_si128(is_nan, payload), half); /* 0x7e00 remains, as in ls_fp16_from_float */
        _mm_storeu_si128((__m128i *)(void *)(y + i), half);
    }
}
#else
static inline void widen_fp16_group(float *restrict y, const uint16_t *restrict x) {
    for (int i = 0; i < GROUP; i++) y[i] = ls_fp16_to_float(x[i]);
}

static inline void narrow_fp16_group(uint16_t *restrict y, const float *restrict x) {
    for (int i = 0; i < GROUP; i++) y[i] = ls_fp16_from_float(x[i]);
}
#endif

static inline void widen_bf16_group(float *restrict y, const uint16_t *restrict x) {
    for (int i = 0; i < GROUP; i++) y[i] = ls_bf16_to_float(x[i]);
}

static inline void narrow_bf16_group(uint16_t *restrict y, const float *restrict x) {
    for (int i = 0; i < GROUP; i++) y[i] = ls_bf16_from_float(x[i]);
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

#define LS_CONVERT_ROW(name, to_type, from_type, convert_group, convert)                                               \
    static void name(to_type *restrict y, const from_type *restrict x, size_t count) {                                 \
        if (count < GROUP) {                                                                                           \
            for (size_t i = 0; i < count; i++) y[i] = convert(x[i]);                                                   \
            return;                                                                                                    \
        }                                                                                                              \
        for (size_t i = 0; i + GROUP < count; i += GROUP) convert_group(y + i, x + i);                                 \
        convert_group(y + count - GROUP, x + count - GROUP);                                                           \
    }

LS_CONVERT_ROW(widen_fp16, float, uint16_t, widen_fp16_group, ls_fp16_to_float)
LS_CONVERT_ROW(narrow_fp16, uint16_t, float, narrow_fp16_group, ls_fp16_from_float)
LS_CONVERT_ROW(widen_bf16, float, uint16_t, widen_bf16_group, ls_bf16_to_float)
LS_CONVERT_ROW(narrow_bf16, uint16_t, float, narrow_bf16_group, ls_bf16_from_float)

void LS_CPU(widen)(ls_dtype dtype, float *restrict y, const uint16_t *restrict x, size_t count) {
    if (dtype == LS_FP16) widen_fp16(y, x, count);
    if (dtype == LS_BF16) widen_bf16(y, x, count);
}

void LS_CPU(narrow)(ls_dtype dtype, uint16_t *restrict y, const float *restrict x, size_t count) {
    if (dtype == LS_FP16) narrow_fp16(y, x, count);
    if (dtype == LS_BF16) narrow_bf16(y, x, count);
}
