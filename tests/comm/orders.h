/* The orders of summation that the all-reduce algorithms guarantee, as plain serial loops. */
#ifndef TESTS_COMM_ORDERS_H
#define TESTS_COMM_ORDERS_H

#include "common/comm/comm.h"

/* The result, to the bit, of an all-reduce of fill_values (values.h) over `world_size` ranks, if the message is sent in
 * one slice: summed in the order, and rounded as often, as the algorithm's file says. */
void fill_reduced_by(const char *algorithm, void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size,
                     size_t count);

/* The reduction of values from `first` on in the order of the ranks, as comm.h guarantees. */
void fill_reduced(void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size, size_t first, size_t count);

#endif
