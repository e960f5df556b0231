/* An all-reduce as the messages it consists of, replayed over one link of each rank. */
#ifndef LABS_REPLAY_TABLES_MESSAGES_H
#define LABS_REPLAY_TABLES_MESSAGES_H

#include "labs/replay/engine/cost.h"

/* How long an all-reduce of `bytes` takes over `ranks` devices (at most the 16 of star.json), each with one link of
 * that rate in each direction to a switch without a limit. alpha_us is the latency from device to device; sums cost
 * nothing. */
ls_status tables_message_us(double *us, ls_pattern pattern, int ranks, double bytes, const ls_hockney *link);

#endif
