/* Attaching a path for GPU memory to a group: which groups may, which values are compared first, the messages if NCCL
 * cannot be loaded or initialized, and that nothing is left behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_on_cpu.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 2.0
#define LONG_TIMEOUT_S 50.0 /* for waits that must end much earlier for another reason */
#define GRACE_S 25.0
#define RANKS 3

/* --- ranks that share a GPU --------------------------------------------------------------------------------------- */

static void distinct_body(struct rank *rank) {
    char text[160];
    ls_status obstacle = LS_ERR_INVALID;
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_find_nccl_obstacle(rank->comm, rank->device, &obstacle, text, sizeof text) == LS_OK);
    CHECK(obstacle == LS_OK && text[0] == '\0');
    rank_close(rank);
}

/* Ranks 0 and 2 share a GPU, which has a different number in each of them. */
static void sharing_body(struct rank *rank) {
    static const char *const visible[] = {"1,0", "3", "0,1"};
    static const int index[] = {0, 0, 1};
    char text[160];
    ls_status obstacle = LS_OK;
    setenv("CUDA_VISIBLE_DEVICES", visible[rank->rank], 1);
    CHECK(gpu_rank_open(rank, index[rank->rank], NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_find_nccl_obstacle(rank->comm, rank->device, &obstacle, text, sizeof text) == LS_OK);
    CHECK(obstacle == LS_ERR_USAGE && strcmp(text, "ranks 0 and 2 share GPU 0") == 0);
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "ranks 0 and 2 share GPU 0: NCCL needs a GPU per rank; --backend shm stages"));
    rank_close(rank);
}

static void sharing_threads_body(struct rank *rank) {
    CHECK(gpu_rank_open(rank, rank->rank / 2, NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "ranks 0 and 1 share GPU 0: NCCL needs a GPU per rank"));
    rank_close(rank);
}

TEST(ranks_that_share_a_gpu_are_named) {
    run_good_ranks(1, distinct_body, NULL);
    run_good_ranks(RANKS, distinct_body, NULL);
    run_good_ranks(RANKS, sharing_body, NULL);
    run_good_ranks_on(&rank_backends[1], RANKS, sharing_threads_body, NULL);
}

/* --- missing plug-ins --------------------------------------------------------------------------------------------- */

/* Rank 1 looks for its plug-ins in a folder without ls_nccl.so. */
static void without_library_body(struct rank *rank) {
    const char *wrong = rank->argument;
    char text[400];
    ls_status obstacle = LS_OK;
    if (rank->rank == 1) setenv("LS_PLUGINS", scratch_folder(), 1);
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(ls_comm_find_nccl_obstacle(rank->comm, rank->device, &obstacle, text, sizeof text) == LS_OK);
    CHECK(obstacle == LS_ERR_UNSUPPORTED && strstr(text, rank->rank == 1 ? wrong : "rank 1 cannot use NCCL"));
    CHECK(rank->message[0] == '\0');
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == LS_ERR_UNSUPPORTED);
    CHECK(gpu_rank_says(rank, wrong) && gpu_rank_says(rank, "; --backend shm stages through host memory"));
    CHECK(gpu_rank_says(rank, rank->rank == 1 ? "NCCL cannot be used: " : "rank 1 has given up: NCCL cannot be used"));
    rank_close(rank);
}

TEST_IN(scratch, a_missing_library_is_said_by_all) {
    char *real = getenv("LS_PLUGINS"), path[4096];
    assert_non_null(real);
    snprintf(path, sizeof path, "%s/ls_cuda.so", real);
    assert_int_equal(symlink(path, scratch_path("ls_cuda.so")), 0);
    run_good_ranks(RANKS, without_library_body, "there is no ");
    scratch_write("ls_nccl.so", "\177ELF but no more", 16);
    run_good_ranks(RANKS, without_library_body, "ls_nccl.so: file too short");
}

static void other_version_body(struct rank *rank) {
    setenv("NCCL_ON_CPU_VERSION", rank->rank == 2 ? "22105" : "22809", 1);
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "rank 0 has NCCL 2.28.9, rank 2 has 2.21.5: all ranks need the same"));
    rank_close(rank);
}

TEST(another_version_is_refused) { run_good_ranks(RANKS, other_version_body, NULL); }

/* --- initialization fails ----------------------------------------------------------------------------------------- */

struct fault {
    const char *fault; /* on rank 1 */
    ls_status status;
    const char *text, *others;
};

static void fault_body(struct rank *rank) {
    const struct fault *fault = rank->argument;
    if (rank->rank == 1) setenv("CUDA_ON_CPU_FAIL", fault->fault, 1);
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    if (fault->status == LS_ERR_TIMEOUT) rank->comm->timeout_s = TIMEOUT_S;
    double begin_us = ls_now_us();
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == fault->status);
    CHECK(gpu_rank_says(rank, rank->rank == 1 ? fault->text : fault->others));
    rank_close(rank);
    CHECK(ls_now_us() - begin_us < (TIMEOUT_S + GRACE_S) * 1e6);
}

TEST(initialisation_that_fails_ends_on_all_ranks) {
    static const struct fault faults[] = {
        {"ncclCommInitRankConfig:1:7", LS_ERR_TIMEOUT, "NCCL did not initialize within 2 s, though all 3 ranks began",
         "NCCL did not initialize within 2 s, though all 3 ranks began"},
        {"ncclCommInitRankConfig:1:2", LS_ERR_SYSTEM, "NCCL on rank 1: unhandled system error: injected into",
         "rank 1 has given up: attach_device (nccl): NCCL on rank 1"},
        {"ncclCommGetAsyncError:2:2", LS_ERR_SYSTEM, "NCCL on rank 1: unhandled system error",
         "rank 1 has given up: attach_device (nccl): NCCL on rank 1"},
        {"ncclAllReduce:1:3", LS_ERR_SYSTEM, "NCCL on rank 1: internal error",
         "rank 1 has given up: attach_device (nccl): NCCL on rank 1"},
    };
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) run_good_ranks(RANKS, fault_body, &faults[f]);
}

static void no_id_body(struct rank *rank) {
    if (rank->rank == 0) setenv("CUDA_ON_CPU_FAIL", "ncclGetUniqueId:1:2", 1);
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == LS_ERR_SYSTEM);
    CHECK(gpu_rank_says(rank, "NCCL made no id: unhandled system error: injected into ncclGetUniqueId"));
    rank_close(rank);
}

static void dies_body(struct rank *rank) {
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    if (rank->rank == 1) _exit(0);
    CHECK(rank_attach(rank, LS_COMM_NCCL, NULL, LONG_TIMEOUT_S) == LS_ERR_PEER);
    CHECK(gpu_rank_says(rank, "attach_device (nccl): rank 1 died"));
    rank_close(rank);
}

TEST(ranks_that_fail_before_it_are_named) {
    run_good_ranks(RANKS, no_id_body, NULL);
    run_good_ranks(RANKS, dies_body, NULL);
}

/* --- wrong calls -------------------------------------------------------------------------------------------------- */

static void two_paths_body(struct rank *rank) {
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, rank->rank == 1 ? LS_COMM_NCCL : LS_COMM_STAGED, NULL, LONG_TIMEOUT_S) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "rank 1 runs attach_device (nccl), but rank 0 runs attach_device (staged)"));
    rank_close(rank);
}

static void twice_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    gpu_rank_attach(rank, path, NULL, LONG_TIMEOUT_S);
    CHECK(rank_attach(rank, path->path, NULL, LONG_TIMEOUT_S) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "has attached a device to the group already"));
    rank_close(rank);
}

static void cpu_body(struct rank *rank) {
    CHECK(rank_open(rank, "inline", NULL, LONG_TIMEOUT_S) == LS_OK);
    CHECK(rank_attach(rank, LS_COMM_STAGED, NULL, LONG_TIMEOUT_S) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "is not a GPU"));
    rank_close(rank);
}

static void not_attached_body(struct rank *rank) {
    CHECK(gpu_rank_open(rank, rank->rank, NULL, LONG_TIMEOUT_S) == LS_OK);
    void *memory = gpu_rank_upload(rank, NULL, 4096);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, 10, LS_FP32, LS_REDUCE_SUM) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "passes GPU memory, but the group has no attached device"));
    ls_device_free(rank->device, memory);
    rank_close(rank);
}

static void other_stream_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .index = 3, .devices_on_node = 1};
    ls_device *other;
    gpu_rank_attach(rank, path, NULL, LONG_TIMEOUT_S);
    CHECK(ls_device_open(&other, &options) == LS_OK);
    CHECK(ls_comm_barrier(rank->comm, ls_device_stream(other, LS_STREAM_COMM)) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "the stream is on GPU 3, but the group has attached GPU"));
    void *memory;
    CHECK(ls_comm_alloc_shared(rank->comm, other, 64, &memory) == LS_ERR_INVALID);
    ls_device_close(other);
    rank_close(rank);
}

TEST(calls_that_cannot_be_right_are_refused) {
    run_good_ranks(2, two_paths_body, NULL);
    run_on_gpu_paths(twice_body, 2);
    run_good_ranks(2, cpu_body, NULL);
    run_good_ranks(2, not_attached_body, NULL);
    run_good_ranks(2, other_stream_body, &gpu_paths[2]);
}

/* --- nothing is left behind --------------------------------------------------------------------------------------- */

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

/* One thread destroys the endpoints of all threads, one after another: no call waits for the next endpoint. */
static void one_by_one_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    gpu_rank_attach(rank, path, NULL, LONG_TIMEOUT_S);
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == LS_OK && ls_stream_synchronize(rank->stream) == LS_OK);
    static ls_comm *all[RANKS];
    static _Atomic int arrived;
    all[rank->rank] = rank->comm;
    rank->comm = NULL;
    if (atomic_fetch_add(&arrived, 1) == RANKS - 1) {
        double begin_us = ls_now_us();
        for (int r = 0; r < RANKS; r++) ls_comm_destroy(all[r]);
        CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
        CHECK(cuda_on_cpu_calls("ncclCommDestroy") == RANKS && cuda_on_cpu_calls("ncclCommAbort") == 0);
        atomic_fetch_add(&arrived, 1);
    }
    while (atomic_load(&arrived) <= RANKS) sched_yield();
    rank_close(rank);
}

static void tidy_body(struct rank *rank) {
    const struct gpu_path *path = rank->argument;
    int files = 0;
    size_t device_bytes = 0;
    for (int turn = 0; turn < 3; turn++) {
        char group[16];
        snprintf(group, sizeof group, "%s", turn == 0 ? "ring" : turn == 1 ? "tree" : "direct");
        gpu_rank_attach(rank, path, group, LONG_TIMEOUT_S);
        void *memory = gpu_rank_upload(rank, NULL, 4000), *shared;
        CHECK(ls_comm_alloc_shared(rank->comm, rank->device, 4000, &shared) == LS_OK);
        CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, 1000, LS_FP32, LS_REDUCE_SUM) == LS_OK);
        CHECK(ls_stream_synchronize(rank->stream) == LS_OK);
        ls_device_free(rank->device, memory);
        double begin_us = ls_now_us();
        rank_close(rank);
        CHECK(ls_now_us() - begin_us < GRACE_S * 1e6); /* no call waited for another rank */
        if (path->path == LS_COMM_NCCL) CHECK(cuda_on_cpu_calls("ncclCommDestroy") == (unsigned long)turn + 1);
        CHECK(cuda_on_cpu_calls("ncclCommAbort") == 0);
        if (turn == 0) files = open_files();
        if (turn == 0) device_bytes = cuda_on_cpu_device_bytes();
    }
    CHECK(open_files() == files);
    CHECK(cuda_on_cpu_device_bytes() == device_bytes);
}

TEST(nothing_is_left_behind) {
    run_good_ranks(RANKS, tidy_body, &gpu_paths[0]);
    run_good_ranks(RANKS, tidy_body, &gpu_paths[2]);
    run_good_ranks_on(gpu_paths[3].backend, RANKS, one_by_one_body, &gpu_paths[3]);
}
