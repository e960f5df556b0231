/* Groups with GPUs whose ranks die, stop, stay away, leave, give up or run a different operation, or in which NCCL
 * fails: every rank ends in time, with a line that names the operation and the culprit. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_on_cpu.h>

#include "common/base/clock.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"
#include "kernels/kernels.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu_ranks.h"

#define TIMEOUT_S 1.0
#define GRACE_S 25.0        /* slack added to deadlines for loaded machines and sanitizers */
#define LONG_TIMEOUT_S 50.0 /* for waits that must end much earlier for another reason */
#define RANKS 3
#define COUNT 1000
#define KILLED (128 + SIGKILL)
#define REDUCE_TEXT "all_reduce (sum) of 1000 fp32 elements (operation "

static const struct gpu_path staged = {"shm, staged", &rank_backends[0], LS_COMM_STAGED, true};
static const struct gpu_path nccl = {"nccl", &rank_backends[0], LS_COMM_NCCL, false};
static const struct gpu_path nccl_threads = {"nccl", &rank_backends[1], LS_COMM_NCCL, false};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* --- ranks that fail ---------------------------------------------------------------------------------------------- */

struct scene {
    const struct gpu_path *path;
    void (*culprit)(struct rank *rank, float *buffer); /* rank 2's part; either does not return, or also fails */
    ls_status status;                                  /* of the others */
    const char *text;
    int ends;            /* rank 2's exit status */
    long others_wait_ms; /* so that rank 2 is first */
    void (*meanwhile)(const pid_t *pids);
};

static ls_status reduce(const struct rank *rank, float *buffer) {
    ls_status status = ls_comm_all_reduce(rank->comm, rank->stream, buffer, COUNT, LS_FP32, LS_REDUCE_SUM);
    ls_status waited = ls_stream_synchronize(rank->stream);
    return status != LS_OK ? status : waited;
}

/* From now on every call fails at once; then the rank leaves without a wait. */
static void expect_broken(struct rank *rank, float *buffer, ls_status status) {
    (void)ls_device_synchronize(rank->device);
    double begin_us = ls_now_us();
    CHECK(ls_comm_barrier(rank->comm, rank->stream) == status);
    (void)ls_device_synchronize(rank->device);
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, 1, LS_FP32, LS_REDUCE_SUM) == status);
    (void)ls_device_synchronize(rank->device);
    rank_close(rank);
    CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
}

/* Three operations succeed; at the next one rank 2 fails. On rank 2 work runs only while it waits. */
static void scene_body(struct rank *rank) {
    const struct scene *scene = rank->argument;
    void *memory;
    if (rank->rank == 2 && !rank->crew) setenv("CUDA_ON_CPU_STREAMS", "shuffle:1", 1);
    gpu_rank_attach(rank, scene->path, NULL, LONG_TIMEOUT_S);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    for (int i = 0; i < 3; i++) CHECK(reduce(rank, memory) == LS_OK);
    if (scene->status == LS_ERR_TIMEOUT) rank->comm->timeout_s = TIMEOUT_S;
    if (rank->rank == 2) sleep_ms(100); /* by then the others have usually seen the end of the third one */
    if (rank->rank == 2) scene->culprit(rank, memory);
    if (rank->rank != 2) sleep_ms(scene->others_wait_ms);
    double begin_us = ls_now_us();
    ls_status status = reduce(rank, memory);
    CHECK(status == scene->status);
    CHECK(ls_now_us() - begin_us < (TIMEOUT_S + GRACE_S) * 1e6);
    CHECK(gpu_rank_says(rank, REDUCE_TEXT "4, 4000 bytes)") || rank->rank == 2);
    CHECK(gpu_rank_says(rank, scene->text));
    expect_broken(rank, memory, status);
}

static void play(const struct scene *scene) {
    run_ranks_expecting(scene->path->backend, RANKS, scene_body, scene, scene->meanwhile, 3, scene->ends);
}

static void dies(struct rank *rank, float *buffer) {
    (void)rank;
    (void)buffer;
    raise(SIGKILL);
}

/* The rank has enqueued its part, and dies before this is done. */
static void dies_in_the_middle(struct rank *rank, float *buffer) {
    (void)ls_comm_all_reduce(rank->comm, rank->stream, buffer, COUNT, LS_FP32, LS_REDUCE_SUM);
    raise(SIGKILL);
}

/* Rank 1 leaves in an orderly way, rank 2 dies: only the latter may be reported as the reason why rank 0 waits in
 * vain. */
static void left_and_died_body(struct rank *rank) {
    void *memory;
    gpu_rank_attach(rank, &nccl, NULL, LONG_TIMEOUT_S);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    CHECK(reduce(rank, memory) == LS_OK);
    if (rank->rank == 2) raise(SIGKILL);
    if (rank->rank == 0) {
        sleep_ms(800); /* the others have usually left by then */
        CHECK(reduce(rank, memory) == LS_ERR_PEER);
        CHECK(gpu_rank_says(rank, REDUCE_TEXT "2, 4000 bytes): rank 2 died"));
        (void)ls_device_synchronize(rank->device);
    }
    rank_close(rank);
}

/* Two groups over the same ranks and GPUs, each with an operation in progress: NCCL's abort of one waits for the
 * device, and thus for the operation of the other. */
static void two_groups_body(struct rank *rank) {
    void *memory;
    ls_comm *second;
    gpu_rank_attach(rank, &nccl, NULL, LONG_TIMEOUT_S);
    const ls_comm_options options = {.rank = rank->rank,
                                     .world_size = RANKS,
                                     .timeout_s = LONG_TIMEOUT_S,
                                     .bootstrap = &rank->bootstrap,
                                     .group = "second"};
    CHECK(ls_comm_create_shm(&second, &options) == LS_OK);
    CHECK(ls_comm_attach_device(second, rank->device, LS_COMM_NCCL, &options) == LS_OK);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    CHECK(reduce(rank, memory) == LS_OK);
    if (rank->rank == 2) raise(SIGKILL);
    double begin_us = ls_now_us();
    CHECK(ls_comm_barrier(second, ls_device_stream(rank->device, LS_STREAM_COMPUTE)) == LS_OK);
    if (rank->rank == 0) sleep_ms(300); /* usually finds the group broken when it enqueues; rank 1 while it waits */
    CHECK(reduce(rank, memory) == LS_ERR_PEER);
    CHECK(gpu_rank_says(rank, "rank 2 died"));
    ls_comm_destroy(rank->comm); /* first, and without a wait for the other group's stream */
    rank->comm = NULL;
    ls_comm_destroy(second);
    rank_close(rank);
    CHECK(ls_now_us() - begin_us < GRACE_S * 1e6);
}

static void stops(struct rank *rank, float *buffer) {
    (void)rank;
    (void)buffer;
    raise(SIGSTOP);
}

/* Once the others have ended: rank 2 must not die before them. */
static void kill_rank_2(const pid_t *pids) {
    siginfo_t ended;
    for (int r = 0; r < 2; r++) assert_int_equal(waitid(P_PID, (id_t)pids[r], &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(pids[2], SIGKILL), 0);
}

static void leaves(struct rank *rank, float *buffer) {
    (void)buffer;
    rank_close(rank);
    _exit(7);
}

static void gives_up(struct rank *rank, float *buffer) {
    (void)buffer;
    sleep_ms(100); /* the others usually wait by then */
    CHECK(ls_comm_abort(rank->comm, "the dog ate my gradient"));
}

/* Any rank may detect it first: another may have given up by the time this rank's call returns. */
static void runs_something_else(struct rank *rank, float *buffer) {
    ls_status status = ls_comm_broadcast(rank->comm, rank->stream, buffer, 7, LS_INT32, 1);
    ls_status waited = ls_stream_synchronize(rank->stream);
    CHECK(status == LS_OK || status == LS_ERR_INVALID);
    CHECK(waited == LS_ERR_INVALID || status == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "the ranks are out of step"));
    expect_broken(rank, buffer, LS_ERR_INVALID);
    _exit(7);
}

/* --- NCCL fails --------------------------------------------------------------------------------------------------- */

static void nccl_fails(struct rank *rank, float *buffer) {
    cuda_on_cpu_reset_faults("ncclCommGetAsyncError:1:3");
    CHECK(reduce(rank, buffer) == LS_ERR_SYSTEM);
    CHECK(gpu_rank_says(rank, REDUCE_TEXT "4, 4000 bytes): NCCL on rank 2: internal error"));
    expect_broken(rank, buffer, LS_ERR_SYSTEM);
    _exit(7);
}

static void a_peer_fails(struct rank *rank, float *buffer) {
    cuda_on_cpu_reset_faults("ncclCommGetAsyncError:1:6");
    CHECK(reduce(rank, buffer) == LS_ERR_PEER);
    _exit(7);
}

static void a_call_fails(struct rank *rank, float *buffer) {
    cuda_on_cpu_reset_faults("ncclAllReduce:1:1");
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_ERR_SYSTEM);
    CHECK(gpu_rank_says(rank, "NCCL on rank 2: unhandled cuda error"));
    expect_broken(rank, buffer, LS_ERR_SYSTEM);
    _exit(7);
}

static void a_gpu_fails(struct rank *rank, float *buffer) {
    cuda_on_cpu_reset_faults("cudaEventRecord:1:999");
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, buffer, COUNT, LS_FP32, LS_REDUCE_SUM) != LS_OK);
    CHECK(gpu_rank_says(rank, "cudaEventRecord"));
    expect_broken(rank, buffer, LS_ERR_PEER);
    _exit(7);
}

/* --- late --------------------------------------------------------------------------------------------------------- */

/* All ranks have enqueued the operation, and one GPU does not reach it: with shuffled streams work runs only while a
 * thread waits. */
static void sleepy_body(struct rank *rank) {
    void *memory;
    if (rank->rank == 1) setenv("CUDA_ON_CPU_STREAMS", "shuffle:1", 1);
    gpu_rank_attach(rank, &nccl, NULL, LONG_TIMEOUT_S);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    CHECK(reduce(rank, memory) == LS_OK);
    rank->comm->timeout_s = TIMEOUT_S;
    CHECK(ls_comm_all_reduce(rank->comm, rank->stream, memory, COUNT, LS_FP32, LS_REDUCE_SUM) == LS_OK);
    if (rank->rank == 1) { /* its part completes when it finally waits, but the others have given up */
        for (int r = 0; r < RANKS; r += 2)
            while (!ls_flag_reached(&rank->comm->segment->slot[r].progress, rank->comm->progress_base + 1)) sleep_ms(5);
        expect_broken(rank, memory, LS_ERR_TIMEOUT);
        return;
    }
    CHECK(ls_stream_synchronize(rank->stream) == LS_ERR_TIMEOUT);
    ls_comm_step_done(rank->comm, 1);
    CHECK(gpu_rank_says(rank, REDUCE_TEXT
                        "2, 4000 bytes): all ranks have enqueued the operation, but no result arrived within 1 s"));
    expect_broken(rank, memory, LS_ERR_TIMEOUT);
}

TEST(an_operation_that_does_not_end_is_named) { run_good_ranks_on(nccl.backend, RANKS, sleepy_body, NULL); }

/* --- abort by another thread -------------------------------------------------------------------------------------- */

static void *abort_soon(void *comm) {
    sleep_ms(100);
    return ls_comm_abort(comm, "another thread has had enough") ? comm : NULL;
}

static void aborted_body(struct rank *rank) {
    void *memory, *told;
    pthread_t thread;
    gpu_rank_attach(rank, &nccl, NULL, 60);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    if (rank->rank == 0) {
        CHECK(pthread_create(&thread, NULL, abort_soon, rank->comm) == 0);
        CHECK(reduce(rank, memory) == LS_ERR_PEER);
        CHECK(pthread_join(thread, &told) == 0 && told == rank->comm);
    } else if (rank->rank == 1) {
        CHECK(reduce(rank, memory) == LS_ERR_PEER);
    } else { /* never calls the operation */
        CHECK(ls_comm_alloc_shared(rank->comm, rank->device, 64, &told) == LS_ERR_PEER);
    }
    CHECK(gpu_rank_says(rank, "rank 0 has given up: another thread has had enough"));
    expect_broken(rank, memory, LS_ERR_PEER);
}

TEST(any_thread_may_abort) {
    run_good_ranks_on(nccl.backend, RANKS, aborted_body, NULL);
    run_good_ranks_on(nccl_threads.backend, RANKS, aborted_body, NULL);
}

TEST(a_rank_that_left_is_not_said_to_have_died) {
    run_ranks_expecting(nccl.backend, RANKS, left_and_died_body, NULL, NULL, 3, KILLED);
}

TEST(groups_of_one_gpu_do_not_wait_for_one_another) {
    run_ranks_expecting(nccl.backend, RANKS, two_groups_body, NULL, NULL, 3, KILLED);
}

/* --- a GPU that fails while no call waits for it ------------------------------------------------------------------ */

/* Ranks of one process: the GPU of rank 2 fails asynchronously, and rank 2 does not wait for it. The others, whose
 * operation can never end, learn of it long before their deadline. (With shuffled streams work runs only while they
 * wait.) */
static void fails_unseen_body(struct rank *rank) {
    static _Atomic int begun, enqueued, found;
    void *memory;
    gpu_rank_attach(rank, &nccl_threads, NULL, LONG_TIMEOUT_S);
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
    ls_status status = ls_stream_synchronize(rank->stream); /* LS_ERR_TIMEOUT: not detected */
    CHECK(status == LS_ERR_SYSTEM || (status == LS_ERR_PEER && rank->rank != 2));
    if (status == LS_ERR_PEER) CHECK(gpu_rank_says(rank, " has given up: GPU 2, that of rank 2, has failed"));
    if (status == LS_ERR_SYSTEM && rank->rank != 2) /* any one of them reports it; no rank reports it twice */
        CHECK(rank->message[0] == '\0' || gpu_rank_says(rank, "failed on GPU 2: uncorrectable ECC error"));
    atomic_fetch_add(&found, 1);
    rank_close(rank);
}

TEST(a_gpu_that_nobody_waits_for_is_found) {
    setenv("CUDA_ON_CPU_STREAMS", "shuffle:1", 1);
    run_good_ranks_on(nccl_threads.backend, RANKS, fails_unseen_body, NULL);
    unsetenv("CUDA_ON_CPU_STREAMS");
}

TEST(a_rank_that_dies) { play(&(struct scene){&nccl, dies, LS_ERR_PEER, "rank 2 died", KILLED, 0, NULL}); }

TEST(a_rank_that_dies_staged) { play(&(struct scene){&staged, dies, LS_ERR_PEER, "rank 2 died", KILLED, 0, NULL}); }

TEST(a_rank_that_dies_within_an_operation) {
    play(&(struct scene){&nccl, dies_in_the_middle, LS_ERR_PEER, "rank 2 died", KILLED, 0, NULL});
}

TEST(a_rank_that_stops) {
    play(&(struct scene){&nccl, stops, LS_ERR_TIMEOUT, "rank 2 did not arrive within 1 s", KILLED, 0, kill_rank_2});
}

TEST(a_rank_that_leaves) {
    play(&(struct scene){&nccl, leaves, LS_ERR_PEER, "rank 2 left the group without taking part", 7, 0, NULL});
}

TEST(a_rank_that_gives_up) {
    play(&(struct scene){&nccl, gives_up, LS_ERR_PEER, "rank 2 has given up: the dog ate my gradient", 0, 0, NULL});
}

TEST(a_thread_that_gives_up) {
    play(&(struct scene){&nccl_threads, gives_up, LS_ERR_PEER, "rank 2 has given up: the dog ate my gradient", 0, 0,
                         NULL});
}

TEST(ranks_out_of_step) {
    play(&(struct scene){&nccl, runs_something_else, LS_ERR_INVALID, "broadcast of 7 int32 elements from rank 1", 7, 0,
                         NULL});
}

/* A message whose two ends differ: NCCL would wait, or write beyond the buffer. */
static void message_body(struct rank *rank) {
    void *memory;
    gpu_rank_attach(rank, &nccl, NULL, LONG_TIMEOUT_S);
    CHECK(ls_comm_alloc_shared(rank->comm, rank->device, COUNT * sizeof(float), &memory) == LS_OK);
    ls_status status = rank->rank == 0   ? ls_comm_send(rank->comm, rank->stream, memory, COUNT - 1, LS_FP32, 1)
                       : rank->rank == 1 ? ls_comm_recv(rank->comm, rank->stream, memory, COUNT, LS_FP32, 0)
                                         : ls_comm_barrier(rank->comm, rank->stream);
    ls_status waited = ls_stream_synchronize(rank->stream);
    CHECK((status != LS_OK ? status : waited) == LS_ERR_INVALID);
    CHECK(gpu_rank_says(rank, "send of 999 fp32 elements to rank 1 (operation 1, 3996 bytes)"));
    CHECK(gpu_rank_says(rank, "recv of 1000 fp32 elements from rank 0 (operation 1, 4000 bytes)"));
    expect_broken(rank, memory, LS_ERR_INVALID);
}

TEST(messages_out_of_step) { run_good_ranks_on(nccl.backend, RANKS, message_body, NULL); }

TEST(what_nccl_says) {
    play(&(struct scene){&nccl, nccl_fails, LS_ERR_SYSTEM, "rank 2 has given up: " REDUCE_TEXT "4", 7, 400, NULL});
}

TEST(a_gpu_that_fails) {
    play(&(struct scene){&nccl, a_gpu_fails, LS_ERR_PEER, "rank 2 has given up: its GPU failed", 7, 400, NULL});
}

TEST(a_peer_that_nccl_has_lost) {
    play(&(struct scene){&nccl, a_peer_fails, LS_ERR_PEER, "remote process exited", 7, 400, NULL});
}

TEST(a_call_that_fails) {
    play(&(struct scene){&nccl, a_call_fails, LS_ERR_SYSTEM, "unhandled cuda error", 7, 0, NULL});
}
