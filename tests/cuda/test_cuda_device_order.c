/* Streams of GPUs run in any order that the recorded events allow: with all waits the result is the same for every
 * seed, and if any one wait is missing, some seed gives a different result. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include <cuda_on_cpu.h>

#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/device/modes.h"

#define COUNT 8
#define STEPS 3
#define SEEDS 12

/* Two devices alternate: the first doubles x and passes it to the second's comm stream, which copies it; the second
 * adds it up. */
struct relay {
    struct gpus gpus;
    float *x, *y, *sum;
    ls_event *doubled, *copied, *added;
};

static void run_steps(struct relay *relay) {
    ls_stream *first = gpu_stream(&relay->gpus, 0, LS_STREAM_COMPUTE);
    ls_stream *comm = gpu_stream(&relay->gpus, 1, LS_STREAM_COMM),
              *second = gpu_stream(&relay->gpus, 1, LS_STREAM_COMPUTE);
    for (int step = 0; step < STEPS; step++) {
        ls_stream_wait_event(first, relay->copied); /* x may be changed again */
        ls_scale(first, relay->x, 2, COUNT);
        ls_event_record(relay->doubled, first);
        ls_stream_wait_event(comm, relay->doubled);
        ls_stream_wait_event(comm, relay->added); /* y may be changed again */
        ls_copy(comm, relay->y, relay->x, COUNT * sizeof(float));
        ls_event_record(relay->copied, comm);
        ls_stream_wait_event(second, relay->copied);
        ls_reduce_add(second, relay->sum, (const float *const[]){relay->y}, 1, COUNT);
        ls_event_record(relay->added, second);
    }
}

static float relay_once(int shared_gpu) {
    struct relay relay = {.gpus = shared_gpu ? open_sharing_gpus(2) : open_gpus(2)};
    ls_device *first = relay.gpus.device[0], *second = relay.gpus.device[1];
    float ones[COUNT] = {1, 1, 1, 1, 1, 1, 1, 1}, sum[COUNT];
    relay.x = gpu_upload(first, ones, sizeof ones);
    relay.y = gpu_alloc(second, sizeof ones);
    relay.sum = gpu_alloc(second, sizeof ones);
    relay.doubled = new_event("doubled");
    relay.copied = new_event("copied");
    relay.added = new_event("added");
    run_steps(&relay);
    gpu_download(second, sum, relay.sum, sizeof sum);
    gpus_done(&relay.gpus);
    ls_event_destroy(relay.doubled);
    ls_event_destroy(relay.copied);
    ls_event_destroy(relay.added);
    ls_device_free(first, relay.x);
    ls_device_free(second, relay.y);
    ls_device_free(second, relay.sum);
    close_gpus(&relay.gpus);
    return sum[COUNT - 1];
}

TEST_CASE(in_right) {
    assert_true(relay_once(0) == 2 + 4 + 8);
    assert_true(relay_once(1) == 2 + 4 + 8);
}

/* EXPECT_WRONG_FILE, of the environment, notes that a seed gave a different result. */
TEST_CASE(in_perhaps_wrong) {
    if (relay_once(0) == 2 + 4 + 8) return;
    FILE *file = fopen(getenv("EXPECT_WRONG_FILE"), "w");
    assert_non_null(file);
    fclose(file);
}

TEST_IN(scratch, with_all_waits_every_order_gives_the_same) {
    in_own_process("CUDA_ON_CPU_STREAMS=eager", in_right);
    for (int seed = 1; seed <= SEEDS; seed++) {
        char streams[64];
        snprintf(streams, sizeof streams, "CUDA_ON_CPU_STREAMS=shuffle:%d", seed);
        in_own_process(streams, in_right);
    }
}

TEST_IN(scratch, without_any_one_wait_some_order_shows_it) {
    static const char *const drops[] = {"doubled", "copied", "added"};
    for (int d = 0; d < 3; d++) {
        char settings[900];
        for (int seed = 1; seed <= SEEDS && scratch_file_count() == d; seed++) {
            snprintf(settings, sizeof settings,
                     "CUDA_ON_CPU_STREAMS=shuffle:%d LS_CPU_DROP_WAIT=%s EXPECT_WRONG_FILE=%s", seed, drops[d],
                     scratch_path(drops[d]));
            in_own_process(settings, in_perhaps_wrong);
        }
        if (scratch_file_count() != d + 1) fail_msg("nobody notices %s", drops[d]);
    }
}
