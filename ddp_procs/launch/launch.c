/* launch: the life of a job: the store, the guard, the ranks, and signals that come through a file descriptor meanwhile.
 *   fails : if the launcher is killed, PR_SET_PDEATHSIG kills the ranks and the guard (launch_guard.c) the rest;
 *           nothing lies in the file system. */
#define _GNU_SOURCE
#include "ddp_procs/launch/launch.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/launcher.h"
#include "common/base/log.h"
#include "common/base/said.h"
#include "ddp_procs/launch/launch_job.h"
#include "ddp_procs/launch/launch_report.h"
#include "ddp_procs/launch/launch_watch.h"
#include "ddp_procs/launch/open_files.h"
#include "ddp_procs/launch/store_listen.h"
#include "ddp_procs/launch/store_pass.h"

/* What the launcher opens: for each rank a cause pipe and a connection to the store; and what there is once. */
enum { FILES_ONCE = 10, FILES_PER_RANK = 2 };

static ls_status start_ranks(ddp_job *j) {
    for (int i = 0; i < j->options->nproc; i++) {
        ddp_rank_process *rank = &j->ranks[i];
        ls_status status = ddp_spawn_rank(&rank->pid, &rank->cause_fd, &j->plan, i);
        if (status != LS_OK) {
            ddp_end_ranks(j, SIGKILL);
            ddp_watch_ranks(j);
            return status;
        }
        j->running++;
    }
    return LS_OK;
}

static ls_status run_ranks(ddp_job *j) {
    int adopted_before = 0;
    ls_status status = ddp_guard_start(&j->plan.guard);
    if (status != LS_OK) return status;
    (void)prctl(PR_GET_CHILD_SUBREAPER, &adopted_before);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = start_ranks(j);
    if (status == LS_OK) {
        ddp_watch_ranks(j);
        status = ddp_report_job(j);
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
static ls_status run_with_signals_blocked(ddp_job *j) {
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
    ddp_job j = {.options = options, .next_phase_us = INFINITY, .culprit.rank = -1, .signal_fd = -1};
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
