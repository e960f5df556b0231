/* Whether every read of another rank's chunk is ordered with that rank's writes, whatever the threads' luck. */
#ifndef LABS_03_ALLREDUCE_ORDER_H
#define LABS_03_ALLREDUCE_ORDER_H

#include <stddef.h>

/* Forgets what was written down; before each all-reduce of at most 16 ranks. */
void order_begin(void);

/* Judges what the ranks did since: "every read is ordered", or the first read that is not. `reads`: elements that were
 * taken from other ranks. Call when all ranks are done. */
const char *order_judge(char *text, size_t capacity, int world_size, size_t *reads);

#endif
