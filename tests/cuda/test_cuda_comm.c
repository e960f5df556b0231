/* Process groups whose ranks have GPUs: every operation of tests/comm/operations.c, staged and by NCCL, with processes
 * and with threads as ranks. */
#include "tests/base/test.h"
#include "tests/comm/operations.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 20.0
#define MAX_WORLD 4

static void operations_body(struct rank *rank) {
    struct buffers b;
    gpu_rank_attach(rank, rank->argument, "direct", TIMEOUT_S);
    buffers_open_on_gpu(rank, &b, (size_t)OPERATIONS_GPU_COUNT * MAX_WORLD * sizeof(int64_t));
    run_operations(rank, &b);
    buffers_close(rank, &b);
    rank_close(rank);
    CHECK(rank->message[0] == '\0');
}

TEST(every_operation_is_exact) {
    for (int world = 1; world <= MAX_WORLD; world++) run_on_gpu_paths(operations_body, world);
}
