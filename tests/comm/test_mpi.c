/* Groups whose operations Open MPI carries: processes of one machine without mpirun, as one host and as several that
 * are joined over 127.0.0.1. The tests check results, which rank is named when one is lost, and that nothing is left
 * behind. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/comm/comm_internal.h"
#include "common/comm/mesh.h"
#include "common/comm/mpi_plugin.h"
#include "common/comm/reduce_kernels.h"
#include "tests/base/test.h"
#include "tests/comm/leftovers.h"
#include "tests/comm/operations.h"
#include "tests/comm/values.h"

#define TIMEOUT_S 1.0
#define LONG_TIMEOUT_S 50.0 /* for waits that must end earlier for another reason; tests are killed after 60 s */

/* The host of each rank, and the algorithm. */
struct layout {
    int ranks;
    unsigned char host[8];
    const char *allreduce;
};

static const struct layout three = {3, {0}, NULL}, two_and_one = {3, {0, 0, 1}, NULL},
                           two_and_two = {4, {0, 0, 1, 1}, NULL};

static const struct ls_carrier *carrier_of(const struct rank *rank) {
    char why[600];
    const struct ls_carrier *carrier = ls_mpi_carrier(why, sizeof why);
    CHECK(carrier);
    return carrier;
}

static ls_comm_options over_hosts(const struct rank *rank, const ls_comm_options *options) {
    const struct layout *layout = rank->argument;
    ls_comm_options over_hosts = *options;
    over_hosts.host = layout->host;
    over_hosts.address = "127.0.0.1";
    return over_hosts;
}

static ls_status create(struct rank *rank, const ls_comm_options *options) {
    const ls_comm_options o = over_hosts(rank, options);
    return ls_comm_create_hosts(&rank->comm, &o, carrier_of(rank));
}

static struct rank_backend backend; /* with the processes of the shm back-end */

static void run(const struct layout *layout, void (*body)(struct rank *rank), void (*meanwhile)(const pid_t *pids),
                uint64_t good, int other) {
    char why[600];
    if (!ls_mpi_carrier(why, sizeof why)) skip();
    backend = rank_backends[0];
    backend.name = "mpi";
    backend.create = create;
    run_ranks_expecting(&backend, layout->ranks, body, layout, meanwhile, good, other);
}

static void run_good(const struct layout *layout, void (*body)(struct rank *rank)) {
    run(layout, body, NULL, UINT64_MAX, 0);
}

static void open_rank(struct rank *rank, double timeout_s) {
    const struct layout *layout = rank->argument;
    CHECK(rank_open(rank, "inline", layout->allreduce, LONG_TIMEOUT_S) == LS_OK);
    rank->comm->timeout_s = timeout_s; /* a loaded machine may form the group slowly */
}

static void open_device(struct rank *rank) {
    ls_device_options device = {.index = rank->rank, .devices_on_node = rank->world_size, .place = rank->rank};
    CHECK(ls_device_open(&rank->device, &device) == LS_OK);
    rank->stream = ls_device_stream(rank->device, LS_STREAM_COMM);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static void operations_body(struct rank *rank) {
    struct buffers b;
    open_rank(rank, LONG_TIMEOUT_S);
    CHECK(rank->world_size == 1 || strcmp(ls_comm_backend(rank->comm), "mpi") == 0);
    buffers_open(rank, &b, (size_t)rank->world_size * (2 * LS_STAGE_BYTES + 1024));
    run_operations(rank, &b);
    buffers_close(rank, &b);
    rank_close(rank);
}

TEST(test_operations) {
    static const struct layout layouts[] = {{1, {0}, "direct"},       {2, {0}, "direct"},
                                            {4, {0}, "direct"},       {4, {0, 0, 1, 1}, "direct"},
                                            {3, {0, 1, 0}, "direct"}, {2, {0, 1}, "direct"}};
    for (size_t i = 0; i < COUNT_OF(layouts); i++) run_good(&layouts[i], operations_body);
}

enum { SUMS = 80003 };

/* The sum of the ranks in order, or first of the ranks of each node of `size`, then of the nodes. */
static void expect_sum(float *expected, int ranks, int size) {
    static float values[8][SUMS], sums[8][SUMS];
    const void *inputs[8];
    for (int node = 0; node < ranks / size; node++) {
        void *sum = sums[node];
        for (int r = 0; r < size; r++) {
            fill_values(values[r], LS_FP32, node * size + r, 0, SUMS);
            inputs[r] = values[r];
        }
        ls_reduce_inputs(&sum, 1, inputs, size, SUMS, LS_FP32, LS_REDUCE_SUM);
    }
    for (int node = 0; node < ranks / size; node++) inputs[node] = sums[node];
    ls_reduce_inputs((void *[]){expected}, 1, inputs, ranks / size, SUMS, LS_FP32, LS_REDUCE_SUM);
}

/* In the rank's own memory and in the group's. */
static void sums_body(struct rank *rank) {
    static float expected[SUMS], own[SUMS];
    const struct layout *layout = rank->argument;
    void *shared;
    open_rank(rank, LONG_TIMEOUT_S);
    bool hierarchical = strcmp(ls_comm_allreduce(rank->comm), "hierarchical") == 0;
    CHECK(hierarchical == (!layout->allreduce || strcmp(layout->allreduce, "hierarchical") == 0));
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, sizeof own, &shared) == LS_OK);
    expect_sum(expected, rank->world_size, hierarchical ? 2 : rank->world_size);
    for (int i = 0; i < 4; i++) {
        float *x = i % 2 || (i == 2 && rank->rank == 1) ? shared : own;
        fill_values(x, LS_FP32, rank->rank, 0, SUMS);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, x, SUMS, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(memcmp(x, expected, sizeof expected) == 0);
    }
    rank_close(rank);
}

TEST(test_order_of_sums) {
    static const struct layout naive = {4, {0, 0, 1, 1}, "naive"}, direct = {4, {0, 0, 1, 1}, "direct"},
                               here = {4, {0}, "hierarchical"}, apart = {4, {0, 1, 0, 1}, "naive"};
    run_good(&naive, sums_body);
    run_good(&direct, sums_body);
    run_good(&apart, sums_body);
    run_good(&two_and_two, sums_body); /* hierarchical by default */
    setenv("LS_RANKS_PER_NODE", "2", 1);
    run_good(&here, sums_body);
    unsetenv("LS_RANKS_PER_NODE");
}

static void messages_body(struct rank *rank) {
    static const size_t counts[] = {0, 1, 1000, 100003};
    static int64_t out[100003], in[100003];
    open_rank(rank, LONG_TIMEOUT_S);
    for (int other = 0; other < rank->world_size; other++) {
        for (size_t i = 0; i < COUNT_OF(counts) && other != rank->rank; i++) {
            fill_values(out, LS_INT64, rank->rank, i, counts[i]);
            CHECK(ls_comm_send_recv(rank->comm, rank->stream, out, in, counts[i], LS_INT64, other) == LS_OK);
            CHECK(has_values(in, LS_INT64, other, i, counts[i]));
            if (rank->rank < other)
                CHECK(ls_comm_send(rank->comm, rank->stream, in, counts[i], LS_INT64, other) == LS_OK);
            if (rank->rank > other)
                CHECK(ls_comm_recv(rank->comm, rank->stream, in, counts[i], LS_INT64, other) == LS_OK);
            CHECK(has_values(in, LS_INT64, rank->rank < other ? other : rank->rank, i, counts[i]));
        }
    }
    rank_close(rank);
}

TEST(test_messages) {
    run_good(&three, messages_body);
    run_good(&two_and_one, messages_body);
}

/* Sums of 2^rank over the groups of a mesh identify their members; the arrays are large enough for MPI. */
static void mesh_body(struct rank *rank) {
    static const int sizes[LS_MESH_AXES] = {2, 2, 1};
    static double x[1000];
    ls_mesh mesh;
    open_device(rank);
    ls_stream *stream = rank->stream;
    ls_comm_options options = {
        .rank = rank->rank, .world_size = 4, .timeout_s = LONG_TIMEOUT_S, .bootstrap = &rank->bootstrap};
    options = over_hosts(rank, &options);
    CHECK(ls_mesh_create_hosts(&mesh, sizes, &options, carrier_of(rank)) == LS_OK);
    for (int a = -1; a < LS_MESH_PIPELINE; a++) {
        ls_comm *comm = a < 0 ? mesh.job : mesh.axis[a];
        double expected = 0;
        for (int r = 0; r < ls_comm_world_size(comm); r++) expected += 1 << ls_comm_job_rank(comm, r);
        for (size_t i = 0; i < COUNT_OF(x); i++) x[i] = 1 << rank->rank;
        CHECK(ls_comm_settle(stream, ls_comm_all_reduce(comm, stream, x, COUNT_OF(x), LS_FP64, LS_REDUCE_SUM)) ==
              LS_OK);
        for (size_t i = 0; i < COUNT_OF(x); i++) CHECK(x[i] == expected);
    }
    ls_mesh_destroy(&mesh);
    ls_device_close(rank->device);
}

TEST(test_mesh) { run_good(&two_and_two, mesh_body); }

/* --- failures ----------------------------------------------------------------------------------------------------- */

static void reduce_until_failure(struct rank *rank, ls_status status, const char *culprit) {
    static float x[100000];
    ls_status result = LS_OK;
    while (result == LS_OK)
        result = ls_comm_all_reduce(rank->comm, rank->stream, x, COUNT_OF(x), LS_FP32, LS_REDUCE_SUM);
    CHECK(result == status);
    CHECK(rank_says(rank, culprit) && rank_says(rank, "all_reduce (sum) of 100000 fp32 elements (operation "));
}

/* The survivors form a new group. */
static void killed_body(struct rank *rank) {
    static float x[100000];
    open_rank(rank, LONG_TIMEOUT_S);
    if (rank->rank == 1) rank_signal_soon(SIGKILL, 30000);
    reduce_until_failure(rank, LS_ERR_PEER, "rank 1 died");
    rank_close(rank);
    open_device(rank);
    const struct layout *layout = rank->argument;
    const struct layout left = {2, {layout->host[0], layout->host[2]}, NULL};
    ls_comm_options options = {.rank = rank->rank / 2,
                               .world_size = 2,
                               .timeout_s = LONG_TIMEOUT_S,
                               .bootstrap = &rank->bootstrap,
                               .group = "left"};
    rank->argument = &left;
    ls_log_capture(rank->message, sizeof rank->message);
    CHECK(create(rank, &options) == LS_OK);
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < COUNT_OF(x); k++) x[k] = (float)rank->rank;
        ls_status status = ls_comm_all_reduce(rank->comm, rank->stream, x, COUNT_OF(x), LS_FP32, LS_REDUCE_SUM);
        CHECK(ls_comm_settle(rank->stream, status) == LS_OK);
        CHECK(x[0] == 2 && x[99999] == 2);
    }
    rank_close(rank);
}

TEST(test_killed_rank_and_who_is_left) {
    run(&three, killed_body, NULL, 5, 128 + SIGKILL);
    run(&two_and_one, killed_body, NULL, 5, 128 + SIGKILL);
}

static void stopped_body(struct rank *rank) {
    open_rank(rank, TIMEOUT_S);
    if (rank->rank == 2) rank_signal_soon(SIGSTOP, 30000);
    reduce_until_failure(rank, LS_ERR_TIMEOUT, "rank 2 did not arrive within 1 s");
    rank_close(rank);
}

static void kill_rank_2(const pid_t *pids) {
    siginfo_t ended;
    for (int r = 0; r < 2; r++) assert_int_equal(waitid(P_PID, (id_t)pids[r], &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[2], SIGKILL), 0);
}

TEST(test_stopped_rank) { run(&three, stopped_body, kill_rank_2, 3, 128 + SIGKILL); }

static void out_of_step_body(struct rank *rank) {
    static float x[50000];
    open_rank(rank, LONG_TIMEOUT_S);
    ls_status status = rank->rank == 1
                           ? ls_comm_broadcast(rank->comm, rank->stream, x, COUNT_OF(x), LS_FP32, 0)
                           : ls_comm_all_reduce(rank->comm, rank->stream, x, COUNT_OF(x), LS_FP32, LS_REDUCE_SUM);
    CHECK(status == LS_ERR_INVALID && rank_says(rank, "out of step"));
    CHECK(rank_says(rank, "rank 1 runs broadcast") && rank_says(rank, "rank 0 runs all_reduce"));
    rank_close(rank);
}

TEST(test_out_of_step) { run_good(&two_and_one, out_of_step_body); }

static void mismatch_body(struct rank *rank) {
    static float x[100];
    open_rank(rank, LONG_TIMEOUT_S);
    ls_status status = LS_OK;
    if (rank->rank == 0) status = ls_comm_send(rank->comm, rank->stream, x, 100, LS_FP32, 1);
    if (rank->rank == 1) status = ls_comm_recv(rank->comm, rank->stream, x, 99, LS_FP32, 0);
    CHECK(rank->rank == 2 ? status == LS_OK
                          : status == LS_ERR_INVALID && rank_says(rank, "send and recv do not match"));
    rank_close(rank);
}

TEST(test_messages_that_do_not_match) { run_good(&three, mismatch_body); }

/* Rank 2 was not in the first group, so it is not in MPI's world. */
static void late_body(struct rank *rank) {
    ls_comm *first = NULL;
    ls_comm_options options = {
        .rank = rank->rank, .world_size = 2, .timeout_s = LONG_TIMEOUT_S, .bootstrap = &rank->bootstrap};
    options = over_hosts(rank, &options);
    if (rank->rank < 2) CHECK(ls_comm_create_hosts(&first, &options, carrier_of(rank)) == LS_OK);
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_ERR_UNSUPPORTED);
    CHECK(rank_says(rank, "rank 2 started later than the others"));
    ls_comm_destroy(first);
    ls_device_close(rank->device);
}

TEST(test_rank_that_comes_later) { run_good(&three, late_body); }

static void refused_body(struct rank *rank) {
    const struct layout *layout = rank->argument;
    CHECK(rank_open(rank, "inline", layout->allreduce, LONG_TIMEOUT_S) == LS_ERR_UNSUPPORTED);
    CHECK(rank_says(rank, strcmp(layout->allreduce, "ring") == 0 ? "--allreduce ring works in the memory of one machine"
                                                                 : "the same number of ranks on each host"));
    ls_device_close(rank->device);
}

TEST(test_refused_algorithms) {
    static const struct layout ring = {2, {0, 1}, "ring"}, uneven = {3, {0, 0, 1}, "hierarchical"};
    run_good(&ring, refused_body);
    run_good(&uneven, refused_body);
}

LEFTOVERS_MAIN
