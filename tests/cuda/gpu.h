/* GPUs for the tests of this folder: those of tests/cuda_on_cpu, whatever machine the tests run on. A process has
 * FAKE_GPUS of them, unless its environment says otherwise; what differs (memory, order, failures) is set with
 * in_own_process. All functions assert. */
#ifndef TESTS_CUDA_GPU_H
#define TESTS_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "common/device/device.h"

#define FAKE_GPUS 4
#define MAX_GPU_DEVICES 8

struct gpus {
    int count;
    ls_device *device[MAX_GPU_DEVICES];
};

/* Opens `count` devices on GPUs 0, 1, ... (round and round where there are fewer). */
struct gpus open_gpus(int count);

/* `count` logical devices that share GPU 0. */
struct gpus open_sharing_gpus(int count);

/* One device with these options; the kind need not be set. */
ls_device *open_gpu(ls_device_options options);

void close_gpus(struct gpus *gpus);

ls_stream *gpu_stream(const struct gpus *gpus, int device, ls_stream_kind kind);

/* Waits for all of them; asserts that all went well. */
void gpus_done(const struct gpus *gpus);

/* Zero-filled memory of the device (workspace); free it with ls_device_free. */
void *gpu_alloc(ls_device *device, size_t nbytes);

/* The same, with a copy of `values`. */
void *gpu_upload(ls_device *device, const void *values, size_t nbytes);

/* Copies `nbytes` from the device's memory, after all of its work. */
void gpu_download(ls_device *device, void *values, const void *memory, size_t nbytes);

/* A function of tests/cuda_on_cpu, looked up so that the test can run on real GPUs too, where it is NULL. For
 * assertions that only the CPU's CUDA can answer. */
void *fake_function(const char *name);

/* Whether the plug-ins are those of real GPUs. Opens nothing. */
bool gpu_is_real(void);

/* Whether this GPU may round in this way: "slices", "place", "cut", "ulps", "flush" of CUDA_ON_CPU_ROUNDING
 * (cuda_on_cpu.h). A real one may always. */
bool gpu_may_round(const char *how);

/* Runs `body`, a test of its own, in a child process with these settings added to the environment
 * ("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_STREAMS=shuffle:3"), and fails if an assertion in it fails, if it leaves an error
 * that it did not expect (scratch.h), if it crashes, or after a minute. No GPU may have been used in this process
 * before. */
void in_own_process(const char *settings, void (*body)(void **state));

/* A test that runs there: APART("CUDA_ON_CPU_DEVICES=2", it_trains) { ... } */
#define APART(settings, name)                                                                                          \
    TEST_CASE(in_##name);                                                                                              \
    TEST(name) { in_own_process(settings, in_##name); }                                                                \
    TEST_CASE(in_##name)

#endif
