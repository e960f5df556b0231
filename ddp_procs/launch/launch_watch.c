/* launch_watch: watches the ranks of a job.
 *   idea  : one poll loop over a signalfd (SIGCHLD for processes that ended, other signals from the user) and the
 *           ranks' cause pipes. The job goes through phases (ddp_phase); launch_policy.c decides the effect of a rank's
 *           end.
 *   group : the ranks are a process group, to which signals are sent, so that processes started by ranks also get them.
 *           The launcher adopts processes whose parent has ended (PR_SET_CHILD_SUBREAPER). So it sees when the group is
 *           empty, and ends the remaining processes as it ends ranks. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch_watch.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp_procs/launch/launch_policy.h"
#include "ddp_procs/launch/launch_report.h"
#include "ddp_procs/launch/launch_start.h"

enum { LOOK_AGAIN_MS = 100 };
#define LOOK_US 2e6 /* on a busy machine ranks need that long to notice a failure, and to report it */

/* --- causes and ends of ranks ------------------------------------------------------------------------------------- */

/* Reads all that is available, keeps the first line and drops the rest, so that a rank never blocks on the pipe. */
static void read_cause(ddp_rank_process *rank) {
    char text[512];
    ssize_t got;
    while (rank->cause_fd >= 0 && (got = read(rank->cause_fd, text, sizeof text)) != -1) {
        if (got == 0) { /* no writer is left */
            close(rank->cause_fd);
            rank->cause_fd = -1;
        }
        for (ssize_t i = 0; i < got && !rank->cause_complete; i++) {
            rank->cause_complete = text[i] == '\n' || rank->cause_nbytes == DDP_CAUSE_CAPACITY - 1;
            if (!rank->cause_complete) rank->cause[rank->cause_nbytes++] = text[i];
        }
    }
}

/* Reports this host's ending to the other hosts, if there are any. */
static void report_ending(ddp_job *j) {
    ddp_ending ending;
    if (j->agents && ddp_describe_ending(j, &ending)) ddp_agents_report(j->agents, &ending);
}

static void await_better_cause(ddp_job *j) {
    if (j->phase != DDP_RUNNING) return;
    j->phase = DDP_LOOKING;
    j->next_phase_us = ls_now_us() + LOOK_US;
}

/* A failure by loss of a peer waits for another cause, from this host or another. */
static void follow(ddp_job *j, ddp_verdict verdict) {
    if (verdict == DDP_GO_ON) return;
    if (!ddp_has_lost_peer(&j->culprit)) report_ending(j);
    if (verdict == DDP_END_NOW) ddp_end_ranks(j, SIGTERM);
    if (verdict == DDP_END_SOON) await_better_cause(j);
}

static void record_end(ddp_job *j, int index, int wait_status, struct timespec at) {
    ddp_rank_process *rank = &j->ranks[index];
    const ddp_rank_end end = {index, rank->pid, wait_status, at};
    read_cause(rank);
    j->running--;
    rank->pid = -1;
    ddp_verdict verdict = ddp_judge_end(j, &end);
    if (verdict == DDP_START_AGAIN) {
        j->plan.restarts++;
        ddp_report_rank_restart(j, &end);
        if (ddp_start_rank(j, index) != LS_OK) verdict = DDP_END_SOON;
    }
    follow(j, verdict);
}

/* Reaps ranks one by one, since they may have left the group; then all other processes that have ended in it. */
static void reap(ddp_job *j) {
    int wait_status;
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < j->options->nproc; i++)
        if (j->ranks[i].pid > 0 && waitpid(j->ranks[i].pid, &wait_status, WNOHANG) > 0)
            record_end(j, i, wait_status, now);
    pid_t pid = 0;
    while (j->plan.group > 0 && (pid = waitpid(-j->plan.group, &wait_status, WNOHANG)) > 0)
        for (int i = 0; i < j->options->nproc; i++)
            if (j->ranks[i].pid == pid) record_end(j, i, wait_status, now);
    j->strays = pid == 0 && j->running == 0 && j->plan.group > 0;
}

/* --- phases ----------------------------------------------------------------------------------------------------------- */

/* Signals the ranks and all of their group. The group's number is not reused until all of its processes have been
 * reaped. */
static void signal_ranks(ddp_job *j, int signal) {
    bool group_exists = j->strays;
    for (int i = 0; i < j->options->nproc; i++) {
        pid_t pid = j->ranks[i].pid;
        if (pid <= 0) continue;
        if (getpgid(pid) == j->plan.group)
            group_exists = true;
        else
            kill(pid, signal);
    }
    if (group_exists) kill(-j->plan.group, signal);
}

void ddp_end_ranks(ddp_job *j, int signal) {
    signal_ranks(j, signal);
    j->phase = signal == SIGKILL ? DDP_KILLED : DDP_ENDING;
    j->next_phase_us = signal == SIGKILL ? INFINITY : ls_now_us() + j->options->grace_s * 1e6;
}

static void end_phase(ddp_job *j) {
    switch (j->phase) {
    case DDP_RUNNING:
        j->timed_out = true;
        report_ending(j);
        ddp_end_ranks(j, SIGTERM);
        break;
    case DDP_LOOKING:
        report_ending(j);
        ddp_end_ranks(j, SIGTERM);
        break;
    case DDP_ENDING: ddp_end_ranks(j, SIGKILL); break;
    case DDP_KILLED: break;
    }
}

/* The user's first signal is forwarded to the ranks; a second one kills them. */
static void take_stop_signal(ddp_job *j, int signal) {
    ddp_end_ranks(j, j->stop_signal || j->phase == DDP_KILLED ? SIGKILL : signal);
    j->stop_signal = signal;
    report_ending(j);
}

/* Ctrl-Z: stops the ranks and this process, if its shell can continue it (otherwise the kernel does not stop it); then
 * continues the ranks. */
static void pause_job(ddp_job *j) {
    sigset_t pausing;
    sigemptyset(&pausing);
    sigaddset(&pausing, SIGTSTP);
    signal_ranks(j, SIGTSTP);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &pausing, NULL); /* stops here */
    pthread_sigmask(SIG_BLOCK, &pausing, NULL);
    signal_ranks(j, SIGCONT);
}

static void take_signals(ddp_job *j) {
    struct signalfd_siginfo info;
    while (read(j->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            pause_job(j);
        else if (info.ssi_signo != SIGCHLD)
            take_stop_signal(j, (int)info.ssi_signo);
    }
    reap(j); /* several SIGCHLD may have become one */
    if (j->strays && j->phase < DDP_ENDING) ddp_end_ranks(j, SIGTERM);
}

static int poll_timeout_ms(const ddp_job *j) {
    bool look_again = ddp_may_be_missed(j); /* the store sends no notice when a rank joins */
    if (isinf(j->next_phase_us)) return look_again ? LOOK_AGAIN_MS : -1;
    double left_ms = fmax(ceil((j->next_phase_us - ls_now_us()) / 1e3), 0);
    return (int)fmin(left_ms, look_again ? LOOK_AGAIN_MS : 60e3);
}

/* --- several hosts ---------------------------------------------------------------------------------------------------- */

/* The attempt has failed on another host: ranks here get the same time to notice it as after a failure here. */
static void fetch_ending(ddp_job *j) {
    if (!ddp_agents_get_ending(j->agents, &j->ending)) return;
    j->has_ending = true;
    if (j->running > 0) await_better_cause(j);
}

/* Only losses of peers were seen here: another host may know the cause, or turn out to be lost. */
static bool awaits_cause(const ddp_job *j) {
    return j->phase == DDP_LOOKING && ddp_has_lost_peer(&j->culprit) && !j->has_ending &&
           ls_now_us() < j->next_phase_us;
}

static void finish(ddp_job *j) {
    bool done = false;
    for (int i = 0; i < j->options->nproc; i++) done = done || j->ranks[i].done.rank >= 0;
    if (j->phase != DDP_RUNNING) report_ending(j);
    ddp_agents_finish(j->agents, done);
}

/* Whether to wait for the other hosts' ranks, since host 0 serves the store. A second signal ends that wait, too. */
static bool others_run(const ddp_job *j) {
    return j->agents && !ddp_agents_all_done(j->agents) && !(j->stop_signal && j->phase == DDP_KILLED);
}

static bool is_alive(const ddp_job *j) { return j->running > 0 || j->strays; }

void ddp_watch_ranks(ddp_job *j) {
    int count = j->options->nproc;
    bool finished = false;
    while (is_alive(j) || others_run(j)) {
        struct pollfd fds[2 + LS_COMM_MAX_RANKS];
        if (j->agents && !finished && !is_alive(j) && !awaits_cause(j)) {
            finished = true;
            j->next_phase_us = INFINITY;
            finish(j);
        }
        fds[0] = (struct pollfd){.fd = j->signal_fd, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = j->agents ? ddp_agents_fd(j->agents) : -1, .events = POLLIN};
        for (int i = 0; i < count; i++) fds[2 + i] = (struct pollfd){.fd = j->ranks[i].cause_fd, .events = POLLIN};
        if (poll(fds, 2 + (nfds_t)count, poll_timeout_ms(j)) < 0) continue; /* EINTR */
        for (int i = 0; i < count; i++)
            if (fds[2 + i].revents) read_cause(&j->ranks[i]);
        if (fds[0].revents) take_signals(j);
        if (fds[1].revents) fetch_ending(j);
        follow(j, ddp_judge_absent(j));
        if (is_alive(j) && ls_now_us() >= j->next_phase_us) end_phase(j);
    }
    if (j->agents) fetch_ending(j);
}
