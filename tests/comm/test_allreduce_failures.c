/* A rank dies or stops in the middle of an all-reduce, between two steps of the algorithm: all others end in time and
 * name it, whichever rank they were waiting for. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/allreduce.h"
#include "common/comm/comm_internal.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

#define RANKS 5 /* not a power of two: rank 4 is extra to halving-doubling, a leaf to the tree */
#define TIMEOUT_S 1.5
#define LONG_TIMEOUT_S 40.0 /* for waits that must end much earlier for another reason */
#define GRACE_S 25.0        /* slack added to deadlines for loaded machines and sanitizers */
#define PAGE_BYTES ((size_t)4096)
#define COUNT 100000

static struct plan {
    const char *algorithm;
    int victim;
    int signal; /* SIGKILL or SIGSTOP: how the victim fails */
} plan;

static void fall_silent(int number) {
    (void)number;
    (void)kill(getpid(), plan.signal);
}

/* A part of the victim's own buffer is read-only: the victim fails at its first write there. The part begins in the
 * middle, so that the algorithm has started by then, except for direct, which writes at most a share. */
static void lay_trap(struct rank *rank, char *buffer) {
    struct sigaction action = {.sa_handler = fall_silent};
    size_t before = strcmp(plan.algorithm, "direct") == 0 ? 0 : (size_t)COUNT * 2;
    size_t to_page = PAGE_BYTES - (uintptr_t)(buffer + before) % PAGE_BYTES;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(mprotect(buffer + before + to_page, (size_t)COUNT * 4 - before - to_page, PROT_READ) == 0);
}

static void victim_body(struct rank *rank) {
    char *buffer, text[64];
    CHECK(rank_open(rank, "inline", plan.algorithm, LONG_TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, (size_t)COUNT * 4 + PAGE_BYTES, (void **)&buffer) == LS_OK);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    if (plan.signal == SIGSTOP) rank->comm->timeout_s = TIMEOUT_S;
    if (rank->rank == plan.victim) lay_trap(rank, buffer);
    double begin_us = ls_now_us();
    ls_status status = ls_comm_all_reduce(rank->comm, rank->stream, buffer, COUNT, LS_FP32, LS_REDUCE_SUM);
    CHECK(rank->rank != plan.victim);
    CHECK(status == (plan.signal == SIGKILL ? LS_ERR_PEER : LS_ERR_TIMEOUT));
    CHECK(ls_now_us() - begin_us < (TIMEOUT_S + GRACE_S) * 1e6);
    snprintf(text, sizeof text, "rank %d %s", plan.victim, plan.signal == SIGKILL ? "died" : "did not arrive within");
    CHECK(strstr(rank->message, text) != NULL);
    CHECK(strstr(rank->message, "all_reduce (sum) of 100000 fp32 elements (operation 2, 400000 bytes)") != NULL);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == status);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

/* Kills a stopped rank once all others have ended. */
static void bury(const pid_t *pids) {
    siginfo_t info;
    for (int r = 0; r < RANKS; r++)
        if (r != plan.victim) assert_int_equal(waitid(P_PID, (id_t)pids[r], &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[plan.victim], SIGKILL), 0);
}

static void lose(const char *algorithm, int victim, int signal) {
    int exit_codes[LS_COMM_MAX_RANKS];
    plan = (struct plan){.algorithm = algorithm, .victim = victim, .signal = signal};
    run_ranks(RANKS, 60, victim_body, NULL, bury, exit_codes);
    for (int r = 0; r < RANKS; r++) {
        int expected = r == victim ? 128 + SIGKILL : 0;
        if (exit_codes[r] != expected)
            fail_msg("%s without rank %d: rank %d ended with %d, not %d", algorithm, victim, r, exit_codes[r],
                     expected);
    }
}

TEST(test_dead_rank) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        for (int victim = 0; victim < RANKS; victim++) lose(row->name, victim, SIGKILL);
}

TEST(test_stopped_rank) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++) lose(row->name, 1, SIGSTOP);
    lose("halving-doubling", 4, SIGSTOP);
}
