/* What the algorithms that go in steps between single ranks (ring, halving-doubling, tree) share: each step, a rank
 * takes a range of elements from other ranks' views into its own, and counts what it took and what others take from it.
 */
#ifndef LS_COMM_ALLREDUCE_STEPS_H
#define LS_COMM_ALLREDUCE_STEPS_H

#include "common/comm/exchange.h"
#include "common/comm/share.h"

/* This rank's view of the range = the reduction of these ranks' views of it, in this order. One of them is this rank;
 * the others are ready (ls_comm_await_step). */
void ls_steps_reduce(ls_exchange *x, ls_range range, const int *ranks, int nranks);

/* This rank's view of the range = the peer's, bit by bit. */
void ls_steps_copy(ls_exchange *x, ls_range range, int peer);

/* Others take the range from this rank's view in so many messages. */
void ls_steps_sent(ls_exchange *x, ls_range range, int messages);

#endif
