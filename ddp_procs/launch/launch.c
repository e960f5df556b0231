/* launch: watching over the ranks of a job.
 *   idea  : one poll loop over a signalfd (SIGCHLD tells of processes that ended, other signals come from the user) and
 *           the ranks' cause pipes. The job goes through phases: RUNNING; LOOKING, the two seconds after the first
 *           failure, in which failures that belong to it come to light; ENDING, after SIGTERM to the ranks that are
 *           left; KILLED.
 *   cause : a rank that loses a peer exits with status 3, so the culprit is the first failure seen with any other
 *           status or a signal; only if there is none, the first one seen. Ranks that end after SIGTERM do not count.
 *   join  : a rank that ends with 0 and was never in the store, while others are there, ends the job: they wait for it.
 *   group : the ranks are a process group, to which signals go, so that what ranks have started gets them, too. The
 *           launcher adopts processes whose parent has ended (PR_SET_CHILD_SUBREAPER). So it sees when the group is
 *           empty, and ends what ranks leave behind as it ends ranks.
 *   fails : if the launcher is killed, PR_SET_PDEATHSIG kills the ranks and the guard (launch_guard.c) the rest;
 *           nothing lies in the file system. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/launcher.h"
#include "common/base/log.h"
#include "common/base/said.h"
#include "common/comm/comm.h"
#include "ddp_procs/launch/launch_spawn.h"
#include "ddp_procs/launch/open_files.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/launch/store_listen.h"
#include "ddp_procs/launch/store_pass.h"

enum { LOOK_AGAIN_MS = 100 };
#define LOOK_US 2e6 /* on a busy machine ranks need that long to notice, and to say what they know */

/* What the launcher opens: for each rank a cause pipe and a connection to the store; and what there is once. */
enum { FILES_ONCE = 10, FILES_PER_RANK = 2 };

enum { CAUSE_CAPACITY = 1024, PEER_FAILED_STATUS = 3, WRONG_USAGE_STATUS = 2 };

typedef enum phase { RUNNING, LOOKING, ENDING, KILLED } phase;

typedef struct failure {
    int rank; /* -1: none */
    pid_t pid;
    int wait_status;
} failure;

typedef struct rank_process {
    pid_t pid; /* -1: ended, or never started */
    int cause_fd;
    char cause[CAUSE_CAPACITY]; /* its first error line, without the newline */
    size_t cause_nbytes;
    bool cause_complete;
    failure done; /* its end with status 0; rank -1: it has not come */
} rank_process;

typedef struct job {
    const ddp_launch_options *options;
    ddp_spawn_plan plan;
    const ddp_store_server *server;
    rank_process ranks[LS_COMM_MAX_RANKS];
    int running; /* ranks */
    bool strays; /* there are others of the ranks' group, whose parents have ended */
    int signal_fd;
    phase phase;
    double next_phase_us; /* when the present phase ends by itself; INFINITY: it does not */
    failure culprit;
    int stop_signal; /* the user's; 0: none */
    bool timed_out;
} job;

/* --- what ranks leave behind ------------------------------------------------------------------------------------------ */

/* Reads what is there, keeps the first line and drops the rest, so that no rank ever waits for us. */
static void read_cause(rank_process *rank) {
    char text[512];
    ssize_t got;
    while (rank->cause_fd >= 0 && (got = read(rank->cause_fd, text, sizeof text)) != -1) {
        if (got == 0) { /* no writer is left */
            close(rank->cause_fd);
            rank->cause_fd = -1;
        }
        for (ssize_t i = 0; i < got && !rank->cause_complete; i++) {
            rank->cause_complete = text[i] == '\n' || rank->cause_nbytes == CAUSE_CAPACITY - 1;
            if (!rank->cause_complete) rank->cause[rank->cause_nbytes++] = text[i];
        }
    }
}

static bool is_peer_failure(int wait_status) {
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == PEER_FAILED_STATUS;
}

static void note_end(job *j, int index, int wait_status) {
    rank_process *rank = &j->ranks[index];
    read_cause(rank);
    j->running--;
    const failure end = {index, rank->pid, wait_status};
    rank->pid = -1;
    bool failed = !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0;
    if (!failed) rank->done = end;
    if (!failed || j->phase >= ENDING) return;
    if (j->phase == RUNNING) {
        j->phase = LOOKING;
        j->next_phase_us = ls_now_us() + LOOK_US;
        j->culprit = end;
    } else if (is_peer_failure(j->culprit.wait_status) && !is_peer_failure(wait_status)) {
        j->culprit = end;
    }
}

/* Ranks one by one, for they may have left the group; then whoever else has ended in it. */
static void reap(job *j) {
    int wait_status;
    for (int i = 0; i < j->options->nproc; i++)
        if (j->ranks[i].pid > 0 && waitpid(j->ranks[i].pid, &wait_status, WNOHANG) > 0) note_end(j, i, wait_status);
    pid_t pid = 0;
    while (j->plan.group > 0 && (pid = waitpid(-j->plan.group, &wait_status, WNOHANG)) > 0)
        for (int i = 0; i < j->options->nproc; i++)
            if (j->ranks[i].pid == pid) note_end(j, i, wait_status);
    j->strays = pid == 0 && j->running == 0 && j->plan.group > 0;
}

/* --- ranks that never join -------------------------------------------------------------------------------------------- */

/* A rank that has ended with 0 and was never in the store, though it may be missed there; NULL: there is none. */
static const failure *find_absent(const job *j) {
    for (int i = 0; i < j->options->nproc; i++)
        if (j->ranks[i].done.rank >= 0 && !ddp_store_server_has_joined(j->server, i)) return &j->ranks[i].done;
    return NULL;
}

/* Ranks that have joined wait for all others. */
static bool is_missed(const job *j) {
    for (int i = 0; i < j->options->nproc; i++)
        if (j->ranks[i].pid > 0 && ddp_store_server_has_joined(j->server, i)) return true;
    return false;
}

/* --- phases ----------------------------------------------------------------------------------------------------------- */

/* To the ranks and to all of their group. While one of it has not been reaped, its number is its own. */
static void signal_ranks(job *j, int signal) {
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

static void end_ranks(job *j, int signal) {
    signal_ranks(j, signal);
    j->phase = signal == SIGKILL ? KILLED : ENDING;
    j->next_phase_us = signal == SIGKILL ? INFINITY : ls_now_us() + j->options->grace_s * 1e6;
}

static void end_phase(job *j) {
    switch (j->phase) {
    case RUNNING:
        j->timed_out = true;
        end_ranks(j, SIGTERM);
        break;
    case LOOKING: end_ranks(j, SIGTERM); break;
    case ENDING: end_ranks(j, SIGKILL); break;
    case KILLED: break;
    }
}

/* The user's first signal goes on to the ranks; a second one means now. */
static void take_stop_signal(job *j, int signal) {
    end_ranks(j, j->stop_signal || j->phase == KILLED ? SIGKILL : signal);
    j->stop_signal = signal;
}

/* Ctrl-Z: the ranks stop, and so does this process, where its shell can wake it again (else the kernel does not stop
 * it); awake, it wakes the ranks. */
static void pause_job(job *j) {
    sigset_t pausing;
    sigemptyset(&pausing);
    sigaddset(&pausing, SIGTSTP);
    signal_ranks(j, SIGTSTP);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &pausing, NULL); /* stops here */
    pthread_sigmask(SIG_BLOCK, &pausing, NULL);
    signal_ranks(j, SIGCONT);
}

static void take_signals(job *j) {
    struct signalfd_siginfo info;
    while (read(j->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            pause_job(j);
        else if (info.ssi_signo != SIGCHLD)
            take_stop_signal(j, (int)info.ssi_signo);
    }
    reap(j); /* several SIGCHLD may have become one */
    if (j->strays && j->phase < ENDING) end_ranks(j, SIGTERM);
}

static int poll_timeout_ms(const job *j) {
    bool may_be_missed = j->phase == RUNNING && find_absent(j); /* the store tells nobody who joins */
    if (isinf(j->next_phase_us)) return may_be_missed ? LOOK_AGAIN_MS : -1;
    double left_ms = fmax(ceil((j->next_phase_us - ls_now_us()) / 1e3), 0);
    return (int)fmin(left_ms, may_be_missed ? LOOK_AGAIN_MS : 60e3);
}

static void end_if_missed(job *j) {
    const failure *absent = j->phase == RUNNING ? find_absent(j) : NULL;
    if (!absent || !is_missed(j)) return;
    j->culprit = *absent;
    end_ranks(j, SIGTERM);
}

static void watch(job *j) {
    int count = j->options->nproc;
    while (j->running > 0 || j->strays) {
        struct pollfd fds[1 + LS_COMM_MAX_RANKS];
        fds[0] = (struct pollfd){.fd = j->signal_fd, .events = POLLIN};
        for (int i = 0; i < count; i++) fds[1 + i] = (struct pollfd){.fd = j->ranks[i].cause_fd, .events = POLLIN};
        if (poll(fds, 1 + (nfds_t)count, poll_timeout_ms(j)) < 0) continue; /* EINTR */
        for (int i = 0; i < count; i++)
            if (fds[1 + i].revents) read_cause(&j->ranks[i]);
        if (fds[0].revents) take_signals(j);
        end_if_missed(j);
        if ((j->running > 0 || j->strays) && ls_now_us() >= j->next_phase_us) end_phase(j);
    }
}

/* --- the report ------------------------------------------------------------------------------------------------------- */

static ls_status report_culprit(const job *j) {
    const failure *culprit = &j->culprit;
    const rank_process *rank = &j->ranks[culprit->rank];
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
    ls_status status = exit_status == PEER_FAILED_STATUS   ? LS_ERR_PEER
                       : exit_status == WRONG_USAGE_STATUS ? LS_ERR_USAGE
                                                           : LS_ERR_SYSTEM;
    return ls_fail(status, "rank %d (pid %d) exited with status %d%s%s", culprit->rank, (int)culprit->pid, exit_status,
                   colon, rank->cause);
}

static ls_status report(const job *j) {
    if (j->culprit.rank >= 0) return report_culprit(j);
    if (j->stop_signal)
        return ls_fail(LS_ERR_SYSTEM, "the job was ended by signal %d (%s)", j->stop_signal, strsignal(j->stop_signal));
    if (j->timed_out)
        return ls_fail(LS_ERR_TIMEOUT, "the job was not done after %g s and has been ended; allow more with --timeout",
                       j->options->timeout_s);
    return LS_OK;
}

/* --- the job ---------------------------------------------------------------------------------------------------------- */

static ls_status start_ranks(job *j) {
    for (int i = 0; i < j->options->nproc; i++) {
        rank_process *rank = &j->ranks[i];
        ls_status status = ddp_spawn_rank(&rank->pid, &rank->cause_fd, &j->plan, i);
        if (status != LS_OK) {
            end_ranks(j, SIGKILL);
            watch(j);
            return status;
        }
        j->running++;
    }
    return LS_OK;
}

static ls_status run_ranks(job *j) {
    int adopted_before = 0;
    ls_status status = ddp_guard_start(&j->plan.guard);
    if (status != LS_OK) return status;
    (void)prctl(PR_GET_CHILD_SUBREAPER, &adopted_before);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = start_ranks(j);
    if (status == LS_OK) {
        watch(j);
        status = report(j);
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, adopted_before);
    ddp_guard_stop(&j->plan.guard);
    for (int i = 0; i < j->options->nproc; i++)
        if (j->ranks[i].cause_fd >= 0) close(j->ranks[i].cause_fd);
    return status;
}

/* What nohup ignores stays ignored. The others are taken also where they are: a blocked signal comes nevertheless. */
static bool is_wanted(int number) {
    struct sigaction action;
    return number != SIGHUP || sigaction(number, NULL, &action) < 0 || action.sa_handler != SIG_IGN;
}

/* Runs the job while its signals come through a file descriptor instead of ending or interrupting this process. */
static ls_status run_with_signals_blocked(job *j) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    sigset_t taken, before;
    struct sigaction child_action, usual = {.sa_handler = SIG_DFL};
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (is_wanted(numbers[i])) sigaddset(&taken, numbers[i]);
    j->signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (j->signal_fd < 0) return ls_fail(LS_ERR_SYSTEM, "cannot watch for signals: %s", strerror(errno));
    sigaction(SIGCHLD, &usual, &child_action); /* were it ignored, the ranks' statuses would be lost */
    pthread_sigmask(SIG_BLOCK, &taken, &before);
    j->plan.signal_mask = &before;
    ls_status status = run_ranks(j);
    j->plan.signal_mask = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGCHLD, &child_action, NULL);
    close(j->signal_fd);
    return status;
}

/* argv and the last argument in one array; the strings stay the caller's. Behind "--" it would be no option. */
static char **join_arguments(const ddp_launch_options *options) {
    size_t count = 0;
    while (options->argv[count]) count++;
    char **argv = calloc(count + 2, sizeof *argv);
    if (!argv) return NULL;
    memcpy(argv, options->argv, count * sizeof *argv);
    if (!options->last_argument) return argv;
    bool closed = count > 1 && strcmp(argv[count - 1], "--") == 0;
    if (closed) argv[count] = argv[count - 1];
    argv[count - closed] = (char *)options->last_argument;
    return argv;
}

ls_status ddp_launch(const ddp_launch_options *options) {
    if (options->nproc < 1 || options->nproc > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_USAGE, "cannot start %d ranks: a job has 1 to %d", options->nproc, LS_COMM_MAX_RANKS);
    job j = {.options = options, .next_phase_us = INFINITY, .culprit.rank = -1, .signal_fd = -1};
    for (int i = 0; i < options->nproc; i++) j.ranks[i].pid = j.ranks[i].cause_fd = j.ranks[i].done.rank = -1;
    ddp_store_server *server = NULL;
    ls_status status = ls_launcher_refuse_copies(
        "start ranks of its own", "let that launcher start the ranks themselves, without ddprun and --spawn");
    ddp_store_pass pass;
    int port_fd = -1;
    snprintf(j.plan.job, sizeof j.plan.job, "%d.%.0f", (int)getpid(), ls_now_us());
    if (status == LS_OK) status = ddp_find_program(j.plan.program, options->program);
    if (status == LS_OK) status = ddp_check_open_files(FILES_ONCE + FILES_PER_RANK * options->nproc, "the launcher");
    if (status == LS_OK) status = ddp_store_pass_make(&pass, j.plan.job, options->nproc);
    if (status == LS_OK) status = ddp_reserve_port(&port_fd, options->master_port, &j.plan.master_port);
    if (status == LS_OK) status = ddp_store_serve_job(&server, "unix", 0, &pass);
    char **argv = status == LS_OK ? join_arguments(options) : NULL;
    if (argv) {
        j.server = server;
        j.plan.store = ddp_store_server_host(server);
        j.plan.token = pass.token;
        j.plan.argv = argv;
        j.plan.nproc = options->nproc;
        if (options->timeout_s > 0) j.next_phase_us = ls_now_us() + options->timeout_s * 1e6;
        j.plan.said_fd = ls_said_create();
        status = run_with_signals_blocked(&j);
        if (j.plan.said_fd >= 0) close(j.plan.said_fd);
        free(argv);
    } else if (status == LS_OK) {
        status = ls_fail(LS_ERR_NO_MEMORY, "no memory for the ranks' arguments");
    }
    ddp_store_server_stop(server, 0);
    if (port_fd >= 0) close(port_fd);
    return status;
}
