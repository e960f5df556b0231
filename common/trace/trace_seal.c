/* trace_seal — sorts the edges into lists, and all tasks into an order; a trace that has no order is refused.
 *   idea  : count, add up, fill (counting sort) for each of the lists: the tasks that a task waits for, the tasks that
 *           wait for it, the tasks of a lane, of a meeting. Then Kahn's algorithm: repeatedly take a node whose
 *           predecessors have all been taken. The tasks of a meeting begin and end together, so they are one node,
 *           taken when all of them could be
 *   cycle : each node that is left waits for another that is left. Following these waits, the first node that is
 *           reached twice is on a cycle
 *   before: a task happens before another if a path leads from its node to the other's. Paths lead forwards in the
 *           order, so only nodes between the two are visited, once, in that order
 *   cost  : O(tasks + edges) time, 4 bytes of scratch a task */
#include "common/trace/trace_internal.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static LS_PRINTF(4, 5) bool fault_at(struct ls_trace_fault *fault, int task, int other, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    fault->task = task;
    fault->other = other;
    return false;
}

/* --- completeness ------------------------------------------------------------------------------------------------- */

static bool within(int index, size_t count) { return index >= 0 && (size_t)index < count; }

static bool check_lanes(const ls_trace *trace, struct ls_trace_fault *fault) {
    for (int i = 0; i < ls_trace_lane_count(trace); i++) {
        const struct ls_lane *lane = ls_trace_lane(trace, i);
        if ((unsigned)lane->kind >= LS_LANE_COUNT || lane->rank < 0 || lane->device < LS_NONE)
            return fault_at(fault, LS_NONE, LS_NONE, "lane %d (\"%s\") has kind %d, rank %d, device %d", i, lane->name,
                            (int)lane->kind, lane->rank, lane->device);
    }
    return true;
}

static bool check_task(const ls_trace *trace, int index, struct ls_trace_fault *fault) {
    const struct ls_task *task = ls_trace_task(trace, index);
    if ((unsigned)task->kind >= LS_TASK_COUNT || !within(task->lane, trace->lanes.count))
        return fault_at(fault, index, LS_NONE, "task %d (\"%s\") has kind %d and lane %d, of %zu lanes", index,
                        task->name, (int)task->kind, task->lane, trace->lanes.count);
    if (!isfinite(task->us) || !isfinite(task->fixed_bytes) || task->fixed_bytes < 0)
        return fault_at(fault, index, LS_NONE, "task %d (\"%s\") takes %g us, with %g fixed bytes", index, task->name,
                        task->us, task->fixed_bytes);
    if (task->from < LS_HOST_MEMORY || task->to < LS_HOST_MEMORY)
        return fault_at(fault, index, LS_NONE, "task %d (\"%s\") copies from device %d to device %d", index, task->name,
                        task->from, task->to);
    bool meets = task->kind == LS_TASK_COLLECTIVE;
    if (meets ? !within(task->meeting, trace->meetings.count) : task->meeting != LS_NONE)
        return fault_at(fault, index, LS_NONE, "task %d (\"%s\") is a %s with meeting %d, of %zu meetings", index,
                        task->name, ls_task_kind_name(task->kind), task->meeting, trace->meetings.count);
    if (task->lock < LS_NONE || (task->lock != LS_NONE && task->kind != LS_TASK_HOST))
        return fault_at(fault, index, LS_NONE, "task %d (\"%s\") is a %s with lock %d", index, task->name,
                        ls_task_kind_name(task->kind), task->lock);
    return true;
}

static bool check_edges(const ls_trace *trace, struct ls_trace_fault *fault) {
    const struct ls_trace_edge *edges = trace->edges.items;
    for (size_t i = 0; i < trace->edges.count; i++) {
        int before = edges[i].before, task = edges[i].task;
        if (!within(before, trace->tasks.count) || !within(task, trace->tasks.count))
            return fault_at(fault, within(task, trace->tasks.count) ? task : LS_NONE, LS_NONE,
                            "task %d waits for task %d, but there are only %zu tasks", task, before,
                            trace->tasks.count);
        if (before == task)
            return fault_at(fault, task, task, "task %d (\"%s\") waits for itself", task,
                            ls_trace_task(trace, task)->name);
    }
    return true;
}

static bool check_marks(const ls_trace *trace, struct ls_trace_fault *fault) {
    for (int i = 0; i < ls_trace_mark_count(trace); i++) {
        const struct ls_mark *mark = ls_trace_mark(trace, i);
        if (!within(mark->lane, trace->lanes.count) ||
            (mark->after != LS_NONE &&
             (!within(mark->after, trace->tasks.count) || ls_trace_task(trace, mark->after)->lane != mark->lane)))
            return fault_at(fault, LS_NONE, LS_NONE, "mark %d (\"%s\") lies on lane %d behind task %d", i, mark->name,
                            mark->lane, mark->after);
    }
    return true;
}

static bool check(const ls_trace *trace, struct ls_trace_fault *fault) {
    if (!check_lanes(trace, fault)) return false;
    for (int i = 0; i < ls_trace_task_count(trace); i++)
        if (!check_task(trace, i, fault)) return false;
    return check_edges(trace, fault) && check_marks(trace, fault);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static int *ints(ls_trace *trace, size_t count) {
    int *items = calloc(count + 1, sizeof *items);
    if (!items) trace->failed = true;
    return items;
}

/* start[i + 1] is the number of items that list i will have; afterwards start[i + 1] is the position of the next item
 * of list i, and when all have been filled in, list i ends there and list i + 1 begins. */
static void add_up(int *start, int list_count) {
    int sum = 0;
    for (int i = 0; i < list_count; i++) {
        int count = start[i + 1];
        start[i + 1] = sum;
        sum += count;
    }
}

static void make_edge_lists(ls_trace *trace) {
    int count = ls_trace_task_count(trace);
    const struct ls_trace_edge *edges = trace->edges.items;
    struct ls_int_lists *before = &trace->before, *after = &trace->after;
    before->start = ints(trace, (size_t)count + 1);
    before->items = ints(trace, trace->edges.count);
    after->start = ints(trace, (size_t)count + 1);
    after->items = ints(trace, trace->edges.count);
    if (trace->failed) return;
    for (size_t i = 0; i < trace->edges.count; i++) {
        before->start[edges[i].task + 1]++;
        after->start[edges[i].before + 1]++;
    }
    add_up(before->start, count);
    add_up(after->start, count);
    for (size_t i = 0; i < trace->edges.count; i++) {
        before->items[before->start[edges[i].task + 1]++] = edges[i].before;
        after->items[after->start[edges[i].before + 1]++] = edges[i].task;
    }
}

static void make_lane_lists(ls_trace *trace) {
    int count = ls_trace_task_count(trace), lane_count = ls_trace_lane_count(trace);
    struct ls_int_lists *lists = &trace->lane_tasks;
    lists->start = ints(trace, (size_t)lane_count + 1);
    lists->items = ints(trace, (size_t)count);
    trace->next_on_lane = ints(trace, (size_t)count);
    if (trace->failed) return;
    for (int i = 0; i < count; i++) lists->start[ls_trace_task(trace, i)->lane + 1]++;
    add_up(lists->start, lane_count);
    for (int i = 0; i < count; i++) lists->items[lists->start[ls_trace_task(trace, i)->lane + 1]++] = i;
    for (int lane = 0; lane < lane_count; lane++)
        for (int i = lists->start[lane]; i < lists->start[lane + 1]; i++)
            trace->next_on_lane[lists->items[i]] = i + 1 < lists->start[lane + 1] ? lists->items[i + 1] : LS_NONE;
}

static bool make_meeting_lists(ls_trace *trace, struct ls_trace_fault *fault) {
    int count = ls_trace_task_count(trace), meeting_count = ls_trace_meeting_count(trace), members = 0;
    struct ls_int_lists *lists = &trace->meeting_tasks;
    for (int i = 0; i < count; i++) members += ls_trace_task(trace, i)->meeting != LS_NONE;
    lists->start = ints(trace, (size_t)meeting_count + 1);
    lists->items = ints(trace, (size_t)members);
    if (trace->failed) return false;
    for (int i = 0; i < count; i++)
        if (ls_trace_task(trace, i)->meeting != LS_NONE) lists->start[ls_trace_task(trace, i)->meeting + 1]++;
    add_up(lists->start, meeting_count);
    for (int i = 0; i < count; i++)
        if (ls_trace_task(trace, i)->meeting != LS_NONE)
            lists->items[lists->start[ls_trace_task(trace, i)->meeting + 1]++] = i;
    struct ls_meeting *meetings = trace->meetings.items;
    for (int i = 0; i < meeting_count; i++) {
        meetings[i].tasks = lists->start[i + 1] - lists->start[i]; /* counted here: joins may differ */
        if (meetings[i].tasks > meetings[i].ranks)
            return fault_at(fault, lists->items[lists->start[i + 1] - 1], LS_NONE,
                            "operation %u of group \"%s\" has %d ranks and %d tasks", meetings[i].number,
                            meetings[i].group, meetings[i].ranks, meetings[i].tasks);
    }
    return true;
}

/* --- the order ---------------------------------------------------------------------------------------------------- */

/* The tasks of the node that *task belongs to. */
static const int *members(const ls_trace *trace, const int *task, int *count) {
    int meeting = ls_trace_task(trace, *task)->meeting;
    if (meeting != LS_NONE) return ls_trace_meeting_tasks(trace, meeting, count);
    *count = 1;
    return task;
}

/* A node is named by its lowest task. */
static int node_of(const ls_trace *trace, int task) {
    int count;
    return members(trace, &task, &count)[0];
}

/* The `i`-th task, from 0, that waits for this one, beside those of its own node; LS_NONE after the last. */
static int successor(const ls_trace *trace, int task, int i) {
    int count;
    const int *after = ls_trace_after(trace, task, &count);
    if (i < count) return after[i];
    return i == count ? trace->next_on_lane[task] : LS_NONE;
}

/* waits[n]: number of tasks that node n still waits for; -1 for nodes that have been taken. `order` has `taken` nodes
 * that wait for nothing, and room for all; returns the number of nodes in it at the end. */
static int take_in_order(const ls_trace *trace, int *waits, int *order, int taken) {
    for (int i = 0; i < taken; i++) {
        int count, node = order[i];
        const int *tasks = members(trace, &node, &count);
        waits[node] = -1;
        for (int m = 0; m < count; m++)
            for (int s = 0, next; (next = successor(trace, tasks[m], s)) != LS_NONE; s++)
                if (--waits[node_of(trace, next)] == 0) order[taken++] = node_of(trace, next);
    }
    return taken;
}

static int compare_ints(const void *a, const void *b) {
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

/* A task that has not been taken and that a task of `node` waits for; sets *task to the latter. A lane's tasks are
 * found in ascending order. */
static int untaken_before(const ls_trace *trace, const int *waits, int node, int *task) {
    int count;
    const int *tasks = members(trace, &node, &count);
    for (int m = 0; m < count; m++) {
        int before_count, lane_count, lane = ls_trace_task(trace, tasks[m])->lane;
        const int *before = ls_trace_before(trace, tasks[m], &before_count);
        *task = tasks[m];
        for (int i = 0; i < before_count; i++)
            if (waits[node_of(trace, before[i])] >= 0) return before[i];
        const int *on_lane = ls_trace_lane_tasks(trace, lane, &lane_count);
        const int *place = bsearch(&tasks[m], on_lane, (size_t)lane_count, sizeof *on_lane, compare_ints);
        if (place > on_lane && waits[node_of(trace, place[-1])] >= 0) return place[-1];
    }
    return LS_NONE;
}

static bool name_cycle(const ls_trace *trace, int *waits, struct ls_trace_fault *fault) {
    int node = 0, task = LS_NONE, before = LS_NONE;
    while (waits[node] < 0 || node_of(trace, node) != node) node++;
    while (waits[node] < INT_MAX) { /* marks visited nodes */
        before = untaken_before(trace, waits, node, &task);
        waits[node] = INT_MAX;
        node = node_of(trace, before);
    }
    return fault_at(
        fault, task, before, "task %d (\"%s\" on \"%s\") waits for task %d (\"%s\" on \"%s\"), which waits for it",
        task, ls_trace_task(trace, task)->name, ls_trace_lane(trace, ls_trace_task(trace, task)->lane)->name, before,
        ls_trace_task(trace, before)->name, ls_trace_lane(trace, ls_trace_task(trace, before)->lane)->name);
}

/* Whether an order exists in which each task follows all that it waits for. The tasks of a meeting begin and end
 * together: they are one node. A task without a meeting is a node of its own. */
static bool check_order(ls_trace *trace, struct ls_trace_fault *fault) {
    int count = ls_trace_task_count(trace), nodes = 0, ready = 0;
    int *waits = ints(trace, (size_t)count), *order = ints(trace, (size_t)count);
    for (int i = 0; !trace->failed && i < count; i++) {
        int before_count, node = node_of(trace, i);
        (void)ls_trace_before(trace, i, &before_count);
        waits[node] += before_count;
        if (trace->next_on_lane[i] != LS_NONE) waits[node_of(trace, trace->next_on_lane[i])]++;
    }
    for (int i = 0; !trace->failed && i < count; i++) {
        if (node_of(trace, i) != i)
            waits[i] = -1;
        else if (nodes++, waits[i] == 0)
            order[ready++] = i;
    }
    bool good =
        !trace->failed && (take_in_order(trace, waits, order, ready) == nodes || name_cycle(trace, waits, fault));
    free(waits);
    free(order);
    return good;
}

/* --- sealing ------------------------------------------------------------------------------------------------------ */

ls_status ls_trace_seal_quietly(ls_trace *trace, struct ls_trace_fault *fault) {
    *fault = (struct ls_trace_fault){.task = LS_NONE, .other = LS_NONE};
    ls_trace_unseal(trace);
    bool good = !trace->failed && check(trace, fault);
    if (good) {
        make_edge_lists(trace);
        if (!trace->failed) make_lane_lists(trace);
        good = !trace->failed && make_meeting_lists(trace, fault) && check_order(trace, fault);
    }
    trace->sealed = good && !trace->failed;
    if (trace->sealed) return LS_OK;
    ls_trace_unseal(trace);
    if (!trace->failed) return LS_ERR_INVALID;
    snprintf(fault->text, sizeof fault->text, "no memory for a trace of %zu tasks", trace->tasks.count);
    return LS_ERR_NO_MEMORY;
}

ls_status ls_trace_seal(ls_trace *trace) {
    struct ls_trace_fault fault;
    ls_status status = ls_trace_seal_quietly(trace, &fault);
    return status == LS_OK ? LS_OK : ls_fail(status, "the trace is invalid: %s", fault.text);
}

static void lists_free(struct ls_int_lists *lists) {
    free(lists->start);
    free(lists->items);
    *lists = (struct ls_int_lists){0};
}

void ls_trace_unseal(ls_trace *trace) {
    lists_free(&trace->before);
    lists_free(&trace->after);
    lists_free(&trace->lane_tasks);
    lists_free(&trace->meeting_tasks);
    free(trace->next_on_lane);
    trace->next_on_lane = NULL;
    trace->sealed = false;
}
