/* NCCL's operations in graphs, after events, and more of them than the ring can hold. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 20.0
#define RANKS 3
#define COUNT 500

static const struct gpu_path *const nccl = &gpu_paths[2], *const nccl_threads = &gpu_paths[3];

/* Sums of ones grow by a factor of RANKS at each operation; an operation per row of a graph. */
static float *ones(const struct rank *rank) {
    float values[COUNT];
    void *memory;
    for (int i = 0; i < COUNT; i++) values[i] = 1;
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, sizeof values, &memory) == LS_OK);
    CHECK(ls_copy_now(rank->stream, memory, values, sizeof values) == LS_OK);
    return memory;
}

static float last_of(const struct rank *rank, const float *memory) {
    float values[COUNT];
    gpu_rank_download(rank, values, memory, sizeof values);
    for (int i = 1; i < COUNT; i++) CHECK(values[i] == values[0]);
    return values[COUNT - 1];
}

static ls_status reduce(const struct rank *rank, float *memory) {
    return ls_comm_all_reduce(rank->comm, rank->stream, memory, COUNT, LS_FP32, LS_REDUCE_SUM);
}

static ls_graph *record(const struct rank *rank, float *memory) {
    ls_graph *graph;
    CHECK(ls_graph_begin(rank->stream) == LS_OK);
    CHECK(reduce(rank, memory) == LS_OK);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    CHECK(reduce(rank, memory) == LS_OK);
    CHECK(ls_graph_end(rank->stream, &graph) == LS_OK);
    return graph;
}

static void graph_body(struct rank *rank) {
    ls_comm_traffic traffic;
    gpu_rank_attach(rank, rank->argument, NULL, TIMEOUT_S);
    float *memory = ones(rank);
    ls_graph *graph = record(rank, memory);
    for (int i = 0; i < 3; i++) { /* launches are not recorded, so none is reported as the place of a hang */
        ls_flight_operation o;
        int place = (int)(rank->comm->ring->recorded - 1 - (uint64_t)i) % LS_FLIGHT_KEPT;
        CHECK(ls_flight_read_entry(rank->comm->ring, place, &o) && o.state == LS_FLIGHT_CAPTURED);
    }
    CHECK(last_of(rank, memory) == 1);
    for (int launch = 0; launch < 2; launch++) CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    CHECK(reduce(rank, memory) == LS_OK); /* captured and other operations follow one another */
    CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    CHECK(last_of(rank, memory) == 3.f * 3 * 3 * 3 * 3 * 3 * 3);
    ls_comm_traffic_read(rank->comm, &traffic);
    CHECK(traffic.operations == 4); /* counted as often as they were enqueued */
    ls_graph_destroy(graph);
    rank_close(rank);
    CHECK(rank->message[0] == '\0');
}

TEST(operations_are_repeated_by_graphs) {
    run_good_ranks_on(nccl->backend, RANKS, graph_body, nccl);
    run_good_ranks_on(nccl_threads->backend, RANKS, graph_body, nccl_threads);
}

static void dying_graph_body(struct rank *rank) {
    gpu_rank_attach(rank, rank->argument, NULL, TIMEOUT_S);
    float *memory = ones(rank);
    ls_graph *graph = record(rank, memory);
    CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    if (rank->rank == 1) raise(SIGKILL);
    CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_ERR_PEER);
    CHECK(gpu_rank_says(rank, "all_reduce (sum) of 500 fp32 elements (operation 3, 2000 bytes)"));
    CHECK(gpu_rank_says(rank, "rank 1 died"));
    (void)ls_device_synchronize(rank->device);
    ls_graph_destroy(graph);
    rank_close(rank);
}

TEST(a_rank_that_dies_ends_a_graph) {
    run_ranks_expecting(nccl->backend, RANKS, dying_graph_body, nccl, NULL, 5, 128 + SIGKILL);
}

/* A rank that launches its graph too late: the others name the operations that they recorded, and it finds the group
 * broken. */
static void late_graph_body(struct rank *rank) {
    gpu_rank_attach(rank, rank->argument, NULL, 2);
    float *memory = ones(rank);
    ls_graph *graph = record(rank, memory);
    CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    if (rank->rank == 1) {
        nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
        (void)ls_graph_launch(graph, rank->stream);
        CHECK(ls_stream_synchronize(rank->stream) != LS_OK);
    } else {
        CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
        ls_status status = ls_stream_synchronize(rank->stream);
        CHECK(status == LS_ERR_TIMEOUT || status == LS_ERR_PEER); /* the first rank to check breaks the group */
        CHECK(gpu_rank_says(rank, "all_reduce (sum) of 500 fp32 elements (operation 3, 2000 bytes), or another "
                                  "operation of the same graph, did not end within 2 s"));
    }
    (void)ls_device_synchronize(rank->device);
    ls_graph_destroy(graph);
    rank_close(rank);
}

TEST(a_late_launch_has_a_deadline_and_a_name) { run_good_ranks_on(nccl->backend, RANKS, late_graph_body, nccl); }

/* NCCL's abort ends running operations, and returns only once the graph has been destroyed: the thread that destroys
 * the graph later must not wait for the abort now, and a rank that leaves before that must not wait for ever. */
static void undestroyed_graph_body(struct rank *rank) {
    gpu_rank_attach(rank, rank->argument, NULL, TIMEOUT_S);
    ls_graph *graph = record(rank, ones(rank));
    CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    if (rank->rank == 1) raise(SIGKILL);
    CHECK(ls_graph_launch(graph, rank->stream) == LS_OK);
    double begin_us = ls_now_us();
    CHECK(ls_stream_synchronize(rank->stream) == LS_ERR_PEER);
    CHECK(ls_now_us() - begin_us < TIMEOUT_S * 1e6);
    (void)ls_device_synchronize(rank->device);
    ls_comm_destroy(rank->comm);
    rank->comm = NULL;
    ls_graph_destroy(graph);
    rank_close(rank);
    CHECK(ls_now_us() - begin_us < 2 * TIMEOUT_S * 1e6);
}

TEST(a_graph_that_outlives_its_group_is_no_trap) {
    run_ranks_expecting(nccl->backend, RANKS, undestroyed_graph_body, nccl, NULL, 5, 128 + SIGKILL);
}

/* Operations staged through the host cannot be captured; the group is unchanged. */
static void staged_graph_body(struct rank *rank) {
    ls_graph *graph;
    gpu_rank_attach(rank, rank->argument, NULL, TIMEOUT_S);
    float *memory = ones(rank);
    CHECK(ls_graph_begin(rank->stream) == LS_OK);
    CHECK(reduce(rank, memory) == LS_ERR_UNSUPPORTED);
    CHECK(ls_graph_end(rank->stream, &graph) != LS_OK && graph == NULL);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
}

TEST(staged_operations_cannot_be_recorded) {
    run_good_ranks_on(gpu_paths[0].backend, 2, staged_graph_body, &gpu_paths[0]);
}

/* Far more operations than the ring holds, none of which can complete before a thread waits. */
static void many_body(struct rank *rank) {
    setenv("CUDA_ON_CPU_STREAMS", "shuffle:7", 1);
    gpu_rank_attach(rank, nccl, NULL, TIMEOUT_S);
    float *memory = ones(rank);
    for (int i = 0; i < 1500; i++) {
        if (i % 2) CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
        if (i % 2 == 0)
            CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, COUNT, LS_FP32, LS_REDUCE_MAX) == LS_OK);
    }
    CHECK(last_of(rank, memory) == 1);
    for (int i = 0; i < 4; i++) CHECK(reduce(rank, memory) == LS_OK);
    CHECK(last_of(rank, memory) == 81);
    rank_close(rank);
    CHECK(rank->message[0] == '\0');
}

/* Current versions of NCCL run every call of a non-blocking communicator in a thread of their own. */
static void busy_calls_body(struct rank *rank) {
    setenv("NCCL_ON_CPU_LOOKS", "5", 1);
    graph_body(rank);
}

TEST(calls_may_take_nccl_a_while) { run_good_ranks_on(nccl->backend, RANKS, busy_calls_body, nccl); }

TEST(operations_are_enqueued_without_a_wait) { run_good_ranks_on(nccl->backend, RANKS, many_body, NULL); }
