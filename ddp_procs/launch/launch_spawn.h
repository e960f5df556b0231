/* Starting one rank's process; launch.c calls it. */
#ifndef DDP_LAUNCH_LAUNCH_SPAWN_H
#define DDP_LAUNCH_LAUNCH_SPAWN_H

#include <limits.h>
#include <sys/types.h>

#include "common/base/status.h"
#include "ddp_procs/launch/launch_plan.h"

/* Finds the program as a shell would (NULL: the present one) and checks that it may be run. LS_ERR_IO if not,
 * reported. */
ls_status ddp_find_program(char path[PATH_MAX], const char *name);

/* Starts a rank. *cause_fd is the end of a pipe to read: the rank's error messages (log.h), one a line; non-blocking,
 * to be closed by the caller. The rank is killed when the calling thread ends. The first one founds plan->group, and
 * the guard knows of it before the program runs. On failure *pid and *cause_fd are -1. */
ls_status ddp_spawn_rank(pid_t *pid, int *cause_fd, ddp_spawn_plan *plan, int rank, ddp_rank_files *files);

#endif
