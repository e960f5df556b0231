/* Ranks of one process, with a GPU each: a GPU that fails while nobody waits for it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_on_cpu.h>

#include "kernels/kernels.h"
#include "tests/cuda/test.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 50.0 /* the failure is noticed long before */
#define RANKS 3
#define COUNT 1000

static const struct gpu_path nccl_threads = {"nccl", &rank_backends[1], LS_COMM_NCCL, false};

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* Ranks of one process: the GPU of rank 2 fails behind its calls, and rank 2 does not wait for it. The others, whose
 * operation can never end, find out long before their deadline. (With shuffled streams nothing runs before they
 * wait.) */
static void fails_unseen_body(struct rank *rank) {
    static _Atomic int begun, enqueued, found;
    void *memory;
    gpu_rank_attach(rank, &nccl_threads, NULL, TIMEOUT_S);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    atomic_fetch_add(&begun, 1);
    while (rank->rank == 2 ? atomic_load(&begun) < RANKS : atomic_load(&enqueued) == 0) sleep_ms(1);
    if (rank->rank == 2) {
        cuda_on_cpu_reset_faults("kernel:1:214");
        ls_fill(rank->stream, memory, 1, COUNT);
    }
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    atomic_fetch_add(&enqueued, 1);
    while (rank->rank == 2 ? atomic_load(&found) < 2 : atomic_load(&enqueued) < RANKS) sleep_ms(1);
    ls_status status = ls_stream_synchronize(rank->stream); /* LS_ERR_TIMEOUT: nobody noticed */
    CHECK(status == LS_ERR_SYSTEM || (status == LS_ERR_PEER && rank->rank != 2));
    if (status == LS_ERR_PEER) CHECK(gpu_rank_says(rank, " has given up: GPU 2, that of rank 2, has failed"));
    if (status == LS_ERR_SYSTEM && rank->rank != 2) /* which of them says it is chance; nobody says it twice */
        CHECK(rank->message[0] == '\0' || gpu_rank_says(rank, "failed on GPU 2: uncorrectable ECC error"));
    atomic_fetch_add(&found, 1);
    rank_close(rank);
}

static void a_gpu_that_nobody_waits_for_is_found(NO_STATE) {
    setenv("CUDA_ON_CPU_STREAMS", "shuffle:1", 1);
    run_good_ranks_on(nccl_threads.backend, RANKS, fails_unseen_body, NULL);
    unsetenv("CUDA_ON_CPU_STREAMS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_nobody_waits_for_is_found),
    };
    return cmocka_run_group_tests_name("GPUs of one process", tests, NULL, NULL);
}
