#define _GNU_SOURCE
#include "tests/comm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
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

#define GET_TIMEOUT_S 2.0

/* --- the store: a table that the processes inherit ---------------------------------------------------------------- */

struct entry {
    _Atomic int ready;
    char key[64], value[64];
    size_t nbytes;
};

struct table {
    _Atomic int entries;
    struct entry entry[16];
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
    double until_us = ls_now_us() + GET_TIMEOUT_S * 1e6;
    while (ls_now_us() < until_us) {
        for (int i = 0; i < 16; i++) {
            struct entry *entry = &table->entry[i];
            if (!atomic_load(&entry->ready) || strcmp(entry->key, key) != 0 || entry->nbytes > capacity) continue;
            memcpy(value, entry->value, entry->nbytes);
            *nbytes = entry->nbytes;
            return LS_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return ls_fail(LS_ERR_TIMEOUT, "the store has no key %s after %g s", key, GET_TIMEOUT_S);
}

/* --- the processes ------------------------------------------------------------------------------------------------ */

/* Present in programs built with AddressSanitizer; _exit() would leave the search for leaks out. */
void __lsan_do_leak_check(void) __attribute__((weak));

static void child_main(struct rank *rank, int deadline_s, void (*body)(struct rank *rank)) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)deadline_s);
    ls_log_init("test", rank->rank, false);
    ls_log_capture(rank->message, sizeof rank->message);
    body(rank);
    ls_log_capture(NULL, 0);
    if (__lsan_do_leak_check) __lsan_do_leak_check();
    fflush(NULL);
    _exit(0);
}

void run_ranks(int world_size, int deadline_s, void (*body)(struct rank *rank), const void *argument,
               void (*meanwhile)(const pid_t *pids), int *exit_codes) {
    struct table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(table != MAP_FAILED);
    pid_t pids[LS_COMM_MAX_RANKS];
    fflush(NULL);
    for (int r = 0; r < world_size; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] > 0) continue;
        struct rank rank = {.rank = r,
                            .world_size = world_size,
                            .argument = argument,
                            .bootstrap = {.context = table, .set = table_set, .get = table_get}};
        child_main(&rank, deadline_s, body);
    }
    if (meanwhile) meanwhile(pids);
    for (int r = 0; r < world_size; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        exit_codes[r] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    munmap(table, sizeof *table);
}

void run_good_ranks(int world_size, void (*body)(struct rank *rank), const void *argument) {
    int exit_codes[LS_COMM_MAX_RANKS];
    run_ranks(world_size, 120, body, argument, NULL, exit_codes);
    for (int r = 0; r < world_size; r++)
        if (exit_codes[r] != 0) fail_msg("rank %d of %d ended with %d", r, world_size, exit_codes[r]);
}

ls_status rank_open(struct rank *rank, const char *mode, const char *allreduce, double timeout_s) {
    setenv("LS_CPU_STREAMS", mode, 1);
    ls_device_options device_options = {
        .kind = LS_DEVICE_CPU, .index = rank->rank, .devices_on_node = rank->world_size, .place = rank->rank};
    CHECK(ls_device_open(&rank->device, &device_options) == LS_OK);
    rank->stream = ls_device_stream(rank->device, LS_STREAM_COMM);
    char group[32];
    snprintf(group, sizeof group, "%s", allreduce ? allreduce : "group");
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = timeout_s,
                               .allreduce = allreduce,
                               .bootstrap = &rank->bootstrap,
                               .group = group};
    return ls_comm_create_shm(&rank->comm, &options);
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
