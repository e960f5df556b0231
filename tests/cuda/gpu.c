#define _GNU_SOURCE
#include "tests/cuda/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"

/* --- devices ----------------------------------------------------------------------------------------------------- */

/* Read by tests/cuda_on_cpu at its first call. */
static void have_gpus(void) {
    char count[16];
    snprintf(count, sizeof count, "%d", FAKE_GPUS);
    assert_int_equal(setenv("CUDA_ON_CPU_DEVICES", count, 0), 0);
}

ls_device *open_gpu(ls_device_options options) {
    have_gpus();
    ls_device *device;
    options.kind = LS_DEVICE_CUDA;
    if (options.devices_on_node == 0) options.devices_on_node = 1;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    return device;
}

static struct gpus open_some(int count, int gpus_used) {
    assert_true(count <= MAX_GPU_DEVICES);
    struct gpus gpus = {.count = count};
    for (int d = 0; d < count; d++) {
        gpus.device[d] = open_gpu((ls_device_options){.index = d % gpus_used, .devices_on_node = count, .place = d});
    }
    return gpus;
}

struct gpus open_gpus(int count) {
    return open_some(count, FAKE_GPUS);
}
struct gpus open_sharing_gpus(int count) {
    return open_some(count, 1);
}

void close_gpus(struct gpus *gpus) {
    for (int d = 0; d < gpus->count; d++) ls_device_close(gpus->device[d]);
    gpus->count = 0;
}

ls_stream *gpu_stream(const struct gpus *gpus, int device, ls_stream_kind kind) {
    return ls_device_stream(gpus->device[device], kind);
}

void gpus_done(const struct gpus *gpus) {
    for (int d = 0; d < gpus->count; d++) assert_int_equal(ls_device_synchronize(gpus->device[d]), LS_OK);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

void *gpu_alloc(ls_device *device, size_t nbytes) {
    void *memory;
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_WORKSPACE, nbytes, "a test's array", &memory), LS_OK);
    return memory;
}

void *gpu_upload(ls_device *device, const void *values, size_t nbytes) {
    void *memory = gpu_alloc(device, nbytes);
    assert_int_equal(ls_copy_now(ls_device_stream(device, LS_STREAM_COMPUTE), memory, values, nbytes), LS_OK);
    return memory;
}

void gpu_download(ls_device *device, void *values, const void *memory, size_t nbytes) {
    assert_int_equal(ls_device_synchronize(device), LS_OK);
    assert_int_equal(ls_copy_now(ls_device_stream(device, LS_STREAM_COMPUTE), values, memory, nbytes), LS_OK);
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static void apply(const char *settings) {
    char text[2048], *rest;
    assert_in_range(snprintf(text, sizeof text, "%s", settings), 0, sizeof text - 1);
    for (char *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(name, '=');
        *value = '\0';
        setenv(name, value + 1, 1);
    }
}

static FILE *said;

struct apart {
    const char *settings;
    void (*body)(void **state);
};

/* Runs cmocka within a test's child process: a failed assertion ends this run, not the parent's. */
static int run_apart(void *argument) {
    const struct apart *apart = argument;
    apply(apart->settings);
    dup2(fileno(said), STDOUT_FILENO);
    dup2(fileno(said), STDERR_FILENO);
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(apart->body, scratch_setup, scratch_teardown)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fflush(NULL);
    return failed;
}

void in_own_process(const char *settings, void (*body)(void **state)) {
    struct apart apart = {settings, body};
    said = tmpfile();
    assert_non_null(said);
    int status = finish_child(start_child(run_apart, &apart));
    char text[4096];
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    fclose(said);
    if (status != 0) fail_msg("the process of this test ended with %d; it said:\n%s", status, text);
}

/* --- which GPU --------------------------------------------------------------------------------------------------- */

bool gpu_is_real(void) {
    char path[4096];
    const char *folder = getenv("LS_PLUGINS");
    snprintf(path, sizeof path, "%s/libcuda_on_cpu.so", folder ? folder : ".");
    return access(path, F_OK) != 0;
}

bool gpu_may_round(const char *how) {
    int (*rounds)(const char *) = NULL;
    *(void **)&rounds = fake_function("cuda_on_cpu_rounds");
    return gpu_is_real() || (rounds && rounds(how));
}

void *fake_function(const char *name) {
    void *library = dlopen("libcuda_on_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;
    if (library) dlclose(library);
    return function;
}
