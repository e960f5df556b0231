/* More ranks than cores: the largest group allowed starts, reduces, synchronizes and ends. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/comm/allreduce.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 100.0
#define LARGE_COUNT 70001 /* more than one slice if buffers are staged */
#define SHARED_COUNT 5003 /* more than one round */

static void check_sum(struct rank *rank, float *buffer, size_t count) {
    fill_small_integers(buffer, LS_FP32, rank->rank, count);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, count, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(has_small_sums(buffer, LS_FP32, rank->world_size, count));
}

static void reduce_by(struct rank *rank, const char *algorithm) {
    CHECK(rank_open(rank, "inline", algorithm, TIMEOUT_S) == LS_OK);
    float *own = malloc(LARGE_COUNT * sizeof *own), *shared;
    CHECK(own && ls_comm_alloc_shared(rank->comm, NULL, SHARED_COUNT * sizeof *own, (void **)&shared) == LS_OK);
    for (int round = 0; round < 3; round++) check_sum(rank, own, 10);
    check_sum(rank, own, LARGE_COUNT);
    check_sum(rank, shared, SHARED_COUNT);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    free(own);
    rank_close(rank);
}

static void crowd_body(struct rank *rank) {
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++) reduce_by(rank, row->name);
}

TEST(test_crowd) { run_good_ranks_on_all(LS_COMM_MAX_RANKS, crowd_body, NULL); }

/* A message passed from rank to rank, so that most ranks wait most of the time, each for a different pair. */
static void pass_round_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    int next = (rank->rank + 1) % rank->world_size, previous = (rank->rank + rank->world_size - 1) % rank->world_size;
    int64_t sum = 0;
    for (int round = 0; round < 3; round++) {
        if (rank->rank > 0 || round > 0)
            CHECK(ls_comm_recv(rank->comm, rank->stream, &sum, 1, LS_INT64, previous) == LS_OK);
        sum += rank->rank;
        CHECK(ls_comm_send(rank->comm, rank->stream, &sum, 1, LS_INT64, next) == LS_OK);
    }
    int64_t lap = rank->world_size * (rank->world_size - 1) / 2;
    if (rank->rank == 0) CHECK(ls_comm_recv(rank->comm, rank->stream, &sum, 1, LS_INT64, previous) == LS_OK);
    if (rank->rank == 0) CHECK(sum == 3 * lap);
    rank_close(rank);
}

TEST(test_pass_round) { run_good_ranks_on_all(LS_COMM_MAX_RANKS, pass_round_body, NULL); }

/* One rank keeps the others waiting until they sleep. Without the bell they would notice only on their patrols, each
 * 50 ms later, and all barriers together would exceed the ranks' deadline. */
enum { LATE_COUNT = 800, LATE_DEADLINE_S = 20 };

static void late_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    for (int i = 0; i < LATE_COUNT; i++) {
        if (rank->rank == i % rank->world_size) nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    }
    rank_close(rank);
}

TEST(test_late_rank) {
    for (const struct rank_backend *backend = rank_backends; backend->name; backend++) {
        int exit_codes[3];
        run_ranks_on(backend, 3, LATE_DEADLINE_S, late_body, NULL, NULL, exit_codes);
        for (int r = 0; r < 3; r++) assert_int_equal(exit_codes[r], 0);
    }
}
