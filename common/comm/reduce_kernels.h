/* Element-wise reductions over the ranks' buffers. */
#ifndef LS_COMM_REDUCE_KERNELS_H
#define LS_COMM_REDUCE_KERNELS_H

#include "common/comm/comm.h"

/* Writes input[0] op input[1] op ... op input[ninputs - 1], evaluated from the left, element by element, to each of the
 * outputs. An output may be one of the inputs (the same address); other overlaps are not allowed. ninputs >= 1.
 *   fp32, fp64   IEEE additions in that order
 *   fp16, bf16   accumulated in fp32, rounded once to nearest even
 *   int32, int64 sums wrap modulo 2^32, 2^64
 *   min, max     NaN if any input is NaN */
void ls_reduce_inputs(void *const *outputs, int noutputs, const void *const *inputs, int ninputs, size_t count,
                      ls_dtype dtype, ls_reduce_op op);

const char *ls_reduce_op_name(ls_reduce_op op); /* "sum", "min", "max" */

#endif
