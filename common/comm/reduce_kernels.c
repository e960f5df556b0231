/* reduce_kernels — element-wise reductions over many buffers.
 *   idea  : a block of the first input is copied into an accumulator that stays in the innermost cache, the other
 *           inputs' blocks are added to it in order, and it is written to all outputs. Each input is read and each
 *           output written once, whatever the number of ranks
 *   order : from the left, per element; so the result does not depend on how the elements are split over ranks or
 *           blocks
 *   speed : loops run over whole chunks of a constant length (reduce_loops.h); a partial chunk is padded with zeros.
 *           Memory is the limit, for fp16 and bf16 as for fp32. Stores that bypass the caches do not help: outputs are
 *           mostly inputs that have just been read */
#include "common/comm/reduce_kernels.h"

#include <string.h>

#include "common/comm/reduce_loops.h"

#define LS_BLOCK_COUNT 1024 /* elements of a block, a multiple of LS_CHUNK_COUNT */

/* Accumulators of a block; and an input that does not fill its chunks, or a 16-bit result. */
struct scratch {
    _Alignas(64) unsigned char accumulator[8 * LS_BLOCK_COUNT], padded[8 * LS_BLOCK_COUNT];
};

struct block {
    size_t offset_bytes, nbytes, chunks;
    size_t chunks_nbytes; /* bytes of the block's whole chunks, >= nbytes */
};

/* The input's block, or a copy of it, padded to whole chunks. */
static const void *whole_chunks(struct scratch *scratch, const void *input, const struct block *block) {
    const char *begin = (const char *)input + block->offset_bytes;
    if (block->nbytes == block->chunks_nbytes) return begin;
    memcpy(scratch->padded, begin, block->nbytes);
    memset(scratch->padded + block->nbytes, 0, block->chunks_nbytes - block->nbytes);
    return scratch->padded;
}

/* Writes the block's result to the scratch memory and returns its address. */
static const void *reduce_block(struct scratch *scratch, const ls_reduce_loops *loops, ls_reduce_op op,
                                const void *const *inputs, int ninputs, const struct block *block) {
    loops->widen(scratch->accumulator, whole_chunks(scratch, inputs[0], block), block->chunks);
    for (int k = 1; k < ninputs; k++)
        loops->accumulate[op](scratch->accumulator, whole_chunks(scratch, inputs[k], block), block->chunks);
    if (!loops->narrow) return scratch->accumulator;
    loops->narrow(scratch->padded, scratch->accumulator, block->chunks);
    return scratch->padded;
}

void ls_reduce_inputs(void *const *outputs, int noutputs, const void *const *inputs, int ninputs, size_t count,
                      ls_dtype dtype, ls_reduce_op op) {
    const ls_reduce_loops *loops = ls_reduce_loops_of(dtype);
    size_t element_nbytes = ls_dtype_nbytes(dtype);
    struct scratch scratch;
    for (size_t first = 0; first < count; first += LS_BLOCK_COUNT) {
        size_t block_count = count - first < LS_BLOCK_COUNT ? count - first : LS_BLOCK_COUNT;
        size_t chunks = (block_count + LS_CHUNK_COUNT - 1) / LS_CHUNK_COUNT;
        struct block block = {.offset_bytes = first * element_nbytes,
                              .nbytes = block_count * element_nbytes,
                              .chunks = chunks,
                              .chunks_nbytes = chunks * LS_CHUNK_COUNT * element_nbytes};
        const void *result = reduce_block(&scratch, loops, op, inputs, ninputs, &block);
        for (int k = 0; k < noutputs; k++) memcpy((char *)outputs[k] + block.offset_bytes, result, block.nbytes);
    }
}

const char *ls_reduce_op_name(ls_reduce_op op) {
    static const char *const names[] = {[LS_REDUCE_SUM] = "sum", [LS_REDUCE_MIN] = "min", [LS_REDUCE_MAX] = "max"};
    return names[op];
}
