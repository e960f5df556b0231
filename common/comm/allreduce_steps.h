/* Shared by the algorithms that proceed in steps between pairs of ranks (ring, halving-doubling, tree): in each step a
 * rank reads a range of elements from other ranks' views into its own, and counts the messages read and sent.
 */
#ifndef LS_COMM_ALLREDUCE_STEPS_H
#define LS_COMM_ALLREDUCE_STEPS_H

#include "common/comm/exchange.h"
#include "common/comm/share.h"

/* Sets this rank's view of the range to the reduction of these ranks' views, in this order. This rank is one of them;
 * the others must be ready (ls_comm_await_step). */
void ls_steps_reduce(ls_exchange *x, ls_range range, const int *ranks, int nranks);

/* Copies the peer's view of the range to this rank's. */
void ls_steps_copy(ls_exchange *x, ls_range range, int peer);

/* Counts `messages` messages in which others read the range from this rank's view. */
void ls_steps_sent(ls_exchange *x, ls_range range, int messages);

#endif
