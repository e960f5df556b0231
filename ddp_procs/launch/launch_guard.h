/* The guard of a job: a process that kills the ranks, and what they have started, when the launcher is killed. */
#ifndef DDP_LAUNCH_LAUNCH_GUARD_H
#define DDP_LAUNCH_LAUNCH_GUARD_H

#include <sys/types.h>

#include "common/base/status.h"

typedef struct ddp_guard {
    pid_t pid;
    int fd; /* held by the launcher, and by nobody else after exec */
} ddp_guard;

/* Starts it; it waits until the launcher lets go of guard->fd. LS_ERR_SYSTEM or LS_ERR_TIMEOUT,
 * reported. It is out of this process's group and session when the call returns. */
ls_status ddp_guard_start(ddp_guard *guard);

/* Names the process group that it is to kill then. Safe after a fork. */
void ddp_guard_name(const ddp_guard *guard, pid_t group);

/* Ends it: nobody is left whom it would have to kill. */
void ddp_guard_stop(ddp_guard *guard);

#endif
