#define _GNU_SOURCE
#include "ddp_procs/launch/launch_report.h"

#include <string.h>
#include <sys/wait.h>

#include "common/base/log.h"

static ls_status report_culprit(const ddp_job *j) {
    const ddp_rank_end *culprit = &j->culprit;
    const ddp_rank_process *rank = &j->ranks[culprit->rank];
    const char *colon = rank->cause_nbytes > 0 ? ": " : "";
    if (WIFSIGNALED(culprit->wait_status)) {
        int signal = WTERMSIG(culprit->wait_status);
        return ls_fail(LS_ERR_SYSTEM, "rank %d (pid %d) was ended by signal %d (%s)%s%s", culprit->rank,
                       (int)culprit->pid, signal, strsignal(signal), colon, rank->cause);
    }
    int exit_status = WEXITSTATUS(culprit->wait_status);
    if (exit_status == 0)
        return ls_fail(LS_ERR_SYSTEM,
                       "rank %d (pid %d) exited with status 0 without joining the others, which wait for it: all ranks "
                       "must run a program that meets in this job",
                       culprit->rank, (int)culprit->pid);
    ls_status status = exit_status == DDP_PEER_STATUS    ? LS_ERR_PEER
                       : exit_status == DDP_USAGE_STATUS ? LS_ERR_USAGE
                                                         : LS_ERR_SYSTEM;
    return ls_fail(status, "rank %d (pid %d) exited with status %d%s%s", culprit->rank, (int)culprit->pid, exit_status,
                   colon, rank->cause);
}

ls_status ddp_report_job(const ddp_job *j) {
    if (j->culprit.rank >= 0) return report_culprit(j);
    if (j->stop_signal)
        return ls_fail(LS_ERR_SYSTEM, "the job was ended by signal %d (%s)", j->stop_signal, strsignal(j->stop_signal));
    if (j->timed_out)
        return ls_fail(LS_ERR_TIMEOUT, "the job was not done after %g s and has been ended; allow more with --timeout",
                       j->options->timeout_s);
    return LS_OK;
}
