/* Decides how a job reacts to the end of a rank; launch_watch.c executes the verdict. */
#ifndef DDP_LAUNCH_LAUNCH_POLICY_H
#define DDP_LAUNCH_LAUNCH_POLICY_H

#include "ddp_procs/launch/launch_job.h"

typedef enum ddp_verdict {
    DDP_GO_ON,       /* the other ranks continue */
    DDP_END_SOON,    /* the group has failed: its ranks end by themselves, or are ended after DDP_LOOKING */
    DDP_END_NOW,     /* the ranks are ended at once */
    DDP_START_AGAIN, /* the other ranks continue, and this one is started again */
} ddp_verdict;

/* It has exited with status 3. */
bool ddp_has_lost_peer(const ddp_rank_end *end);

/* Call when a rank has ended, in any phase. Records the culprit. */
ddp_verdict ddp_judge_end(ddp_job *job, const ddp_rank_end *end);

/* Whether a rank has ended that the others may wait for: then call ddp_judge_absent periodically. */
bool ddp_may_be_missed(const ddp_job *job);

/* The verdict on such a rank, from whether the others do wait. */
ddp_verdict ddp_judge_absent(ddp_job *job);

/* Whether starting all ranks again may help. Not after a success, a signal of the user, the job's deadline, or wrong usage
 * (the same command is wrong again). */
bool ddp_may_restart(const ddp_job *job);

/* Call when all ranks have ended, on all hosts: whether the job starts them again, because that may help and a restart
 * is left. */
bool ddp_restarts(const ddp_job *job);

#endif
