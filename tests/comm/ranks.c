#define _GNU_SOURCE
#include "tests/comm/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/base/test.h"

double rank_get_timeout_s = 30;

/* --- the store: a table that the processes inherit ---------------------------------------------------------------- */

struct entry {
    _Atomic int ready;
    char key[96], value[4096];
    size_t nbytes;
};

struct table {
    _Atomic int entries;
    struct entry entry[64];
};

static ls_status table_set(void *context, const char *key, const void *value, size_t nbytes) {
    struct table *table = context;
    struct entry *entry = &table->entry[atomic_fetch_add(&table->entries, 1)];
    snprintf(entry->key, sizeof entry->key, "%s", key);
    memcpy(entry->value, value, nbytes);
    entry->nbytes = nbytes;
    atomic_store(&entry->ready, 1);
    return LS_OK;
}

static ls_status table_get(void *context, const char *key, void *value, size_t capacity, size_t *nbytes) {
    struct table *table = context;
    double until_us = ls_now_us() + rank_get_timeout_s * 1e6;
    while (ls_now_us() < until_us) {
        for (int i = 0; i < atomic_load(&table->entries); i++) {
            struct entry *entry = &table->entry[i];
            if (!atomic_load(&entry->ready) || strcmp(entry->key, key) != 0 || entry->nbytes > capacity) continue;
            memcpy(value, entry->value, entry->nbytes);
            *nbytes = entry->nbytes;
            return LS_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return ls_fail(LS_ERR_TIMEOUT, "the store has no key %s after %g s", key, rank_get_timeout_s);
}

/* --- the processes ------------------------------------------------------------------------------------------------ */

/* Present in programs built with AddressSanitizer; _exit() would skip its leak check. */
void __lsan_do_leak_check(void) __attribute__((weak));

/* The deadline is at least LS_TEST_DEADLINE_S, which tests/run.sh raises under a sanitizer or qemu. */
static void child_begin(int rank, int deadline_s) {
    const char *programs = getenv("LS_TEST_DEADLINE_S");
    int program_s = programs ? atoi(programs) : 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)(program_s > deadline_s ? program_s : deadline_s));
    ls_log_init("test", rank, false);
}

static void run_body(struct rank *rank, void (*body)(struct rank *rank)) {
    ls_log_capture(rank->message, sizeof rank->message);
    body(rank);
    ls_log_capture(NULL, 0);
}

static void child_end(void) {
    if (__lsan_do_leak_check) __lsan_do_leak_check();
    fflush(NULL);
    _exit(0);
}

static int wait_for(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_processes(const struct rank *first, int deadline_s, void (*body)(struct rank *rank),
                          void (*meanwhile)(const pid_t *pids), int *exit_codes) {
    struct table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(table != MAP_FAILED);
    pid_t pids[LS_COMM_MAX_RANKS];
    for (int r = 0; r < first->world_size; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] > 0) continue;
        struct rank rank = *first;
        rank.rank = r;
        rank.bootstrap = (ls_bootstrap){.context = table, .set = table_set, .get = table_get};
        child_begin(r, deadline_s);
        run_body(&rank, body);
        child_end();
    }
    if (meanwhile) meanwhile(pids);
    for (int r = 0; r < first->world_size; r++) exit_codes[r] = wait_for(pids[r]);
    munmap(table, sizeof *table);
}

static ls_status create_shm(struct rank *rank, const ls_comm_options *options) {
    return ls_comm_create_shm(&rank->comm, options);
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

struct crew {
    void (*body)(struct rank *rank);
    struct rank ranks[LS_COMM_MAX_RANKS];
    pthread_barrier_t barrier;
    ls_comm *endpoints[LS_COMM_MAX_RANKS];
    ls_device *devices[LS_COMM_MAX_RANKS];
    ls_status status;
};

static void *thread_main(void *argument) {
    struct rank *rank = argument;
    run_body(rank, rank->crew->body);
    return NULL;
}

static void run_crew(const struct rank *first, void (*body)(struct rank *rank)) {
    static struct crew crew; /* of a forked process, so it is used once */
    pthread_t threads[LS_COMM_MAX_RANKS];
    crew.body = body;
    pthread_barrier_init(&crew.barrier, NULL, (unsigned)first->world_size);
    for (int r = 0; r < first->world_size; r++) {
        crew.ranks[r] = *first;
        crew.ranks[r].rank = r;
        crew.ranks[r].crew = &crew;
    }
    for (int r = 0; r < first->world_size; r++)
        if (pthread_create(&threads[r], NULL, thread_main, &crew.ranks[r]) != 0) _exit(2);
    for (int r = 0; r < first->world_size; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&crew.barrier);
}

static void run_threads(const struct rank *first, int deadline_s, void (*body)(struct rank *rank),
                        void (*meanwhile)(const pid_t *pids), int *exit_codes) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child_begin(-1, deadline_s);
        run_crew(first, body);
        child_end();
    }
    if (meanwhile) meanwhile(&pid);
    int exit_code = wait_for(pid);
    for (int r = 0; r < first->world_size; r++) exit_codes[r] = exit_code;
}

/* Waits until all threads have arrived; returns at once in a process of its own. */
static void assemble(const struct rank *rank) {
    if (rank->crew && rank->world_size > 1) pthread_barrier_wait(&rank->crew->barrier);
}

static ls_status create_threads(struct rank *rank, const ls_comm_options *options) {
    struct crew *crew = rank->crew;
    if (rank->world_size == 1) return ls_comm_create_threads(&rank->comm, options);
    assemble(rank);
    if (rank->rank == 0) crew->status = ls_comm_create_threads(crew->endpoints, options);
    assemble(rank);
    rank->comm = crew->endpoints[rank->rank];
    return crew->status;
}

/* --- processes or threads ----------------------------------------------------------------------------------------- */

const struct rank_backend rank_backends[] = {
    {.name = "shm", .run = run_processes, .create = create_shm},
    {.name = "threads", .run = run_threads, .create = create_threads},
    {.name = NULL},
};

void run_ranks_on(const struct rank_backend *backend, int world_size, int deadline_s, void (*body)(struct rank *rank),
                  const void *argument, void (*meanwhile)(const pid_t *pids), int *exit_codes) {
    struct rank first = {.world_size = world_size, .backend = backend, .argument = argument};
    fflush(NULL);
    backend->run(&first, deadline_s, body, meanwhile, exit_codes);
}

static void expect_ends(const struct rank_backend *backend, int world_size, const int *exit_codes, uint64_t good,
                        int other) {
    for (int r = 0; r < world_size; r++) {
        int expected = (good >> r & 1) ? 0 : other;
        if (exit_codes[r] != expected)
            fail_msg("%s: rank %d of %d ended with %d, not %d", backend->name, r, world_size, exit_codes[r], expected);
    }
}

void run_good_ranks_on(const struct rank_backend *backend, int world_size, void (*body)(struct rank *rank),
                       const void *argument) {
    int exit_codes[LS_COMM_MAX_RANKS];
    run_ranks_on(backend, world_size, 120, body, argument, NULL, exit_codes);
    expect_ends(backend, world_size, exit_codes, 0, 0);
}

void run_ranks_expecting(const struct rank_backend *backend, int world_size, void (*body)(struct rank *rank),
                         const void *argument, void (*meanwhile)(const pid_t *pids), uint64_t good, int other) {
    int exit_codes[LS_COMM_MAX_RANKS];
    run_ranks_on(backend, world_size, 60, body, argument, meanwhile, exit_codes);
    expect_ends(backend, world_size, exit_codes, good, other);
}

void run_good_ranks_on_all(int world_size, void (*body)(struct rank *rank), const void *argument) {
    for (const struct rank_backend *backend = rank_backends; backend->name; backend++)
        run_good_ranks_on(backend, world_size, body, argument);
}

void run_ranks(int world_size, int deadline_s, void (*body)(struct rank *rank), const void *argument,
               void (*meanwhile)(const pid_t *pids), int *exit_codes) {
    run_ranks_on(&rank_backends[0], world_size, deadline_s, body, argument, meanwhile, exit_codes);
}

void run_good_ranks(int world_size, void (*body)(struct rank *rank), const void *argument) {
    run_good_ranks_on(&rank_backends[0], world_size, body, argument);
}

static ls_comm_options comm_options(const struct rank *rank, const char *allreduce, double timeout_s) {
    return (ls_comm_options){.rank = rank->rank,
                             .world_size = rank->world_size,
                             .timeout_s = timeout_s,
                             .allreduce = allreduce,
                             .bootstrap = &rank->bootstrap,
                             .group = allreduce ? allreduce : "group"};
}

ls_status rank_open(struct rank *rank, const char *mode, const char *allreduce, double timeout_s) {
    assemble(rank);
    if (!rank->crew || rank->rank == 0) setenv("LS_CPU_STREAMS", mode, 1);
    assemble(rank);
    ls_device_options device_options = {
        .kind = LS_DEVICE_CPU, .index = rank->rank, .devices_on_node = rank->world_size, .place = rank->rank};
    return rank_open_on(rank, &device_options, allreduce, timeout_s);
}

ls_status rank_open_on(struct rank *rank, const ls_device_options *device, const char *allreduce, double timeout_s) {
    CHECK(ls_device_open(&rank->device, device) == LS_OK);
    rank->stream = ls_device_stream(rank->device, LS_STREAM_COMM);
    ls_comm_options options = comm_options(rank, allreduce, timeout_s);
    return rank->backend->create(rank, &options);
}

ls_status rank_attach(struct rank *rank, ls_comm_path path, const char *allreduce, double timeout_s) {
    struct crew *crew = rank->crew;
    ls_comm_options options = comm_options(rank, allreduce, timeout_s);
    if (!crew) return ls_comm_attach_device(rank->comm, rank->device, path, &options);
    if (rank->world_size == 1) return ls_comm_attach_devices(&rank->comm, &rank->device, path);
    crew->devices[rank->rank] = rank->device;
    assemble(rank);
    if (rank->rank == 0) crew->status = ls_comm_attach_devices(crew->endpoints, crew->devices, path);
    assemble(rank);
    if (rank->rank > 0) memcpy(rank->message, crew->ranks[0].message, sizeof rank->message); /* rank 0 has it for all */
    return crew->status;
}

void rank_close(struct rank *rank) {
    ls_comm_destroy(rank->comm);
    ls_device_close(rank->device);
    rank->comm = NULL;
    rank->device = NULL;
}

void check_in_rank(const struct rank *rank, bool condition, const char *text, const char *file, int line) {
    if (condition) return;
    char message[1024];
    int nbytes = snprintf(message, sizeof message, "%s:%d: rank %d of %d: not true: %s (last error: %s)\n", file, line,
                          rank->rank, rank->world_size, text, rank->message);
    (void)!write(STDERR_FILENO, message, (size_t)nbytes);
    _exit(1);
}

bool rank_says(const struct rank *rank, const char *text) { return strstr(rank->message, text) != NULL; }

static int signal_number;

static void raise_it(int alarm_number) {
    (void)alarm_number;
    (void)raise(signal_number);
}

void rank_signal_soon(int number, int us) {
    const struct itimerval soon = {.it_value.tv_usec = us};
    signal_number = number;
    (void)signal(SIGALRM, raise_it);
    (void)setitimer(ITIMER_REAL, &soon, NULL);
}
