/* The line that --debug-ranks prints for a rank at the start. */
#ifndef DDP_DEBUG_RANKS_H
#define DDP_DEBUG_RANKS_H

#include "common/train/loop.h"
#include "ddp_procs/launch/rank.h"

/* Writes one line: the process, its device and cores, its share of the samples, and the hash of the weights with which
 * training begins. Every rank calls it, after ddp_create; lines appear in any order. Host-blocking. */
ls_status ddp_describe_rank(const ddp_rank *self, ls_parallel *parallel, const ls_train_options *options,
                            ls_sharing sharing, const ls_dataset *train);

#endif
