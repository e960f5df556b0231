/* A run of DistributedDataParallel, for ddp_train and for programs that use the library. */
#ifndef DDP_RUN_H
#define DDP_RUN_H

#include "common/train/loop.h"
#include "ddp_procs/settings.h"

/* Trains as one rank: of the job of a launcher, if its environment is set, else as the only rank. `program`: for
 * messages. */
ls_status ddp_run_rank(ddp_settings *s, const char *program, ls_train_result *result);

/* Starts s->spawn ranks and waits for them (rules: ddp_launch). Ranks run this program with these arguments or, if argv
 * is NULL, are forks of this process that call `entry`. */
ls_status ddp_spawn_ranks(ddp_settings *s, char **argv, int (*entry)(void *context), void *context);

#endif
