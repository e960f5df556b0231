/* While the probes are on, GPUs report when launched work ran. */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/probe.h"
#include "kernels/kernels.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"

enum { COUNT = 1 << 16, LAUNCHES = 100 };

static struct gpus gpus;
static ls_stream *compute;
static float *values;

static void open_one(void) {
    gpus = open_gpus(1);
    compute = gpu_stream(&gpus, 0, LS_STREAM_COMPUTE);
    values = gpu_alloc(gpus.device[0], COUNT * sizeof *values);
}

static void close_one(void) {
    ls_device_free(gpus.device[0], values);
    close_gpus(&gpus);
}

/* The thread of that name; NULL if there is none. */
static const struct ls_probe_thread *find_among(const struct ls_probe_thread *threads, size_t count, const char *name) {
    for (size_t t = 0; t < count; t++) {
        if (strcmp(threads[t].name, name) == 0) return &threads[t];
    }
    return NULL;
}

/* The same in the current recording; the result is valid until the next call. */
static const struct ls_probe_thread *find_thread(const char *name) {
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    return find_among(threads, count, name);
}

static const struct ls_probe_record *find_launch(const struct ls_probe_thread *thread, uint32_t number) {
    for (size_t i = 0; i < thread->count; i++) {
        const struct ls_probe_record *record = &thread->records[i];
        if (record->kind == LS_PROBE_LAUNCH && record->object == (uintptr_t)compute && record->number == number)
            return record;
    }
    return NULL;
}

/* Every launch has a RUN, in the order of the stream, that begins after the launch and ends before the wait for it
 * did. */
TEST(each_launch_has_its_run) {
    float host[16];
    open_one();
    ls_probe_name_thread("host");
    ls_probe_start(false);
    double begun_us = ls_now_us();
    ls_probe_step(7);
    for (int i = 0; i < LAUNCHES; i++) ls_fill(compute, values, (float)i, COUNT);
    assert_int_equal(ls_copy_now(compute, host, values, sizeof host), LS_OK);
    double ended_us = ls_now_us();
    ls_probe_stop();
    assert_true(host[15] == LAUNCHES - 1);
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    const struct ls_probe_thread *told = find_among(threads, count, "GPUs"),
                                 *launched = find_among(threads, count, "host");
    assert_non_null(told);
    assert_non_null(launched);
    assert_int_equal(told->count, LAUNCHES + 1);
    const double slack_us = 1000; /* between the two clocks, on a machine that also runs other programs */
    for (size_t i = 0; i < told->count; i++) {
        const struct ls_probe_record *run = &told->records[i], *launch = find_launch(launched, (uint32_t)i + 1);
        assert_non_null(launch);
        assert_int_equal(run->kind, LS_PROBE_RUN);
        assert_int_equal(run->number, i + 1);
        assert_int_equal(run->step, 7);
        assert_int_equal(run->stream_kind, LS_STREAM_COMPUTE);
        assert_true(run->object == (uintptr_t)compute);
        assert_string_equal(run->label, launch->label);
        assert_true(run->end_us >= run->begin_us);
        assert_true(run->begin_us > begun_us - slack_us && run->end_us < ended_us + slack_us);
        if (i > 0) assert_true(run->begin_us >= told->records[i - 1].end_us - 1e-3);
    }
    assert_string_equal(told->records[LAUNCHES].label, "copy");
    ls_probe_drop();
    close_one();
}

/* Events recorded so far; 0 on real GPUs, which do not count them. */
static unsigned long event_records(void) {
    unsigned long (*calls)(const char *);
    *(void **)&calls = fake_function("cuda_on_cpu_calls");
    return calls ? calls("cudaEventRecord") : 0;
}

TEST(while_the_probes_are_off_nothing_is_timed) {
    open_one();
    unsigned long events = event_records();
    ls_fill(compute, values, 1, COUNT);
    gpus_done(&gpus);
    assert_int_equal(event_records(), events);
    ls_probe_start(false);
    ls_fill(compute, values, 1, COUNT);
    ls_probe_stop();
    gpus_done(&gpus); /* too late to be recorded */
    assert_null(find_thread("GPUs"));
    ls_probe_start(false);
    ls_fill(compute, values, 1, COUNT);
    gpus_done(&gpus);
    ls_probe_stop();
    const struct ls_probe_thread *told = find_thread("GPUs");
    assert_non_null(told);
    assert_int_equal(told->count, 1); /* from this recording only */
    ls_probe_drop();
    close_one();
}

static int tasks_run;

static ls_status run_task(const void *arguments) {
    (void)arguments;
    tasks_run++;
    return LS_OK;
}

TEST(tasks_of_the_host_run_in_its_thread) {
    open_one();
    ls_probe_name_thread("host");
    ls_probe_start(false);
    tasks_run = 0;
    ls_stream_launch(compute, "task", run_task, &tasks_run, sizeof tasks_run);
    ls_probe_stop();
    assert_int_equal(tasks_run, 1);
    const struct ls_probe_thread *host = find_thread("host");
    assert_int_equal(host->count, 2);
    assert_int_equal(host->records[0].kind, LS_PROBE_RUN);
    assert_int_equal(host->records[0].number, host->records[1].number);
    assert_null(find_thread("GPUs"));
    ls_probe_drop();
    close_one();
}

/* Captured work does not run, and has no record; each launch has a RUN. */
TEST(a_graph_is_one_piece_of_work) {
    open_one();
    ls_graph *graph;
    ls_fill(compute, values, 0, COUNT);
    gpus_done(&gpus);
    ls_probe_name_thread("host");
    ls_probe_start(false);
    assert_int_equal(ls_graph_begin(compute), LS_OK);
    unsigned long events = event_records();
    ls_fill(compute, values, 1, COUNT);
    ls_fill(compute, values, 2, COUNT);
    assert_int_equal(event_records(), events); /* nor does the graph contain events */
    assert_int_equal(ls_graph_end(compute, &graph), LS_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(ls_graph_launch(graph, compute), LS_OK);
    gpus_done(&gpus);
    ls_probe_stop();
    const struct ls_probe_thread *threads;
    size_t count;
    assert_int_equal(ls_probe_read(&threads, &count), LS_OK);
    const struct ls_probe_thread *told = find_among(threads, count, "GPUs"), *host = find_among(threads, count, "host");
    assert_non_null(told);
    assert_int_equal(told->count, 2);
    size_t launches = 0;
    for (size_t i = 0; i < host->count; i++) {
        if (host->records[i].kind != LS_PROBE_LAUNCH) continue;
        assert_string_equal(host->records[i].label, "graph");
        assert_int_equal(host->records[i].number, told->records[launches++].number);
    }
    assert_int_equal(launches, 2);
    ls_probe_drop();
    ls_graph_destroy(graph);
    close_one();
}
