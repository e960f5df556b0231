#define _GNU_SOURCE
#include "tests/cuda/gpu_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gpu_path gpu_paths[] = {
    {.name = "shm, staged", .backend = &rank_backends[0], .path = LS_COMM_STAGED, .shares_gpu = true},
    {.name = "threads, staged", .backend = &rank_backends[1], .path = LS_COMM_STAGED},
    {.name = "nccl", .backend = &rank_backends[0], .path = LS_COMM_NCCL},
    {.name = "nccl", .backend = &rank_backends[1], .path = LS_COMM_NCCL},
    {.name = NULL},
};

void run_on_gpu_paths(void (*body)(struct rank *rank), int world_size) {
    for (const struct gpu_path *path = gpu_paths; path->name; path++)
        run_good_ranks_on(path->backend, world_size, body, path);
}

ls_status gpu_rank_open(struct rank *rank, int gpu, const char *allreduce, double timeout_s) {
    char count[16];
    snprintf(count, sizeof count, "%d", FAKE_RANKS);
    CHECK(setenv("CUDA_ON_CPU_DEVICES", count, 0) == 0);
    ls_device_options options = {
        .kind = LS_DEVICE_CUDA, .index = gpu, .devices_on_node = rank->world_size, .place = rank->rank};
    return rank_open_on(rank, &options, allreduce, timeout_s);
}

void gpu_rank_attach(struct rank *rank, const struct gpu_path *path, const char *allreduce, double timeout_s) {
    CHECK(gpu_rank_open(rank, path->shares_gpu ? 0 : rank->rank, allreduce, timeout_s) == LS_OK);
    ls_status status = rank_attach(rank, path->path, allreduce, timeout_s);
    CHECK(status == LS_OK);
    CHECK(strcmp(ls_comm_backend(rank->comm), path->name) == 0);
}

void *gpu_rank_upload(const struct rank *rank, const void *values, size_t nbytes) {
    void *memory;
    CHECK(ls_device_alloc(rank->device, LS_MEMORY_WORKSPACE, nbytes, "a test's array", &memory) == LS_OK);
    if (values) CHECK(ls_copy_now(rank->stream, memory, values, nbytes) == LS_OK);
    return memory;
}

void gpu_rank_download(const struct rank *rank, void *values, const void *memory, size_t nbytes) {
    CHECK(ls_copy_now(rank->stream, values, memory, nbytes) == LS_OK);
}

bool gpu_rank_says(const struct rank *rank, const char *text) { return strstr(rank->message, text) != NULL; }
