/* Devices that compute nothing: the memory that they account for, operations that they must not run, and their probe
 * records. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/probe.h"
#include "common/device/device.h"
#include "kernels/kernels.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static ls_device *open_meta(size_t capacity_bytes) {
    ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1, .memory_capacity_bytes = capacity_bytes};
    ls_device *device;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    return device;
}

static char *take(ls_device *device, ls_memory_category category, size_t nbytes) {
    void *memory;
    assert_int_equal(ls_device_alloc(device, category, nbytes, "a test", &memory), LS_OK);
    assert_non_null(memory);
    return memory;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, memory_is_accounted_for_and_not_there) {
    const size_t huge = (size_t)3 << 40; /* more than any machine that runs this has */
    ls_device *device = open_meta(0);
    assert_false(ls_device_memory_is_host(device));
    assert_false(ls_device_computes(device));
    char *weights = take(device, LS_MEMORY_PARAMETER, huge), *nothing = take(device, LS_MEMORY_INPUT, 0);
    char *line = take(device, LS_MEMORY_INPUT, 100);
    assert_true((uintptr_t)weights % 64 == 0 && (uintptr_t)line % 64 == 0);
    assert_true(line >= weights + huge || line + 100 <= weights);
    assert_true(nothing != line && nothing != weights);
    assert_true(ls_device_is_gpu_memory(device, weights + huge - 1));
    assert_false(ls_device_is_gpu_memory(device, &device));
    ls_device_free(device, line);
    assert_true(take(device, LS_MEMORY_INPUT, 100) != line); /* addresses are not used again */
    ls_memory_report report;
    ls_device_memory(device, &report);
    assert_int_equal(report.current_bytes[LS_MEMORY_PARAMETER], huge);
    assert_int_equal(report.peak_bytes[LS_MEMORY_INPUT], 100);
    assert_int_equal(report.peak_total_bytes, huge + 100);
    ls_device_free(device, weights);
    ls_device_memory(device, &report);
    assert_int_equal(report.current_total_bytes, 100);
    assert_int_equal(report.peak_total_bytes, huge + 100);
    ls_device_close(device);
}

TEST_IN(scratch, the_cap_and_absurd_requests_are_kept) {
    void *memory;
    ls_device *device = open_meta(1000);
    char *input = take(device, LS_MEMORY_INPUT, 900);
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_GRADIENT, 101, "gradients", &memory), LS_ERR_NO_MEMORY);
    assert_null(memory);
    scratch_expect_error("device 0 is out of memory: 101 bytes asked for gradients", "input 900");
    ls_device_free(device, input);
    ls_device_close(device);
    device = open_meta(0);
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_INPUT, SIZE_MAX - 1, "inputs", &memory), LS_ERR_NO_MEMORY);
    scratch_expect_error("out of memory", NULL);
    ls_device_free(device, take(device, LS_MEMORY_INPUT, 8)); /* the device still works */
    ls_device_close(device);
}

/* A child that must die when it uses the memory; true if it survived. */
static bool survives(volatile char *address, bool write) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2); /* sanitizers print the place */
        (void)signal(SIGSEGV, SIG_DFL);                   /* cmocka's handler would continue with the next test */
        (void)signal(SIGBUS, SIG_DFL);
        if (write) *address = 1;
        _exit(write ? 0 : *address & 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(who_touches_its_memory_dies) {
    ls_device *device = open_meta(0);
    char *memory = take(device, LS_MEMORY_INPUT, 1 << 20);
    char here = 0;
    assert_true(survives(&here, true));
    assert_false(survives(memory, false));
    assert_false(survives(memory, true));
    assert_false(survives(memory + (1 << 20) - 1, false));
    ls_device_free(device, memory);
    ls_device_close(device);
}

/* --- work --------------------------------------------------------------------------------------------------------- */

TEST(copies_deliver_zeros_to_the_host_and_nothing_else) {
    ls_device *device = open_meta(0), *other = open_meta(0);
    ls_stream *copy = ls_device_stream(device, LS_STREAM_COPY);
    char *from = take(device, LS_MEMORY_INPUT, 64), *to = take(other, LS_MEMORY_INPUT, 64), host[64];
    memset(host, 7, sizeof host);
    ls_copy(copy, from, host, sizeof host);
    ls_copy(copy, to, from, 64);
    for (size_t i = 0; i < sizeof host; i++) assert_int_equal(host[i], 7);
    assert_int_equal(ls_copy_now(copy, host, to, 63), LS_OK);
    for (size_t i = 0; i < 63; i++) assert_int_equal(host[i], 0);
    assert_int_equal(host[63], 7);
    ls_device_free(device, from);
    ls_device_free(other, to);
    ls_device_close(other);
    ls_device_close(device);
}

static int tasks_run;

static ls_status count_task(const void *arguments) {
    (void)arguments;
    tasks_run++;
    return LS_OK;
}

TEST_IN(scratch, operations_are_not_run_and_events_complete_at_once) {
    ls_device *device = open_meta(0);
    ls_stream *compute = ls_device_stream(device, LS_STREAM_COMPUTE), *comm = ls_device_stream(device, LS_STREAM_COMM);
    float *values = (float *)(void *)take(device, LS_MEMORY_INPUT, 4096);
    ls_event *event;
    assert_int_equal(ls_event_create(&event, "a test"), LS_OK);
    assert_int_equal(ls_event_synchronize(event), LS_OK);
    tasks_run = 0;
    ls_fill(compute, values, 1, 1024);
    ls_stream_launch(compute, "count", count_task, &device, sizeof device);
    assert_int_equal(tasks_run, 0);
    for (int i = 0; i < 2; i++) { /* the second time on another stream */
        ls_event_record(event, i == 0 ? compute : comm);
        ls_stream_wait_event(comm, event);
        assert_int_equal(ls_event_synchronize(event), LS_OK);
    }
    assert_int_equal(ls_device_synchronize(device), LS_OK);
    ls_stream_launch_meeting(comm, "meet", count_task, &device, sizeof device);
    assert_int_equal(tasks_run, 1); /* other members of the group may wait for it */
    ls_graph *graph;
    assert_int_equal(ls_graph_begin(compute), LS_ERR_UNSUPPORTED);
    scratch_expect_error("on GPUs only", NULL);
    assert_int_equal(ls_graph_end(compute, &graph), LS_ERR_UNSUPPORTED);
    ls_event_destroy(event);
    ls_device_free(device, values);
    ls_device_close(device);
}

TEST(their_shape_is_that_of_cpus_or_of_gpus) {
    for (int behind = 0; behind < 2; behind++) {
        ls_device_options options = {.kind = LS_DEVICE_META, .devices_on_node = 1, .behind = behind};
        ls_device *device;
        assert_int_equal(ls_device_open(&device, &options), LS_OK);
        assert_int_equal(ls_device_runs_behind(device), behind);
        ls_device_close(device);
    }
}

/* --- probes ------------------------------------------------------------------------------------------------------- */

TEST(probes_see_launches_and_no_runs) {
    ls_device *device = open_meta(0);
    ls_stream *compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    float *values = (float *)(void *)take(device, LS_MEMORY_INPUT, 4096), host[4];
    ls_probe_start(false);
    ls_fill(compute, values, 1, 1024);
    ls_copy(compute, host, values, sizeof host);
    ls_stream_launch_meeting(compute, "meet", count_task, &device, sizeof device);
    ls_probe_stop();
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(threads[0].count, 3);
    const struct ls_probe_record *records = threads[0].records;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(records[i].kind, LS_PROBE_LAUNCH);
        assert_int_equal(records[i].number, i + 1);
        assert_true(records[i].object == (uintptr_t)compute);
    }
    assert_string_equal(records[0].label, "fill");
    assert_int_equal(records[0].bytes, 4096);
    assert_int_equal(records[1].bytes, sizeof host);
    assert_string_equal(records[2].label, "meet");
    ls_probe_drop();
    ls_device_free(device, values);
    ls_device_close(device);
}
