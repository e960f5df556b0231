/* The probe records of streams, and the trace made from them: a small sequence of work by hand, in each stream mode. */
#include <string.h>

#include "common/base/probe.h"
#include "common/trace/resolve.h"
#include "kernels/kernels.h"
#include "tests/base/test.h"
#include "tests/device/modes.h"
#include "tests/trace/happens_before.h"

enum { COUNT = 4096, NBYTES = COUNT * sizeof(float) };

static ls_status do_nothing(const void *argument) {
    (void)argument;
    return LS_OK;
}

/* Device 0 fills, device 1 fetches the result, works, and copies it to the host. */
struct sequence {
    struct devices *devices;
    ls_stream *compute0, *copy1, *compute1;
    float *a, *b, host[COUNT];
    ls_event *filled, *fetched;
};

static float *new_floats(ls_device *device) {
    void *memory;
    assert_int_equal(ls_device_alloc(device, LS_MEMORY_ACTIVATION, NBYTES, "a test", &memory), LS_OK);
    return memory;
}

static void sequence_open(struct sequence *s, struct devices *devices) {
    s->devices = devices;
    s->compute0 = stream_of(devices, 0, LS_STREAM_COMPUTE);
    s->copy1 = stream_of(devices, 1, LS_STREAM_COPY);
    s->compute1 = stream_of(devices, 1, LS_STREAM_COMPUTE);
    s->a = new_floats(devices->device[0]);
    s->b = new_floats(devices->device[1]);
    s->filled = new_event("filled");
    s->fetched = new_event("fetched");
}

static void sequence_close(struct sequence *s) {
    ls_device_free(s->devices->device[0], s->a);
    ls_device_free(s->devices->device[1], s->b);
    ls_event_destroy(s->filled);
    ls_event_destroy(s->fetched);
}

static void good(ls_status status) { assert_int_equal(status, LS_OK); }

static void sequence_run(struct sequence *s) {
    ls_fill(s->compute0, s->a, 2, COUNT);
    ls_event_record(s->filled, s->compute0);
    ls_stream_wait_event(s->copy1, s->filled);
    ls_copy(s->copy1, s->b, s->a, NBYTES);
    ls_event_record(s->fetched, s->copy1);
    ls_stream_wait_event(s->compute1, s->fetched);
    ls_stream_launch(s->compute1, "work", do_nothing, NULL, 0);
    ls_copy(s->compute1, s->host, s->b, NBYTES);
    good(ls_event_synchronize(s->fetched));
    good(ls_stream_synchronize(s->compute1));
}

/* --- the records -------------------------------------------------------------------------------------------------- */

static const struct ls_probe_thread *threads;
static size_t thread_count;

static int count_of(ls_probe_kind kind) {
    int count = 0;
    for (size_t t = 0; t < thread_count; t++)
        for (size_t i = 0; i < threads[t].count; i++) count += threads[t].records[i].kind == kind;
    return count;
}

/* The `which`-th record of that kind and label, over all threads. */
static const struct ls_probe_record *find(ls_probe_kind kind, const char *label, int which) {
    for (size_t t = 0; t < thread_count; t++) {
        for (size_t i = 0; i < threads[t].count; i++) {
            const struct ls_probe_record *record = &threads[t].records[i];
            if (record->kind == kind && strcmp(record->label, label) == 0 && which-- == 0) return record;
        }
    }
    fail_msg("no record of kind %d says \"%s\"", kind, label);
    return NULL;
}

/* The launch, and its one run. */
static const struct ls_probe_record *run_of(const struct ls_probe_record *launch) {
    const struct ls_probe_record *found = NULL;
    for (size_t t = 0; t < thread_count; t++) {
        for (size_t i = 0; i < threads[t].count; i++) {
            const struct ls_probe_record *record = &threads[t].records[i];
            if (record->kind != LS_PROBE_RUN || record->object != launch->object || record->number != launch->number)
                continue;
            assert_null(found);
            found = record;
        }
    }
    assert_non_null(found);
    assert_string_equal(found->label, launch->label);
    assert_int_equal(found->device, launch->device);
    assert_int_equal(found->stream_kind, launch->stream_kind);
    assert_true(found->begin_us >= launch->begin_us && found->end_us >= found->begin_us);
    return found;
}

static void expect_launch(const struct ls_probe_record *launch, const ls_stream *stream, int place, int kind,
                          uint64_t bytes) {
    assert_int_equal(launch->object, (uintptr_t)stream);
    assert_int_equal(launch->device, place);
    assert_int_equal(launch->stream_kind, kind);
    assert_int_equal(launch->bytes, bytes);
}

static void expect_records(const struct sequence *s) {
    const struct ls_probe_record *fill = find(LS_PROBE_LAUNCH, "fill", 0), *fetch = find(LS_PROBE_LAUNCH, "copy", 0);
    const struct ls_probe_record *work = find(LS_PROBE_LAUNCH, "work", 0), *give = find(LS_PROBE_LAUNCH, "copy", 1);
    assert_int_equal(count_of(LS_PROBE_LAUNCH), 4);
    assert_int_equal(count_of(LS_PROBE_RUN), 4);
    expect_launch(fill, s->compute0, 0, LS_STREAM_COMPUTE, NBYTES); /* as ops.def counts them */
    expect_launch(fetch, s->copy1, 1, LS_STREAM_COPY, NBYTES);
    expect_launch(work, s->compute1, 1, LS_STREAM_COMPUTE, 0);
    expect_launch(give, s->compute1, 1, LS_STREAM_COMPUTE, NBYTES);
    assert_int_equal(give->number, work->number + 1);
    assert_int_equal(fill->from, -1);
    assert_int_equal(fetch->from, 0);
    assert_int_equal(fetch->to, 1);
    assert_int_equal(give->from, 1);
    assert_int_equal(give->to, -1);
    assert_true(run_of(fetch)->begin_us >= run_of(fill)->end_us);
    assert_true(run_of(work)->begin_us >= run_of(fetch)->end_us);
    assert_true(run_of(give)->begin_us >= run_of(work)->end_us);
    const char *const names[] = {"filled", "fetched"};
    const ls_event *const events[] = {s->filled, s->fetched};
    const ls_stream *const recorded_on[] = {s->compute0, s->copy1}, *const waiting[] = {s->copy1, s->compute1};
    for (int e = 0; e < 2; e++) {
        const struct ls_probe_record *recorded = find(LS_PROBE_RECORD, names[e], 0);
        const struct ls_probe_record *waited = find(LS_PROBE_WAIT, names[e], 0);
        assert_int_equal(recorded->event, (uintptr_t)events[e]);
        assert_int_equal(waited->event, (uintptr_t)events[e]);
        assert_int_equal(recorded->object, (uintptr_t)recorded_on[e]);
        assert_int_equal(waited->object, (uintptr_t)waiting[e]);
        assert_int_equal(recorded->number, waited->number);
        assert_true(recorded->end_us <= waited->end_us);
    }
    const struct ls_probe_record *event = find(LS_PROBE_SYNC_EVENT, "fetched", 0);
    assert_int_equal(event->event, (uintptr_t)s->fetched);
    assert_int_equal(event->number, find(LS_PROBE_RECORD, "fetched", 0)->number);
    assert_true(event->end_us >= run_of(fetch)->end_us);
    const struct ls_probe_record *stream = find(LS_PROBE_SYNC_STREAM, "synchronize", 0);
    assert_int_equal(stream->object, (uintptr_t)s->compute1);
    assert_int_equal(stream->number, give->number);
    assert_true(stream->end_us >= run_of(give)->end_us);
}

/* If everything runs inline, a RUN lies within its LAUNCH and directly before it; a queue's worker has a name. */
static void expect_places(const char *mode) {
    if (strcmp(mode, "inline") == 0) {
        assert_int_equal(thread_count, 1);
        for (size_t i = 0; i < threads->count; i++) {
            const struct ls_probe_record *record = &threads->records[i];
            if (record->kind != LS_PROBE_LAUNCH) continue;
            assert_int_equal(record[-1].kind, LS_PROBE_RUN);
            assert_int_equal(record[-1].number, record->number);
            assert_true(record[-1].end_us <= record->end_us);
        }
    }
    for (size_t t = 0; t < thread_count; t++) {
        bool is_worker = strcmp(threads[t].name, "copy stream of device 1") == 0;
        for (size_t i = 0; is_worker && i < threads[t].count; i++)
            assert_int_equal(threads[t].records[i].kind, LS_PROBE_RUN);
    }
}

/* --- the trace ---------------------------------------------------------------------------------------------------- */

static int task_named(const ls_trace *trace, const char *name, int which) {
    for (int t = 0; t < ls_trace_task_count(trace); t++) {
        const struct ls_task *task = ls_trace_task(trace, t);
        if (ls_trace_lane(trace, task->lane)->kind == LS_LANE_HOST || strcmp(task->name, name) != 0) continue;
        if (which-- == 0) return t;
    }
    fail_msg("no task is called %s", name);
    return LS_NONE;
}

static void expect_trace(void) {
    ls_trace *trace;
    good(ls_trace_create(&trace));
    good(ls_trace_resolve(trace, threads, thread_count, 0, 4, false));
    good(ls_trace_seal(trace));
    int fill = task_named(trace, "fill", 0), fetch = task_named(trace, "copy", 0);
    int work = task_named(trace, "work", 0), give = task_named(trace, "copy", 1);
    const int order[] = {fill, fetch, work, give};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++)
            if (happens_before(trace, order[i], order[j]) != (i < j)) fail_msg("%d and %d", i, j);
    }
    const struct ls_task *copy = ls_trace_task(trace, fetch);
    assert_int_equal(copy->kind, LS_TASK_COPY);
    assert_int_equal(copy->bytes, NBYTES);
    assert_int_equal(copy->from, 4); /* places count from the process's first device */
    assert_int_equal(copy->to, 5);
    assert_int_equal(ls_trace_task(trace, give)->from, 5);
    assert_int_equal(ls_trace_task(trace, give)->to, LS_HOST_MEMORY);
    assert_int_equal(ls_trace_lane(trace, ls_trace_task(trace, fill)->lane)->device, 4);
    assert_int_equal(ls_trace_lane(trace, copy->lane)->device, 5);
    ls_trace_destroy(trace);
}

static void check_sequence(struct devices *devices) {
    struct sequence s;
    sequence_open(&s, devices);
    sequence_run(&s); /* not seen: it ended before the probes started */
    all_done(devices);
    ls_probe_start(false);
    sequence_run(&s);
    ls_probe_stop();
    all_done(devices);
    good(ls_probe_read(&threads, &thread_count));
    expect_records(&s);
    expect_places(devices->mode);
    expect_trace();
    ls_probe_drop();
    sequence_close(&s);
}

TEST(test_sequence_in_every_mode) { in_every_mode(check_sequence); }

/* A long queue, so that the worker is behind: the numbers still match each run to its launch. */
TEST(test_long_queue_keeps_its_numbers) {
    enum { TASKS = 3000 };
    struct devices devices = open_devices("threads");
    ls_stream *copy = stream_of(&devices, 0, LS_STREAM_COPY);
    ls_probe_start(false);
    for (int i = 0; i < TASKS; i++) ls_stream_launch(copy, "many", do_nothing, NULL, 0);
    good(ls_stream_synchronize(copy));
    ls_probe_stop();
    good(ls_probe_read(&threads, &thread_count));
    assert_int_equal(count_of(LS_PROBE_LAUNCH), TASKS);
    assert_int_equal(count_of(LS_PROBE_RUN), TASKS);
    uint32_t first = find(LS_PROBE_LAUNCH, "many", 0)->number;
    for (int i = 0; i < TASKS; i++) assert_int_equal(find(LS_PROBE_LAUNCH, "many", i)->number, first + (uint32_t)i);
    ls_probe_drop();
    close_devices(&devices);
}
