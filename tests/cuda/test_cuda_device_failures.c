/* Kernels that fail, GPUs that hang or are full: each failure is reported once, and every call still returns. Each test
 * is a process of its own, since a broken GPU stays broken for its process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_on_cpu.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/device/cuda/lane.h"
#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

#define MIB ((size_t)1 << 20)

/* The plug-in's own stream, for work that no operation enqueues. */
static cudaStream_t native(ls_stream *stream) {
    char path[4096];
    snprintf(path, sizeof path, "%s/ls_cuda.so", getenv("LS_PLUGINS"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(plugin);
    const struct ls_cuda_lane *(*lane_of)(ls_stream *);
    *(void **)&lane_of = dlsym(plugin, "ls_cuda_lane_of");
    assert_non_null(*(void **)&lane_of);
    dlclose(plugin);
    return lane_of(stream)->stream;
}

static float batch[1024];

/* cudaHostUnregister may wait for the GPU. */
static void expect_unpinning_without_cuda(ls_device *device) {
    unsigned long calls = cuda_on_cpu_calls("cudaHostUnregister");
    ls_device_unpin_host(device, batch);
    assert_int_equal(cuda_on_cpu_calls("cudaHostUnregister"), calls);
}

/* --- a kernel that fails ------------------------------------------------------------------------------------------ */

static void after_a_failed_kernel(struct gpus *gpus, float *y) {
    ls_stream *compute = gpu_stream(gpus, 0, LS_STREAM_COMPUTE);
    float seen[4];
    /* all later calls fail at once, and silently: the failure has been reported */
    expect_unpinning_without_cuda(gpus->device[0]);
    double begin_us = ls_now_us();
    ls_fill(compute, y, 1, 4);
    assert_int_not_equal(ls_copy_now(compute, seen, y, sizeof seen), LS_OK);
    assert_int_not_equal(ls_device_synchronize(gpus->device[0]), LS_OK);
    void *memory;
    assert_int_not_equal(ls_device_alloc(gpus->device[0], LS_MEMORY_INPUT, 100, "more", &memory), LS_OK);
    ls_event *event;
    assert_int_equal(ls_event_create(&event, "late"), LS_OK);
    ls_event_record(event, compute);
    ls_event_destroy(event);
    ls_device_free(gpus->device[0], y);
    close_gpus(gpus);
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .devices_on_node = 1};
    ls_device *device;
    assert_int_equal(ls_device_open(&device, &options), LS_ERR_SYSTEM);
    scratch_expect_error("GPU 0 has failed in this process", NULL);
    assert_true(ls_now_us() - begin_us < 20e6); /* far below the deadline of a wait: no call waits */
}

APART("CUDA_ON_CPU_FAIL=kernel:2:700", a_kernel_that_fails_is_said_once_and_ends_the_gpu) {
    struct gpus gpus = open_gpus(2);
    float *y = gpu_alloc(gpus.device[0], 16), *other = gpu_alloc(gpus.device[1], 16), seen[4] = {0};
    ls_stream *compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    ls_fill(compute, y, 1, 4);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_OK);
    ls_scale(compute, y, 2, 4); /* the second kernel: it fails, sooner or later */
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_ERR_SYSTEM);
    scratch_expect_error("failed on GPU 0: ",
                         "cudaErrorIllegalAddress): a kernel that was enqueued earlier has failed; "
                         "restart this process");
    /* the other GPU is unaffected */
    ls_fill(gpu_stream(&gpus, 1, LS_STREAM_COMPUTE), other, 3, 4);
    gpu_download(gpus.device[1], seen, other, sizeof seen);
    assert_true(seen[3] == 3);
    ls_device_free(gpus.device[1], other);
    after_a_failed_kernel(&gpus, y);
}

TEST(a_kernel_that_fails_is_said_once_and_ends_the_gpu_shuffled) {
    in_own_process("CUDA_ON_CPU_FAIL=kernel:2:700 CUDA_ON_CPU_STREAMS=shuffle:3",
                   in_a_kernel_that_fails_is_said_once_and_ends_the_gpu);
}

APART("CUDA_ON_CPU_FAIL=kernel:2:719", checking_launches_names_the_operation) {
    ls_device *device = open_gpu((ls_device_options){.check_launches = true});
    float *y = gpu_alloc(device, 16);
    ls_stream *compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    ls_fill(compute, y, 1, 4);
    ls_scale(compute, y, 2, 4);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_SYSTEM); /* detected at once, by name */
    scratch_expect_error("scale: ", "cudaErrorLaunchFailure");
    assert_int_equal(ls_device_synchronize(device), LS_ERR_SYSTEM);
    ls_device_free(device, y);
    ls_device_close(device);
}

APART("", a_call_that_fails_does_not_end_the_gpu) {
    struct gpus gpus = open_gpus(1);
    float *y = gpu_alloc(gpus.device[0], 16), seen[4];
    ls_stream *compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    cuda_on_cpu_reset_faults("cudaMemcpyAsync:1:1");
    ls_copy(compute, y, y + 2, 8);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_SYSTEM);
    scratch_expect_error("cudaMemcpyAsync failed on GPU 0: ", "(cudaErrorInvalidValue)");
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* so that no other call reports it */
    ls_fill(compute, y, 1, 4);                         /* skipped */
    assert_int_equal(ls_stream_synchronize(compute), LS_ERR_SYSTEM);
    ls_fill(compute, y, 1, 4); /* an error of that call only: the GPU still works */
    gpu_download(gpus.device[0], seen, y, sizeof seen);
    assert_true(seen[0] == 1);
    ls_device_free(gpus.device[0], y);
    close_gpus(&gpus);
}

APART("", a_gpu_that_disappears) {
    struct gpus gpus = open_gpus(1);
    float *y = gpu_alloc(gpus.device[0], 16);
    ls_device_pin_host(gpus.device[0], batch, sizeof batch);
    cuda_on_cpu_reset_faults("kernel:1:214");
    ls_fill(gpu_stream(&gpus, 0, LS_STREAM_COMPUTE), y, 1, 4);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_ERR_SYSTEM);
    scratch_expect_error("cudaErrorECCUncorrectable", "the GPU or its memory has failed, or was taken away");
    after_a_failed_kernel(&gpus, y);
}

/* --- input that kernels refuse ------------------------------------------------------------------------------------ */

APART("", a_label_out_of_range_is_named) {
    struct gpus gpus = open_gpus(1);
    float logits[20] = {0}, *memory = gpu_upload(gpus.device[0], logits, sizeof logits);
    float *loss = gpu_alloc(gpus.device[0], 4), *gradient = gpu_alloc(gpus.device[0], sizeof logits);
    int64_t wrong[2] = {3, 12}, right[2] = {3, 9}, *labels = gpu_upload(gpus.device[0], wrong, sizeof wrong);
    ls_stream *compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    for (int round = 0; round < 2; round++) { /* the device works again after a synchronize call */
        ls_cross_entropy(compute, loss, gradient, memory, labels, 2, 10, 0.5f);
        assert_int_equal(ls_stream_synchronize(compute), LS_ERR_INVALID);
        scratch_expect_error("cross_entropy: label 12 is out of range [0, 10)", NULL);
    }
    /* a wait for an event, as for a loss, also returns the failure */
    ls_event *done;
    assert_int_equal(ls_event_create(&done, "loss"), LS_OK);
    ls_cross_entropy(compute, loss, gradient, memory, labels, 2, 10, 0.5f);
    ls_event_record(done, compute);
    assert_int_equal(ls_event_synchronize(done), LS_ERR_INVALID);
    scratch_expect_error("cross_entropy: label 12 is out of range [0, 10)", NULL);
    ls_fill(compute, loss, 1, 1); /* skipped until a synchronize call */
    assert_int_equal(ls_stream_synchronize(compute), LS_ERR_INVALID);
    ls_event_destroy(done);
    assert_int_equal(ls_copy_now(compute, labels, right, sizeof right), LS_OK);
    ls_cross_entropy(compute, loss, gradient, memory, labels, 2, 10, 0.5f);
    gpus_done(&gpus);
    void *all[] = {memory, loss, gradient, labels};
    for (int i = 0; i < 4; i++) ls_device_free(gpus.device[0], all[i]);
    close_gpus(&gpus);
}

/* --- a GPU that hangs --------------------------------------------------------------------------------------------- */

static _Atomic bool released;

static void hang(void *unused) {
    (void)unused;
    while (!atomic_load(&released)) usleep(1000);
}

static void nap(void *unused) {
    (void)unused;
    usleep(200 * 1000);
}

APART("", a_wait_has_a_deadline) {
    struct gpus gpus = open_gpus(2);
    ls_set_wait_timeout_s(0.3);
    ls_stream *comm = gpu_stream(&gpus, 1, LS_STREAM_COMM), *compute = gpu_stream(&gpus, 1, LS_STREAM_COMPUTE);
    float *y = gpu_alloc(gpus.device[1], 16);
    ls_device_pin_host(gpus.device[1], batch, sizeof batch);
    ls_event *reduced;
    assert_int_equal(ls_event_create(&reduced, "bucket reduced"), LS_OK);
    ls_event_record(reduced, gpu_stream(&gpus, 0, LS_STREAM_COMM));
    assert_int_equal(ls_event_synchronize(reduced), LS_OK);
    assert_int_equal(cudaLaunchHostFunc(native(comm), hang, NULL), cudaSuccess);
    ls_event_record(reduced, comm);
    assert_int_equal(ls_event_synchronize(reduced), LS_ERR_TIMEOUT);
    scratch_expect_error("timed out after 0.3 s waiting for the event \"bucket reduced\" of device 1 (GPU 1)", NULL);
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_TIMEOUT); /* a hang is a failure */
    ls_fill(compute, y, 1, 4);
    /* later waits give up at once, without a new message */
    ls_set_wait_timeout_s(1000);
    assert_int_equal(ls_stream_synchronize(comm), LS_ERR_TIMEOUT);
    assert_int_equal(ls_device_synchronize(gpus.device[1]), LS_ERR_TIMEOUT);
    expect_unpinning_without_cuda(gpus.device[1]);
    /* if the work continues after all, the device works again */
    atomic_store(&released, true);
    while (cudaStreamQuery(native(comm)) != cudaSuccess) usleep(1000);
    assert_int_equal(ls_stream_synchronize(comm), LS_OK);
    assert_int_equal(ls_stream_synchronize(compute), LS_OK);
    assert_int_equal(cudaLaunchHostFunc(native(comm), nap, NULL), cudaSuccess);
    assert_int_equal(ls_stream_synchronize(comm), LS_OK); /* and waits work again */
    ls_event_destroy(reduced);
    ls_device_free(gpus.device[1], y);
    close_gpus(&gpus);
}

/* Two MiB of pageable memory are enqueued on a stream that does not run; the rest waits for the first of them. */
APART("", a_small_batch_does_not_wait_for_the_stream) {
    struct gpus gpus = open_gpus(1);
    ls_stream *copy = gpu_stream(&gpus, 0, LS_STREAM_COPY);
    char *values = calloc(2 * MIB, 1), *memory = gpu_upload(gpus.device[0], values, 2 * MIB);
    ls_set_wait_timeout_s(0.3);
    assert_int_equal(cudaLaunchHostFunc(native(copy), hang, NULL), cudaSuccess);
    ls_copy(copy, memory, values, 2 * MIB);
    ls_copy(copy, memory, values, 1);
    scratch_expect_error("waiting for the staged copy on the stream \"copy\"", NULL);
    atomic_store(&released, true);
    while (cudaStreamQuery(native(copy)) != cudaSuccess) usleep(1000);
    assert_int_equal(ls_stream_synchronize(copy), LS_ERR_TIMEOUT); /* reported before */
    assert_int_equal(ls_stream_synchronize(copy), LS_OK);
    ls_device_free(gpus.device[0], memory);
    close_gpus(&gpus);
    free(values);
}

APART("", closing_a_gpu_that_hangs_does_not_hang) {
    struct gpus gpus = open_gpus(1);
    ls_set_wait_timeout_s(0.2);
    ls_stream *compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    float here[4], *y = gpu_alloc(gpus.device[0], sizeof here);
    assert_int_equal(cudaLaunchHostFunc(native(compute), hang, NULL), cudaSuccess);
    ls_copy(compute, here, y, sizeof here); /* to pageable memory: it waits, but not for ever */
    assert_int_equal(ls_device_status(ls_stream_device(compute)), LS_ERR_TIMEOUT);
    scratch_expect_error("timed out after 0.2 s waiting for the stream \"compute\" of device 0 (GPU 0)", NULL);
    ls_set_wait_timeout_s(1000);
    ls_device_free(gpus.device[0], y);
    close_gpus(&gpus); /* frees nothing, and does not wait */
    atomic_store(&released, true);
}

/* --- watchers ----------------------------------------------------------------------------------------------------- */

static _Atomic int asked;

/* As in a group of ranks: its peer has died, and it ends the operation that waits for the peer. */
static ls_status watch(void *context, double waited_us) {
    (void)context;
    (void)waited_us;
    if (atomic_fetch_add(&asked, 1) != 20) return LS_OK;
    atomic_store(&released, true);
    return ls_fail(LS_ERR_PEER, "rank 1 has died");
}

APART("", watchers_are_asked_and_can_end_a_wait) {
    struct gpus gpus = open_gpus(1);
    ls_stream *comm = gpu_stream(&gpus, 0, LS_STREAM_COMM);
    assert_int_equal(ls_device_watch(gpus.device[0], watch, &asked), LS_OK);
    assert_int_equal(cudaLaunchHostFunc(native(comm), hang, NULL), cudaSuccess);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_ERR_PEER);
    scratch_expect_error("rank 1 has died", NULL);
    assert_true(atomic_load(&asked) > 20);
    assert_int_equal(ls_device_synchronize(gpus.device[0]), LS_OK);
    ls_device_unwatch(gpus.device[0], &asked);
    int before = atomic_load(&asked);
    close_gpus(&gpus);
    assert_int_equal(atomic_load(&asked), before);
}

/* --- requests that do not fit ------------------------------------------------------------------------------------- */

APART("CUDA_ON_CPU_MEMORY=314572800", out_of_memory_says_what_to_lower) {
    struct gpus gpus = open_sharing_gpus(2);
    void *parameters, *activations;
    assert_int_equal(ls_device_alloc(gpus.device[0], LS_MEMORY_PARAMETER, 50 * MIB, "weights", &parameters), LS_OK);
    assert_int_equal(ls_device_alloc(gpus.device[1], LS_MEMORY_ACTIVATION, 300 * MIB, "layer 1's output", &activations),
                     LS_ERR_NO_MEMORY);
    assert_null(activations);
    scratch_expect_error(
        "device 0 is out of memory: 314572800 bytes asked for layer 1's output (activation), 0 bytes in use",
        "bytes are free; lower the batch size");
    assert_int_equal(ls_device_alloc(gpus.device[0], LS_MEMORY_OPTIMIZER, 300 * MIB, "moments", &activations),
                     LS_ERR_NO_MEMORY);
    scratch_expect_error("52428800 bytes in use (parameter 52428800)",
                         "of the GPU's 314572800 bytes are free; use a smaller model");
    gpus_done(&gpus); /* the device works again */
    activations = gpu_alloc(gpus.device[1], 10 * MIB);
    ls_device_free(gpus.device[1], activations);
    ls_device_free(gpus.device[0], parameters);
    close_gpus(&gpus);
}

APART("CUDA_ON_CPU_MEMORY=314572800", what_the_pool_keeps_is_no_lack) {
    struct gpus gpus = open_gpus(1);
    size_t before = ls_device_reserved_bytes(gpus.device[0]);
    void *memory = gpu_alloc(gpus.device[0], 120 * MIB);
    ls_device_free(gpus.device[0], memory);
    memory = gpu_alloc(gpus.device[0], 180 * MIB); /* fits only in the memory that the first used */
    size_t taken = ls_device_reserved_bytes(gpus.device[0]) - before;
    assert_true(taken >= 180 * MIB && taken < 181 * MIB);
    ls_device_free(gpus.device[0], memory);
    close_gpus(&gpus);
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
}

TEST(what_the_pool_keeps_is_no_lack_without_pools) {
    in_own_process("CUDA_ON_CPU_MEMORY=314572800 CUDA_ON_CPU_NO_POOLS=1", in_what_the_pool_keeps_is_no_lack);
}
