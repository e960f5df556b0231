/* The loops of reduce_kernels.c, which alone includes this: for each type, built for any processor and for x86-64-v3,
 * with the same bits. They run over whole chunks of LS_CHUNK_COUNT elements. */
#ifndef LS_COMM_REDUCE_LOOPS_H
#define LS_COMM_REDUCE_LOOPS_H

#include "common/comm/comm.h"

#define LS_CHUNK_COUNT 16 /* the loops' constant length, which lets compilers vectorise them at any level */

/* accumulator[i] = accumulator[i] op input[i] */
typedef void (*ls_accumulate_fn)(void *restrict accumulator, const void *restrict input, size_t chunks);
typedef void (*ls_convert_fn)(void *restrict to, const void *restrict from, size_t chunks);

typedef struct ls_reduce_loops {
    ls_convert_fn widen;  /* converts an input to the accumulators' type: fp32 for fp16 and bf16, else the same type */
    ls_convert_fn narrow; /* converts accumulators to results; NULL: no conversion */
    ls_accumulate_fn accumulate[LS_REDUCE_OP_COUNT];
} ls_reduce_loops;

/* Those for this processor, or for the kernels that LS_CPU_ISA names (kernels/cpu/cpu.h). */
const ls_reduce_loops *ls_reduce_loops_of(ls_dtype dtype);

#endif
