/* Calls around the collective operations, on every back-end: streams, shared memory, wrong arguments, destruction. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/comm/ranks.h"

#define TIMEOUT_S 60.0

static void streams_body(struct rank *rank) {
    CHECK(rank_open(rank, rank->argument, NULL, TIMEOUT_S) == LS_OK);
    enum { ROUNDS = 50, COUNT = 3000 };
    float *buffers[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(ls_comm_alloc_shared(rank->comm, NULL, COUNT * sizeof(float), (void **)&buffers[i]) == LS_OK);
        for (int k = 0; k < COUNT; k++) buffers[i][k] = (float)(rank->rank + i + k % 7);
        /* the host allocates the next region while this operation may be running */
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffers[i], COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    }
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    int n = rank->world_size, ranks = n * (n - 1) / 2;
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < COUNT; k++) CHECK(buffers[i][k] == (float)(ranks + n * (i + k % 7)));
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
    rank_close(rank);
}

TEST(test_streams) {
    for (int n = 1; n <= 3; n++) run_good_ranks_on_all(n, streams_body, "threads");
    run_good_ranks_on_all(2, streams_body, "inline");
}

/* --- shared memory ------------------------------------------------------------------------------------------------ */

/* Regions of many sizes do not overlap, nor do other ranks' parts of them. */
static void memory_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    enum { REGIONS = 24 };
    static const size_t first[] = {1, 4096, 5000, 0, 100000, (size_t)1 << 20};
    size_t nbytes[REGIONS];
    unsigned char *memory[REGIONS];
    for (int i = 0; i < REGIONS; i++) {
        nbytes[i] = i < 6 ? first[i] : (size_t)(1 + i * 5 % 11) * 3000;
        CHECK(ls_comm_alloc_shared(rank->comm, NULL, nbytes[i], (void **)&memory[i]) == LS_OK);
        CHECK((uintptr_t)memory[i] % 64 == 0);
        for (size_t k = 0; k < nbytes[i]; k++) CHECK(memory[i][k] == 0);
        memset(memory[i], 8 * (i + 1) + rank->rank, nbytes[i]);
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
        for (int j = 0; j <= i; j++)
            for (size_t k = 0; k < nbytes[j]; k++) CHECK(memory[j][k] == 8 * (j + 1) + rank->rank);
    }
    void *none = &none;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, (size_t)1 << 45, &none) == LS_ERR_NO_MEMORY && none == NULL);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    rank_close(rank); /* frees all of them */
}

static ls_status fill_nothing(ls_comm *comm, ls_region *region) {
    (void)region;
    return ls_fail(LS_ERR_NO_MEMORY, "rank %d cannot allocate anything today", comm->rank);
}

/* One rank cannot allocate memory: no rank gets any, all report why, and the group remains usable. */
static void poor_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    const struct ls_transport *rich = rank->comm->transport;
    struct ls_transport poor = *rich;
    poor.fill = fill_nothing;
    void *memory = rank;
    if (rank->rank == 1) rank->comm->transport = &poor;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 9000, &memory) == (rank->rank == 1 ? LS_ERR_NO_MEMORY : LS_ERR_PEER));
    CHECK(memory == NULL);
    CHECK(strcmp(rank->message, rank->rank == 1 ? "rank 1 cannot allocate anything today"
                                                : "rank 1 could not allocate its part of the shared memory: out of "
                                                  "memory") == 0);
    CHECK(rank->comm->regions == NULL);
    rank->comm->transport = rich;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 9000, &memory) == LS_OK);
    rank_close(rank);
}

TEST(test_memory) {
    for (int n = 1; n <= 3; n++) run_good_ranks_on_all(n, memory_body, NULL);
    run_good_ranks_on_all(3, poor_body, NULL);
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

static void arguments_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", rank->argument, TIMEOUT_S) == LS_OK);
    ls_comm *comm = rank->comm;
    float x = 1;
    CHECK(ls_comm_all_reduce(comm, rank->stream, NULL, 1, LS_FP32, LS_REDUCE_SUM) == LS_ERR_INVALID);
    CHECK(ls_comm_all_reduce(comm, rank->stream, &x, SIZE_MAX / 2, LS_FP32, LS_REDUCE_SUM) == LS_ERR_INVALID);
    CHECK(ls_comm_all_reduce(comm, rank->stream, &x, 1, LS_DTYPE_COUNT, LS_REDUCE_SUM) == LS_ERR_INVALID);
    CHECK(ls_comm_all_reduce(comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_OP_COUNT) == LS_ERR_INVALID);
    CHECK(ls_comm_broadcast(comm, rank->stream, &x, 1, LS_FP32, 2) == LS_ERR_INVALID);
    CHECK(ls_comm_broadcast(comm, rank->stream, &x, 1, LS_FP32, -1) == LS_ERR_INVALID);
    CHECK(ls_comm_send(comm, rank->stream, &x, 1, LS_FP32, rank->rank) == LS_ERR_INVALID);
    CHECK(ls_comm_recv(comm, rank->stream, &x, 1, LS_FP32, 2) == LS_ERR_INVALID);
    /* none of the refused calls counts: the group is unchanged */
    CHECK(ls_comm_all_reduce(comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK && x == 2);
    CHECK(strcmp(ls_comm_backend(comm), rank->backend->name) == 0);
    CHECK(strcmp(ls_comm_allreduce(comm), rank->argument ? rank->argument : "direct") == 0);
    CHECK(ls_comm_rank(comm) == rank->rank && ls_comm_world_size(comm) == 2);
    rank_close(rank);
}

TEST(test_arguments) {
    run_good_ranks_on_all(2, arguments_body, NULL);
    for (const ls_allreduce_algorithm *row = ls_allreduce_algorithms; row->name; row++)
        run_good_ranks_on_all(2, arguments_body, row->name);
}

/* A group created without an algorithm uses "direct", for messages of any size. */
static void auto_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    float *buffer;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 8004, (void **)&buffer) == LS_OK);
    const size_t counts[] = {25, 1024, 1025, 2001};
    for (size_t i = 0; i < 4; i++) {
        ls_comm_traffic before, after;
        struct ls_allreduce_cost cost;
        ls_comm_traffic_read(rank->comm, &before);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, counts[i], LS_FP32, LS_REDUCE_SUM) == LS_OK);
        ls_comm_traffic_read(rank->comm, &after);
        ls_allreduce_find("direct")->cost(&cost, rank->world_size, rank->rank, counts[i], sizeof *buffer);
        CHECK(after.sent_bytes - before.sent_bytes == cost.sent_bytes);
        CHECK(after.received_messages - before.received_messages == cost.received_messages);
    }
    rank_close(rank);
}

TEST(test_auto) { run_good_ranks_on_all(4, auto_body, NULL); }

/* The options that create_threads refuses, after setting all of out[] to NULL; and those that it ignores. */
static void thread_options_body(struct rank *rank) {
    const ls_comm_options good = {.rank = 77, .world_size = 3, .timeout_s = 1};
    ls_comm_options bad[] = {good, good, good, good};
    bad[0].world_size = 0;
    bad[1].world_size = LS_COMM_MAX_RANKS + 1;
    bad[2].timeout_s = 0;
    bad[3].allreduce = "magic";
    const char *const texts[] = {"a group takes 1 to 64 ranks, not 0", "a group takes 1 to 64 ranks, not 65",
                                 "a group's timeout must be more than 0", "unknown all-reduce algorithm \"magic\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_comm *out[3] = {(ls_comm *)rank, (ls_comm *)rank, (ls_comm *)rank};
        ls_log_capture(rank->message, sizeof rank->message);
        CHECK(ls_comm_create_threads(out, &bad[i]) == LS_ERR_INVALID);
        CHECK(strncmp(rank->message, texts[i], strlen(texts[i])) == 0);
        for (int r = 0; r < 3 && i >= 2; r++) CHECK(out[r] == NULL);
    }
    ls_comm *out[3];
    CHECK(ls_comm_create_threads(out, &good) == LS_OK);
    for (int r = 0; r < 3; r++) CHECK(ls_comm_rank(out[r]) == r && ls_comm_world_size(out[r]) == 3);
    for (int r = 2; r >= 0; r--) ls_comm_destroy(out[r]);
}

TEST(test_thread_options) { run_good_ranks(1, thread_options_body, NULL); }

/* --- the end of a group of threads -------------------------------------------------------------------------------- */

static bool mapped(const void *memory) { return msync((void *)(uintptr_t)memory, 1, MS_ASYNC) == 0; }

/* The control area lives until the last endpoint is destroyed, in any order. */
static void endings_body(struct rank *rank) {
    const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        ls_comm *out[3];
        CHECK(ls_comm_create_threads(out, &(ls_comm_options){.world_size = 3, .timeout_s = 1}) == LS_OK);
        const void *control_area = out[0]->base;
        for (int k = 0; k < 3; k++) {
            CHECK(mapped(control_area));
            ls_comm_destroy(out[orders[i][k]]);
        }
        CHECK(!mapped(control_area));
    }
}

static _Atomic int rank_1_is_done;

/* Rank 1 is slow within an operation; rank 0, whose own operation fails meanwhile, may not return before rank 1 has
 * left it. */
static void slow_reader_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, 0.1) == LS_OK);
    if (rank->rank == 0) {
        float *x = calloc(70000, sizeof *x);
        CHECK(x && ls_comm_all_reduce(rank->comm, rank->stream, x, 70000, LS_FP32, LS_REDUCE_SUM) == LS_ERR_TIMEOUT);
        CHECK(atomic_load(&rank_1_is_done));
        free(x);
    } else {
        ls_comm_enter(rank->comm);
        while (atomic_load(&rank->comm->segment->broken.state) != LS_BROKEN) sched_yield();
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        atomic_store(&rank_1_is_done, 1);
        ls_comm_leave(rank->comm, LS_OK);
    }
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

TEST(test_thread_endings) {
    run_good_ranks(1, endings_body, NULL);
    run_good_ranks_on(&rank_backends[1], 2, slow_reader_body, NULL);
}
