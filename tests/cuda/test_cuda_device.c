/* A GPU as a device: opening, host tasks, failures of work, events, threads, marks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_on_cpu.h>
#include <cuda_runtime_api.h>

#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

/* --- opening ----------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, a_gpu_knows_what_it_is) {
    struct gpus gpus = open_gpus(2);
    ls_device *second = gpus.device[1];
    assert_int_equal(ls_device_index(second), 1);
    assert_int_equal(ls_device_kind_of(second), LS_DEVICE_CUDA);
    assert_string_equal(ls_device_stream_mode(second), "cuda");
    assert_true(strlen(ls_device_model_name(second)) > 3);
    assert_string_not_equal(ls_device_model_name(second), "CPU");
    assert_false(ls_device_memory_is_host(second));
    assert_true(ls_device_runs_behind(second));
    assert_int_equal(ls_device_bind_thread(second), LS_OK);
    close_gpus(&gpus);
}

TEST_IN(scratch, everything_goes_back_when_devices_close) {
    struct gpus gpus = open_sharing_gpus(3);
    size_t left_open, total, left;
    assert_true(ls_device_memory_left(gpus.device[0], &left_open, &total));
    close_gpus(&gpus);
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
    gpus = open_gpus(1);
    assert_true(ls_device_memory_left(gpus.device[0], &left, &total));
    assert_true(left > left_open);
    close_gpus(&gpus);
}

/* --- work --------------------------------------------------------------------------------------------------------- */

struct note {
    const float *host;
    float *seen;
    pthread_t *thread;
    ls_status status;
};

static ls_status note_task(const void *argument) {
    const struct note *note = argument;
    if (note->seen) *note->seen = *note->host;
    *note->thread = pthread_self();
    return note->status;
}

TEST_IN(scratch, a_task_of_the_host_runs_when_the_stream_has_come_to_it) {
    struct gpus gpus = open_gpus(1);
    ls_stream *stream = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    float *host = calloc(4, sizeof *host), seen = 0;
    pthread_t thread;
    ls_device_pin_host(gpus.device[0], host, 4 * sizeof *host);
    float *y = gpu_alloc(gpus.device[0], 4 * sizeof *y);
    ls_fill(stream, y, 2.5f, 4);
    ls_copy(stream, host, y, 4 * sizeof *y);
    struct note note = {&host[3], &seen, &thread, LS_OK};
    ls_stream_launch_meeting(stream, "note", note_task, &note, sizeof note);
    assert_true(pthread_equal(thread, pthread_self()));
    assert_true(seen == 2.5f);
    ls_device_free(gpus.device[0], y);
    close_gpus(&gpus);
    free(host);
}

/* device.h: a failure poisons the device; later work is skipped; a synchronize call returns the failure and clears
 * it. */
TEST_IN(scratch, a_failed_task_stops_the_device_until_somebody_looks) {
    struct gpus gpus = open_gpus(1);
    ls_stream *compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE), *copy = gpu_stream(&gpus, 0, LS_STREAM_COPY);
    float *y = gpu_alloc(gpus.device[0], 4 * sizeof *y), seen[4];
    pthread_t thread;
    struct note note = {NULL, NULL, &thread, LS_ERR_DIVERGED};
    ls_stream_launch(compute, "note", note_task, &note, sizeof note);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_DIVERGED);
    ls_fill(compute, y, 1, 4);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_DIVERGED);
    ls_copy(copy, seen, y, sizeof seen);
    assert_int_equal(ls_device_status(ls_stream_device(copy)), LS_ERR_DIVERGED);
    ls_stream_launch(copy, "note", note_task, &note, sizeof note);
    assert_int_equal(ls_device_status(ls_stream_device(copy)), LS_ERR_DIVERGED);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_ERR_DIVERGED);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_OK);
    gpu_download(gpus.device[0], seen, y, sizeof seen);
    assert_true(seen[0] == 0); /* it was skipped */
    ls_fill(compute, y, 1, 4);
    gpu_download(gpus.device[0], seen, y, sizeof seen);
    assert_true(seen[0] == 1);
    ls_device_free(gpus.device[0], y);
    close_gpus(&gpus);
}

/* While a stream is busy CUDA returns "not ready", and keeps it as the thread's last error. */
TEST_IN(scratch, a_wait_leaves_no_error) {
    enum { COUNT = 1 << 20 };
    struct gpus gpus = open_gpus(1);
    ls_stream *stream = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    float *y = gpu_alloc(gpus.device[0], COUNT * sizeof *y);
    for (int i = 0; i < 20; i++) ls_fill(stream, y, 1, COUNT);
    unsigned long looks = cuda_on_cpu_calls("cudaStreamQuery");
    assert_int_equal(ls_stream_synchronize(stream), LS_OK);
    assert_true(cuda_on_cpu_calls("cudaStreamQuery") > looks + 1);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    ls_device_free(gpus.device[0], y);
    close_gpus(&gpus);
}

TEST_IN(scratch, an_event_that_was_never_recorded_is_nothing_to_wait_for) {
    struct gpus gpus = open_gpus(1);
    ls_event *event;
    assert_int_equal(ls_event_create(&event, "never"), LS_OK);
    assert_int_equal(ls_event_synchronize(event), LS_OK);
    ls_stream_wait_event(gpu_stream(&gpus, 0, LS_STREAM_COMM), event);
    gpus_done(&gpus);
    ls_event_destroy(event);
    close_gpus(&gpus);
}

struct worker {
    struct gpus *gpus;
    float sums[3];
};

/* Uses the devices in turn: each call must select its GPU itself. */
static void *visit_devices(void *argument) {
    struct worker *worker = argument;
    for (int round = 0; round < 20; round++) {
        for (int d = 0; d < 3; d++) {
            void *memory;
            ls_stream *stream = ls_device_stream(worker->gpus->device[d], LS_STREAM_COPY);
            float value = (float)(round + d), back = -1;
            bool good =
                ls_device_alloc(worker->gpus->device[d], LS_MEMORY_INPUT, sizeof value, "one", &memory) == LS_OK;
            if (good) ls_copy(stream, memory, &value, sizeof value);
            good = good && ls_copy_now(stream, &back, memory, sizeof back) == LS_OK;
            worker->sums[d] += good ? back : -1000;
            ls_device_free(worker->gpus->device[d], memory);
        }
    }
    return NULL;
}

TEST_IN(scratch, any_thread_may_call) {
    struct gpus gpus = open_gpus(3);
    struct worker worker = {.gpus = &gpus};
    pthread_t thread;
    for (int t = 0; t < 2; t++) {
        assert_int_equal(pthread_create(&thread, NULL, visit_devices, &worker), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    for (int d = 0; d < 3; d++) assert_true(worker.sums[d] == 2 * (190 + 20 * (float)d));
    close_gpus(&gpus);
}

TEST_IN(scratch, marks_name_what_the_thread_does) {
    struct gpus gpus = open_gpus(1);
    unsigned long forward = cuda_on_cpu_ranges("forward"), backward = cuda_on_cpu_ranges("backward");
    ls_device_mark(gpus.device[0], NULL); /* nothing is open */
    ls_device_mark(gpus.device[0], "forward");
    ls_device_mark(gpus.device[0], "backward");
    assert_int_equal(cuda_on_cpu_open_ranges(), 1);
    ls_device_mark(gpus.device[0], NULL);
    assert_int_equal(cuda_on_cpu_open_ranges(), 0);
    assert_int_equal(cuda_on_cpu_ranges("forward"), forward + 1);
    assert_int_equal(cuda_on_cpu_ranges("backward"), backward + 1);
    close_gpus(&gpus);
}
