#include "labs/replay/engine/engine_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

/* --- before it begins --------------------------------------------------------------------------------------------- */

ls_status ls_engine_refuse(const ls_trace *trace, int task, const char *why) {
    const struct ls_task *t = ls_trace_task(trace, task);
    return ls_fail(LS_ERR_INVALID, "task %d (%s, on lane %d, %s) %s", task, t->name, t->lane,
                   ls_trace_lane(trace, t->lane)->name, why);
}

static ls_status check_task(const ls_trace *trace, const ls_node *node, int task) {
    const struct ls_task *t = ls_trace_task(trace, task);
    if (t->kind == LS_TASK_KERNEL && ls_trace_lane(trace, t->lane)->device < 0)
        return ls_engine_refuse(trace, task, "is a kernel on a lane of no device");
    if (t->us >= 0) return LS_OK;
    if (t->kind != LS_TASK_COPY)
        return ls_engine_refuse(trace, task, "has no duration; derive one from its flops and bytes first");
    if (!node)
        return ls_engine_refuse(trace, task, "has no duration, and no node is given whose links determine the time");
    if (!ls_node_route(node, t->from, t->to))
        return ls_fail(LS_ERR_INVALID,
                       "task %d (%s) copies from device %d to device %d, but node %s has %d devices (0 to %d)", task,
                       t->name, t->from, t->to, ls_node_name(node), ls_node_device_count(node),
                       ls_node_device_count(node) - 1);
    return LS_OK;
}

static ls_status check(const ls_trace *trace, const ls_node *node) {
    double slow_down = node ? ls_node_collectives(node)->slow_down : 1;
    if (!(slow_down > 0) || !isfinite(slow_down))
        return ls_fail(LS_ERR_INVALID, "node %s: slow_down is %g; expected a positive number", ls_node_name(node),
                       slow_down);
    ls_status status = LS_OK;
    for (int i = 0; i < ls_trace_task_count(trace) && status == LS_OK; i++) status = check_task(trace, node, i);
    return status;
}

/* --- what a run needs --------------------------------------------------------------------------------------------- */

static const struct ls_engine_turn free_turn = {LS_NONE, LS_NONE, LS_NONE};

static int compare_devices(const void *left, const void *right) {
    const struct ls_engine_device *a = left, *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

static int compare_locks(const void *left, const void *right) {
    const struct ls_engine_lock *a = left, *b = right;
    if (a->rank != b->rank) return (a->rank > b->rank) - (a->rank < b->rank);
    return (a->number > b->number) - (a->number < b->number);
}

/* Sorts and removes duplicates; returns the number of remaining items. */
static int keep_unique(void *items, int count, size_t size, int (*compare)(const void *, const void *)) {
    if (count == 0) return 0;
    qsort(items, (size_t)count, size, compare);
    char *kept = items;
    for (char *item = kept + size, *end = (char *)items + (size_t)count * size; item < end; item += size)
        if (compare(kept, item) != 0) memmove(kept += size, item, size);
    return (int)((size_t)(kept - (char *)items) / size) + 1;
}

static bool find_devices(struct ls_engine *e) {
    e->devices = calloc((size_t)e->lane_count + 1, sizeof *e->devices);
    if (!e->devices) return false;
    for (int i = 0; i < e->lane_count; i++)
        e->devices[i] = (struct ls_engine_device){.number = ls_trace_lane(e->trace, i)->device, .compute = free_turn};
    e->device_count = keep_unique(e->devices, e->lane_count, sizeof *e->devices, compare_devices);
    for (int i = 0; i < e->lane_count; i++) {
        const struct ls_engine_device key = {.number = ls_trace_lane(e->trace, i)->device};
        const struct ls_engine_device *found =
            bsearch(&key, e->devices, (size_t)e->device_count, sizeof key, compare_devices);
        e->lanes[i].device = (int)(found - e->devices);
    }
    return true;
}

/* A lane's tasks mostly hold the same lock, so the list before sorting is short. */
static bool find_locks(struct ls_engine *e) {
    int room = 0;
    for (int lane = 0; lane < e->lane_count; lane++) {
        int count, last = LS_NONE;
        const int *tasks = ls_trace_lane_tasks(e->trace, lane, &count);
        for (int i = 0; i < count; i++) {
            int number = ls_trace_task(e->trace, tasks[i])->lock;
            if (number < 0 || number == last) continue;
            if (e->lock_count == room) {
                room = room ? 2 * room : 16;
                struct ls_engine_lock *more = realloc(e->locks, (size_t)room * sizeof *more);
                if (!more) return false;
                e->locks = more;
            }
            e->locks[e->lock_count++] =
                (struct ls_engine_lock){ls_trace_lane(e->trace, lane)->rank, last = number, free_turn};
        }
    }
    e->lock_count = keep_unique(e->locks, e->lock_count, sizeof *e->locks, compare_locks);
    return true;
}

static bool count_missing(struct ls_engine *e) {
    int meeting_count = ls_trace_meeting_count(e->trace);
    e->missing = calloc((size_t)ls_trace_task_count(e->trace) + 1, sizeof *e->missing);
    e->absent = calloc((size_t)meeting_count + 1, sizeof *e->absent);
    if (!e->missing || !e->absent) return false;
    for (int meeting = 0; meeting < meeting_count; meeting++)
        (void)ls_trace_meeting_tasks(e->trace, meeting, &e->absent[meeting]);
    for (int task = 0; task < ls_trace_task_count(e->trace); task++)
        (void)ls_trace_before(e->trace, task, &e->missing[task]);
    for (int lane = 0; lane < e->lane_count; lane++) { /* the lane's order is an edge to all but its first task */
        int count;
        const int *tasks = ls_trace_lane_tasks(e->trace, lane, &count);
        for (int i = 1; i < count; i++) e->missing[tasks[i]]++;
    }
    return true;
}

static ls_timeline *create_timeline(int task_count, int link_count) {
    ls_timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline) return NULL;
    size_t tasks = (size_t)task_count + 1, links = (size_t)link_count + 1; /* + 1: 0 items must not give NULL */
    timeline->task_count = task_count;
    timeline->link_count = link_count;
    timeline->ready_us = calloc(tasks, sizeof(double));
    timeline->start_us = calloc(tasks, sizeof(double));
    timeline->end_us = calloc(tasks, sizeof(double));
    bool complete = timeline->ready_us && timeline->start_us && timeline->end_us;
    for (int way = 0; way < 2; way++) {
        timeline->link_bytes[way] = calloc(links, sizeof(double));
        timeline->link_busy_us[way] = calloc(links, sizeof(double));
        complete = complete && timeline->link_bytes[way] && timeline->link_busy_us[way];
    }
    if (complete) return timeline;
    ls_timeline_free(timeline);
    return NULL;
}

void ls_timeline_free(ls_timeline *timeline) {
    if (!timeline) return;
    free(timeline->ready_us);
    free(timeline->start_us);
    free(timeline->end_us);
    for (int way = 0; way < 2; way++) {
        free(timeline->link_bytes[way]);
        free(timeline->link_busy_us[way]);
    }
    free(timeline);
}

/* --- together ----------------------------------------------------------------------------------------------------- */

ls_status ls_engine_start(struct ls_engine *e, const ls_trace *trace, const ls_node *node) {
    *e = (struct ls_engine){.trace = trace, .node = node, .lane_count = ls_trace_lane_count(trace)};
    ls_status status = check(trace, node);
    if (status == LS_OK) status = ls_agenda_create(&e->agenda, e->lane_count);
    if (status == LS_OK) status = ls_links_create(&e->links, node, e->lane_count);
    if (status != LS_OK) return status;
    e->slow_down = node ? ls_node_collectives(node)->slow_down : 1;
    e->lanes = calloc((size_t)e->lane_count + 1, sizeof *e->lanes);
    e->timeline = create_timeline(ls_trace_task_count(trace), node ? ls_node_link_count(node) : 0);
    if (e->lanes && e->timeline && find_devices(e) && find_locks(e) && count_missing(e)) return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to replay %d tasks", ls_trace_task_count(trace));
}

void ls_engine_end(struct ls_engine *e) {
    free(e->lanes);
    free(e->devices);
    free(e->locks);
    free(e->missing);
    free(e->absent);
    ls_agenda_destroy(e->agenda);
    ls_links_destroy(e->links);
}

struct ls_engine_turn *ls_engine_lock_turn(const struct ls_engine *e, int rank, int number) {
    const struct ls_engine_lock key = {.rank = rank, .number = number};
    struct ls_engine_lock *found = bsearch(&key, e->locks, (size_t)e->lock_count, sizeof key, compare_locks);
    return &found->turn;
}
