/* A group of processes whose ranks die, stop, stay away or do not match: every survivor ends in time with a message
 * that names them, and nothing is left behind. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/comm/comm_internal.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/comm/leftovers.h"
#include "tests/comm/ranks.h"

#define TIMEOUT_S 1.0
#define LONG_TIMEOUT_S 40.0 /* for waits that must end much earlier for another reason */
#define GRACE_S 25.0        /* slack added to deadlines for loaded machines and sanitizers */
#define RANKS 3
#define SHARED_BYTES 400000

/* Ranks whose bit is set in `good` must end with exit status 0, and the rest with `other`. */
static void run_and_expect(void (*body)(struct rank *rank), const void *argument, void (*meanwhile)(const pid_t *pids),
                           unsigned good, int other) {
    run_ranks_expecting(&rank_backends[0], RANKS, body, argument, meanwhile, good, other);
}

/* --- a rank that is lost ------------------------------------------------------------------------------------------ */

/* All-reduces until an operation fails; checks that this rank learns of `culprit` in time. */
static void reduce_until_failure(struct rank *rank, ls_status status, const char *culprit) {
    float *buffer;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, SHARED_BYTES, (void **)&buffer) == LS_OK);
    ls_status result = LS_OK;
    double begin_us = ls_now_us();
    while (result == LS_OK) {
        begin_us = ls_now_us();
        result = ls_comm_all_reduce(rank->comm, rank->stream, buffer, SHARED_BYTES / 4, LS_FP32, LS_REDUCE_SUM);
    }
    CHECK(result == status);
    CHECK(ls_now_us() - begin_us < (TIMEOUT_S + GRACE_S) * 1e6);
    CHECK(rank_says(rank, culprit));
    CHECK(rank_says(rank, "all_reduce (sum) of 100000 fp32 elements (operation ") && rank_says(rank, "400000 bytes"));
    /* from now on every call fails at once, and the reason is not reported again */
    (void)ls_device_synchronize(rank->device);
    char again[200];
    ls_log_sink before = ls_log_capture(again, sizeof again);
    begin_us = ls_now_us();
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == result);
    ls_log_restore(before);
    CHECK(again[0] == '\0');
    void *none;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 64, &none) == result);
    CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
    (void)ls_device_synchronize(rank->device);
}

static void killed_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    if (rank->rank == 2) rank_signal_soon(SIGKILL, 100000);
    reduce_until_failure(rank, LS_ERR_PEER, "rank 2 died");
    rank_close(rank);
}

TEST(test_killed_rank) { run_and_expect(killed_body, NULL, NULL, 3, 128 + SIGKILL); }

static void stopped_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    rank->comm->timeout_s = TIMEOUT_S;
    if (rank->rank == 2) rank_signal_soon(SIGSTOP, 100000);
    reduce_until_failure(rank, LS_ERR_TIMEOUT, "rank 2 did not arrive within 1 s");
    rank_close(rank);
}

/* Once the others have ended: rank 2 must not die before them. */
static void kill_rank_2(const pid_t *pids) {
    siginfo_t ended;
    for (int r = 0; r < 2; r++) assert_int_equal(waitid(P_PID, (id_t)pids[r], &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[2], SIGKILL), 0);
}

TEST(test_stopped_rank) { run_and_expect(stopped_body, NULL, kill_rank_2, 3, 128 + SIGKILL); }

static void exits_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    void *memory;
    if (rank->rank == 1) {
        CHECK(ls_comm_alloc_shared(rank->comm, NULL, SHARED_BYTES, &memory) == LS_OK);
        _exit(7);
    }
    reduce_until_failure(rank, LS_ERR_PEER, "rank 1 died");
    rank_close(rank);
}

static void exits_before_sharing_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    if (rank->rank == 1) _exit(7);
    void *memory;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 4096, &memory) == LS_ERR_PEER && memory == NULL);
    CHECK(rank_says(rank, "alloc_shared of 4096 bytes: rank 1 died"));
    rank_close(rank);
}

static void lost_peer_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    float x = 0;
    if (rank->rank == 1) _exit(7);
    if (rank->rank == 0) CHECK(ls_comm_send(rank->comm, rank->stream, &x, 1, LS_FP32, 1) == LS_ERR_PEER);
    if (rank->rank == 2) CHECK(ls_comm_recv(rank->comm, rank->stream, &x, 1, LS_FP32, 1) == LS_ERR_PEER);
    CHECK(rank_says(rank, "rank 1 died"));
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

TEST(test_exiting_rank) {
    run_and_expect(exits_body, NULL, NULL, 5, 7);
    run_and_expect(exits_before_sharing_body, NULL, NULL, 5, 7);
    run_and_expect(lost_peer_body, NULL, NULL, 5, 7);
}

/* --- a rank that never arrives ------------------------------------------------------------------------------------ */

static void absent_body(struct rank *rank) {
    int absent = *(const int *)rank->argument;
    if (rank->rank == absent) return;
    double begin_us = ls_now_us();
    ls_status status = rank_open(rank, "inline", NULL, TIMEOUT_S);
    CHECK(status == LS_ERR_TIMEOUT && rank->comm == NULL);
    CHECK(ls_now_us() - begin_us < (TIMEOUT_S + GRACE_S) * 1e6);
    CHECK(rank_says(rank, absent == 0 ? "rank 0 did not arrive to form the group: the store has no key group/shm/rank0"
                                      : "rank 2"));
    rank_close(rank);
}

/* Rank 0 never reaches the store. */
static void run_without_key(void (*body)(struct rank *rank), const void *argument) {
    double usual_s = rank_get_timeout_s;
    rank_get_timeout_s = 2;
    run_and_expect(body, argument, NULL, 7, 0);
    rank_get_timeout_s = usual_s;
}

TEST(test_absent_rank) {
    const int nobody[] = {0, 2};
    run_without_key(absent_body, &nobody[0]);
    run_and_expect(absent_body, &nobody[1], NULL, 7, 0);
}

/* --- a rank 0 that stops while the group forms -------------------------------------------------------------------- */

static _Atomic pid_t *first_pid; /* shared */
static ls_status (*usual_get)(void *context, const char *key, void *value, size_t capacity, size_t *nbytes);

/* Rank 2, which arrives late, calls this: rank 0 has served rank 1, and will not serve rank 2. */
static ls_status stop_first(void *context, const char *key, void *value, size_t capacity, size_t *nbytes) {
    while (atomic_load(first_pid) == 0) usleep(1000);
    usleep(300000);
    (void)kill(atomic_load(first_pid), SIGSTOP);
    return usual_get(context, key, value, capacity, nbytes);
}

/* A rank that waits for rank 0, too, is not blamed. */
static void stopped_host_body(struct rank *rank) {
    if (rank->rank == 0) atomic_store(first_pid, getpid());
    usual_get = rank->bootstrap.get;
    if (rank->rank == 2) rank->bootstrap.get = stop_first;
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_ERR_TIMEOUT && rank->comm == NULL);
    CHECK(rank_says(rank, "rank 0 did not ") && !rank_says(rank, "ranks ") && !rank_says(rank, "2 did"));
    rank_close(rank);
}

static void kill_rank_0(const pid_t *pids) {
    siginfo_t ended;
    for (int r = 1; r < RANKS; r++) assert_int_equal(waitid(P_PID, (id_t)pids[r], &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[0], SIGKILL), 0);
}

TEST(test_stopped_host) {
    first_pid = mmap(NULL, sizeof *first_pid, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(first_pid != MAP_FAILED);
    run_and_expect(stopped_host_body, NULL, kill_rank_0, 6, 128 + SIGKILL);
    munmap((void *)first_pid, sizeof *first_pid);
}

static void different_body(struct rank *rank) {
    const char *what = rank->argument;
    bool odd = rank->rank == 2, algorithms = strcmp(what, "algorithm") == 0;
    if (odd && strcmp(what, "size") == 0) rank->world_size = RANKS + 1;
    if (odd && strcmp(what, "rank") == 0) rank->rank = 1;
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = LONG_TIMEOUT_S,
                               .allreduce = odd && algorithms ? "naive" : NULL,
                               .bootstrap = &rank->bootstrap};
    ls_status status = ls_comm_create_shm(&rank->comm, &options);
    CHECK(rank->comm == NULL);
    /* a rank that connects after rank 0 has refused another finds rank 0 gone */
    bool late = status == LS_ERR_PEER && rank->rank != 0 &&
                (rank_says(rank, "rank 0, which has given up") || rank_says(rank, "rank 0 gave up"));
    CHECK(late || (status == LS_ERR_INVALID && rank_says(rank, "cannot form the group")));
    CHECK(late || !algorithms || rank_says(rank, "rank 2 uses the all-reduce algorithm naive, but rank 0 uses direct"));
}

static void options_body(struct rank *rank) {
    ls_comm_options good = {.rank = rank->rank, .world_size = RANKS, .timeout_s = 1, .bootstrap = &rank->bootstrap};
    ls_comm_options bad[] = {good, good, good, good, good, good};
    bad[0].rank = RANKS;
    bad[1].world_size = 0;
    bad[2].world_size = LS_COMM_MAX_RANKS + 1;
    bad[3].timeout_s = 0;
    bad[4].allreduce = "magic";
    bad[5].bootstrap = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rank->comm = (ls_comm *)rank;
        CHECK(ls_comm_create_shm(&rank->comm, &bad[i]) == LS_ERR_INVALID && rank->comm == NULL);
    }
}

TEST(test_different_groups) {
    run_and_expect(different_body, "size", NULL, 7, 0);
    run_and_expect(different_body, "rank", NULL, 7, 0);
    run_and_expect(different_body, "algorithm", NULL, 7, 0);
    run_and_expect(options_body, NULL, NULL, 7, 0);
}

/* --- a machine with a limit --------------------------------------------------------------------------------------- */

/* As `ulimit -v` does: the present size of the process, and some more. */
static void limit_space(struct rank *rank, size_t more_bytes) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    CHECK(file && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
    rlim_t nbytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more_bytes;
    struct rlimit limit = {nbytes, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void lift_limit(struct rank *rank) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Address space for the group's buffers, twice, is enough (sanitizers need some, too). If one rank gets too little, no
 * rank has the region; the group remains usable, and the ranks still agree on the place of the next region. */
static void limited_space_body(struct rank *rank) {
    enum { LARGE = 8 << 20, SMALL = 5000 };
    float *small, *large;
    void *none = rank;
    limit_space(rank, (size_t)1 << 30);
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, LARGE, (void **)&large) == LS_OK);
    /* creates a window that has room for more */
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, SMALL, (void **)&small) == LS_OK);
    if (rank->rank == 1) limit_space(rank, (size_t)32 << 20);
    ls_status status = ls_comm_alloc_shared(rank->comm, NULL, 4 * (size_t)LARGE, &none);
    CHECK(status == (rank->rank == 1 ? LS_ERR_NO_MEMORY : LS_ERR_PEER) && !none);
    if (rank->rank == 1)
        CHECK(rank_says(rank, "MiB of address space for the group's shared memory: Cannot allocate memory"));
    CHECK(rank->comm->windows[rank->comm->window_count].base == NULL); /* ranks that had room gave it back */
    lift_limit(rank);
    for (int round = 0; round < 2; round++) { /* in that window, and in a new one */
        size_t nbytes = round == 0 ? SMALL : 4 * (size_t)LARGE;
        CHECK(ls_comm_alloc_shared(rank->comm, NULL, nbytes, (void **)&small) == LS_OK);
        small[0] = small[1] = (float)(1 + rank->rank);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, small, 2, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
        CHECK(small[0] == 6 && small[1] == 6);
        /* too large for a message sent along with the barrier: read in place */
        for (size_t k = 0; k < SMALL / sizeof *small; k++) small[k] = (float)(rank->rank + (int)k);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, small, SMALL / sizeof *small, LS_FP32, LS_REDUCE_SUM) ==
              LS_OK);
        CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
        for (size_t k = 0; k < SMALL / sizeof *small; k++) CHECK(small[k] == (float)(3 + 3 * (int)k));
    }
    rank_close(rank);
}

/* Too little for the group itself. */
static void no_space_body(struct rank *rank) {
    if (rank->rank == 0) limit_space(rank, (size_t)64 << 10);
    ls_status status = rank_open(rank, "inline", NULL, TIMEOUT_S);
    lift_limit(rank);
    CHECK(rank->comm == NULL);
    if (rank->rank == 0) CHECK(status == LS_ERR_NO_MEMORY && rank_says(rank, "cannot reserve "));
    if (rank->rank == 0) CHECK(rank_says(rank, "Cannot allocate memory (is ulimit -v set?)"));
    if (rank->rank != 0) CHECK(status == LS_ERR_TIMEOUT && rank_says(rank, "group/shm/rank0"));
    rank_close(rank);
}

TEST(test_limited_space) {
    run_good_ranks(3, limited_space_body, NULL);
    run_without_key(no_space_body, NULL);
}

/* --- leftovers ---------------------------------------------------------------------------------------------------- */

LEFTOVERS_MAIN
