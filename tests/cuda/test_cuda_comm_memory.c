/* Memory of groups with GPUs: host memory works as before, staged sums have the host's bits, and memory that the group
 * hands out is charged to the device. */
#include <stdlib.h>
#include <string.h>

#include "common/comm/allreduce.h"
#include "tests/base/test.h"
#include "tests/comm/orders.h"
#include "tests/comm/values.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 20.0
#define RANKS 3
#define COUNT 3000

/* --- both kinds of memory ----------------------------------------------------------------------------------------- */

/* Host memory is reduced by the same group, in the same sequence of operations. */
static void both_body(struct rank *rank) {
    float *host = malloc(COUNT * sizeof *host), copy[COUNT];
    void *shared_before;
    ls_comm_traffic traffic;
    CHECK(host != NULL);
    const struct gpu_path *path = rank->argument;
    CHECK(gpu_rank_open(rank, path->shares_gpu ? 0 : rank->rank, "ring", TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, sizeof copy, &shared_before) == LS_OK);
    CHECK(rank_attach(rank, path->path, "ring", TIMEOUT_S) == LS_OK);
    fill_small_integers(host, LS_FP32, rank->rank, COUNT);
    memcpy(shared_before, host, sizeof copy);
    void *gpu = gpu_rank_upload(rank, host, sizeof copy);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, host, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, gpu, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, shared_before, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    ls_comm_traffic_read(rank->comm, &traffic);
    CHECK(traffic.operations == 3);
    gpu_rank_download(rank, copy, gpu, sizeof copy);
    CHECK(memcmp(host, copy, sizeof copy) == 0 && memcmp(host, shared_before, sizeof copy) == 0);
    float sum = 0;
    for (int r = 0; r < rank->world_size; r++) sum += (float)((7 * 5 + r * 3) % 23);
    CHECK(copy[5] == sum);
    free(host);
    ls_device_free(rank->device, gpu);
    rank_close(rank);
}

TEST(memory_of_the_host_goes_on_as_before) { run_on_gpu_paths(both_body, RANKS); }

/* --- the same bits as on the CPU ---------------------------------------------------------------------------------- */

/* Numbers whose sums depend on the order: each algorithm adds them in the same order as on the host. */
static void same_bits_body(struct rank *rank) {
    const char *algorithm = rank->argument;
    static float expected[COUNT], values[COUNT], result[COUNT];
    CHECK(gpu_rank_open(rank, 0, algorithm, TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, LS_COMM_STAGED, algorithm, TIMEOUT_S) == LS_OK);
    fill_values(values, LS_FP32, rank->rank, 0, COUNT);
    memcpy(expected, values, sizeof values);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, expected, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    void *shared, *own = gpu_rank_upload(rank, values, sizeof values);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, sizeof values, &shared) == LS_OK);
    CHECK(ls_copy_now(rank->stream, shared, values, sizeof values) == LS_OK);
    void *const buffers[] = {shared, own};
    for (int b = 0; b < 2; b++) {
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffers[b], COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        gpu_rank_download(rank, result, buffers[b], sizeof result);
        CHECK(memcmp(result, expected, sizeof result) == 0);
    }
    if (strcmp(algorithm, "naive") == 0) {
        fill_reduced(expected, LS_FP32, LS_REDUCE_SUM, rank->world_size, 0, COUNT);
        CHECK(memcmp(result, expected, sizeof result) == 0);
    }
    ls_device_free(rank->device, own);
    rank_close(rank);
}

TEST(staged_sums_have_the_bits_of_the_host) {
    for (const ls_allreduce_algorithm *a = ls_allreduce_algorithms; a->name; a++)
        run_good_ranks(RANKS, same_bits_body, a->name);
}

/* Larger and larger buffers in the rank's own memory, with no wait in between: staging buffers are reallocated while
 * copies are in progress. */
static void growing_body(struct rank *rank) {
    static float values[40000];
    enum { TURNS = 6 };
    float *memory[TURNS];
    setenv("CUDA_ON_CPU_STREAMS", "shuffle:3", 1);
    CHECK(gpu_rank_open(rank, 0, NULL, TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, LS_COMM_STAGED, NULL, TIMEOUT_S) == LS_OK);
    for (size_t i = 0; i < 40000; i++) values[i] = (float)(i % 1000);
    for (int t = 0; t < TURNS; t++) memory[t] = gpu_rank_upload(rank, values, sizeof values);
    for (int t = 0; t < TURNS; t++)
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory[t], (size_t)1000 << t, LS_FP32, LS_REDUCE_SUM) ==
              LS_OK);
    for (int t = 0; t < TURNS; t++) {
        gpu_rank_download(rank, values, memory[t], sizeof values);
        for (size_t i = 0; i < 40000; i++)
            CHECK(values[i] == (float)(i % 1000) * (float)(i < (size_t)1000 << t ? rank->world_size : 1));
        ls_device_free(rank->device, memory[t]);
    }
    rank_close(rank);
}

TEST(staging_grows_behind_the_stream) { run_good_ranks(2, growing_body, NULL); }

/* --- memory ------------------------------------------------------------------------------------------------------- */

static size_t bucket_bytes(const struct rank *rank) {
    ls_memory_report memory;
    ls_device_memory(rank->device, &memory);
    return memory.current_bytes[LS_MEMORY_BUCKET];
}

static void memory_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    void *a, *b, *c;
    gpu_rank_attach(rank, path, NULL, TIMEOUT_S);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, 5000, &a) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, NULL, 3000, &b) == LS_OK);
    CHECK(ls_device_is_gpu_memory(rank->device, a) && ls_device_is_gpu_memory(rank->device, b));
    CHECK(bucket_bytes(rank) == 8000);
    ls_comm_release_shared(rank->comm, a);
    CHECK(bucket_bytes(rank) == 3000);
    ls_comm_release_shared(rank->comm, b);
    CHECK(bucket_bytes(rank) == 0);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, 0, &c) == LS_OK && c != NULL);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, 100, &a) == LS_OK);
    rank_close(rank); /* frees the rest */
    CHECK(rank->message[0] == '\0');
}

/* One rank has no room: all ranks are notified, and the group remains usable. */
static void poor_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    bool poor = rank->rank == 1, cpu = path == NULL;
    ls_device_options options = {.kind = cpu ? LS_DEVICE_CPU : LS_DEVICE_CUDA,
                                 .index = cpu || !path->shares_gpu ? rank->rank : 0,
                                 .devices_on_node = RANKS,
                                 .memory_capacity_bytes = poor ? 100000 : 0};
    void *memory;
    setenv("CUDA_ON_CPU_DEVICES", "4", 1);
    CHECK(rank_open_on(rank, &options, NULL, TIMEOUT_S) == LS_OK);
    if (!cpu) CHECK(rank_attach(rank, path->path, NULL, TIMEOUT_S) == LS_OK);
    ls_status status = ls_comm_alloc_shared(rank->comm, rank->device, 200000, &memory);
    CHECK(status == (poor ? LS_ERR_NO_MEMORY : LS_ERR_PEER) && !memory);
    CHECK(gpu_rank_says(rank, poor ? "200000 bytes asked for buffers of the process group (bucket)"
                                   : "rank 1 could not allocate its part of the shared memory: out of memory"));
    CHECK(bucket_bytes(rank) == 0);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, 20000, &memory) == LS_OK);
    CHECK(bucket_bytes(rank) == 20000);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, 5000, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
    rank_close(rank);
}

TEST(the_device_pays_for_the_groups_memory) {
    run_on_gpu_paths(memory_body, 2);
    run_good_ranks(RANKS, poor_body, &gpu_paths[0]);
    run_good_ranks(RANKS, poor_body, &gpu_paths[2]);
    run_good_ranks(RANKS, poor_body, NULL);
}
