/* Counts the messages and bytes of an all-reduce while it runs: one thread per rank in this process. */
#ifndef LABS_REPLAY_TABLES_COUNT_H
#define LABS_REPLAY_TABLES_COUNT_H

#include "common/comm/allreduce.h"
#include "common/comm/comm.h"

/* Runs one all-reduce of `count` floats over `ranks` threads, checks every element of every rank's result, and fills in
 * the messages and bytes that each rank has sent and received; steps are not counted. LS_ERR_INVALID: a wrong sum. */
ls_status tables_count_allreduce(struct ls_allreduce_cost counted[LS_COMM_MAX_RANKS],
                                 const ls_allreduce_algorithm *algorithm, int ranks, size_t count);

#endif
