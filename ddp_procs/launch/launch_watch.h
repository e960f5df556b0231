/* Watching the ranks of a job until the last one has ended. */
#ifndef DDP_LAUNCH_LAUNCH_WATCH_H
#define DDP_LAUNCH_LAUNCH_WATCH_H

#include "ddp_procs/launch/launch_job.h"

/* Returns when no rank runs, and no other process of their group. job->signal_fd is a signalfd that gives SIGCHLD and
 * the signals of the user; they are blocked. */
void ddp_watch_ranks(ddp_job *job);

/* Sends the signal to all of the group. SIGKILL: at once; another one: SIGKILL follows after the time of grace. Then
 * ddp_watch_ranks returns soon. */
void ddp_end_ranks(ddp_job *job, int signal);

#endif
