/* launch_policy: the effect of a rank's end on the job.
 *   cause : a rank that loses a peer exits with status 3, so the culprit is the first failure with another status or a
 *           signal, or if there is none, the first failure. Ranks that end after SIGTERM do not count.
 *   join  : a rank that ends with 0 without having joined the store ends the job if others have joined: they wait for
 *           it.
 *   again : all ranks are restarted together, since the others' results depended on the rank that failed. Restarts are
 *           counted for the job, whichever rank fails.
 *   parts : ranks of an elastic job that have met continue without a rank that fails. A rank that a signal ended is
 *           restarted, as long as restarts are left; one that exits by itself would fail again. The job is done when a
 *           rank ends with 0, which has waited for the others. If too few ranks remain, the failures reported are those
 *           of the ranks not restarted, in order; if none remains, all are restarted as in other jobs. */
#include "ddp_procs/launch/launch_policy.h"

#include <sys/wait.h>

bool ddp_has_lost_peer(const ddp_rank_end *end) {
    return WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == DDP_PEER_STATUS;
}

/* Whether ranks can fail one by one. Until they have met, an elastic job's ranks need each other as in any job. */
static bool is_elastic(const ddp_job *job) {
    if (job->options->limits.least == 0) return false;
    return job->agents ? ddp_agents_have_met(job->agents) : ddp_store_server_has_met(job->server);
}

/* Whether an elastic job has come to its end. */
static bool is_done(const ddp_job *job) {
    bool done = false;
    for (int i = 0; i < job->options->nproc; i++) done = done || job->ranks[i].done.rank >= 0;
    return done && is_elastic(job);
}

/* Another rank must still have the training's state; with several hosts it may be on another host. */
static bool starts_again(const ddp_job *job, const ddp_rank_end *end) {
    return is_elastic(job) && job->phase == DDP_RUNNING && (job->running > 0 || job->agents) &&
           WIFSIGNALED(end->wait_status) && job->plan.restarts < job->options->max_restarts;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Among ranks whose ends were seen at the same time, those that lost a peer come last. */
static void list_failure(ddp_job *job, const ddp_rank_end *end) {
    if (job->failure_count == LS_COMM_MAX_RANKS) return;
    int at = job->failure_count++;
    for (; at > 0 && is_same_time(&job->failures[at - 1].at, &end->at); at--) {
        if (ddp_has_lost_peer(end) || !ddp_has_lost_peer(&job->failures[at - 1])) break;
        job->failures[at] = job->failures[at - 1];
    }
    job->failures[at] = *end;
}

ddp_verdict ddp_judge_end(ddp_job *job, const ddp_rank_end *end) {
    if (WIFEXITED(end->wait_status) && WEXITSTATUS(end->wait_status) == 0) {
        job->ranks[end->rank].done = *end;
        if (!is_elastic(job)) return DDP_GO_ON;
        job->culprit.rank = -1;
        return DDP_END_SOON;
    }
    if (job->phase >= DDP_ENDING || is_done(job)) return DDP_GO_ON;
    if (starts_again(job, end)) return DDP_START_AGAIN;
    list_failure(job, end);
    if (job->culprit.rank < 0 || (ddp_has_lost_peer(&job->culprit) && !ddp_has_lost_peer(end))) job->culprit = *end;
    if (!is_elastic(job)) return DDP_END_SOON;
    job->too_few =
        !job->agents && job->running < job->options->limits.least; /* with agents the ranks find out, at a meeting */
    return job->too_few ? DDP_END_SOON : DDP_GO_ON;
}

/* --- ranks that never join -------------------------------------------------------------------------------------------- */

/* A rank that ended with 0 and never joined the store, where others may wait for it; NULL: there is none. */
static const ddp_rank_end *find_absent(const ddp_job *job) {
    for (int i = 0; job->server && i < job->options->nproc; i++)
        if (job->ranks[i].done.rank >= 0 && !ddp_store_server_has_joined(job->server, ddp_number_of(job, i)))
            return &job->ranks[i].done;
    return NULL;
}

bool ddp_may_be_missed(const ddp_job *job) { return job->phase == DDP_RUNNING && find_absent(job); }

/* Ranks that have joined wait for all others. */
static bool is_missed(const ddp_job *job) {
    for (int i = 0; i < job->options->nproc; i++)
        if (job->ranks[i].pid > 0 && ddp_store_server_has_joined(job->server, ddp_number_of(job, i))) return true;
    return false;
}

ddp_verdict ddp_judge_absent(ddp_job *job) {
    if (!ddp_may_be_missed(job) || !is_missed(job)) return DDP_GO_ON;
    job->culprit = *find_absent(job);
    return DDP_END_NOW;
}

/* --- restarts --------------------------------------------------------------------------------------------------------- */

bool ddp_may_restart(const ddp_job *job) {
    int wait_status = job->culprit.wait_status;
    bool failed = job->culprit.rank >= 0 && !job->stop_signal && !job->timed_out;
    bool hopeless =
        WIFEXITED(wait_status) && (WEXITSTATUS(wait_status) == 0 || WEXITSTATUS(wait_status) == DDP_USAGE_STATUS);
    return failed && !hopeless;
}

bool ddp_restarts(const ddp_job *job) {
    bool may = job->agents ? job->has_ending && job->ending.may_restart : ddp_may_restart(job);
    return may && job->plan.restarts < job->options->max_restarts;
}
