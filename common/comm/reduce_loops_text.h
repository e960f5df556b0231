/* One build of the loops: reduce_loops.c includes this with LS_NAME and LS_TARGET set. (No include guard: it is
 * included more than once.) */

#define LS_ACCUMULATE(name, type, combine)                                                                             \
    LS_TARGET static void LS_NAME(name)(void *restrict accumulator, const void *restrict input, size_t chunks) {       \
        type *restrict acc = accumulator;                                                                              \
        const type *restrict in = input;                                                                               \
        for (; chunks > 0; chunks--, acc += LS_CHUNK_COUNT, in += LS_CHUNK_COUNT)                                      \
            for (int i = 0; i < LS_CHUNK_COUNT; i++) acc[i] = combine(acc[i], in[i]);                                  \
    }

LS_ACCUMULATE(sum_fp32, float, LS_SUM_FLOAT)
LS_ACCUMULATE(min_fp32, float, LS_MIN_FLOAT)
LS_ACCUMULATE(max_fp32, float, LS_MAX_FLOAT)
LS_ACCUMULATE(sum_fp64, double, LS_SUM_FLOAT)
LS_ACCUMULATE(min_fp64, double, LS_MIN_FLOAT)
LS_ACCUMULATE(max_fp64, double, LS_MAX_FLOAT)
LS_ACCUMULATE(sum_int32, int32_t, LS_SUM_INT32)
LS_ACCUMULATE(min_int32, int32_t, LS_MIN_INT)
LS_ACCUMULATE(max_int32, int32_t, LS_MAX_INT)
LS_ACCUMULATE(sum_int64, int64_t, LS_SUM_INT64)
LS_ACCUMULATE(min_int64, int64_t, LS_MIN_INT)
LS_ACCUMULATE(max_int64, int64_t, LS_MAX_INT)

#define LS_ACCUMULATE_HALF(name, widen_chunk, combine)                                                                 \
    LS_TARGET static void LS_NAME(name)(void *restrict accumulator, const void *restrict input, size_t chunks) {       \
        float *restrict acc = accumulator, wide[LS_CHUNK_COUNT];                                                       \
        const uint16_t *restrict in = input;                                                                           \
        for (; chunks > 0; chunks--, acc += LS_CHUNK_COUNT, in += LS_CHUNK_COUNT) {                                    \
            widen_chunk(wide, in);                                                                                     \
            for (int i = 0; i < LS_CHUNK_COUNT; i++) acc[i] = combine(acc[i], wide[i]);                                \
        }                                                                                                              \
    }

LS_ACCUMULATE_HALF(sum_fp16, widen_chunk_fp16, LS_SUM_FLOAT)
LS_ACCUMULATE_HALF(min_fp16, widen_chunk_fp16, LS_MIN_FLOAT)
LS_ACCUMULATE_HALF(max_fp16, widen_chunk_fp16, LS_MAX_FLOAT)
LS_ACCUMULATE_HALF(sum_bf16, widen_chunk_bf16, LS_SUM_FLOAT)
LS_ACCUMULATE_HALF(min_bf16, widen_chunk_bf16, LS_MIN_FLOAT)
LS_ACCUMULATE_HALF(max_bf16, widen_chunk_bf16, LS_MAX_FLOAT)

#define LS_CONVERT(name, to_type, from_type, convert_chunk)                                                            \
    LS_TARGET static void LS_NAME(name)(void *restrict to, const void *restrict from, size_t chunks) {                 \
        to_type *restrict out = to;                                                                                    \
        const from_type *restrict in = from;                                                                           \
        for (; chunks > 0; chunks--, out += LS_CHUNK_COUNT, in += LS_CHUNK_COUNT) convert_chunk(out, in);              \
    }

LS_CONVERT(widen_fp16, float, uint16_t, widen_chunk_fp16)
LS_CONVERT(narrow_fp16, uint16_t, float, narrow_chunk_fp16)
LS_CONVERT(widen_bf16, float, uint16_t, widen_chunk_bf16)
LS_CONVERT(narrow_bf16, uint16_t, float, narrow_chunk_bf16)

static const ls_reduce_loops LS_NAME(loops)[LS_DTYPE_COUNT] = {
    [LS_FP32] = {copy_4, NULL, {LS_NAME(sum_fp32), LS_NAME(min_fp32), LS_NAME(max_fp32)}},
    [LS_FP16] = {LS_NAME(widen_fp16), LS_NAME(narrow_fp16), {LS_NAME(sum_fp16), LS_NAME(min_fp16), LS_NAME(max_fp16)}},
    [LS_BF16] = {LS_NAME(widen_bf16), LS_NAME(narrow_bf16), {LS_NAME(sum_bf16), LS_NAME(min_bf16), LS_NAME(max_bf16)}},
    [LS_INT32] = {copy_4, NULL, {LS_NAME(sum_int32), LS_NAME(min_int32), LS_NAME(max_int32)}},
    [LS_INT64] = {copy_8, NULL, {LS_NAME(sum_int64), LS_NAME(min_int64), LS_NAME(max_int64)}},
    [LS_FP64] = {copy_8, NULL, {LS_NAME(sum_fp64), LS_NAME(min_fp64), LS_NAME(max_fp64)}},
};

#undef LS_ACCUMULATE
#undef LS_ACCUMULATE_HALF
#undef LS_CONVERT
