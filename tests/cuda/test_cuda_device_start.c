/* The messages if GPUs cannot be used, and the GPUs that are found. Each test is a process of its own, as CUDA starts
 * once per process. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_on_cpu.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

static const struct absence {
    const char *settings, *reason, *advice;
} absences[] =
    {
        {"CUDA_ON_CPU_DRIVER=none CUDA_ON_CPU_DEVICES=1", "there is no NVIDIA driver", ""},
        {"CUDA_ON_CPU_DRIVER=old CUDA_ON_CPU_DEVICES=1",
         "the NVIDIA driver is too old: it knows CUDA 11.4, and this build needs CUDA 13.0", "update the driver"},
        {"CUDA_ON_CPU_DEVICES=0", "the NVIDIA driver shows no GPU", ""},
        {"CUDA_ON_CPU_DEVICES=2 CUDA_VISIBLE_DEVICES=", "shows no GPU (CUDA_VISIBLE_DEVICES=)", ""},
        {"CUDA_ON_CPU_DEVICES=2 CUDA_ON_CPU_FAIL=cudaGetDeviceCount:0:802", "CUDA does not start",
         "cudaErrorSystemNotReady"},
        {"LS_PLUGINS=/nowhere CUDA_ON_CPU_DEVICES=2", "there is no /nowhere/ls_cuda.so", "nvcc"},
},
  *absent;

/* Opening fails at the first step that `text` (and CUDA_ON_CPU_FAIL) names, and leaves nothing behind. */
static void open_fails(ls_status expected, const char *text, const char *another) {
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .devices_on_node = 1};
    ls_device *device = (ls_device *)&options;
    assert_int_equal(ls_device_open(&device, &options), expected);
    assert_null(device);
    scratch_expect_error(text, another);
}

/* For this reason, which opening a device also reports. */
TEST_CASE(nothing_is_found) {
    char why[512] = "?";
    int count = 9;
    ls_find_gpus(&count, why, sizeof why);
    assert_int_equal(count, 0);
    if (!strstr(why, absent->reason) || !strstr(why, absent->advice) || strchr(why, '\n'))
        fail_msg("\"%s\" and \"%s\" in: %s", absent->reason, absent->advice, why);
    open_fails(LS_ERR_UNSUPPORTED, absent->reason, "--device-kind cpu");
}

TEST(why_there_are_no_gpus_is_said) {
    for (absent = absences; absent < absences + sizeof absences / sizeof *absences; absent++)
        in_own_process(absent->settings, nothing_is_found);
}

APART("CUDA_ON_CPU_DEVICES=4 CUDA_VISIBLE_DEVICES=3,1,0", an_index_that_does_not_exist) {
    char why[512] = "?";
    int count;
    ls_find_gpus(&count, why, sizeof why);
    assert_int_equal(count, 3);
    assert_string_equal(why, "");
    static const int wrong[] = {3, -1, 100};
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .devices_on_node = 1};
    ls_device *device;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.index = wrong[i];
        assert_int_equal(ls_device_open(&device, &options), LS_ERR_USAGE);
        assert_null(device);
        char expected[64];
        snprintf(expected, sizeof expected, "GPU %d does not exist; there are 0: ", wrong[i]);
        scratch_expect_error(expected, "(CUDA_VISIBLE_DEVICES=3,1,0)");
    }
    options.index = 3;
    assert_int_equal(ls_device_open(&device, &options), LS_ERR_USAGE);
    scratch_expect_error(", 1: ", ", 2: ");
    device = open_gpu((ls_device_options){.index = 2});
    ls_device_close(device);
}

/* The size of cuBLAS's workspace, in an environment with this setting. */
static size_t opened_nbytes(void) {
    ls_device *device = open_gpu((ls_device_options){.index = 0});
    size_t nbytes = cuda_on_cpu_device_bytes();
    ls_device_close(device);
    return nbytes;
}

APART("CUDA_ON_CPU_DEVICES=1", a_workspace_as_asked) {
    static const struct {
        const char *text;
        size_t nbytes;
    } settings[] = {{"", 32 << 20}, {":1024:3", 3 << 20}, {":16:8:4096:2", (8 << 20) + (128 << 10)}};
    setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
    size_t without = opened_nbytes();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        setenv("CUBLAS_WORKSPACE_CONFIG", settings[i].text, 1);
        assert_int_equal(opened_nbytes() - without, settings[i].nbytes);
    }
    unsetenv("CUBLAS_WORKSPACE_CONFIG");
    assert_int_equal(opened_nbytes() - without, 32 << 20);
    static const char *const damaged[] = {
        ":", ":4096", "4096:8", ":4096:8:", ":4096:-8", ":4k:8", ":1048577:1", " :1:1"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        setenv("CUBLAS_WORKSPACE_CONFIG", damaged[i], 1);
        open_fails(LS_ERR_USAGE, "CUBLAS_WORKSPACE_CONFIG is", "as in :4096:8");
    }
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
}

APART("CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaSetDevice:1:46", a_gpu_that_another_process_has_for_itself) {
    open_fails(LS_ERR_SYSTEM, "cudaSetDevice failed on GPU 0", "another process has the GPU for itself");
}

APART("CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_MEMORY=150000000 CUBLAS_WORKSPACE_CONFIG=",
      a_gpu_without_memory_for_another_device) {
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .devices_on_node = 1};
    ls_device *devices[8];
    int opened = 0;
    while (opened < 8 && ls_device_open(&devices[opened], &options) == LS_OK) opened++;
    assert_true(opened > 0 && opened < 8);
    scratch_expect_error("GPU 0 has no memory left to open device 0 on it", "use fewer devices on it");
    ls_device_close(devices[--opened]); /* and then there is room again */
    assert_int_equal(ls_device_open(&devices[opened], &options), LS_OK);
    for (; opened >= 0; opened--) ls_device_close(devices[opened]);
}

TEST_CASE(in_half_open) {
    open_fails(LS_ERR_SYSTEM, "failed on GPU 0", NULL);
    assert_true(cuda_on_cpu_calls("cudaFreeAsync") <= cuda_on_cpu_calls("cudaMemsetAsync")); /* only what was had */
    struct gpus gpus = open_gpus(1);                                                         /* the fault has passed */
    gpus_done(&gpus);
    close_gpus(&gpus);
    assert_int_equal(cuda_on_cpu_device_bytes(), 0);
}

/* Each call that opening makes fails once. */
TEST(a_failure_while_opening_leaves_nothing) {
    static const char *const faults[] = {
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaGetDeviceProperties:1:304",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaHostAlloc:1:304",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaStreamCreateWithFlags:1:304",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaMemPoolCreate:1:801",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaMemPoolSetAttribute:1:1",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaStreamCreateWithPriority:3:304",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaMallocFromPoolAsync:2:1",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaMallocFromPoolAsync:4:1",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cudaMemsetAsync:4:1",
        "CUDA_ON_CPU_DEVICES=1 CUDA_ON_CPU_FAIL=cublasCreate:1:1",
    };
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) in_own_process(faults[f], in_half_open);
}
