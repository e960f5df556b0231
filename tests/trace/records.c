#include <string.h>

#include "common/trace/resolve.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/trace/records.h"

struct ls_probe_record *records_add(struct records *records, ls_probe_kind kind, const char *label, uintptr_t object,
                                    uint32_t number, double begin_us, double end_us) {
    assert_true(records->thread.count < RECORDS_MOST);
    struct ls_probe_record *record = &records->records[records->thread.count++];
    *record = (struct ls_probe_record){.begin_us = begin_us,
                                       .end_us = end_us,
                                       .begin_cpu_us = begin_us / 10,
                                       .end_cpu_us = end_us / 10,
                                       .label = label,
                                       .object = object,
                                       .number = number,
                                       .step = 4,
                                       .device = (int16_t)(object / 10),
                                       .stream_kind = (uint8_t)(object % 10),
                                       .from = -1,
                                       .kind = (uint8_t)kind};
    return record;
}

void records_event(struct records *records, ls_probe_kind kind, uintptr_t stream, uintptr_t event, uint32_t ticket,
                   double begin_us, double end_us) {
    records_add(records, kind, "event", stream, ticket, begin_us, end_us)->event = event;
}

void records_inline(struct records *records, const char *label, uintptr_t stream, uint32_t number, double begin_us,
                    double run_us, double run_end_us, double end_us) {
    records_add(records, LS_PROBE_RUN, label, stream, number, run_us, run_end_us);
    records_add(records, LS_PROBE_LAUNCH, label, stream, number, begin_us, end_us);
}

static ls_status resolve(ls_trace **trace, struct records *threads, size_t count, bool cpu_time) {
    struct ls_probe_thread probes[8];
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) {
        probes[i] = threads[i].thread;
        probes[i].records = threads[i].records;
        if (!probes[i].name) probes[i].name = "thread";
    }
    assert_int_equal(ls_trace_create(trace), LS_OK);
    return ls_trace_resolve(*trace, probes, count, 3, 40, cpu_time);
}

ls_trace *records_resolve(struct records *threads, size_t count, bool cpu_time) {
    ls_trace *trace;
    assert_int_equal(resolve(&trace, threads, count, cpu_time), LS_OK);
    assert_int_equal(ls_trace_seal(trace), LS_OK);
    return trace;
}

void records_refused(struct records *threads, size_t count, const char *text) {
    ls_trace *trace;
    assert_int_equal(resolve(&trace, threads, count, false), LS_ERR_INVALID);
    scratch_expect_error(text, NULL);
    ls_trace_destroy(trace);
}

int records_task(const ls_trace *trace, const char *name, int which) {
    for (int i = 0; i < ls_trace_task_count(trace); i++)
        if (strcmp(ls_trace_task(trace, i)->name, name) == 0 && which-- == 0) return i;
    fail_msg("there is no such task: %s", name);
    return -1;
}

void records_expect_edge(const ls_trace *trace, int before, int task) {
    int count;
    const int *list = ls_trace_before(trace, task, &count);
    for (int i = 0; i < count; i++)
        if (list[i] == before) return;
    fail_msg("task %d (%s) does not wait for task %d (%s)", task, ls_trace_task(trace, task)->name, before,
             ls_trace_task(trace, before)->name);
}

int records_edge_count(const ls_trace *trace, int task) {
    int count;
    (void)ls_trace_before(trace, task, &count);
    return count;
}
