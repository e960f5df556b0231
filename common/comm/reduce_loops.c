/* reduce_loops — the text in reduce_loops_text.h, built twice.
 *   idea  : the plain build is branch-free C, compiled for any processor. The v3 build uses 8 floats at a time and the
 *           processor's own conversions of fp16. It is marked function by function instead of compiled with other
 *           flags, so that this file is complete
 *   order : element by element, so the width does not matter. The processor's conversions give the bits of dtype.h:
 *           widening is exact, rounding is to nearest even in both, and NaNs are made alike */
#include "common/comm/reduce_loops.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

/* min and max keep the accumulator if it is NaN, and take a NaN input. */
#define LS_SUM_FLOAT(acc, in) ((acc) + (in))
#define LS_MIN_FLOAT(acc, in) ((acc) < (in) || (acc) != (acc) ? (acc) : (in))
#define LS_MAX_FLOAT(acc, in) ((acc) > (in) || (acc) != (acc) ? (acc) : (in))
#define LS_SUM_INT32(acc, in) ((int32_t)((uint32_t)(acc) + (uint32_t)(in)))
#define LS_SUM_INT64(acc, in) ((int64_t)((uint64_t)(acc) + (uint64_t)(in)))
#define LS_MIN_INT(acc, in) ((acc) < (in) ? (acc) : (in))
#define LS_MAX_INT(acc, in) ((acc) > (in) ? (acc) : (in))

static void copy_4(void *restrict to, const void *restrict from, size_t chunks) {
    memcpy(to, from, 4 * LS_CHUNK_COUNT * chunks);
}

static void copy_8(void *restrict to, const void *restrict from, size_t chunks) {
    memcpy(to, from, 8 * LS_CHUNK_COUNT * chunks);
}

/* --- fp16 and bf16, a chunk at a time ----------------------------------------------------------------------------- */

#define LS_CONVERT_CHUNK(name, to_type, from_type, convert)                                                            \
    static inline void name(to_type *restrict out, const from_type *restrict in) {                                     \
        for (int i = 0; i < LS_CHUNK_COUNT; i++) out[i] = convert(in[i]);                                              \
    }

LS_CONVERT_CHUNK(widen_chunk_bf16, float, uint16_t, ls_bf16_to_float)
LS_CONVERT_CHUNK(narrow_chunk_bf16, uint16_t, float, ls_bf16_from_float)
LS_CONVERT_CHUNK(widen_chunk_fp16, float, uint16_t, ls_fp16_to_float)
LS_CONVERT_CHUNK(narrow_chunk_fp16, uint16_t, float, ls_fp16_from_float)

/* --- the plain build ---------------------------------------------------------------------------------------------- */

#define LS_TARGET
#define LS_NAME(name) name##_plain
#include "common/comm/reduce_loops_text.h"
#undef LS_TARGET
#undef LS_NAME

/* --- the v3 build ------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

#define LS_TARGET __attribute__((target("avx2,f16c")))
#define LS_NAME(name) name##_v3
#define widen_chunk_fp16 widen_chunk_fp16_v3
#define narrow_chunk_fp16 narrow_chunk_fp16_v3

LS_TARGET static inline void widen_chunk_fp16_v3(float *restrict out, const uint16_t *restrict in) {
    for (int i = 0; i < LS_CHUNK_COUNT; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
}

LS_TARGET static inline void narrow_chunk_fp16_v3(uint16_t *restrict out, const float *restrict in) {
    const __m128i magnitude = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00),
                  payload = _mm_set1_epi16(0x01ff);
    for (int i = 0; i < LS_CHUNK_COUNT; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i is_nan = _mm_cmpgt_epi16(_mm_and_si128(half, magnitude), infinity);
        half = _mm_andnot_si128(_mm_and_si128(is_nan, payload), half); /* 0x7e00 remains, as in ls_fp16_from_float */
        _mm_storeu_si128((__m128i *)(void *)(out + i), half);
    }
}

#include "common/comm/reduce_loops_text.h"
#undef LS_TARGET
#undef LS_NAME
#undef widen_chunk_fp16
#undef narrow_chunk_fp16

const ls_reduce_loops *ls_reduce_loops_of(ls_dtype dtype) {
    const char *isa = ls_cpu_kernels()->name;
    return strcmp(isa, "v3") == 0 || strcmp(isa, "v4") == 0 ? &loops_v3[dtype] : &loops_plain[dtype];
}
#else
const ls_reduce_loops *ls_reduce_loops_of(ls_dtype dtype) { return &loops_plain[dtype]; }
#endif
