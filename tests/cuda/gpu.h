/* GPUs for the tests of this folder: those of tests/cuda_on_cpu, whatever machine the tests run on. A process has
 * FAKE_GPUS of them, unless its environment says otherwise; in_own_process changes settings (memory, order, failures).
 * All functions assert. */
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

/* Opens `count` devices on GPUs 0, 1, ..., starting again at 0 if there are fewer GPUs. */
struct gpus open_gpus(int count);

/* `count` logical devices that share GPU 0. */
struct gpus open_sharing_gpus(int count);

/* One device with these options; the kind need not be set. */
ls_device *open_gpu(ls_device_options options);

void close_gpus(struct gpus *gpus);

ls_stream *gpu_stream(const struct gpus *gpus, int device, ls_stream_kind kind);

/* Waits for all of them; asserts that no work failed. */
void gpus_done(const struct gpus *gpus);

/* Zero-filled memory of the device (workspace); free it with ls_device_free. */
void *gpu_alloc(ls_device *device, size_t nbytes);

/* The same, with a copy of `values`. */
void *gpu_upload(ls_device *device, const void *values, size_t nbytes);

/* Copies `nbytes` from the device's memory, after all of its work. */
void gpu_download(ls_device *device, void *values, const void *memory, size_t nbytes);

/* A function of tests/cuda_on_cpu, for assertions that only the CPU's CUDA supports. It is looked up at run time, and
 * NULL on real GPUs, so that the test can run on these too. */
void *fake_function(const char *name);

/* Whether the plug-ins are for real GPUs. Opens nothing. */
bool gpu_is_real(void);

/* Whether this GPU may round in this mode: "slices", "place", "cut", "ulps", "flush" of CUDA_ON_CPU_ROUNDING
 * (cuda_on_cpu.h). Always true for a real GPU. */
bool gpu_may_round(const char *how);

/* Runs `body`, a test of its own, in a child process with these settings added to the environment
 * ("CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_STREAMS=shuffle:3"). Fails if an assertion in it fails, if it causes an error
 * that it did not expect (scratch.h), if it crashes, or after a minute. Call it before this process uses a GPU. */
void in_own_process(const char *settings, void (*body)(void **state));

/* A test that runs in such a process: APART("CUDA_ON_CPU_DEVICES=2", it_trains) { ... } */
#define APART(settings, name)                                                                                          \
    TEST_CASE(in_##name);                                                                                              \
    TEST(name) { in_own_process(settings, in_##name); }                                                                \
    TEST_CASE(in_##name)

#endif
