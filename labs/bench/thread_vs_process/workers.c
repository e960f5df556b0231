#define _GNU_SOURCE
#include "labs/bench/thread_vs_process/workers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define DEADLINE_S 30 /* of a child, so that one that hangs is ended */

typedef struct worker {
    worker_kind kind;
    pthread_t thread;
    pid_t pid;
} worker;

/* Runs `main` with `argument` in a thread, or in a process, which exits when `main` returns. */
static ls_status start(worker *w, worker_kind kind, void *(*main)(void *argument), void *argument) {
    *w = (worker){.kind = kind};
    if (kind == WORKER_THREAD) {
        int error = pthread_create(&w->thread, NULL, main, argument);
        return error ? ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error)) : LS_OK;
    }
    w->pid = fork();
    if (w->pid < 0) return ls_fail(LS_ERR_SYSTEM, "cannot start a process: %s", strerror(errno));
    if (w->pid > 0) return LS_OK;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(DEADLINE_S);
    (void)main(argument);
    _exit(0);
}

/* Waits for the worker; returns the signal that ended it, 0: none. */
static int finish(const worker *w) {
    int ended = 0;
    if (w->kind == WORKER_THREAD) {
        pthread_join(w->thread, NULL);
        return 0;
    }
    while (waitpid(w->pid, &ended, 0) < 0 && errno == EINTR) continue;
    return WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
}

/* --- creation ----------------------------------------------------------------------------------------------------- */

static void *do_nothing(void *argument) { return argument; }

ls_status worker_create(double *us, worker_kind kind) {
    worker w;
    double begin_us = ls_now_us();
    ls_status status = start(&w, kind, do_nothing, NULL);
    if (status == LS_OK) (void)finish(&w);
    *us = ls_now_us() - begin_us;
    return status;
}

/* --- switching ---------------------------------------------------------------------------------------------------- */

struct pipes {
    int there[2], back[2];
    int trips;
};

/* Sends each byte back at once. */
static void *echo(void *argument) {
    const struct pipes *pipes = argument;
    char byte;
    for (int i = 0; i < pipes->trips; i++)
        if (read(pipes->there[0], &byte, 1) != 1 || write(pipes->back[1], &byte, 1) != 1) break;
    return NULL;
}

static bool make_trips(const struct pipes *pipes) {
    char byte = 1;
    for (int i = 0; i < pipes->trips; i++)
        if (write(pipes->there[1], &byte, 1) != 1 || read(pipes->back[0], &byte, 1) != 1) return false;
    return true;
}

/* Moves to the first core that this process may use; a worker inherits the core of its starter. */
static ls_status go_to_one_core(cpu_set_t *before) {
    cpu_set_t one;
    int core = 0;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof *before, before) != 0)
        return ls_fail(LS_ERR_SYSTEM, "cannot read which cores may be used: %s", strerror(errno));
    while (core < CPU_SETSIZE && !CPU_ISSET(core, before)) core++;
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) return LS_OK;
    return ls_fail(LS_ERR_SYSTEM, "cannot bind to one core: %s", strerror(errno));
}

static ls_status time_trips(double *us, worker_kind kind, struct pipes *pipes) {
    worker w;
    ls_status status = start(&w, kind, echo, pipes);
    if (status != LS_OK) return status;
    double begin_us = ls_now_us();
    bool done = make_trips(pipes);
    *us = (ls_now_us() - begin_us) / (2.0 * pipes->trips);
    (void)finish(&w);
    return done ? LS_OK : ls_fail(LS_ERR_SYSTEM, "cannot use a pipe: %s", strerror(errno));
}

ls_status worker_switch(double *us, worker_kind kind, int trips) {
    struct pipes pipes = {.there = {-1, -1}, .back = {-1, -1}, .trips = trips};
    cpu_set_t before;
    ls_status status = go_to_one_core(&before);
    if (status != LS_OK) return status;
    if (pipe(pipes.there) != 0 || pipe(pipes.back) != 0)
        status = ls_fail(LS_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    if (status == LS_OK) status = time_trips(us, kind, &pipes);
    for (int i = 0; i < 2; i++) {
        if (pipes.there[i] >= 0) close(pipes.there[i]);
        if (pipes.back[i] >= 0) close(pipes.back[i]);
    }
    (void)sched_setaffinity(0, sizeof before, &before);
    return status;
}

/* --- one memory, or two ------------------------------------------------------------------------------------------- */

static void *change(void *argument) {
    *(volatile int *)argument = 1;
    return NULL;
}

ls_status worker_shares(bool *seen, worker_kind kind) {
    volatile int value = 0;
    worker w;
    ls_status status = start(&w, kind, change, (void *)&value);
    if (status == LS_OK) (void)finish(&w);
    *seen = value == 1;
    return status;
}

/* --- a crash ------------------------------------------------------------------------------------------------------ */

/* Writes to a read-only page. Restores the default handler, since a sanitizer's would end the process in its own
 * way. */
static void *crash(void *page) {
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)page = 1;
    return NULL;
}

struct told {
    int fd;
    worker_kind kind;
};

/* Starts the worker that crashes. If this process survives, it writes how the worker ended. */
static void *start_one_that_crashes(void *argument) {
    const struct told *told = argument;
    worker w;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    void *page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || start(&w, told->kind, crash, page) != LS_OK) _exit(1);
    int ended_by = finish(&w);
    (void)!write(told->fd, &ended_by, sizeof ended_by);
    return NULL;
}

ls_status worker_let_crash(worker_crash *crash, worker_kind kind) {
    int ends[2], ended_by = 0;
    worker starter;
    *crash = (worker_crash){.survived = false};
    if (pipe(ends) != 0) return ls_fail(LS_ERR_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    struct told told = {.fd = ends[1], .kind = kind};
    ls_status status = start(&starter, WORKER_PROCESS, start_one_that_crashes, &told);
    close(ends[1]);
    if (status == LS_OK) {
        crash->survived = read(ends[0], &ended_by, sizeof ended_by) == (ssize_t)sizeof ended_by;
        crash->worker_signal = ended_by;
        crash->signal = finish(&starter);
    }
    close(ends[0]);
    return status;
}
