/* Groups over simulated hosts (processes of one machine) whose ranks have GPUs: NCCL runs every operation, on GPU
 * memory and on host memory. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/comm/operations.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 100.0 /* a whole machine may stall for a minute */
enum { WORLD = 4, COUNT = 20001, GATHERED = WORLD * COUNT };

static const unsigned char hosts[WORLD] = {0, 1, 1, 0};

static ls_status create_hosts(struct rank *rank, const ls_comm_options *options) {
    ls_comm_options over_hosts = *options;
    over_hosts.host = hosts;
    over_hosts.address = "127.0.0.1";
    return ls_comm_create_hosts(&rank->comm, &over_hosts, NULL);
}

static struct rank_backend backend;
static const struct gpu_path path = {.name = "nccl", .backend = &backend, .path = LS_COMM_NCCL};

static void run(void (*body)(struct rank *rank)) {
    backend = rank_backends[0];
    backend.create = create_hosts;
    run_good_ranks_on(&backend, WORLD, body, &path);
}

static void operations_body(struct rank *rank) {
    struct buffers b;
    gpu_rank_attach(rank, rank->argument, "direct", TIMEOUT_S);
    buffers_open_on_gpu(rank, &b, (size_t)OPERATIONS_GPU_COUNT * WORLD * sizeof(int64_t));
    run_operations(rank, &b);
    buffers_close(rank, &b);
    rank_close(rank);
    CHECK(rank->message[0] == '\0');
}

TEST(every_operation_on_gpu_memory_is_exact) { run(operations_body); }

/* GPU 0 of one host is a different GPU from GPU 0 of the other. */
static void same_number_body(struct rank *rank) {
    ls_status obstacle;
    char text[512];
    CHECK(gpu_rank_open(rank, 0, "direct", TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_find_nccl_obstacle(rank->comm, rank->device, &obstacle, text, sizeof text) == LS_OK);
    CHECK(rank->world_size == 2 ? obstacle == LS_OK : strcmp(text, "ranks 0 and 3 share GPU 0") == 0);
    rank_close(rank);
}

TEST(gpus_of_two_hosts_are_not_shared) {
    backend = rank_backends[0];
    backend.create = create_hosts;
    run_good_ranks_on(&backend, 2, same_number_body, &path);
    run_good_ranks_on(&backend, WORLD, same_number_body, &path);
}

/* --- host memory -------------------------------------------------------------------------------------------------- */

static int32_t send[GATHERED], receive[GATHERED];

static void fill(const struct rank *rank, int round) {
    for (int i = 0; i < GATHERED; i++) send[i] = 1000000 * rank->rank + i + round;
}

static void settle(struct rank *rank, ls_status status) { CHECK(ls_comm_settle(rank->stream, status) == LS_OK); }

static void check_collectives(struct rank *rank, int round) {
    ls_comm *comm = rank->comm;
    int root = round % WORLD, sum = 1000000 * WORLD * (WORLD - 1) / 2;
    fill(rank, round);
    settle(rank, ls_comm_all_gather(comm, rank->stream, send, receive, COUNT, LS_INT32));
    for (int i = 0; i < GATHERED; i++) CHECK(receive[i] == 1000000 * (i / COUNT) + i % COUNT + round);
    settle(rank, ls_comm_scatter(comm, rank->stream, send, receive, COUNT, LS_INT32, root));
    for (int i = 0; i < COUNT; i++) CHECK(receive[i] == 1000000 * root + rank->rank * COUNT + i + round);
    settle(rank, ls_comm_reduce_scatter(comm, rank->stream, send, receive, COUNT, LS_INT32, LS_REDUCE_SUM));
    for (int i = 0; i < COUNT; i++) CHECK(receive[i] == sum + WORLD * (rank->rank * COUNT + i + round));
    settle(rank, ls_comm_gather(comm, rank->stream, send, receive, COUNT, LS_INT32, root));
    for (int i = 0; rank->rank == root && i < GATHERED; i++)
        CHECK(receive[i] == 1000000 * (i / COUNT) + i % COUNT + round);
    settle(rank, ls_comm_all_reduce(comm, rank->stream, send, COUNT, LS_INT32, LS_REDUCE_SUM));
    for (int i = 0; i < COUNT; i++) CHECK(send[i] == sum + WORLD * (i + round));
    fill(rank, round);
    settle(rank, ls_comm_reduce(comm, rank->stream, send, COUNT, LS_INT32, LS_REDUCE_MAX, root));
    int of = rank->rank == root ? WORLD - 1 : rank->rank; /* on other ranks the buffer is unchanged */
    for (int i = 0; i < COUNT; i++) CHECK(send[i] == 1000000 * of + i + round);
    fill(rank, round);
    settle(rank, ls_comm_broadcast(comm, rank->stream, send, COUNT, LS_INT32, root));
    for (int i = 0; i < COUNT; i++) CHECK(send[i] == 1000000 * root + i + round);
}

static void check_messages(struct rank *rank, int round) {
    int peer = rank->rank ^ 1, count = round % 2 ? 3 : COUNT; /* small messages, too */
    fill(rank, round);
    memset(receive, 0, sizeof receive);
    settle(rank, ls_comm_send_recv(rank->comm, rank->stream, send, receive, (size_t)count, LS_INT32, peer));
    for (int i = 0; i < count; i++) CHECK(receive[i] == 1000000 * peer + i + round);
    if (rank->rank % 2) settle(rank, ls_comm_send(rank->comm, rank->stream, send, (size_t)count, LS_INT32, peer));
    memset(receive, 0, sizeof receive);
    if (rank->rank % 2 == 0) {
        settle(rank, ls_comm_recv(rank->comm, rank->stream, receive, (size_t)count, LS_INT32, peer));
        for (int i = 0; i < count; i++) CHECK(receive[i] == 1000000 * peer + i + round);
    }
}

static void host_memory_body(struct rank *rank) {
    gpu_rank_attach(rank, rank->argument, "direct", TIMEOUT_S);
    for (int round = 0; round < WORLD; round++) {
        int32_t small = rank->rank;
        check_collectives(rank, round);
        settle(rank, ls_comm_all_reduce(rank->comm, rank->stream, &small, 1, LS_INT32, LS_REDUCE_SUM));
        CHECK(small == WORLD * (WORLD - 1) / 2);
        check_messages(rank, round);
    }
    rank_close(rank);
    CHECK(rank->message[0] == '\0');
}

TEST(operations_on_host_memory_go_through_nccl) { run(host_memory_body); }

/* --- failures ----------------------------------------------------------------------------------------------------- */

/* Rank 1 leads its host, rank 2 does not. */
static int victim;

static void killed_body(struct rank *rank) {
    char expected[32];
    gpu_rank_attach(rank, rank->argument, "direct", TIMEOUT_S);
    float *memory = gpu_rank_upload(rank, NULL, COUNT * sizeof *memory);
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK; i++) {
        if (rank->rank == victim && i == 20) (void)raise(SIGKILL);
        status = ls_comm_all_reduce(rank->comm, rank->stream, memory, COUNT, LS_FP32, LS_REDUCE_SUM);
        status = ls_comm_settle(rank->stream, status);
    }
    snprintf(expected, sizeof expected, "rank %d died", victim);
    CHECK(status == LS_ERR_PEER && gpu_rank_says(rank, expected));
    ls_device_free(rank->device, memory);
    rank_close(rank);
}

TEST(a_killed_rank_is_named) {
    for (victim = 1; victim < 3; victim++) {
        backend = rank_backends[0];
        backend.create = create_hosts;
        run_ranks_expecting(&backend, WORLD, killed_body, &path, NULL, 0xf & ~(1u << victim), 128 + SIGKILL);
    }
}
