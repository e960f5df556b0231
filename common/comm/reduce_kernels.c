/* reduce_kernels — element-wise reductions over many buffers.
 *   idea  : a block of the first input is brought into an accumulator that stays in the innermost cache, the other
 *           inputs' blocks are added to it in order, and it is written to all outputs. Each input is read and each
 *           output written once, whatever the number of ranks
 *   order : from the left, per element; so the result does not depend on how the elements are split over ranks or
 *           blocks
 *   speed : loops run over whole chunks of a constant length, so that compilers vectorise them at any level; what does
 *           not fill a chunk is padded with zeros */
#include "common/comm/reduce_kernels.h"

#include <string.h>

#define LS_CHUNK_COUNT 64   /* elements of the loops' constant length */
#define LS_BLOCK_COUNT 1024 /* elements of a block, a multiple of it */

/* acc[i] = acc[i] op in[i] over so many chunks. min and max keep the accumulator if it is NaN and take a NaN input. */
#define LS_SUM_FLOAT(acc, in) ((acc) + (in))
#define LS_MIN_FLOAT(acc, in) ((acc) < (in) || (acc) != (acc) ? (acc) : (in))
#define LS_MAX_FLOAT(acc, in) ((acc) > (in) || (acc) != (acc) ? (acc) : (in))
#define LS_SUM_INT32(acc, in) ((int32_t)((uint32_t)(acc) + (uint32_t)(in)))
#define LS_SUM_INT64(acc, in) ((int64_t)((uint64_t)(acc) + (uint64_t)(in)))
#define LS_MIN_INT(acc, in) ((acc) < (in) ? (acc) : (in))
#define LS_MAX_INT(acc, in) ((acc) > (in) ? (acc) : (in))

#define LS_ACCUMULATE(name, type, combine)                                                                             \
    static void name(void *restrict accumulator, const void *restrict input, size_t chunks) {                          \
        type *restrict acc = accumulator;                                                                              \
        const type *restrict in = input;                                                                               \
        for (; chunks > 0; chunks--, acc += LS_CHUNK_COUNT, in += LS_CHUNK_COUNT)                                      \
            for (int i = 0; i < LS_CHUNK_COUNT; i++) acc[i] = combine(acc[i], in[i]);                                  \
    }

LS_ACCUMULATE(sum_fp32, float, LS_SUM_FLOAT)
LS_ACCUMULATE(min_fp32, float, LS_MIN_FLOAT)
LS_ACCUMULATE(max_fp32, float, LS_MAX_FLOAT)
LS_ACCUMULATE(sum_int32, int32_t, LS_SUM_INT32)
LS_ACCUMULATE(min_int32, int32_t, LS_MIN_INT)
LS_ACCUMULATE(max_int32, int32_t, LS_MAX_INT)
LS_ACCUMULATE(sum_int64, int64_t, LS_SUM_INT64)
LS_ACCUMULATE(min_int64, int64_t, LS_MIN_INT)
LS_ACCUMULATE(max_int64, int64_t, LS_MAX_INT)

typedef void (*accumulate_fn)(void *restrict accumulator, const void *restrict input, size_t chunks);

/* To and from the type in which a type is accumulated: the same for 4- and 8-byte types, fp32 for the halves. */
typedef void (*convert_fn)(void *restrict to, const void *restrict from, size_t chunks);

#define LS_CONVERT(name, to_type, from_type, convert)                                                                  \
    static void name(void *restrict to, const void *restrict from, size_t chunks) {                                    \
        to_type *restrict out = to;                                                                                    \
        const from_type *restrict in = from;                                                                           \
        for (size_t i = 0; i < chunks * LS_CHUNK_COUNT; i++) out[i] = convert(in[i]);                                  \
    }

LS_CONVERT(widen_fp16, float, uint16_t, ls_fp16_to_float)
LS_CONVERT(narrow_fp16, uint16_t, float, ls_fp16_from_float)
LS_CONVERT(widen_bf16, float, uint16_t, ls_bf16_to_float)
LS_CONVERT(narrow_bf16, uint16_t, float, ls_bf16_from_float)

static void copy_4(void *restrict to, const void *restrict from, size_t chunks) {
    memcpy(to, from, 4 * LS_CHUNK_COUNT * chunks);
}

static void copy_8(void *restrict to, const void *restrict from, size_t chunks) {
    memcpy(to, from, 8 * LS_CHUNK_COUNT * chunks);
}

static const struct kernel {
    bool converted;
    convert_fn widen, narrow;
    accumulate_fn accumulate[LS_REDUCE_OP_COUNT];
} kernels[LS_DTYPE_COUNT] = {
    [LS_FP32] = {false, copy_4, copy_4, {sum_fp32, min_fp32, max_fp32}},
    [LS_FP16] = {true, widen_fp16, narrow_fp16, {sum_fp32, min_fp32, max_fp32}},
    [LS_BF16] = {true, widen_bf16, narrow_bf16, {sum_fp32, min_fp32, max_fp32}},
    [LS_INT32] = {false, copy_4, copy_4, {sum_int32, min_int32, max_int32}},
    [LS_INT64] = {false, copy_8, copy_8, {sum_int64, min_int64, max_int64}},
};

/* Accumulators of a block, an input made wide, and an input or result that is not as long as its chunks. */
struct scratch {
    _Alignas(64) unsigned char accumulator[8 * LS_BLOCK_COUNT], wide[4 * LS_BLOCK_COUNT], padded[8 * LS_BLOCK_COUNT];
};

struct block {
    size_t offset_bytes, nbytes, chunks;
    size_t chunks_nbytes; /* what the chunks hold, >= nbytes */
};

/* The input's block, or a copy of it, padded to whole chunks. */
static const void *whole_chunks(struct scratch *scratch, const void *input, const struct block *block) {
    const char *begin = (const char *)input + block->offset_bytes;
    if (block->nbytes == block->chunks_nbytes) return begin;
    memcpy(scratch->padded, begin, block->nbytes);
    memset(scratch->padded + block->nbytes, 0, block->chunks_nbytes - block->nbytes);
    return scratch->padded;
}

/* Leaves the block's result in the scratch memory and returns where. */
static const void *reduce_block(struct scratch *scratch, const struct kernel *kernel, accumulate_fn accumulate,
                                const void *const *inputs, int ninputs, const struct block *block) {
    kernel->widen(scratch->accumulator, whole_chunks(scratch, inputs[0], block), block->chunks);
    for (int k = 1; k < ninputs; k++) {
        const void *input = whole_chunks(scratch, inputs[k], block);
        if (kernel->converted) {
            kernel->widen(scratch->wide, input, block->chunks);
            input = scratch->wide;
        }
        accumulate(scratch->accumulator, input, block->chunks);
    }
    if (!kernel->converted) return scratch->accumulator;
    kernel->narrow(scratch->padded, scratch->accumulator, block->chunks);
    return scratch->padded;
}

void ls_reduce_inputs(void *const *outputs, int noutputs, const void *const *inputs, int ninputs, size_t count,
                      ls_dtype dtype, ls_reduce_op op) {
    const struct kernel *kernel = &kernels[dtype];
    size_t element_nbytes = ls_dtype_nbytes(dtype);
    struct scratch scratch;
    for (size_t first = 0; first < count; first += LS_BLOCK_COUNT) {
        size_t block_count = count - first < LS_BLOCK_COUNT ? count - first : LS_BLOCK_COUNT;
        size_t chunks = (block_count + LS_CHUNK_COUNT - 1) / LS_CHUNK_COUNT;
        struct block block = {.offset_bytes = first * element_nbytes,
                              .nbytes = block_count * element_nbytes,
                              .chunks = chunks,
                              .chunks_nbytes = chunks * LS_CHUNK_COUNT * element_nbytes};
        const void *result = reduce_block(&scratch, kernel, kernel->accumulate[op], inputs, ninputs, &block);
        for (int k = 0; k < noutputs; k++) memcpy((char *)outputs[k] + block.offset_bytes, result, block.nbytes);
    }
}

const char *ls_reduce_op_name(ls_reduce_op op) {
    static const char *const names[] = {[LS_REDUCE_SUM] = "sum", [LS_REDUCE_MIN] = "min", [LS_REDUCE_MAX] = "max"};
    return names[op];
}
