/* What surrounds the collective operations: streams and work handles, shared memory, counters, wrong arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tests/comm/ranks.h"

#define TIMEOUT_S 60.0

static void streams_body(struct rank *rank) {
    CHECK(rank_open(rank, rank->argument, NULL, TIMEOUT_S) == LS_OK);
    enum { ROUNDS = 50, COUNT = 3000 };
    ls_work *work;
    CHECK(ls_work_create(&work, "reduced") == LS_OK);
    float *buffers[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(ls_comm_alloc_shared(rank->comm, COUNT * sizeof(float), (void **)&buffers[i]) == LS_OK);
        for (int k = 0; k < COUNT; k++) buffers[i][k] = (float)(rank->rank + i + k % 7);
        /* the next region is allocated, on the host, while this operation may be running */
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffers[i], COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(ls_work_record(work, rank->comm, rank->stream) == LS_OK);
        CHECK(ls_work_sequence(work) == (uint64_t)i + 1);
    }
    CHECK(ls_work_synchronize(work) == LS_OK);
    int n = rank->world_size, ranks = n * (n - 1) / 2;
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < COUNT; k++) CHECK(buffers[i][k] == (float)(ranks + n * (i + k % 7)));
    CHECK(ls_device_synchronize(rank->device) == LS_OK);
    ls_work_destroy(work);
    rank_close(rank);
}

static void test_streams_and_work(void **state) {
    (void)state;
    run_good_ranks(2, streams_body, "threads");
    run_good_ranks(3, streams_body, "threads");
    run_good_ranks(1, streams_body, "threads");
    run_good_ranks(2, streams_body, "inline");
}

static void memory_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
    const size_t nbytes[] = {1, 4096, 5000, 0, 100000};
    char *first[5], *again[5];
    for (int round = 0; round < 2; round++) {
        char **memory = round == 0 ? first : again;
        for (int i = 0; i < 5; i++) {
            CHECK(ls_comm_alloc_shared(rank->comm, nbytes[i], (void **)&memory[i]) == LS_OK);
            CHECK((uintptr_t)memory[i] % 64 == 0);
            for (size_t k = 0; k < nbytes[i]; k++) CHECK(memory[i][k] == 0);
            memset(memory[i], 1 + i, nbytes[i]);
        }
        for (int i = 0; i < 5; i++)
            for (size_t k = 0; k < nbytes[i]; k++) CHECK(memory[i][k] == 1 + i);
        for (int i = 4; i >= 0; i--) CHECK(ls_comm_free_shared(rank->comm, memory[i]) == LS_OK);
    }
    if (rank->world_size > 1) CHECK(memcmp(first, again, sizeof first) == 0); /* the space is used again */
    CHECK(ls_comm_free_shared(rank->comm, NULL) == LS_OK);
    CHECK(ls_comm_free_shared(rank->comm, &first) == LS_ERR_INVALID);
    void *none = &none;
    CHECK(ls_comm_alloc_shared(rank->comm, (size_t)1 << 45, &none) == LS_ERR_NO_MEMORY && none == NULL);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK);
    rank_close(rank);
}

static void test_memory(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) run_good_ranks(n, memory_body, NULL);
}

static void traffic_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", rank->argument, TIMEOUT_S) == LS_OK);
    float *buffer;
    CHECK(ls_comm_alloc_shared(rank->comm, 64000 * sizeof *buffer, (void **)&buffer) == LS_OK);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, 64000, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    ls_comm_traffic traffic;
    ls_comm_traffic_read(rank->comm, &traffic);
    /* 256,000 bytes among 4: direct moves 2 (W - 1) / W of them each way, naive (W - 1) times on rank 0, once elsewhere
     * */
    uint64_t expected = strcmp(rank->argument, "direct") == 0 ? 384000 : rank->rank == 0 ? 768000 : 256000;
    CHECK(traffic.operations == 1 && traffic.sent_bytes == expected && traffic.received_bytes == expected);
    rank_close(rank);
}

static void test_traffic(void **state) {
    (void)state;
    run_good_ranks(4, traffic_body, "direct");
    run_good_ranks(4, traffic_body, "naive");
}

static void arguments_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, TIMEOUT_S) == LS_OK);
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
    /* none of them counts: the group is as good as before */
    CHECK(ls_comm_all_reduce(comm, rank->stream, &x, 1, LS_FP32, LS_REDUCE_SUM) == LS_OK && x == 2);
    CHECK(strcmp(ls_comm_backend(comm), "shm") == 0 && strcmp(ls_comm_allreduce(comm), "direct") == 0);
    CHECK(ls_comm_rank(comm) == rank->rank && ls_comm_world_size(comm) == 2);
    rank_close(rank);
}

static void test_arguments(void **state) {
    (void)state;
    run_good_ranks(2, arguments_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_and_work),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests_name("comm calls", tests, NULL, NULL);
}
