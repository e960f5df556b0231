/* The environment of a rank: the variables that the launcher sets, added to those it has inherited. */
#ifndef DDP_LAUNCH_LAUNCH_ENVIRONMENT_H
#define DDP_LAUNCH_LAUNCH_ENVIRONMENT_H

#include "common/base/status.h"
#include "ddp_procs/launch/launch_plan.h"

/* Returns the environment for exec, ended by NULL; NULL: no memory. free() frees all of it; inherited entries are this
 * process's own. */
char **ddp_environment_make(const ddp_spawn_plan *plan, int rank, const ddp_rank_files *files);

/* Prints the table of variables that the ranks of such a job see (--env). LS_ERR_IO, LS_ERR_NO_MEMORY. */
ls_status ddp_environment_print(const ddp_launch_options *options);

#endif
