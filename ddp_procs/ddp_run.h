/* A run of DistributedDataParallel: what ddp_train does, and programs that use the library. */
#ifndef DDP_RUN_H
#define DDP_RUN_H

#include "common/train/loop.h"
#include "ddp_procs/settings.h"

/* This process trains as a rank: of a launcher's job, as its environment says, or the only one. `program`: for messages. */
ls_status ddp_run_rank(ddp_settings *s, const char *program, ls_train_result *result);

/* Starts s->spawn ranks and waits for them (ddp_launch has the terms): of this program, with these arguments, or, without
 * any (NULL), forks of this process that call `entry`. */
ls_status ddp_spawn_ranks(ddp_settings *s, char **argv, int (*entry)(void *context), void *context);

#endif
