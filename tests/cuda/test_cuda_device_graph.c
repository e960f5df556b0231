/* A step as a CUDA graph: its contents, the meaning of its events afterwards, and the operations that cannot be
 * captured. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include <cuda_on_cpu.h>

#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

#define COUNT 100

/* A step: the compute stream doubles x, the comm stream copies x to y, and the compute stream adds y to sum. */
struct step {
    struct gpus gpus;
    ls_stream *compute, *comm;
    float *x, *y, *sum;
    ls_event *doubled, *copied, *done;
};

static int open_step(void **state) {
    static struct step step;
    if (scratch_setup(state) != 0) return -1;
    step.gpus = open_gpus(1);
    step.compute = gpu_stream(&step.gpus, 0, LS_STREAM_COMPUTE);
    step.comm = gpu_stream(&step.gpus, 0, LS_STREAM_COMM);
    float ones[COUNT];
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    step.x = gpu_upload(step.gpus.device[0], ones, sizeof ones);
    step.y = gpu_alloc(step.gpus.device[0], sizeof ones);
    step.sum = gpu_alloc(step.gpus.device[0], sizeof ones);
    assert_int_equal(ls_event_create(&step.doubled, "doubled"), LS_OK);
    assert_int_equal(ls_event_create(&step.copied, "copied"), LS_OK);
    assert_int_equal(ls_event_create(&step.done, "done"), LS_OK);
    *state = &step;
    return 0;
}

static int close_step(void **state) {
    struct step *step = *state;
    ls_device *device = step->gpus.device[0];
    ls_event_destroy(step->doubled);
    ls_event_destroy(step->copied);
    ls_event_destroy(step->done);
    ls_device_free(device, step->x);
    ls_device_free(device, step->y);
    ls_device_free(device, step->sum);
    close_gpus(&step->gpus);
    return scratch_teardown(state);
}

static void enqueue_step(struct step *step) {
    ls_scale(step->compute, step->x, 2, COUNT);
    ls_event_record(step->doubled, step->compute);
    ls_stream_wait_event(step->comm, step->doubled);
    ls_copy(step->comm, step->y, step->x, COUNT * sizeof(float));
    ls_event_record(step->copied, step->comm);
    ls_stream_wait_event(step->compute, step->copied);
    ls_reduce_add(step->compute, step->sum, (const float *const[]){step->y}, 1, COUNT);
    ls_event_record(step->done, step->compute);
}

static float sum_of(struct step *step) {
    float sum[COUNT];
    gpu_download(step->gpus.device[0], sum, step->sum, sizeof sum);
    for (int i = 1; i < COUNT; i++) assert_true(sum[i] == sum[0]);
    return sum[0];
}

static ls_graph *record_step(struct step *step) {
    ls_graph *graph = NULL;
    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    enqueue_step(step);
    assert_int_equal(ls_graph_end(step->compute, &graph), LS_OK);
    assert_non_null(graph);
    return graph;
}

TEST_WITH(open_step, close_step, a_graph_does_what_was_recorded_each_time) {
    struct step *step = *state;
    enqueue_step(step);
    assert_true(sum_of(step) == 2);
    unsigned long kernels = cuda_on_cpu_kernel_launches();
    ls_graph *graph = record_step(step);
    assert_int_equal(cuda_on_cpu_kernel_launches(), kernels); /* nothing ran */
    assert_true(sum_of(step) == 2);
    for (int launch = 1; launch <= 3; launch++) {
        unsigned long calls = cuda_on_cpu_calls("cudaMemcpyAsync");
        assert_int_equal(ls_graph_launch(graph, step->compute), LS_OK);
        assert_int_equal(cuda_on_cpu_calls("cudaMemcpyAsync"), calls);
    }
    assert_true(sum_of(step) == 2 + 4 + 8 + 16);
    enqueue_step(step); /* and again without the graph, with the same events */
    assert_int_equal(ls_event_synchronize(step->done), LS_OK);
    assert_true(sum_of(step) == 2 + 4 + 8 + 16 + 32);
    ls_graph_destroy(graph);
    ls_graph_destroy(NULL);
}

/* A wait for an event that was recorded into a graph waits for the graph's launch. */
TEST_WITH(open_step, close_step, events_of_a_graph_complete_with_its_launch) {
    struct step *step = *state;
    ls_stream *copy = gpu_stream(&step->gpus, 0, LS_STREAM_COPY);
    float seen[COUNT] = {0}, *taken = gpu_alloc(step->gpus.device[0], sizeof seen);
    ls_graph *graph = record_step(step);
    assert_int_equal(ls_event_synchronize(step->done), LS_OK); /* no launch yet: nothing to wait for */
    ls_stream_wait_event(copy, step->done);
    for (int launch = 1; launch <= 4; launch++) {
        assert_int_equal(ls_graph_launch(graph, step->compute), LS_OK);
        ls_stream_wait_event(copy, launch % 2 ? step->done : step->doubled);
        ls_copy(copy, taken, step->sum, sizeof seen);
        assert_int_equal(ls_copy_now(copy, seen, taken, sizeof seen), LS_OK);
        assert_true(seen[0] == (float)((2 << launch) - 2));
        assert_int_equal(ls_graph_launch(graph, step->compute), LS_OK);
        assert_int_equal(ls_event_synchronize(step->done), LS_OK);
        assert_int_equal(cuda_on_cpu_peek(seen, step->sum, sizeof seen), 0);
        assert_true(seen[0] == (float)((2 << (launch + 1)) - 2));
        /* restore the values after the previous launch */
        ls_scale(step->compute, step->x, 0.5f, COUNT);
        const float minus = -(float)(2 << launch);
        for (int i = 0; i < COUNT; i++) seen[i] += minus;
        assert_int_equal(ls_copy_now(step->compute, step->sum, seen, sizeof seen), LS_OK);
    }
    ls_graph_destroy(graph);
    assert_int_equal(ls_event_synchronize(step->done), LS_OK); /* the events outlive it */
    ls_device_free(step->gpus.device[0], taken);
}

TEST_WITH(open_step, close_step, a_recording_waits_for_what_was_enqueued_before) {
    struct step *step = *state;
    ls_stream *copy = gpu_stream(&step->gpus, 0, LS_STREAM_COPY);
    ls_event *batch;
    float zeros[COUNT] = {0};
    assert_int_equal(ls_event_create(&batch, "batch"), LS_OK);
    ls_copy(copy, step->y, step->x, COUNT * sizeof(float));
    ls_event_record(batch, copy);
    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    ls_stream_wait_event(step->compute, batch); /* recorded before the graph */
    for (int i = 0; i < 9; i++)                 /* more copies than staging buffers, of which each uses one */
        ls_copy(copy, step->y, zeros, sizeof zeros);
    ls_copy(copy, zeros, step->y, sizeof zeros);
    ls_event_record(batch, copy);
    ls_stream_wait_event(step->compute, batch); /* recorded on a stream that is not captured */
    enqueue_step(step);
    ls_graph *graph;
    assert_int_equal(ls_graph_end(step->compute, &graph), LS_OK);
    assert_int_equal(ls_graph_launch(graph, step->compute), LS_OK);
    assert_true(sum_of(step) == 2);
    ls_graph_destroy(graph);
    ls_event_destroy(batch);
}

static ls_status no_task(const void *argument) {
    (void)argument;
    fail_msg("it ran");
    return LS_OK;
}

/* Each of these makes the capture fail; afterwards the device works as before. */
TEST_WITH(open_step, close_step, what_needs_the_host_cannot_be_part) {
    struct step *step = *state;
    ls_device *device = step->gpus.device[0];
    ls_graph *graph = (ls_graph *)step;
    void *memory;
    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    ls_stream_launch(step->compute, "all_reduce", no_task, NULL, 0);
    assert_int_equal(ls_device_status(ls_stream_device(step->compute)), LS_ERR_UNSUPPORTED);
    scratch_expect_error("all_reduce runs on the host", "graph");
    assert_int_equal(ls_graph_end(step->compute, &graph), LS_ERR_UNSUPPORTED);
    assert_null(graph);

    assert_int_equal(ls_device_synchronize(device), LS_ERR_UNSUPPORTED); /* and works again */

    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    ls_device_fail(device, LS_ERR_IO); /* later work would be missing from the graph */
    enqueue_step(step);
    assert_int_equal(ls_graph_end(step->compute, &graph), LS_ERR_IO);
    assert_null(graph);
    assert_int_equal(ls_device_synchronize(device), LS_ERR_IO);
    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_BUCKET, 100, "a bucket", &memory), LS_ERR_UNSUPPORTED);
    scratch_expect_error("while a graph is recorded", NULL);
    enqueue_step(step);
    assert_int_equal(ls_event_synchronize(step->done), LS_ERR_UNSUPPORTED);
    scratch_expect_error("\"done\" is being recorded", NULL);
    assert_int_equal(ls_stream_synchronize(step->compute), LS_ERR_UNSUPPORTED);
    scratch_expect_error("\"compute\" is being recorded", NULL);
    assert_int_not_equal(ls_graph_end(step->compute, &graph), LS_OK);
    assert_null(graph);

    (void)ls_device_synchronize(device);
    enqueue_step(step);
    assert_true(sum_of(step) == 2);
}

TEST_WITH(open_step, close_step, a_stream_that_joined_must_be_joined_back) {
    struct step *step = *state;
    ls_graph *graph;
    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    ls_event_record(step->doubled, step->compute);
    ls_stream_wait_event(step->comm, step->doubled);
    ls_copy(step->comm, step->y, step->x, COUNT * sizeof(float));
    assert_int_not_equal(ls_graph_end(step->compute, &graph), LS_OK);
    assert_null(graph);
    scratch_expect_error("not joined back before its end", "cudaErrorStreamCaptureUnjoined");
    (void)ls_device_synchronize(step->gpus.device[0]);
    enqueue_step(step);
    assert_true(sum_of(step) == 2);
}

TEST_WITH(open_step, close_step, beginnings_and_ends_must_match) {
    struct step *step = *state;
    ls_graph *graph;
    assert_int_equal(ls_graph_end(step->compute, &graph), LS_ERR_INVALID);
    scratch_expect_error("nothing is being recorded", NULL);
    assert_int_equal(ls_graph_begin(step->compute), LS_OK);
    assert_int_equal(ls_graph_begin(step->comm), LS_ERR_INVALID);
    scratch_expect_error("recording a graph already", NULL);
    ls_scale(step->compute, step->x, 2, COUNT);
    assert_int_equal(ls_graph_end(step->compute, &graph), LS_OK);
    ls_graph_destroy(graph);
}

TEST_WITH(open_step, close_step, cpu_devices_have_no_graphs) {
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1};
    ls_device *device;
    ls_graph *graph;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_int_equal(ls_graph_begin(ls_device_stream(device, LS_STREAM_COMPUTE)), LS_ERR_UNSUPPORTED);
    scratch_expect_error("on GPUs only", NULL);
    assert_int_equal(ls_graph_end(ls_device_stream(device, LS_STREAM_COMPUTE), &graph), LS_ERR_UNSUPPORTED);
    assert_null(graph);
    ls_device_close(device);
}

int main(void) {
    int failed = 0;
    for (int seed = 0; seed < 4; seed++) {
        char streams[32] = "eager";
        if (seed > 0) snprintf(streams, sizeof streams, "shuffle:%d", seed);
        setenv("CUDA_ON_CPU_STREAMS", streams, 1);
        cuda_on_cpu_restart();
        failed += run_added_tests();
    }
    return failed;
}
