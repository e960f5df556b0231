/* Reports the end of an attempt, and of the job: the ranks that failed, first to last, and then one line.
 *
 *     ddprun: rank 3 (pid 10) failed first, at 14:03:22.407
 *     ddprun: ranks 0-2 failed after it, the last at 14:03:22.431: exit status 3, a peer failed
 *     ddprun: error: rank 3 (pid 10) was ended by signal 9 (Killed)
 *
 * On several hosts each launcher lists its own ranks, and all have the same last line, which names the host, too.
 *
 * The last line names the cause (launch_policy.h). The error message of a rank is the first that it has reported; of a
 * program that reports none the last line of its stderr.log. */
#ifndef DDP_LAUNCH_LAUNCH_REPORT_H
#define DDP_LAUNCH_LAUNCH_REPORT_H

#include "ddp_procs/launch/launch_job.h"

/* How the present attempt has failed, as far as this host knows; false: it has not. The line is that of the report. */
bool ddp_describe_ending(const ddp_job *job, ddp_ending *ending);

/* Reports a failure; returns what ddp_launch does. */
ls_status ddp_report_job(const ddp_job *job);

/* Reports the restart of all ranks and its reason; call before plan.restarts is raised. */
void ddp_report_restart(const ddp_job *job);

/* A warning, before one rank of an elastic job is started again. */
void ddp_report_rank_restart(const ddp_job *job, const ddp_rank_end *end);

#endif
