/* launch: the life of a job.
 *   idea  : an attempt has a store, a group of ranks and a watch over them; a job is an attempt, and another one for
 *           each restart. Guard, port and signals, which are read from a file descriptor, belong to the job.
 *   fails : if the launcher is killed, PR_SET_PDEATHSIG kills the ranks, and the guard (launch_guard.c) kills their
 *           children; no files are left behind. */
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
#include "common/base/log_once.h"
#include "ddp_procs/launch/launch_job.h"
#include "ddp_procs/launch/launch_output.h"
#include "ddp_procs/launch/launch_policy.h"
#include "ddp_procs/launch/launch_report.h"
#include "ddp_procs/launch/launch_spawn.h"
#include "ddp_procs/launch/launch_start.h"
#include "ddp_procs/launch/launch_watch.h"
#include "ddp_procs/launch/open_files.h"
#include "ddp_procs/launch/store_listen.h"
#include "ddp_procs/launch/store_pass.h"

/* Files that the launcher opens: for each rank a cause pipe and a connection to the store; and a fixed number. */
enum { FILES_ONCE = 10, FILES_PER_RANK = 2 };

/* --- an attempt ------------------------------------------------------------------------------------------------------- */

/* Serves the store, and sets its address in the plan. */
static ls_status serve_alone(ddp_job *j, ddp_store_pass *pass) {
    j->plan.world_size = j->options->nproc;
    snprintf(j->plan.job, sizeof j->plan.job, "%d.%.0f", (int)getpid(), ls_now_us());
    ls_status status = ddp_store_pass_make(pass, j->plan.job, j->options->nproc);
    if (status == LS_OK) status = ddp_store_serve_job(&j->server, "unix", 0, pass);
    if (status != LS_OK) return status;
    j->plan.store = ddp_store_server_host(j->server);
    j->plan.token = pass->token;
    return LS_OK;
}

/* The same for several hosts: host 0 serves it. */
static ls_status meet_hosts(ddp_job *j) {
    ddp_round *round = &j->round;
    j->has_ending = false;
    round->master_port = j->plan.master_port;
    snprintf(round->run, sizeof round->run, "%s", j->plan.run_id);
    ls_status status = ddp_agents_meet(j->agents, LS_OK, round, &j->server);
    if (status == LS_OK) status = ddp_agents_watch(j->agents, j->server);
    if (status != LS_OK) return status;
    j->plan.first_rank = round->first_rank;
    j->plan.world_size = round->world_size;
    j->plan.master_port = round->master_port;
    j->plan.run_id = round->run;
    memcpy(j->plan.job, round->job, sizeof j->plan.job);
    j->plan.store = round->store;
    j->plan.token = round->token;
    return LS_OK;
}

/* Resets the state of the previous attempt, and keeps its processes out: name, secret and store are new. */
static ls_status begin_attempt(ddp_job *j, ddp_store_pass *pass) {
    for (int i = 0; i < j->options->nproc; i++) {
        j->ranks[i] = (ddp_rank_process){.pid = -1, .cause_fd = -1, .done.rank = -1, .out = -1, .err = -1};
    }
    j->running = j->failure_count = 0;
    j->strays = j->too_few = false;
    j->output = NULL;
    j->phase = DDP_RUNNING;
    j->next_phase_us = j->deadline_us;
    j->culprit.rank = -1;
    j->plan.group = 0;
    ls_status status = j->agents ? meet_hosts(j) : serve_alone(j, pass);
    if (status == LS_OK) status = ddp_logs_begin(&j->logs, j->plan.restarts, j->options->nproc);
    if (status != LS_OK) return status;
    j->plan.log_once_fd = ls_log_once_create();
    return LS_OK;
}

static void end_attempt(ddp_job *j) {
    for (int i = 0; i < j->options->nproc; i++)
        if (j->ranks[i].cause_fd >= 0) close(j->ranks[i].cause_fd);
    if (j->plan.log_once_fd >= 0) close(j->plan.log_once_fd);
    j->plan.log_once_fd = -1;
    if (j->agents) ddp_agents_stop(j->agents);
    ddp_store_server_stop(j->server, 0);
    j->server = NULL;
}

static void report_start_failure(ddp_job *j, ls_status status) {
    char host[DDP_HOST_TEXT_CAPACITY];
    ddp_ending ending = {.node = j->options->node_rank, .rank = -1, .status = (int32_t)status};
    snprintf(ending.text, sizeof ending.text, "%s cannot start its ranks; see its error",
             ddp_agents_host(j->agents, ending.node, host));
    ddp_agents_report(j->agents, &ending);
}

static ls_status start_ranks(ddp_job *j) {
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < j->options->nproc; i++) status = ddp_start_rank(j, i);
    if (status == LS_OK) status = ddp_output_start(j->output);
    if (status != LS_OK) ddp_end_ranks(j, SIGKILL);
    if (status != LS_OK && j->agents) report_start_failure(j, status);
    return status;
}

/* Starts the ranks and waits for all of them. LS_OK even if ranks failed (ddp_report_job). */
static ls_status run_attempt(ddp_job *j) {
    ddp_store_pass pass;
    j->plan.log_once_fd = -1;
    ls_status status = begin_attempt(j, &pass);
    if (status == LS_OK) status = ddp_output_create(&j->output, &j->plan, &j->logs);
    if (status == LS_OK) {
        status = start_ranks(j);
        ddp_watch_ranks(j);
    }
    ddp_forget_outputs(j);
    ls_status copied = ddp_output_finish(j->output);
    ddp_guard_name(&j->plan.guard, 0); /* the group's number may be reused */
    end_attempt(j);
    return status == LS_OK ? copied : status;
}

static ls_status run_attempts(ddp_job *j) {
    int adopted_before = 0;
    ls_status status = ddp_guard_start(&j->plan.guard);
    if (status != LS_OK) return status;
    (void)prctl(PR_GET_CHILD_SUBREAPER, &adopted_before);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = run_attempt(j);
    while (status == LS_OK && ddp_restarts(j)) {
        ddp_report_restart(j);
        j->plan.restarts++;
        status = run_attempt(j);
    }
    ls_status ended = ddp_report_job(j);
    (void)prctl(PR_SET_CHILD_SUBREAPER, adopted_before);
    ddp_guard_stop(&j->plan.guard);
    return ended == LS_OK ? status : ended;
}

/* --- signals ---------------------------------------------------------------------------------------------------------- */

/* Signals that nohup ignores stay ignored. The others are handled even if they were ignored: signalfd also receives
 * blocked signals. */
static bool is_wanted(int number) {
    struct sigaction action;
    return number != SIGHUP || sigaction(number, NULL, &action) < 0 || action.sa_handler != SIG_IGN;
}

/* Runs the job and reads its signals from a file descriptor, so that they do not end or interrupt this process. */
static ls_status run_with_signals_blocked(ddp_job *j) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    sigset_t taken, before;
    struct sigaction child_action, usual = {.sa_handler = SIG_DFL};
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (is_wanted(numbers[i])) sigaddset(&taken, numbers[i]);
    j->signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (j->signal_fd < 0) return ls_fail(LS_ERR_SYSTEM, "cannot watch for signals: %s", strerror(errno));
    sigaction(SIGCHLD, &usual, &child_action); /* if SIGCHLD were ignored, the ranks' statuses would be lost */
    pthread_sigmask(SIG_BLOCK, &taken, &before);
    j->plan.signal_mask = &before;
    ls_status status = run_attempts(j);
    j->plan.signal_mask = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGCHLD, &child_action, NULL);
    close(j->signal_fd);
    return status;
}

/* argv and the last argument in one array; the caller still owns the strings. After "--" the argument would not be an
 * option. */
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

/* --- the job ---------------------------------------------------------------------------------------------------------- */

static ls_status check_job(ddp_job *j) {
    const ddp_launch_options *o = j->options;
    if (o->nproc < 1 || o->nproc > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_USAGE, "cannot start %d ranks: a job has 1 to %d", o->nproc, LS_COMM_MAX_RANKS);
    ls_status status = LS_OK;
    if (!j->agents) /* with agents, copies of ddprun are the agents, each with its own number */
        status = ls_launcher_refuse_copies("start ranks of its own",
                                           "let that launcher start the ranks themselves, without ddprun and --spawn");
    if (status == LS_OK && !o->entry) status = ddp_find_program(j->plan.program, o->program);
    int descriptors = FILES_ONCE + FILES_PER_RANK * o->nproc + ddp_output_descriptors(o);
    return status == LS_OK ? ddp_check_open_files(descriptors, "the launcher") : status;
}

ls_status ddp_launch(const ddp_launch_options *options) {
    ddp_job j = {.options = options, .plan.options = options, .deadline_us = INFINITY, .signal_fd = -1};
    char run_id[LS_JOB_CAPACITY], **argv = NULL;
    int port_fd = -1;
    snprintf(run_id, sizeof run_id, "%d.%.0f", (int)getpid(), ls_now_us());
    j.plan.run_id = options->run_id ? options->run_id : run_id;
    if (options->timeout_s > 0) j.deadline_us = ls_now_us() + options->timeout_s * 1e6;
    ls_status status = options->nnodes > 1 ? ddp_agents_join(&j.agents, options) : LS_OK;
    if (status != LS_OK) return status;
    status = check_job(&j);
    if (status == LS_OK) status = ddp_logs_create(&j.logs, options->log_dir, j.plan.run_id);
    if (status == LS_OK) status = ddp_reserve_port(&port_fd, j.agents ? 0 : options->master_port, &j.plan.master_port);
    if (status == LS_OK && !options->entry) {
        j.plan.argv = argv = join_arguments(options);
        if (!argv) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the ranks' arguments");
    }
    if (status == LS_OK)
        status = run_with_signals_blocked(&j);
    else if (j.agents)
        (void)ddp_agents_meet(j.agents, status, &j.round, &j.server); /* so that no host waits for this one */
    free(argv);
    if (port_fd >= 0) close(port_fd);
    ddp_agents_leave(j.agents);
    return status;
}
