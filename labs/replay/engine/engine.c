/* engine — a discrete-event simulation of lanes, devices, locks and links.
 *   idea  : a lane runs one task after another, so each lane has at most one next event: the end of its task, the end
 *           of its copy's latency, or a request for a device or a lock, now. The agenda (agenda.h) returns the lane
 *           whose event is next. The end of a task may make other tasks ready, which become events of their lanes
 *   terms : a task is ready when its lane has reached it and all tasks on which it depends have ended (`missing` counts
 *           the others); it then starts at once (host, copy), or waits for its turn (kernel, locked host) or for other
 *           ranks (collective)
 *   turns : a device's compute units and a rank's lock are each a `turn`: one holder, and a first-come, first-served
 *           queue. Tasks that become ready at the same moment ask in the order of lanes, after all tasks that end at
 *           that moment have ended
 *   pace  : a running kernel has an amount of work left; its end is computed again when a collective operation of its
 *           device begins or ends
 *   links : rates are assigned after all transfers that begin or end at a moment have done so (links.h)
 *   cost  : O((tasks + edges) log lanes), plus the cost in links.h for each moment at which transfers begin or end. 28
 *           bytes per task: three times and a count
 *   ends  : each event ends a task, begins a transfer or is the only request of a task, so their number is bounded;
 *           times that are not finite are refused, so an absurd duration cannot stop the simulation */
#include "labs/replay/engine/engine_internal.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"

static int task_of(const struct ls_engine *e, int lane) {
    int count;
    return ls_trace_lane_tasks(e->trace, lane, &count)[e->lanes[lane].done];
}

static void wait_for(struct ls_engine *e, int lane, enum ls_engine_phase phase, double at_us) {
    e->lanes[lane].phase = phase;
    ls_agenda_set(e->agenda, lane, at_us, phase == LS_ENGINE_ASKS);
}

/* --- kernels and their device ------------------------------------------------------------------------------------ */

/* The time that a microsecond of a kernel's work takes now. */
static double pace_of(const struct ls_engine *e, const struct ls_engine_device *device) {
    return device->collectives > 0 ? e->slow_down : 1;
}

static void begin_kernel(struct ls_engine *e, int lane, double us) {
    struct ls_engine_device *device = &e->devices[e->lanes[lane].device];
    device->left_us = us;
    device->since_us = e->now_us;
    wait_for(e, lane, LS_ENGINE_TASK_ENDS, e->now_us + us * pace_of(e, device));
}

static void count_collectives(struct ls_engine *e, int lane, int more) {
    struct ls_engine_device *device = &e->devices[e->lanes[lane].device];
    double before = pace_of(e, device);
    device->collectives += more;
    double after = pace_of(e, device);
    if (device->compute.holder == LS_NONE || before == after) return;
    device->left_us = fmax(0, device->left_us - (e->now_us - device->since_us) / before);
    device->since_us = e->now_us;
    wait_for(e, device->compute.holder, LS_ENGINE_TASK_ENDS, e->now_us + device->left_us * after);
}

/* --- turns ------------------------------------------------------------------------------------------------------- */

static bool needs_turn(const struct ls_task *task) {
    return task->kind == LS_TASK_KERNEL || (task->kind == LS_TASK_HOST && task->lock != LS_NONE);
}

static struct ls_engine_turn *turn_of(const struct ls_engine *e, int lane, const struct ls_task *task) {
    if (task->kind == LS_TASK_KERNEL) return &e->devices[e->lanes[lane].device].compute;
    return ls_engine_lock_turn(e, ls_trace_lane(e->trace, lane)->rank, task->lock);
}

/* The duration of a host task. A hand-off takes as long as it takes to wake the thread, less if it is still spinning,
 * and no time if it precedes the thread's wait; but before its first task a thread sleeps. */
static double host_us(const struct ls_engine *e, int lane, const struct ls_task *task) {
    if (!task->hand_over || !e->node) return task->us;
    const struct ls_node_host *host = ls_node_host(e->node);
    double waited_us = e->now_us - e->lanes[lane].idle_since_us;
    if (waited_us <= 0 && e->lanes[lane].done > 0) return 0;
    bool awake = waited_us < host->spin_us;
    return awake ? fmin(task->us, host->awake_us) : task->us;
}

/* Starts the lane's task, which has all that it needs. */
static void begin_work(struct ls_engine *e, int lane) {
    int task = task_of(e, lane);
    const struct ls_task *t = ls_trace_task(e->trace, task);
    e->timeline->start_us[task] = e->now_us;
    if (t->kind == LS_TASK_KERNEL)
        begin_kernel(e, lane, t->us);
    else
        wait_for(e, lane, LS_ENGINE_TASK_ENDS, e->now_us + host_us(e, lane, t));
}

static void take_turn(struct ls_engine *e, int lane) {
    struct ls_engine_turn *turn = turn_of(e, lane, ls_trace_task(e->trace, task_of(e, lane)));
    if (turn->holder == LS_NONE) {
        turn->holder = lane;
        begin_work(e, lane);
        return;
    }
    e->lanes[lane].behind = LS_NONE;
    if (turn->first == LS_NONE)
        turn->first = lane;
    else
        e->lanes[turn->last].behind = lane;
    turn->last = lane;
}

static void pass_turn(struct ls_engine *e, struct ls_engine_turn *turn) {
    int next = turn->holder = turn->first;
    if (next == LS_NONE) return;
    turn->first = e->lanes[next].behind;
    begin_work(e, next);
}

/* --- copies and meetings ----------------------------------------------------------------------------------------- */

/* The links that a copy shares with others; NULL if its duration is given, or it crosses no link. */
static const struct ls_route *route_of(const struct ls_engine *e, const struct ls_task *t) {
    const struct ls_route *route = t->us < 0 ? ls_node_route(e->node, t->from, t->to) : NULL;
    return route && route->count > 0 ? route : NULL;
}

static void begin_copy(struct ls_engine *e, int lane, const struct ls_task *t) {
    double first_us = t->us < 0 ? ls_node_route(e->node, t->from, t->to)->latency_us : t->us;
    e->timeline->start_us[task_of(e, lane)] = e->now_us;
    wait_for(e, lane, route_of(e, t) ? LS_ENGINE_LATENCY_PASSES : LS_ENGINE_TASK_ENDS, e->now_us + first_us);
}

static void begin_transfer(struct ls_engine *e, int lane) {
    const struct ls_task *t = ls_trace_task(e->trace, task_of(e, lane));
    ls_links_begin(e->links, lane, route_of(e, t), t->bytes, e->now_us);
}

static void share_links(struct ls_engine *e) {
    int count;
    const int *moved = ls_links_share(e->links, e->now_us, &count);
    for (int i = 0; i < count; i++) wait_for(e, moved[i], LS_ENGINE_TASK_ENDS, ls_links_end_us(e->links, moved[i]));
}

static void join_meeting(struct ls_engine *e, int meeting) {
    if (--e->absent[meeting] > 0) return;
    int count;
    const int *tasks = ls_trace_meeting_tasks(e->trace, meeting, &count);
    double longest_us = 0;
    for (int i = 0; i < count; i++) longest_us = fmax(longest_us, ls_trace_task(e->trace, tasks[i])->us);
    for (int i = 0; i < count; i++) {
        int lane = ls_trace_task(e->trace, tasks[i])->lane;
        e->timeline->start_us[tasks[i]] = e->now_us;
        count_collectives(e, lane, +1);
        wait_for(e, lane, LS_ENGINE_TASK_ENDS, e->now_us + longest_us);
    }
}

/* --- one task after another -------------------------------------------------------------------------------------- */

static void become_ready(struct ls_engine *e, int task) {
    const struct ls_task *t = ls_trace_task(e->trace, task);
    e->timeline->ready_us[task] = e->now_us;
    if (t->kind == LS_TASK_COLLECTIVE)
        join_meeting(e, t->meeting);
    else if (t->kind == LS_TASK_COPY)
        begin_copy(e, t->lane, t);
    else if (needs_turn(t))
        wait_for(e, t->lane, LS_ENGINE_ASKS, e->now_us);
    else
        begin_work(e, t->lane);
}

static void one_less_missing(struct ls_engine *e, int task) {
    if (--e->missing[task] == 0) become_ready(e, task);
}

static void end_task(struct ls_engine *e, int lane) {
    int count, task = task_of(e, lane);
    const struct ls_task *t = ls_trace_task(e->trace, task);
    e->timeline->end_us[task] = e->now_us;
    e->lanes[lane].idle_since_us = e->now_us;
    e->ended++;
    if (needs_turn(t)) pass_turn(e, turn_of(e, lane, t));
    if (t->kind == LS_TASK_COLLECTIVE) count_collectives(e, lane, -1);
    if (t->kind == LS_TASK_COPY && route_of(e, t)) ls_links_end(e->links, lane, e->now_us);
    const int *tasks = ls_trace_lane_tasks(e->trace, lane, &count);
    if (++e->lanes[lane].done < count) one_less_missing(e, tasks[e->lanes[lane].done]);
    const int *after = ls_trace_after(e->trace, task, &count);
    for (int i = 0; i < count; i++) one_less_missing(e, after[i]);
}

static ls_status let_time_pass(struct ls_engine *e) {
    for (int lane = 0, count; lane < e->lane_count; lane++) {
        const int *tasks = ls_trace_lane_tasks(e->trace, lane, &count);
        if (count > 0 && e->missing[tasks[0]] == 0) become_ready(e, tasks[0]);
    }
    for (;;) {
        double at_us = INFINITY;
        int lane = ls_agenda_first(e->agenda, &at_us);
        if (ls_links_changed(e->links) && at_us > e->now_us) { /* all events of this moment are done */
            share_links(e);
            continue;
        }
        if (lane == LS_NONE) return LS_OK;
        if (!isfinite(at_us))
            return ls_engine_refuse(e->trace, task_of(e, lane), "ends later than the clock can represent");
        ls_agenda_pop(e->agenda);
        e->now_us = at_us;
        if (e->lanes[lane].phase == LS_ENGINE_ASKS)
            take_turn(e, lane);
        else if (e->lanes[lane].phase == LS_ENGINE_LATENCY_PASSES)
            begin_transfer(e, lane);
        else
            end_task(e, lane);
    }
}

static void note_links(const struct ls_engine *e) {
    for (int link = 0; link < e->timeline->link_count; link++) {
        for (int way = 0; way < 2; way++) {
            e->timeline->link_bytes[way][link] = ls_links_bytes(e->links, link, way == 0);
            e->timeline->link_busy_us[way][link] = ls_links_busy_us(e->links, link, way == 0);
        }
    }
    e->timeline->makespan_us = e->now_us;
}

ls_status ls_engine_run(ls_timeline **out, const ls_trace *trace, const ls_node *node) {
    *out = NULL;
    struct ls_engine engine;
    ls_status status = ls_engine_start(&engine, trace, node);
    if (status == LS_OK) status = let_time_pass(&engine);
    int left = status == LS_OK ? ls_trace_task_count(trace) - engine.ended : 0;
    if (left > 0) /* a sealed trace has no cycle */
        status = ls_fail(LS_ERR_INVALID, "replay is blocked: %d tasks can never begin; seal the trace first", left);
    if (status == LS_OK) note_links(&engine);
    ls_engine_end(&engine);
    if (status == LS_OK)
        *out = engine.timeline;
    else
        ls_timeline_free(engine.timeline);
    return status;
}
