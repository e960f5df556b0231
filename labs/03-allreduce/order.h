/* Checks that every read of another rank's chunk is ordered with that rank's writes, independent of the threads'
 * timing. */
#ifndef LABS_03_ALLREDUCE_ORDER_H
#define LABS_03_ALLREDUCE_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Clears the record. Call before each all-reduce, of at most 16 ranks. */
void order_begin(void);

/* Makes the rank's first wait for that step fail with that status, as if the peer had never arrived. Call after
 * order_begin. */
void order_lose(int rank, uint32_t step, ls_status failure);

/* Elements that this rank has read from others after that failure. */
size_t order_taken_after_loss(void);

/* Checks the calls since order_begin: "every read is ordered", or the first read that is not. `reads`: elements that
 * were read from other ranks. Call when all ranks are done. */
const char *order_judge(char *text, size_t capacity, int world_size, size_t *reads);

#endif
