/* Whether every read of another rank's chunk is ordered with that rank's writes, whatever the threads' luck. */
#ifndef LABS_03_ALLREDUCE_ORDER_H
#define LABS_03_ALLREDUCE_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Forgets what was written down; before each all-reduce of at most 16 ranks. */
void order_begin(void);

/* The rank's first wait for that step fails with that status, as if the peer had never come. After order_begin. */
void order_lose(int rank, uint32_t step, ls_status failure);

/* Elements that this rank has taken from others after that. */
size_t order_taken_after_loss(void);

/* Judges what the ranks did since: "every read is ordered", or the first read that is not. `reads`: elements that were
 * taken from other ranks. Call when all ranks are done. */
const char *order_judge(char *text, size_t capacity, int world_size, size_t *reads);

#endif
