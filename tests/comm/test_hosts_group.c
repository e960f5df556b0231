/* Groups over several hosts: processes of one machine that act as ranks of 2, 3 or 4 hosts, which share no memory and
 * are joined over 127.0.0.1. The tests check results, which rank is named when one is lost, and that nothing is left
 * behind. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/comm/comm_internal.h"
#include "common/comm/mesh.h"
#include "common/comm/wait.h"
#include "tests/base/test.h"
#include "tests/comm/hosts.h"
#include "tests/comm/leftovers.h"

static const struct layout two_and_two = {4, {0, 0, 1, 1}};
static const struct layout layouts[] = {
    {2, {0, 1}}, {4, {0, 0, 1, 1}}, {4, {0, 1, 0, 1}}, {5, {0, 1, 1, 2, 0}}, {4, {0, 1, 2, 3}}};

/* --- operations --------------------------------------------------------------------------------------------------- */

enum { COUNT = 24 };

static void check_reductions(struct rank *rank, int round, size_t count) {
    int32_t n = (int32_t)rank->world_size, sum = n * (n - 1) / 2;
    static int32_t x[1024];
    for (size_t i = 0; i < count; i++) x[i] = rank->rank + round + (int32_t)i;
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, x, count, LS_INT32, LS_REDUCE_SUM) == LS_OK);
    for (size_t i = 0; i < count; i++) CHECK(x[i] == sum + n * (round + (int32_t)i));
    x[0] = rank->rank - round;
    int root = round % rank->world_size;
    CHECK(ls_comm_reduce(rank->comm, rank->stream, x, 1, LS_INT32, LS_REDUCE_MAX, root) == LS_OK);
    if (rank->rank == root) CHECK(x[0] == n - 1 - round);
}

static void check_moves(struct rank *rank, int round) {
    int n = rank->world_size, root = round % n;
    int32_t x[8 * COUNT] = {0}, y[8 * COUNT], part[COUNT];
    for (int i = 0; i < n * COUNT; i++) x[i] = 1000 * rank->rank + i + round;
    CHECK(ls_comm_all_gather(rank->comm, rank->stream, x, y, COUNT, LS_INT32) == LS_OK);
    for (int i = 0; i < n * COUNT; i++) CHECK(y[i] == 1000 * (i / COUNT) + i % COUNT + round);
    CHECK(ls_comm_scatter(rank->comm, rank->stream, x, part, COUNT, LS_INT32, root) == LS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(part[i] == 1000 * root + rank->rank * COUNT + i + round);
    CHECK(ls_comm_gather(rank->comm, rank->stream, part, y, COUNT, LS_INT32, root) == LS_OK);
    for (int i = 0; rank->rank == root && i < n * COUNT; i++) CHECK(y[i] == 1000 * root + i + round);
    CHECK(ls_comm_reduce_scatter(rank->comm, rank->stream, x, part, COUNT, LS_INT32, LS_REDUCE_SUM) == LS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(part[i] == 1000 * n * (n - 1) / 2 + n * (rank->rank * COUNT + i + round));
    for (int i = 0; i < COUNT; i++) part[i] = rank->rank * i + round;
    CHECK(ls_comm_broadcast(rank->comm, rank->stream, part, COUNT, LS_INT32, root) == LS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(part[i] == root * i + round);
}

static void operations_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    CHECK(strcmp(ls_comm_backend(rank->comm), "hosts") == 0);
    for (int round = 0; round < 20; round++) {
        check_reductions(rank, round, 1);
        check_moves(rank, round);
        check_reductions(rank, round, 1024); /* 4 KiB */
        CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    }
    void *memory;
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 5000, &memory) == LS_OK && memory);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    rank_close(rank);
}

TEST(small_operations_work_over_hosts) {
    for (size_t i = 0; i < COUNT_OF(layouts); i++) hosts_run(&layouts[i], operations_body, NULL, UINT64_MAX, 0);
}

/* --- a rank that is lost ------------------------------------------------------------------------------------------ */

static int victim;

/* All-reduces until an operation fails. */
static ls_status reduce_until_failure(struct rank *rank) {
    float x[100] = {0};
    ls_status status = LS_OK;
    while (status == LS_OK) status = ls_comm_all_reduce(rank->comm, rank->stream, x, 100, LS_FP32, LS_REDUCE_SUM);
    return status;
}

static void killed_body(struct rank *rank) {
    char expected[32];
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    if (rank->rank == victim) rank_signal_soon(SIGKILL, 30000);
    CHECK(reduce_until_failure(rank) == LS_ERR_PEER);
    snprintf(expected, sizeof expected, "rank %d died", victim);
    CHECK(rank_says(rank, expected) && rank_says(rank, "all_reduce (sum) of 100 fp32 elements (operation "));
    CHECK(ls_comm_is_broken(rank->comm));
    rank_close(rank);
}

/* A leader's death closes a connection; the death of any other rank is reported by its leader. */
TEST(a_killed_rank_is_named_on_all_hosts) {
    for (victim = 0; victim < 4; victim++)
        hosts_run(&two_and_two, killed_body, NULL, UINT64_MAX & ~(1ull << victim), 128 + SIGKILL);
}

/* Rank 2, a leader, dies while it waits for rank 3, of the same host, for which the others also wait. */
static void killed_waiting_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    if (rank->rank == 2) rank_signal_soon(SIGKILL, 30000);
    if (rank->rank == 3) sleep(2);
    CHECK(reduce_until_failure(rank) == LS_ERR_PEER && rank_says(rank, "rank 2 died"));
    rank_close(rank);
}

TEST(a_leader_that_dies_is_named_for_its_host) {
    hosts_run(&two_and_two, killed_waiting_body, NULL, 0xb, 128 + SIGKILL);
}

/* Rank 3 dies while its leader is busy elsewhere. */
static void unwatched_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    if (rank->rank == 3) (void)raise(SIGKILL);
    while (rank->rank == 2 && !ls_comm_is_broken(rank->comm)) usleep(1000);
    CHECK(reduce_until_failure(rank) == LS_ERR_PEER && rank_says(rank, "rank 3 died"));
    rank_close(rank);
}

TEST(a_rank_is_named_that_dies_while_its_leader_is_busy) {
    hosts_run(&two_and_two, unwatched_body, NULL, 7, 128 + SIGKILL);
}

static void stopped_body(struct rank *rank) {
    char expected[64];
    hosts_open_rank(rank, TIMEOUT_S);
    if (rank->rank == victim) rank_signal_soon(SIGSTOP, 30000);
    CHECK(reduce_until_failure(rank) == LS_ERR_TIMEOUT);
    snprintf(expected, sizeof expected, "rank %d did not arrive within %g s", victim, TIMEOUT_S);
    CHECK(rank_says(rank, expected));
    rank_close(rank);
}

/* Once the others have ended: the victim must not die before them. */
static void kill_victim(const pid_t *pids) {
    siginfo_t ended;
    for (int r = 0; r < 4; r++)
        if (r != victim) assert_int_equal(waitid(P_PID, (id_t)pids[r], &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[victim], SIGKILL), 0);
}

TEST(a_stopped_rank_is_named_at_the_deadline) {
    for (victim = 2; victim < 4; victim++)
        hosts_run(&two_and_two, stopped_body, kill_victim, 0xf & ~(1u << victim), 128 + SIGKILL);
}

static void leaves_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    float x = 1;
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    if (rank->rank < 2) CHECK(reduce_until_failure(rank) == LS_ERR_PEER);
    if (rank->rank < 2) CHECK(rank_says(rank, "left the group without taking part") && rank_says(rank, "ranks 2, 3"));
    rank_close(rank);
}

TEST(a_host_that_leaves_is_named) { hosts_run(&two_and_two, leaves_body, NULL, UINT64_MAX, 0); }

/* --- a group that is broken --------------------------------------------------------------------------------------- */

static void aborts_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    float x = 0;
    if (rank->rank == 3) CHECK(ls_comm_abort(rank->comm, "it has seen enough"));
    if (rank->rank != 3) {
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_ERR_PEER);
        CHECK(rank_says(rank, "rank 3 has given up: it has seen enough"));
    }
    rank_close(rank);
}

TEST(all_hosts_hear_why_a_rank_gives_up) { hosts_run(&two_and_two, aborts_body, NULL, UINT64_MAX, 0); }

/* Rank 2, a leader, has left long before. */
static void aborts_late_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    float x = 0;
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    if (rank->rank == 3) sleep(1);
    if (rank->rank == 3) CHECK(ls_comm_abort(rank->comm, "it has seen enough"));
    if (rank->rank < 2) {
        while (!ls_comm_is_broken(rank->comm)) usleep(1000);
        CHECK(strcmp(rank->comm->broken->reason, "it has seen enough") == 0 && rank->comm->broken->rank == 3);
    }
    rank_close(rank);
}

TEST(a_leader_stays_for_the_last_words_of_its_host) { hosts_run(&two_and_two, aborts_late_body, NULL, UINT64_MAX, 0); }

static void out_of_step_body(struct rank *rank) {
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    float x[2] = {0};
    ls_status status = rank->rank == 2 ? ls_comm_broadcast(rank->comm, rank->stream, x, 2, LS_FP32, 0)
                                       : ls_comm_all_reduce(rank->comm, rank->stream, x, 2, LS_FP32, LS_REDUCE_SUM);
    CHECK(status == LS_ERR_INVALID);
    CHECK(rank_says(rank, "out of step: rank 2 runs broadcast of 2 fp32 elements from rank 0") &&
          rank_says(rank, "rank 0 runs all_reduce (sum) of 2 fp32 elements"));
    rank_close(rank);
}

TEST(ranks_out_of_step_are_named_by_both_hosts) { hosts_run(&two_and_two, out_of_step_body, NULL, UINT64_MAX, 0); }

/* Operations that need a carrier are refused on all hosts. */
static void large_body(struct rank *rank) {
    static float x[2000];
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, x, 2000, LS_FP32, LS_REDUCE_SUM) == LS_ERR_UNSUPPORTED);
    CHECK(rank_says(rank, "all_reduce (sum) of 2000 fp32 elements (operation 1, 8000 bytes): between hosts") &&
          rank_says(rank, "--backend mpi"));
    rank_close(rank);
}

TEST(large_operations_on_host_memory_need_a_carrier) { hosts_run(&two_and_two, large_body, NULL, UINT64_MAX, 0); }

/* --- flight records ----------------------------------------------------------------------------------------------- */

/* Shifts the clock, as on another machine that was started at another time; false if not permitted. Call before this
 * process starts threads. */
static bool shift_clock(long by_s) {
    FILE *file = unshare(CLONE_NEWTIME) == 0 ? fopen("/proc/self/timens_offsets", "w") : NULL;
    if (!file) return false;
    bool written = fprintf(file, "monotonic %ld 0\n", by_s) > 0;
    if (fclose(file) != 0 || !written) return false;
    int space = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
    bool inside = space >= 0 && setns(space, CLONE_NEWTIME) == 0;
    if (space >= 0) close(space);
    return inside;
}

static bool is_about_now(int64_t time_ms) { return llabs(time_ms - ls_coarse_now_ms()) < 100000; }

static void clocks_body(struct rank *rank) {
    float x[100] = {0};
    if (rank->rank == 1 && !shift_clock(3600)) print_message("no time namespace: both hosts have one clock\n");
    hosts_open_rank(rank, LONG_TIMEOUT_S);
    if (rank->rank == 1) CHECK(ls_comm_all_reduce(rank->comm, rank->stream, x, 100, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    if (rank->rank == 0) {
        while (ls_flight_looked_ms(rank->comm, 1) == 0) usleep(1000);
        CHECK(is_about_now(ls_flight_looked_ms(rank->comm, 1)));
        ls_flight_operation theirs;
        const ls_flight_ring *ring = ls_flight_find_ring(&rank->comm->flight[1], rank->comm->name_hash);
        while (!ring || !ls_flight_read_entry(ring, 0, &theirs)) {
            usleep(1000);
            ring = ls_flight_find_ring(&rank->comm->flight[1], rank->comm->name_hash);
        }
        CHECK(theirs.kind == LS_OPERATION_ALL_REDUCE && theirs.count == 100 && is_about_now(theirs.enqueued_ms));
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, x, 100, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    }
    rank_close(rank);
}

/* Each host sees the other's records on its own clock. */
TEST(hosts_have_clocks_of_their_own) { hosts_run(&layouts[0], clocks_body, NULL, UINT64_MAX, 0); }

/* --- parts of a job ----------------------------------------------------------------------------------------------- */

/* 2 x 2 x 1: the tensor groups are on one host each, the data groups over both. */
static const int sizes[LS_MESH_AXES] = {2, 2, 1};

static int first_free_file(void) {
    int file = dup(0);
    (void)close(file);
    return file;
}

static void open_device(struct rank *rank) {
    ls_device_options device = {.index = rank->rank, .devices_on_node = 4, .place = rank->rank};
    CHECK(ls_device_open(&rank->device, &device) == LS_OK);
    rank->stream = ls_device_stream(rank->device, LS_STREAM_COMM);
}

static ls_mesh open_mesh(struct rank *rank) {
    ls_mesh mesh = {0};
    open_device(rank);
    ls_comm_options options = hosts_options(rank);
    struct rlimit files = {(rlim_t)(first_free_file() + ls_mesh_descriptors(sizes)), 1024}; /* exactly enough */
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(ls_mesh_create_hosts(&mesh, sizes, &options, NULL) == LS_OK);
    return mesh;
}

static void mesh_body(struct rank *rank) {
    setenv("LS_CPU_STREAMS", "inline", 1);
    int files = first_free_file();
    ls_mesh mesh = open_mesh(rank);
    CHECK(strcmp(ls_comm_backend(mesh.axis[LS_MESH_TENSOR]), "shm") == 0);
    CHECK(strcmp(ls_comm_backend(mesh.axis[LS_MESH_DATA]), "hosts") == 0);
    for (int round = 0; round < 20; round++) {
        float tensor = (float)rank->rank, data = (float)rank->rank, all = (float)rank->rank;
        CHECK(ls_comm_all_reduce(mesh.axis[LS_MESH_TENSOR], rank->stream, &tensor, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(ls_comm_all_reduce(mesh.axis[LS_MESH_DATA], rank->stream, &data, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(ls_comm_all_reduce(mesh.job, rank->stream, &all, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(tensor == (float)(rank->rank < 2 ? 1 : 5) && data == (float)(rank->rank % 2 ? 4 : 2) && all == 6);
    }
    float x = 0;
    if (rank->rank == 3) raise(SIGKILL);
    /* only rank 1 shares a group with rank 3 here; ranks 0 and 2 learn of its death in their groups */
    while (ls_comm_all_reduce(mesh.axis[LS_MESH_DATA], rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK) {
    }
    CHECK(rank_says(rank, "rank 3 died") && ls_comm_is_broken(mesh.job));
    ls_mesh_destroy(&mesh);
    ls_device_close(rank->device);
    CHECK(first_free_file() == files);
}

TEST(groups_of_parts_of_a_job_fail_together) { hosts_run(&two_and_two, mesh_body, NULL, 7, 128 + SIGKILL); }

/* With --debug-collectives each operation is compared before it runs. */
static void debug_body(struct rank *rank) {
    open_device(rank);
    ls_comm_options options = hosts_options(rank);
    options.debug = true;
    CHECK(ls_comm_create_hosts(&rank->comm, &options, NULL) == LS_OK);
    float x = 0;
    for (int i = 0; i < 20; i++) {
        ls_comm_label(rank->comm, "bucket", i == 19 && rank->rank == 2 ? 7 : i);
        ls_status status = ls_comm_all_reduce(rank->comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM);
        CHECK(status == (i < 19 ? LS_OK : LS_ERR_INVALID));
    }
    CHECK(rank_says(rank, "for bucket 7") && rank_says(rank, "for bucket 19"));
    rank_close(rank);
}

TEST(labels_are_compared_between_hosts) { hosts_run(&two_and_two, debug_body, NULL, UINT64_MAX, 0); }

LEFTOVERS_MAIN
