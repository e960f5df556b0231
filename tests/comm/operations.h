/* Every operation of a group of ranks, with every type, reduction and root, in and out of place. */
#ifndef TESTS_COMM_OPERATIONS_H
#define TESTS_COMM_OPERATIONS_H

#include "tests/comm/buffers.h"

#define OPERATIONS_GPU_COUNT 40001 /* elements of the longest message between GPUs, which each rank may receive */

/* Asserts each operation's result and traffic, and that it writes nothing else. The group's all-reduce must be
 * "direct", which sums in the order of the ranks, as the other reductions do: the bits equal those of the serial
 * loop. */
void run_operations(struct rank *rank, struct buffers *b);

#endif
