/* The guard of a job: a process that kills the ranks, and what they have started, when the launcher is killed. */
#ifndef DDP_LAUNCH_LAUNCH_GUARD_H
#define DDP_LAUNCH_LAUNCH_GUARD_H

#include <sys/types.h>

#include "common/base/status.h"

typedef struct ddp_guard {
    pid_t pid;
    int fd; /* held by the launcher, and by no other process after exec */
} ddp_guard;

/* Starts the guard, which waits until the launcher closes guard->fd. LS_ERR_SYSTEM or LS_ERR_TIMEOUT, reported. When
 * the call returns, the guard has left this process's group and session. */
ls_status ddp_guard_start(ddp_guard *guard);

/* Sets the process group that the guard will kill. Safe after a fork. */
void ddp_guard_name(const ddp_guard *guard, pid_t group);

/* Ends the guard, when no process is left to kill. */
void ddp_guard_stop(ddp_guard *guard);

#endif
