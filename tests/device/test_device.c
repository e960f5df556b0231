/* Opening devices, and the accounting of their memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cores.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"

static ls_device *open_device(int index, size_t capacity_bytes) {
    ls_device_options options = {
        .kind = LS_DEVICE_CPU, .index = index, .devices_on_node = 1, .memory_capacity_bytes = capacity_bytes};
    ls_device *device;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    return device;
}

/* --- opening ----------------------------------------------------------------------------------------------------- */

TEST_CASE(a_device_knows_what_it_is) {
    ls_device *device = open_device(3, 0);
    assert_int_equal(ls_device_index(device), 3);
    assert_int_equal(ls_device_kind_of(device), LS_DEVICE_CPU);
    for (int s = 0; s < LS_STREAM_COUNT; s++) {
        ls_stream *stream = ls_device_stream(device, (ls_stream_kind)s);
        assert_ptr_equal(ls_stream_device(stream), device);
        for (int other = 0; other < s; other++) {
            assert_ptr_not_equal(stream, ls_device_stream(device, (ls_stream_kind)other));
        }
    }
    ls_device_close(device);
    ls_device_close(NULL);
}

TEST_CASE(the_environment_chooses_how_streams_run) {
    static const char *const modes[][2] = {{"inline", "inline"}, {"threads", "threads"}, {"shuffle:12", "shuffle"}};
    for (int m = 0; m < 3; m++) {
        struct devices devices = open_devices(modes[m][0]);
        assert_string_equal(ls_device_stream_mode(devices.device[0]), modes[m][1]);
        close_devices(&devices);
    }
    /* If the environment sets no mode: threads only if each device has a core left for them. */
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = ls_usable_cores()};
    ls_device *device;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_string_equal(ls_device_stream_mode(device), "inline");
    ls_device_close(device);
    options.devices_on_node = ls_usable_cores() + 1;
    assert_int_equal(ls_device_open(&device, &options), LS_OK);
    assert_true(ls_device_spin_us(device) == 0); /* a thread that spins would keep another device from running */
    ls_device_close(device);
}

TEST_CASE(nonsense_in_the_environment_is_an_error) {
    static const char *const values[] = {
        "", "fast", "shuffle", "shuffle:", "shuffle:x", "shuffle:7x", "Inline", "shuffle:99999999999999999999"};
    ls_device_options options = {.kind = LS_DEVICE_CPU, .devices_on_node = 1};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        ls_device *device = (ls_device *)&options;
        assert_int_equal(setenv("LS_CPU_STREAMS", values[v], 1), 0);
        assert_int_equal(ls_device_open(&device, &options), LS_ERR_USAGE);
        assert_null(device);
        scratch_expect_error("LS_CPU_STREAMS", "shuffle:SEED");
    }
    unsetenv("LS_CPU_STREAMS");
    ls_device *device = (ls_device *)&options;
    options.kind = LS_DEVICE_CUDA;
    assert_int_equal(ls_device_open(&device, &options), LS_ERR_UNSUPPORTED);
    assert_null(device);
    scratch_expect_error("no GPU can be used", "--device-kind cpu");
}

/* What a thread reads about itself after binding. */
struct bound {
    ls_device *device;
    ls_status status;
    cpu_set_t cores;
};

static void *bind_and_look(void *argument) {
    struct bound *bound = argument;
    bound->status = ls_device_bind_thread(bound->device);
    sched_getaffinity(0, sizeof bound->cores, &bound->cores);
    return NULL;
}

/* The device's number is not its place among the devices in use: --device-ids may leave some out. */
static struct bound bind_in_a_thread(int place, int devices_on_node) {
    struct bound bound = {0};
    ls_device_options options = {
        .kind = LS_DEVICE_CPU, .index = place * devices_on_node, .devices_on_node = devices_on_node, .place = place};
    assert_int_equal(ls_device_open(&bound.device, &options), LS_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, bind_and_look, &bound), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ls_device_close(bound.device);
    assert_int_equal(bound.status, LS_OK);
    return bound;
}

TEST_CASE(devices_that_have_a_core_each_stay_on_it) {
    int cores = ls_usable_cores();
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int i = 0; i < cores; i++) {
        struct bound bound = bind_in_a_thread(i, cores);
        assert_int_equal(CPU_COUNT(&bound.cores), 1);
        CPU_OR(&taken, &taken, &bound.cores);
    }
    assert_int_equal(CPU_COUNT(&taken), cores);
    struct bound bound = bind_in_a_thread(0, cores + 1);
    assert_int_equal(CPU_COUNT(&bound.cores), cores);
}

/* As in sandboxes: hwloc looks for /sys in a folder that does not have it. It looks once per process, so this test has
 * a process of its own, and runs first, before any other call of hwloc. */
static void without_a_topology_devices_keep_to_cores_of_their_own(void **state) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("HWLOC_FSROOT", scratch_folder(), 1);
        devices_that_have_a_core_each_stay_on_it(state);
        stderr_begin();
        struct bound bound = bind_in_a_thread(0, 1);
        const char *said = stderr_end();
        _exit(CPU_COUNT(&bound.cores) == 1 && strcmp(said, "") == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

static void *allocate(ls_device *device, ls_memory_category category, size_t nbytes) {
    void *memory = NULL;
    assert_int_equal(ls_device_alloc(device, category, nbytes, "a test", &memory), LS_OK);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (size_t i = 0; i < nbytes; i++) assert_int_equal(((unsigned char *)memory)[i], 0);
    memset(memory, 0xff, nbytes);
    return memory;
}

static void expect_usage(const ls_device *device, ls_memory_category category, size_t current, size_t peak,
                         size_t current_total, size_t peak_total) {
    ls_memory_report report;
    ls_device_memory(device, &report);
    assert_int_equal(report.current_bytes[category], current);
    assert_int_equal(report.peak_bytes[category], peak);
    assert_int_equal(report.current_total_bytes, current_total);
    assert_int_equal(report.peak_total_bytes, peak_total);
}

TEST_CASE(memory_is_counted_by_category) {
    ls_device *device = open_device(0, 0);
    void *weights = allocate(device, LS_MEMORY_PARAMETER, 1000);
    void *first = allocate(device, LS_MEMORY_ACTIVATION, 300), *nothing = allocate(device, LS_MEMORY_ACTIVATION, 0);
    expect_usage(device, LS_MEMORY_ACTIVATION, 300, 300, 1300, 1300);
    ls_device_free(device, first);
    void *second = allocate(device, LS_MEMORY_ACTIVATION, 200);
    expect_usage(device, LS_MEMORY_ACTIVATION, 200, 300, 1200, 1300);
    expect_usage(device, LS_MEMORY_PARAMETER, 1000, 1000, 1200, 1300);
    expect_usage(device, LS_MEMORY_GRADIENT, 0, 0, 1200, 1300);
    assert_int_equal(ls_device_adopt(device, LS_MEMORY_BUCKET, 500, "a bucket"), LS_OK);
    expect_usage(device, LS_MEMORY_BUCKET, 500, 500, 1700, 1700);
    ls_device_disown(device, LS_MEMORY_BUCKET, 500);
    expect_usage(device, LS_MEMORY_BUCKET, 0, 500, 1200, 1700);
    ls_device_free(device, weights);
    ls_device_free(device, nothing);
    ls_device_free(device, second);
    ls_device_free(device, NULL);
    expect_usage(device, LS_MEMORY_PARAMETER, 0, 1000, 0, 1700);
    ls_device_close(device);
    assert_string_equal(ls_memory_name(LS_MEMORY_GATHERED_OUTPUT), "gathered output");
}

TEST_CASE(memory_has_a_limit) {
    ls_device *device = open_device(5, 1000);
    void *weights = allocate(device, LS_MEMORY_PARAMETER, 600), *memory = &memory;
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_OPTIMIZER, 401, "momentum", &memory), LS_ERR_NO_MEMORY);
    assert_null(memory);
    scratch_expect_error("device 5", "optimizer");
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_OPTIMIZER, 401, "momentum", &memory), LS_ERR_NO_MEMORY);
    scratch_expect_error("401", "parameter 600");
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_OPTIMIZER, SIZE_MAX, "momentum", &memory), LS_ERR_NO_MEMORY);
    scratch_expect_error("momentum", NULL);
    assert_int_equal(ls_device_adopt(device, LS_MEMORY_BUCKET, 401, "a bucket"), LS_ERR_NO_MEMORY);
    scratch_expect_error("device 5", "a bucket");
    expect_usage(device, LS_MEMORY_BUCKET, 0, 0, 600, 600);
    ls_device_free(device, weights);
    weights = allocate(device, LS_MEMORY_PARAMETER, 1000); /* all of it */
    ls_device_free(device, weights);
    ls_device_close(device);
    device = open_device(6, 0); /* no limit but the machine's, which this test reaches */
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_INPUT, SIZE_MAX - 100, "all", &memory), LS_ERR_NO_MEMORY);
    scratch_expect_error("device 6", "input");
    weights = allocate(device, LS_MEMORY_PARAMETER, 1000);
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_INPUT, SIZE_MAX, "all", &memory), LS_ERR_NO_MEMORY);
    scratch_expect_error("device 6", "input");
    assert_int_equal(ls_device_adopt(device, LS_MEMORY_INPUT, SIZE_MAX, "all"), LS_ERR_NO_MEMORY);
    scratch_expect_error("device 6", "1000");
    expect_usage(device, LS_MEMORY_INPUT, 0, 0, 1000, 1000); /* failed allocations are not counted */
    ls_device_free(device, weights);
    ls_device_close(device);
}

static void *allocate_and_free(void *argument) {
    ls_device *device = argument;
    for (int i = 0; i < 500; i++) {
        void *memory;
        if (ls_device_alloc(device, LS_MEMORY_WORKSPACE, 64, "a thread", &memory) == LS_OK) {
            ls_device_free(device, memory);
        }
    }
    return NULL;
}

TEST_CASE(any_thread_may_allocate) {
    ls_device *device = open_device(0, 0);
    pthread_t threads[3];
    for (int t = 0; t < 3; t++) assert_int_equal(pthread_create(&threads[t], NULL, allocate_and_free, device), 0);
    for (int t = 0; t < 3; t++) assert_int_equal(pthread_join(threads[t], NULL), 0);
    ls_memory_report report;
    ls_device_memory(device, &report);
    assert_int_equal(report.current_total_bytes, 0);
    assert_in_range(report.peak_total_bytes, 64, 3 * 64);
    ls_device_close(device);
}

/* Closes the device; returns what it printed on stderr. free() it. */
static char *words_of_closing(ls_device *device) {
    const char *path = scratch_path("stderr");
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600), before = dup(STDERR_FILENO);
    assert_true(file >= 0 && before >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    ls_device_close(device);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(file);
    close(before);
    size_t nbytes;
    return scratch_read(path, &nbytes);
}

TEST_CASE(what_was_not_freed_is_reported) {
    ls_device *device = open_device(4, 0);
    void *kept = allocate(device, LS_MEMORY_GRADIENT, 123), *freed = allocate(device, LS_MEMORY_INPUT, 50);
    assert_int_equal(ls_device_adopt(device, LS_MEMORY_BUCKET, 77, "a bucket"), LS_OK);
    ls_device_free(device, freed);
    char *words = words_of_closing(device);
    assert_non_null(strstr(words, "device 4 closes with 123 bytes of gradient memory not freed"));
    assert_non_null(strstr(words, "device 4 closes with 77 bytes of bucket memory not freed"));
    assert_null(strstr(words, "input"));
    free(words);
    free(kept);
    words = words_of_closing(open_device(4, 0));
    assert_string_equal(words, "");
    free(words);
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(without_a_topology_devices_keep_to_cores_of_their_own),
        ROW(a_device_knows_what_it_is),
        ROW(the_environment_chooses_how_streams_run),
        ROW(nonsense_in_the_environment_is_an_error),
        ROW(devices_that_have_a_core_each_stay_on_it),
        ROW(memory_is_counted_by_category),
        ROW(memory_has_a_limit),
        ROW(any_thread_may_allocate),
        ROW(what_was_not_freed_is_reported),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
