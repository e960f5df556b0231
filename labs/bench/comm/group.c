/* group: the ranks of one variant and N, from their start to their end.
 *   idea  : processes are forked from this one and find each other by a table in memory that they inherit. Threads run
 *           in one child process, so that both kinds end in the same manner and do not affect this process.
 *   fails : a rank's exit status tells its parent what happened. Ranks detect that one of them has died; those that
 *           have not exited GRACE_S after the first failure are killed, and the kernel kills all if the parent dies */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/comm/mpi_plugin.h"
#include "labs/bench/comm/bench_comm.h"

#define GRACE_S 5.0

enum { KEY_CAPACITY = 64, VALUE_CAPACITY = 4096, KEYS_MAX = COMM_CASES_MAX + 4, POLL_MS = 20 };

/* --- how processes find each other ------------------------------------------------------------------------------------ */

/* One entry per process group, set by its rank 0 and read by the others; MPI has two more. */
struct meeting_point {
    comm_board board;
    int first_run, end_run;
    double until_us;
    _Atomic int taken;
    struct {
        _Atomic int ready;
        char key[KEY_CAPACITY], value[VALUE_CAPACITY];
        size_t nbytes;
    } entry[KEYS_MAX];
};

static ls_status set_value(void *context, const char *key, const void *value, size_t nbytes) {
    struct meeting_point *point = context;
    int i = atomic_fetch_add(&point->taken, 1);
    if (i >= KEYS_MAX || nbytes > VALUE_CAPACITY)
        return ls_fail(LS_ERR_INVALID, "the store has no room for the key %s (%zu bytes)", key, nbytes);
    snprintf(point->entry[i].key, KEY_CAPACITY, "%s", key);
    memcpy(point->entry[i].value, value, nbytes);
    point->entry[i].nbytes = nbytes;
    atomic_store(&point->entry[i].ready, 1);
    return LS_OK;
}

static ls_status get_value(void *context, const char *key, void *value, size_t capacity, size_t *nbytes) {
    struct meeting_point *point = context;
    for (; ls_now_us() < point->until_us; nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL)) {
        for (int i = 0; i < KEYS_MAX; i++) {
            if (!atomic_load(&point->entry[i].ready) || strcmp(point->entry[i].key, key) != 0) continue;
            if (point->entry[i].nbytes > capacity) return ls_fail(LS_ERR_INVALID, "the value of %s is too long", key);
            memcpy(value, point->entry[i].value, point->entry[i].nbytes);
            *nbytes = point->entry[i].nbytes;
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_TIMEOUT, "rank 0 did not arrive for %s in time", key);
}

/* --- a rank's process groups ------------------------------------------------------------------------------------------ */

static void close_groups(comm_rank *rank) {
    for (int c = 0; c < rank->settings->case_count; c++)
        if (comm_owner(rank->settings, c) == c) ls_comm_destroy(rank->comms[c]);
}

static ls_comm_options options_of(const comm_settings *settings, int n, int index) {
    const char *algorithm = settings->cases[index].algorithm;
    return (ls_comm_options){.world_size = n,
                             .timeout_s = settings->timeout_s,
                             .allreduce = algorithm[0] ? algorithm : NULL,
                             .unrecorded = settings->cases[index].unrecorded};
}

static ls_status join_groups(comm_rank *rank, struct meeting_point *point) {
    const comm_settings *settings = rank->settings;
    const ls_bootstrap bootstrap = {.context = point, .set = set_value, .get = get_value};
    char why[600];
    const struct ls_carrier *carrier = rank->group->variant == COMM_MPI ? ls_mpi_carrier(why, sizeof why) : NULL;
    ls_status status = LS_OK;
    for (int c = 0; status == LS_OK && c < settings->case_count; c++) {
        int owner = comm_owner(settings, c);
        char name[KEY_CAPACITY];
        snprintf(name, sizeof name, "case%d", c);
        ls_comm_options options = options_of(settings, rank->group->n, c);
        options.rank = rank->rank;
        options.bootstrap = &bootstrap;
        options.group = name;
        if (owner == c && comm_has_case(rank->group->variant, &settings->cases[c]))
            status = ls_comm_create_hosts(&rank->comms[c], &options, carrier);
        rank->comms[c] = rank->comms[owner];
    }
    return status;
}

/* --- processes -------------------------------------------------------------------------------------------------------- */

static ls_status run_process(const comm_settings *settings, const comm_group *group, struct meeting_point *point,
                             int rank) {
    comm_rank self = {.settings = settings,
                      .group = group,
                      .board = &point->board,
                      .rank = rank,
                      .first_run = point->first_run,
                      .end_run = point->end_run};
    ls_status status = join_groups(&self, point);
    if (status == LS_OK) status = comm_sweep(&self);
    close_groups(&self);
    return status;
}

/* --- threads ---------------------------------------------------------------------------------------------------------- */

struct rank_thread {
    comm_rank self;
    pthread_t thread;
    bool started;
    ls_status status;
};

static void *thread_main(void *argument) {
    struct rank_thread *rank = argument;
    rank->status = comm_sweep(&rank->self);
    return NULL;
}

static ls_status make_groups(struct rank_thread *ranks, const comm_settings *settings, int n) {
    ls_status status = LS_OK;
    for (int c = 0; status == LS_OK && c < settings->case_count; c++) {
        int owner = comm_owner(settings, c);
        ls_comm *comms[LS_COMM_MAX_RANKS] = {NULL};
        ls_comm_options options = options_of(settings, n, c);
        if (owner == c) status = ls_comm_create_threads(comms, &options);
        for (int r = 0; r < n; r++) ranks[r].self.comms[c] = owner == c ? comms[r] : ranks[r].self.comms[owner];
    }
    return status;
}

static ls_status run_threads(const comm_settings *settings, const comm_group *group, struct meeting_point *point) {
    int n = group->n;
    struct rank_thread *ranks = calloc((size_t)n, sizeof *ranks);
    if (!ranks) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %d threads", n);
    for (int r = 0; r < n; r++)
        ranks[r].self = (comm_rank){.settings = settings,
                                    .group = group,
                                    .board = &point->board,
                                    .rank = r,
                                    .first_run = point->first_run,
                                    .end_run = point->end_run};
    ls_status status = make_groups(ranks, settings, n);
    for (int r = 0; status == LS_OK && r < n; r++) {
        int error = pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]);
        ranks[r].started = error == 0;
        if (error == 0) continue;
        status = ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
        for (int c = 0; c < settings->case_count; c++) (void)ls_comm_abort(ranks[r].self.comms[c], "it did not start");
    }
    for (int r = 0; r < n; r++) {
        if (!ranks[r].started) continue;
        pthread_join(ranks[r].thread, NULL);
        /* the status of the rank that failed first, not of those that waited for it */
        if (status == LS_OK || (status == LS_ERR_PEER && ranks[r].status != LS_OK)) status = ranks[r].status;
    }
    for (int r = 0; r < n; r++) close_groups(&ranks[r].self);
    free(ranks);
    return status;
}

/* --- the children ----------------------------------------------------------------------------------------------------- */

/* Present in programs built with AddressSanitizer; _exit() would skip the leak check. */
void __lsan_do_leak_check(void) __attribute__((weak));

static void child_main(const comm_settings *settings, const comm_group *group, struct meeting_point *point, int rank,
                       pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    setenv("LS_CPU_STREAMS", "inline", 0); /* measure the operation without the hand-off to a stream's thread */
    bool threads = group->variant == COMM_THREADS;
    ls_log_init("bench_comm", threads ? -1 : rank, settings->quiet);
    ls_status status = threads ? run_threads(settings, group, point) : run_process(settings, group, point, rank);
    if (status == LS_OK && __lsan_do_leak_check) __lsan_do_leak_check();
    _exit(ls_status_exit_code(status));
}

struct children {
    int count, left;
    pid_t pids[LS_COMM_MAX_RANKS]; /* 0: ended */
    int failed_with;               /* the least exit status other than 0: a failure takes precedence over a lost peer */
    bool killed_here;
};

static void note_end(struct children *children, int rank, int wait_status, ls_status *status) {
    children->pids[rank] = 0;
    children->left--;
    if (WIFSIGNALED(wait_status) && !children->killed_here) {
        int signal = WTERMSIG(wait_status);
        *status = ls_fail(LS_ERR_PEER, "rank %d was killed by signal %d (%s)", rank, signal, strsignal(signal));
    }
    int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : ls_status_exit_code(LS_ERR_PEER);
    if (code != 0 && (children->failed_with == 0 || code < children->failed_with)) children->failed_with = code;
}

static void kill_all(struct children *children) {
    for (int r = 0; r < children->count; r++)
        if (children->pids[r] > 0) kill(children->pids[r], SIGKILL);
    children->killed_here = true;
}

/* The ranks have already reported their failures. */
static ls_status status_of(int exit_code) {
    return exit_code == 0 ? LS_OK : exit_code == ls_status_exit_code(LS_ERR_PEER) ? LS_ERR_PEER : LS_ERR_INVALID;
}

static ls_status await_children(struct children *children, const comm_settings *settings, const comm_group *group,
                                const comm_board *board) {
    ls_progress progress = ls_progress_begin(settings->quiet);
    char what[80];
    snprintf(what, sizeof what, "%s, %s buffers, N %d: row", comm_variant_backend(group->variant),
             comm_variant_buffers(group->variant), group->n);
    ls_status status = LS_OK;
    double until_us = 0;
    while (children->left > 0) {
        for (int r = 0; r < children->count; r++) {
            int wait_status;
            if (children->pids[r] > 0 && waitpid(children->pids[r], &wait_status, WNOHANG) == children->pids[r])
                note_end(children, r, wait_status, &status);
        }
        if (children->failed_with != 0 && until_us <= 0) until_us = ls_now_us() + GRACE_S * 1e6;
        if (until_us > 0 && ls_now_us() > until_us && !children->killed_here) kill_all(children);
        ls_progress_show(&progress, what, atomic_load(&board->measured), group->row_count);
        if (children->left > 0) nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
    ls_progress_end(&progress);
    return status != LS_OK ? status : status_of(children->failed_with);
}

ls_status comm_run_group(const comm_settings *settings, const comm_group *group, int round) {
    struct meeting_point *point = mmap(NULL, sizeof *point, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (point == MAP_FAILED) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory shared by the ranks");
    point->first_run = comm_first_run(settings, round);
    point->end_run = comm_first_run(settings, round + 1);
    point->until_us = ls_now_us() + settings->timeout_s * 1e6;
    struct children children = {.count = group->variant == COMM_THREADS ? 1 : group->n};
    ls_status status = LS_OK;
    pid_t parent = getpid();
    fflush(NULL);
    for (int r = 0; status == LS_OK && r < children.count; r++) {
        children.pids[r] = fork();
        if (children.pids[r] == 0) child_main(settings, group, point, r, parent);
        if (children.pids[r] > 0) {
            children.left++;
        } else {
            children.pids[r] = 0;
            status = ls_fail(LS_ERR_SYSTEM, "cannot start rank %d: %s", r, strerror(errno));
            kill_all(&children);
        }
    }
    ls_status end = await_children(&children, settings, group, &point->board);
    munmap(point, sizeof *point);
    for (int i = 0; i < group->row_count; i++) comm_assemble(&group->rows[i]);
    return status != LS_OK ? status : end;
}
