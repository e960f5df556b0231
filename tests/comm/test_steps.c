/* The steps between single ranks within an operation (ls_comm_step_done, ls_comm_await_step, ls_comm_steps_end): the
 * order that they guarantee, and the behaviour if a rank does not arrive. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

#define TIMEOUT_S 0.5
#define GRACE_S 25.0 /* slack added to deadlines for loaded machines and sanitizers */
#define ROUNDS 500

static const ls_announcement operation = {.sequence = 5, .count = 10, .kind = LS_OPERATION_ALL_REDUCE, .root = -1};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* --- order -------------------------------------------------------------------------------------------------------- */

/* Each rank adds its number to the value that its left neighbour wrote before its step (a ring with a beginning), slice
 * after slice in the same places: a slice that begins too early, or a step that is announced too early, shows in the
 * sum. Some numbers are left out. */
static void ring_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, 10) == LS_OK);
    ls_comm *comm = rank->comm;
    comm->progress_base = UINT32_MAX - 1000; /* the counters may wrap */
    ls_comm_step_done(comm, 0);
    CHECK(ls_comm_barrier(comm, rank->stream) == LS_OK);
    int64_t *cell;
    CHECK(ls_comm_alloc_shared(comm, NULL, sizeof *cell, (void **)&cell) == LS_OK);
    int64_t *cells[LS_COMM_MAX_RANKS];
    for (int r = 0; r < rank->world_size; r++) /* the ranks' parts of one allocation are adjacent in the group's file */
        cells[r] = (int64_t *)(void *)((char *)cell + (r - rank->rank) * (ptrdiff_t)LS_PAGE_BYTES);
    if (rank->crew) {
        static _Atomic(int64_t *) published[LS_COMM_MAX_RANKS];
        published[rank->rank] = cell;
        CHECK(ls_comm_barrier(comm, rank->stream) == LS_OK);
        for (int r = 0; r < rank->world_size; r++) cells[r] = published[r];
    }
    uint32_t last = 3 * (uint32_t)rank->world_size;
    for (int64_t round = 0; round < ROUNDS; round++) {
        int64_t sum = round;
        if (rank->rank > 0) {
            CHECK(ls_comm_await_step(comm, rank->rank - 1, 3 * (uint32_t)rank->rank, &operation) == LS_OK);
            sum = *cells[rank->rank - 1];
        }
        *cell = sum + rank->rank + 1;
        ls_comm_step_done(comm, 3 * ((uint32_t)rank->rank + 1));
        CHECK(ls_comm_await_step(comm, rank->world_size - 1, last, &operation) == LS_OK);
        int n = rank->world_size;
        CHECK(*cells[n - 1] == round + n * (n + 1) / 2);
        /* rank 0 skipped this number; its steps_end covers it */
        if (rank->rank > 0) CHECK(ls_comm_await_step(comm, 0, last - 1, &operation) == LS_OK);
        ls_comm_steps_end(comm, last);
        CHECK(ls_comm_gate(comm, LS_CHANNEL_STREAM, &operation) == LS_OK);
    }
    rank_close(rank);
}

TEST(test_order) {
    for (int n = 2; n <= 5; n++) run_good_ranks_on_all(n, ring_body, NULL);
}

/* --- failures: rank 0 waits for rank 1, which waits for rank 2, which does not arrive ----------------------------- */

static void check_chain(struct rank *rank, ls_status status, const char *culprit) {
    double begin_us = ls_now_us();
    CHECK(ls_comm_await_step(rank->comm, rank->rank + 1, 1, &operation) == status);
    CHECK(ls_now_us() - begin_us < (TIMEOUT_S + GRACE_S) * 1e6);
    CHECK(rank_says(rank, culprit) && rank_says(rank, "all_reduce (sum) of 10 fp32 elements (operation 5, 40 bytes)"));
    CHECK(ls_comm_await_step(rank->comm, 2, 1, &operation) == status); /* and so do all later waits */
}

static void dies_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, 60) == LS_OK);
    if (rank->rank == 2) (void)raise(SIGKILL);
    check_chain(rank, LS_ERR_PEER, "rank 2 died");
    rank_close(rank);
}

static void leaves_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, 60) == LS_OK);
    if (rank->rank == 2) sleep_ms(100);
    if (rank->rank < 2) check_chain(rank, LS_ERR_PEER, "rank 2 left the group");
    rank_close(rank);
}

/* Waits until a rank has given up on this rank. */
static void await_failure(const struct rank *rank) {
    while (atomic_load(&rank->comm->segment->broken.state) != LS_BROKEN) sleep_ms(5);
}

/* Rank 2 is blamed, by rank 0 as well, although rank 0 waits only for rank 1. */
static void stays_away_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    if (rank->rank < 2) check_chain(rank, LS_ERR_TIMEOUT, "rank 2 did not arrive within 0.5 s");
    if (rank->rank == 2) await_failure(rank);
    rank_close(rank);
}

/* Rank 0 is descheduled in the middle of its patrol (at its call of poll, which this program defines), from before the
 * deadline until rank 1 has given up on rank 2 and no longer shows which rank it waits for. Whatever rank 0 then finds,
 * it must not report as the reason why the group broke. */
static _Thread_local const struct rank *descheduled;

int poll(struct pollfd *files, nfds_t count, int timeout_ms) {
    if (descheduled) {
        await_failure(descheduled);
        while (atomic_load(&descheduled->comm->segment->slot[1].awaits) != 0) sleep_ms(5);
        sleep_ms((long)(TIMEOUT_S * 1000)); /* its own deadline is over by then */
    }
    descheduled = NULL;
    return ppoll(files, count, &(struct timespec){.tv_nsec = timeout_ms * 1000000L}, NULL);
}

static void is_descheduled_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    if (rank->rank == 0) descheduled = rank;
    if (rank->rank < 2) check_chain(rank, LS_ERR_TIMEOUT, "rank 2 did not arrive within 0.5 s");
    if (rank->rank == 0) CHECK(rank_says(rank, "rank 1 has given up: ") && !rank_says(rank, "rank 1 did not arrive"));
    if (rank->rank == 0) ls_comm_step_done(rank->comm, 1);
    /* the others stay until then: a rank that left would be a different reason */
    while (!ls_flag_reached(&rank->comm->segment->slot[0].progress, rank->comm->progress_base + 1)) sleep_ms(5);
    rank_close(rank);
}

/* Rank 2 waits as well, for a step that rank 1 did long ago, but no longer runs (as if stopped). */
static void is_stopped_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    if (rank->rank == 2) {
        ls_rank_slot *slot = &rank->comm->segment->slot[2];
        atomic_store(&slot->awaited_value, 0);
        atomic_store(&slot->awaits, 1 + 1);
        await_failure(rank);
    } else {
        check_chain(rank, LS_ERR_TIMEOUT, "rank 2 did not arrive within 0.5 s");
    }
    rank_close(rank);
}

/* In a circle no rank is to blame; the wait still ends. */
static void circle_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_await_step(rank->comm, (rank->rank + 1) % rank->world_size, 1, &operation) == LS_ERR_TIMEOUT);
    CHECK(rank_says(rank, "did not arrive within 0.5 s"));
    rank_close(rank);
}

TEST(test_lost_rank) {
    int exit_codes[3];
    run_ranks(3, 60, dies_body, NULL, NULL, exit_codes);
    assert_int_equal(exit_codes[0], 0);
    assert_int_equal(exit_codes[1], 0);
    assert_int_equal(exit_codes[2], 128 + SIGKILL);
    run_good_ranks_on_all(3, leaves_body, NULL);
}

TEST(test_missed_deadline) {
    run_good_ranks_on_all(3, stays_away_body, NULL);
    run_good_ranks_on_all(3, is_descheduled_body, NULL);
    run_good_ranks_on_all(3, is_stopped_body, NULL);
    run_good_ranks_on_all(3, circle_body, NULL);
}
