/* chrome_tasks — writes the events of a trace file for tasks and marks, and the events that are derived from them
 * (chrome_write.c). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/trace/chrome_internal.h"
#include "common/trace/chrome_writer.h"
#include "common/trace/trace_internal.h"

/* --- tasks ------------------------------------------------------------------------------------------------------- */

/* The task that a host task launched, or that launched a stream's task: the other end of an edge between a host's and a
 * device's lane. */
static int launch_partner(const struct ls_chrome_writer *w, int index) {
    bool on_host = ls_trace_lane(w->trace, ls_trace_task(w->trace, index)->lane)->kind == LS_LANE_HOST;
    int count;
    const int *others = on_host ? ls_trace_after(w->trace, index, &count) : ls_trace_before(w->trace, index, &count);
    for (int i = 0; i < count; i++) {
        bool is_host = ls_trace_lane(w->trace, ls_trace_task(w->trace, others[i])->lane)->kind == LS_LANE_HOST;
        if (is_host != on_host) return others[i];
    }
    return LS_NONE;
}

static int compare_ints(const void *a, const void *b) {
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

/* Sorts the tasks that this task waits for into w->sorted, ascending, without duplicates; returns their number. */
static int sort_before(struct ls_chrome_writer *w, int index) {
    int count, kept = 0;
    const int *before = ls_trace_before(w->trace, index, &count);
    while (count > w->sorted_capacity && w->status == LS_OK)
        if (!ls_trace_room(&w->sorted, w->sorted_capacity, &w->sorted_capacity, sizeof *w->sorted))
            w->status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write a trace");
    if (count == 0 || w->status != LS_OK) return 0;
    memcpy(w->sorted, before, (size_t)count * sizeof *before);
    qsort(w->sorted, (size_t)count, sizeof *w->sorted, compare_ints);
    for (int i = 0; i < count; i++)
        if (i == 0 || w->sorted[i] != w->sorted[kept - 1]) w->sorted[kept++] = w->sorted[i];
    return kept;
}

static void put_after(struct ls_chrome_writer *w, int index) {
    int count = sort_before(w, index);
    for (int i = 0; i < count; i++) {
        int id = w->task_ids[w->sorted[i]];
        if (id == LS_NONE && w->status == LS_OK)
            w->status = ls_fail(LS_ERR_INVALID,
                                "task %d (\"%s\") waits for a task of another rank, which one rank's file cannot hold",
                                index, ls_trace_task(w->trace, index)->name);
        ls_chrome_put(w, "%s%d", i == 0 ? ", \"after\": [" : ", ", id);
    }
    if (count > 0) ls_chrome_put(w, "]");
}

static const char *kineto_dtype(const char *ours) {
#define DTYPE_ROW(our, their) {our, their},
    static const struct { const char *ours, *theirs; } rows[] = {LS_CHROME_DTYPE_MAP(DTYPE_ROW)};
#undef DTYPE_ROW
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].ours, ours) == 0) return rows[i].theirs;
    return "";
}

static void put_meeting(struct ls_chrome_writer *w, const struct ls_meeting *meeting) {
    ls_chrome_put_member(w, "Collective name", meeting->operation);
    ls_chrome_put(w, ", \"In msg nelems\": %" PRIu64 ", \"Out msg nelems\": %" PRIu64, meeting->elements,
                  meeting->elements);
    ls_chrome_put_member(w, "dtype", kineto_dtype(meeting->dtype));
    ls_chrome_put(w, ", \"Group size\": %d", meeting->ranks);
    ls_chrome_put_member(w, "Process Group Name", meeting->group);
    ls_chrome_put(w, ", \"Seq\": %" PRIu32, meeting->number);
    ls_chrome_put_member(w, "algorithm", meeting->algorithm);
}

/* Writes numbers that are left out if they have their default. */
static void put_rest(struct ls_chrome_writer *w, const struct ls_task *task) {
    if (task->step >= 0) ls_chrome_put(w, ", \"step\": %d", task->step);
    if (task->phase[0]) ls_chrome_put_member(w, "phase", task->phase);
    if (task->bytes > 0) ls_chrome_put(w, ", \"bytes\": %" PRIu64, task->bytes);
    if (task->flops > 0) ls_chrome_put(w, ", \"flops\": %" PRIu64, task->flops);
    if (task->fixed_bytes > 0) ls_chrome_put(w, ", \"fixed_bytes\": %.17g", task->fixed_bytes);
    if (task->kind == LS_TASK_COPY) ls_chrome_put(w, ", \"from\": %d, \"to\": %d", task->from, task->to);
    if (task->probes_us > 0) ls_chrome_put(w, ", \"probes_us\": %.3f", task->probes_us);
    if (task->lock != LS_NONE) ls_chrome_put(w, ", \"lock\": %d", task->lock);
    if (task->virtual_time) ls_chrome_put(w, ", \"virtual\": true");
    if (!ls_chrome_is_timed(task)) ls_chrome_put(w, ", \"timed\": false");
    if (isfinite(task->launched_us)) ls_chrome_put_ns(w, "launched", ls_chrome_ns(w, task->launched_us));
}

/* CUDA's name for the launch of such a task. */
static const char *call_of(const struct ls_task *launched) {
    return launched->kind == LS_TASK_COPY ? "cudaMemcpyAsync" : "cudaLaunchKernel";
}

static void put_bandwidth(struct ls_chrome_writer *w, const struct ls_task *task) {
    double us = ls_chrome_is_timed(task) ? task->end_us - task->start_us : 0;
    if (task->kind == LS_TASK_COPY && us > 0)
        ls_chrome_put(w, ", \"" LS_CHROME_BANDWIDTH "\": %.9g", (double)task->bytes / us * 1e-3);
}

void ls_chrome_put_task(struct ls_chrome_writer *w, int index) {
    const struct ls_task *task = ls_trace_task(w->trace, index);
    const struct ls_lane *lane = ls_trace_lane(w->trace, task->lane);
    int partner = launch_partner(w, index), id = w->task_ids[index];
    bool on_host = lane->kind == LS_LANE_HOST;
    const char *category = on_host                      ? partner != LS_NONE ? "cuda_runtime" : "cpu_op"
                           : task->kind == LS_TASK_COPY ? "gpu_memcpy"
                                                        : "kernel";
    long long start_ns = ls_chrome_is_timed(task) ? ls_chrome_ns(w, task->start_us) : 0;
    const char *call = on_host && partner != LS_NONE ? call_of(ls_trace_task(w->trace, partner)) : NULL;
    ls_chrome_begin_event(w, "X", category, lane->rank, w->lane_ids[task->lane]);
    ls_chrome_put(w, ", \"name\": \"%s", call ? "" : ls_chrome_prefix(task));
    ls_chrome_put_escaped(w, call ? call : task->name);
    ls_chrome_put(w, "\"");
    ls_chrome_put_ns(w, "ts", start_ns);
    ls_chrome_put_ns(w, "dur", ls_chrome_is_timed(task) ? ls_chrome_ns(w, task->end_us) - start_ns : 0);
    ls_chrome_put(w, ", \"args\": {\"id\": %d, \"kind\": \"%s\"", id, ls_task_kind_name(task->kind));
    put_after(w, index);
    if (task->us < 0)
        ls_chrome_put(w, ", \"us\": -1");
    else
        ls_chrome_put(w, ", \"us\": %.3f", task->us + 0.0); /* -0.0 becomes 0.0 */
    put_rest(w, task);
    put_bandwidth(w, task);
    if (task->kind == LS_TASK_COLLECTIVE) put_meeting(w, ls_trace_meeting(w->trace, task->meeting));
    if (call) ls_chrome_put_member(w, LS_CHROME_LAUNCH, task->name);
    if (!on_host) ls_chrome_put(w, ", \"stream\": %d, \"device\": %d", w->lane_ids[task->lane] + 1, lane->device);
    if (partner != LS_NONE) ls_chrome_put(w, ", \"correlation\": %d", (on_host ? w->task_ids[partner] : id) + 1);
    ls_chrome_put(w, "}}");
}

void ls_chrome_put_mark(struct ls_chrome_writer *w, const struct ls_mark *mark) {
    bool timed = isfinite(mark->at_us) && mark->at_us >= w->zero_us;
    ls_chrome_begin_event(w, "i", "mark", ls_trace_lane(w->trace, mark->lane)->rank, w->lane_ids[mark->lane]);
    ls_chrome_put(w, ", \"s\": \"t\"");
    ls_chrome_put_member(w, "name", mark->name);
    ls_chrome_put_ns(w, "ts", timed ? ls_chrome_ns(w, mark->at_us) : 0);
    ls_chrome_put(w, ", \"args\": {\"number\": %" PRId64 ", \"step\": %d, \"after\": %d%s}}", mark->number, mark->step,
                  mark->after == LS_NONE ? LS_NONE : w->task_ids[mark->after], timed ? "" : ", \"timed\": false");
}

/* --- derived events ----------------------------------------------------------------------------------------------- */

/* From within one task to within another, never back in time: a waiting task begins before the other task has ended,
 * and the arrow then points to the end of the wait. */
static void put_arrow(struct ls_chrome_writer *w, int before, int task) {
    const struct ls_task *from = ls_trace_task(w->trace, before), *to = ls_trace_task(w->trace, task);
    if (!ls_chrome_is_timed(from) || !ls_chrome_is_timed(to) || from->start_us > to->end_us) return;
    double arrives_us = fmin(fmax(to->start_us, from->end_us), to->end_us);
    const struct {
        const struct ls_task *task;
        double at_us;
    } ends[] = {{from, fmin(from->end_us, arrives_us)}, {to, arrives_us}};
    w->arrows++;
    for (int e = 0; e < 2; e++) {
        ls_chrome_begin_event(w, e == 0 ? "s" : "f", "edge", ls_trace_lane(w->trace, ends[e].task->lane)->rank,
                              w->lane_ids[ends[e].task->lane]);
        ls_chrome_put_ns(w, "ts", ls_chrome_ns(w, ends[e].at_us));
        ls_chrome_put(w, ", \"name\": \"edge\", \"id\": %lld%s}", w->arrows, e == 0 ? "" : ", \"bp\": \"e\"");
    }
}

void ls_chrome_put_arrows(struct ls_chrome_writer *w, int task) {
    int count = sort_before(w, task);
    for (int i = 0; i < count; i++) {
        const struct ls_task *from = ls_trace_task(w->trace, w->sorted[i]), *to = ls_trace_task(w->trace, task);
        bool launches = ls_trace_lane(w->trace, from->lane)->kind == LS_LANE_HOST &&
                        ls_trace_lane(w->trace, to->lane)->kind != LS_LANE_HOST;
        if (from->lane != to->lane && (!launches || to->kind != LS_TASK_KERNEL)) put_arrow(w, w->sorted[i], task);
    }
}

/* Writes the steps of a rank, on the first of its host lanes: from a step's first task there to its last. */
static void put_steps(struct ls_chrome_writer *w, int lane) {
    int count;
    const int *tasks = ls_trace_lane_tasks(w->trace, lane, &count);
    for (int i = 0, next; i < count; i = next) {
        const struct ls_task *first = ls_trace_task(w->trace, tasks[i]), *last = first;
        for (next = i + 1; next < count && ls_trace_task(w->trace, tasks[next])->step == first->step; next++)
            last = ls_trace_task(w->trace, tasks[next]);
        if (first->step < 0 || !ls_chrome_is_timed(first) || !ls_chrome_is_timed(last)) continue;
        long long start_ns = ls_chrome_ns(w, first->start_us);
        ls_chrome_begin_event(w, "X", "user_annotation", ls_trace_lane(w->trace, lane)->rank, w->lane_ids[lane]);
        ls_chrome_put(w, ", \"name\": \"ProfilerStep#%d\"", first->step);
        ls_chrome_put_ns(w, "ts", start_ns);
        ls_chrome_put_ns(w, "dur", ls_chrome_ns(w, last->end_us) - start_ns);
        ls_chrome_put(w, "}");
    }
}

void ls_chrome_put_steps(struct ls_chrome_writer *w) {
    int shown = LS_NONE;
    for (int i = 0; i < ls_trace_lane_count(w->trace); i++) {
        const struct ls_lane *lane = ls_trace_lane(w->trace, i);
        if (w->lane_ids[i] == LS_NONE || lane->kind != LS_LANE_HOST || lane->rank == shown) continue;
        shown = lane->rank;
        put_steps(w, i);
    }
}
