/* account — where time went, by a sweep over the moments at which a task of a device begins or ends.
 *   idea  : every task of a device that counts has two points in time, at which a number of tasks in progress goes up
 *           or down. Between two neighbouring points nothing changes, so that interval belongs to the first of compute,
 *           communication, host and idle that is in progress; no time is counted twice or left out
 *   terms : window = the time of the steps that count; tasks are clipped to it
 *   whose : kernels and collectives belong to their lane's device; a host task to the device that its thread drives; a
 *           copy to the devices at both of its ends or, within the host's memory, to its lane's
 *   phase : the same intervals by the phases that the trace names
 *   cost  : O(tasks log tasks + tasks phases), and 48 bytes for each task of the device with most tasks
 *   times : tasks whose times are unknown (NAN) are ignored */
#include "labs/replay/engine/account.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/statistics.h"

enum progress { COMPUTE, COMMUNICATION, HOST, KINDS };

struct point {
    double at_us;
    int kind, phase, more; /* one more or one less (+ 1, - 1) is in progress from here on */
};

struct window {
    int first_step, last_step; /* whose bytes count */
    double begin_us, end_us;
};

/* A lane, or a copy, of a device. */
struct belonging {
    int device, index;
    bool is_copy;
};

struct sweep {
    const ls_trace *trace;
    const ls_timeline *timeline;
    struct window window;
    struct point *points; /* of the current device */
    size_t count, capacity;
    bool failed;
    struct ls_device_account *devices; /* by number */
    int device_count, phase_count;
    const char **phases;
    /* over all devices */
    double communication_us, hidden_us;
};

/* --- which time counts -------------------------------------------------------------------------------------------- */

static struct window widen(struct window window, int step, double begin_us, double end_us) {
    if (step < window.first_step) window.first_step = step;
    if (step > window.last_step) window.last_step = step;
    window.begin_us = fmin(window.begin_us, begin_us); /* fmin and fmax ignore NAN */
    window.end_us = fmax(window.end_us, end_us);
    return window;
}

static const struct window nothing = {INT_MAX, INT_MIN, INFINITY, -INFINITY};

/* From the end of the first step to that of the last; the whole step, if it is the only one; all tasks, if none has a
 * step. Returns the number of steps; 0: no task has times. */
static int64_t find_window(struct window *window, const ls_trace *trace, const ls_timeline *timeline) {
    struct window all = nothing, steps = nothing;
    double first_end_us = -INFINITY;
    for (int i = 0; i < timeline->task_count; i++) {
        int step = ls_trace_task(trace, i)->step;
        double begin_us = timeline->start_us[i], end_us = timeline->end_us[i];
        if (isnan(begin_us) || isnan(end_us)) continue;
        all = widen(all, 0, begin_us, end_us);
        if (step < 0) continue;
        if (step < steps.first_step) first_end_us = -INFINITY; /* of a later one */
        steps = widen(steps, step, begin_us, end_us);
        if (step == steps.first_step) first_end_us = fmax(first_end_us, end_us);
    }
    if (all.end_us < all.begin_us) return 0;
    *window = steps.last_step < 0 ? all : steps;
    if (steps.last_step < 0) window->first_step = window->last_step = -1;
    if (steps.last_step <= steps.first_step) return 1;
    window->first_step++;
    window->begin_us = first_end_us;
    return (int64_t)steps.last_step - steps.first_step;
}

/* The median of the times from one step's end to the next, of the steps that count and have tasks; 0 for one that ends
 * before an earlier one. */
static ls_status find_median(double *median_us, const struct window *window, const ls_trace *trace,
                             const ls_timeline *timeline) {
    size_t count = (size_t)(window->last_step - window->first_step) + 1;
    double *ends_us = malloc(count * sizeof *ends_us), before_us = window->begin_us;
    if (!ends_us) return LS_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) ends_us[i] = -INFINITY;
    for (int i = 0; i < timeline->task_count; i++) {
        int step = ls_trace_task(trace, i)->step;
        if (step < window->first_step || step > window->last_step || isnan(timeline->end_us[i])) continue;
        double *end_us = &ends_us[step - window->first_step];
        *end_us = fmax(*end_us, timeline->end_us[i]);
    }
    size_t there = 0;
    double *steps_us = ends_us; /* in their place */
    for (size_t i = 0; i < count; i++) {
        if (!(ends_us[i] > -INFINITY)) continue;
        double end_us = fmax(ends_us[i], before_us);
        steps_us[there++] = end_us - before_us;
        before_us = end_us;
    }
    ls_sort(steps_us, there);
    *median_us = ls_quantile(steps_us, there, 0.5);
    free(ends_us);
    return LS_OK;
}

static bool counts(const struct sweep *s, int step) {
    return step >= s->window.first_step && step <= s->window.last_step;
}

/* --- one device's points ------------------------------------------------------------------------------------------ */

static void add_point(struct sweep *s, double at_us, int kind, int phase, int more) {
    if (s->count == s->capacity) {
        size_t capacity = 2 * s->capacity + 64;
        struct point *points = realloc(s->points, capacity * sizeof *points);
        if (!points) s->failed = true;
        if (!points) return;
        s->points = points;
        s->capacity = capacity;
    }
    s->points[s->count++] = (struct point){at_us, kind, phase, more};
}

/* The part of it in the window; 0 also if a time is unknown. */
static double within(const struct sweep *s, double *begin_us, double *end_us) {
    if (isnan(*begin_us) || isnan(*end_us)) return 0;
    *begin_us = fmax(*begin_us, s->window.begin_us);
    *end_us = fmin(*end_us, s->window.end_us);
    return fmax(0, *end_us - *begin_us);
}

/* The phase's index in the list, to which a new one is added. A trace has each text once. */
static int phase_of(struct sweep *s, const char *name) {
    int phase = 0;
    while (phase < s->phase_count && s->phases[phase] != name) phase++;
    if (phase == LS_ACCOUNT_PHASES) s->phases[--phase] = "further phases";
    if (phase == s->phase_count) s->phases[s->phase_count++] = name;
    return phase;
}

static void add_task(struct sweep *s, int task, enum progress kind) {
    double begin_us = s->timeline->start_us[task], end_us = s->timeline->end_us[task];
    if (within(s, &begin_us, &end_us) == 0) return;
    int phase = phase_of(s, ls_trace_task(s->trace, task)->phase);
    add_point(s, begin_us, kind, phase, +1);
    add_point(s, end_us, kind, phase, -1);
}

static void add_lock_wait(struct sweep *s, struct ls_device_account *device, int task) {
    double begin_us = s->timeline->ready_us[task], end_us = s->timeline->start_us[task];
    device->lock_us += within(s, &begin_us, &end_us);
}

static void add_lane(struct sweep *s, struct ls_device_account *device, int lane) {
    int count;
    const int *tasks = ls_trace_lane_tasks(s->trace, lane, &count);
    for (int i = 0; i < count; i++) {
        const struct ls_task *task = ls_trace_task(s->trace, tasks[i]);
        if (task->kind == LS_TASK_HOST && task->lock != LS_NONE) add_lock_wait(s, device, tasks[i]);
        if (task->kind == LS_TASK_KERNEL)
            add_task(s, tasks[i], COMPUTE);
        else if (task->kind == LS_TASK_COLLECTIVE)
            add_task(s, tasks[i], COMMUNICATION);
        else if (task->kind == LS_TASK_HOST)
            add_task(s, tasks[i], HOST);
    }
}

static void add_copy(struct sweep *s, struct ls_device_account *device, int index) {
    const struct ls_task *task = ls_trace_task(s->trace, index);
    add_task(s, index, COMMUNICATION);
    if (task->from == task->to || !counts(s, task->step)) return;
    if (task->from == device->device) device->sent_bytes += (double)task->bytes;
    if (task->to == device->device) device->received_bytes += (double)task->bytes;
}

static int compare_points(const void *left, const void *right) {
    const struct point *a = left, *b = right;
    if (a->at_us != b->at_us) return a->at_us < b->at_us ? -1 : 1;
    if (a->kind != b->kind) return a->kind - b->kind;
    return a->more - b->more;
}

/* The index of the first count above 0. */
static int first_of(const int *counts, int length) {
    int first = 0;
    while (first < length && counts[first] == 0) first++;
    return first;
}

static void sweep_device(struct sweep *s, struct ls_device_account *device) {
    double *const us_of[] = {&device->compute_us, &device->exposed_us, &device->host_us, &device->idle_us};
    int going[KINDS] = {0}, phases[KINDS][LS_ACCOUNT_PHASES] = {{0}};
    double now_us = s->window.begin_us;
    if (s->count > 0) qsort(s->points, s->count, sizeof *s->points, compare_points);
    for (size_t i = 0; i <= s->count; i++) {
        double next_us = i < s->count ? s->points[i].at_us : s->window.end_us, us = next_us - now_us;
        int kind = first_of(going, KINDS);
        *us_of[kind] += us;
        if (kind < KINDS) device->phase_us[first_of(phases[kind], LS_ACCOUNT_PHASES)] += us;
        if (going[COMMUNICATION] > 0) device->communication_us += us;
        if (going[COMMUNICATION] > 0 && going[COMPUTE] > 0) s->hidden_us += us;
        now_us = next_us;
        if (i == s->count) break;
        const struct point *point = &s->points[i];
        going[point->kind] += point->more;
        phases[point->kind][point->phase] += point->more;
    }
    s->communication_us += device->communication_us;
}

/* --- whose is what ------------------------------------------------------------------------------------------------ */

static int compare_belongings(const void *left, const void *right) {
    const struct belonging *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->is_copy != b->is_copy) return b->is_copy ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* By device; lanes first. NULL: no memory. */
static struct belonging *sort_out(const ls_trace *trace, size_t *count) {
    int task_count = ls_trace_task_count(trace), lane_count = ls_trace_lane_count(trace);
    size_t copies = 0, filled = 0;
    for (int i = 0; i < task_count; i++) copies += ls_trace_task(trace, i)->kind == LS_TASK_COPY;
    struct belonging *all = calloc((size_t)lane_count + 2 * copies + 1, sizeof *all);
    if (!all) return NULL;
    for (int i = 0; i < lane_count; i++) all[filled++] = (struct belonging){ls_trace_lane(trace, i)->device, i, false};
    for (int i = 0; i < task_count; i++) {
        const struct ls_task *task = ls_trace_task(trace, i);
        if (task->kind != LS_TASK_COPY) continue;
        int from = task->from, to = task->to;
        if (from < 0 && to < 0) from = to = ls_trace_lane(trace, task->lane)->device;
        if (from >= 0) all[filled++] = (struct belonging){from, i, true};
        if (to >= 0 && to != from) all[filled++] = (struct belonging){to, i, true};
    }
    qsort(all, filled, sizeof *all, compare_belongings);
    *count = filled;
    return all;
}

/* Sweeps over each device that has a lane. */
static void sweep_all(struct sweep *s, const struct belonging *all, size_t count) {
    for (size_t i = 0, next; i < count; i = next) {
        struct ls_device_account *device = &s->devices[s->device_count];
        *device = (struct ls_device_account){.device = all[i].device};
        s->count = 0;
        bool has_lane = device->device >= 0 && !all[i].is_copy;
        for (next = i; next < count && all[next].device == all[i].device; next++) {
            if (!has_lane) continue;
            if (all[next].is_copy)
                add_copy(s, device, all[next].index);
            else
                add_lane(s, device, all[next].index);
        }
        if (!has_lane) continue;
        sweep_device(s, device);
        s->device_count++;
    }
}

/* --- the account -------------------------------------------------------------------------------------------------- */

static void divide(struct ls_device_account *device, double steps) {
    double *const figures[] = {&device->compute_us, &device->exposed_us,       &device->host_us,
                               &device->idle_us,    &device->communication_us, &device->lock_us,
                               &device->sent_bytes, &device->received_bytes};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) *figures[i] /= steps;
    for (int phase = 0; phase < LS_ACCOUNT_PHASES; phase++) device->phase_us[phase] /= steps;
}

static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

static void add_shares(struct ls_account *account, const struct sweep *s) {
    for (int i = 0; i < account->device_count; i++) {
        const struct ls_device_account *device = &account->devices[i];
        account->communication_share += share(device->communication_us, account->step_us) / account->device_count;
        account->busy_share += share(device->compute_us, account->step_us) / account->device_count;
    }
    account->overlap = share(s->hidden_us, s->communication_us);
}

/* Bytes of the steps that count, divided by what the link could have carried in their time. */
static ls_status add_link_use(struct ls_account *account, const struct sweep *s, const ls_node *node) {
    int link_count = node ? ls_node_link_count(node) : 0;
    double(*carried)[2] = calloc((size_t)link_count + 1, sizeof *carried);
    account->link_use = calloc((size_t)link_count + 1, sizeof *account->link_use);
    account->link_count = link_count;
    if (!carried || !account->link_use) {
        free(carried);
        return LS_ERR_NO_MEMORY;
    }
    for (int i = 0; i < ls_trace_task_count(s->trace) && node; i++) {
        const struct ls_task *task = ls_trace_task(s->trace, i);
        if (task->kind != LS_TASK_COPY || task->us >= 0 || !counts(s, task->step)) continue;
        const struct ls_route *route = ls_node_route(node, task->from, task->to);
        for (int h = 0; route && h < route->count; h++)
            carried[route->link[h]][route->forwards[h] ? 0 : 1] += (double)task->bytes;
    }
    for (int i = 0; i < link_count; i++) {
        const struct ls_node_link *link = ls_node_link(node, i);
        double bytes = link->duplex ? fmax(carried[i][0], carried[i][1]) : carried[i][0] + carried[i][1];
        account->link_use[i] = share(bytes, 1e3 * link->GBps * (s->window.end_us - s->window.begin_us));
    }
    free(carried);
    return LS_OK;
}

static ls_status fill_in(struct ls_account *account, struct sweep *s, const ls_node *node) {
    size_t count;
    struct belonging *all = sort_out(s->trace, &count);
    if (!all) return LS_ERR_NO_MEMORY;
    s->devices = account->devices = calloc((size_t)ls_trace_lane_count(s->trace) + 1, sizeof *account->devices);
    s->phases = account->phases;
    if (s->devices) sweep_all(s, all, count);
    free(all);
    free(s->points);
    if (!s->devices || s->failed) return LS_ERR_NO_MEMORY;
    account->device_count = s->device_count;
    account->phase_count = s->phase_count;
    for (int i = 0; i < account->device_count; i++) divide(&account->devices[i], account->steps);
    add_shares(account, s);
    return add_link_use(account, s, node);
}

ls_status ls_account_make(struct ls_account **out, const ls_trace *trace, const ls_timeline *timeline,
                          const ls_node *node) {
    *out = NULL;
    struct sweep s = {.trace = trace, .timeline = timeline};
    int64_t steps = find_window(&s.window, trace, timeline);
    if (steps == 0)
        return ls_fail(LS_ERR_INVALID, "the trace has no task with known times: nothing can be accounted for");
    if (steps > timeline->task_count)
        return ls_fail(LS_ERR_INVALID, "the trace's steps have gaps: %d to %d count, with only %d tasks",
                       s.window.first_step, s.window.last_step, timeline->task_count);
    struct ls_account *account = calloc(1, sizeof *account);
    ls_status status = account ? LS_OK : LS_ERR_NO_MEMORY;
    if (status == LS_OK) {
        account->steps = (int)steps;
        account->step_us = (s.window.end_us - s.window.begin_us) / account->steps;
        status = find_median(&account->median_step_us, &s.window, trace, timeline);
    }
    if (status == LS_OK) status = fill_in(account, &s, node);
    if (status == LS_OK)
        *out = account;
    else {
        ls_account_free(account);
        ls_fail(status, "cannot allocate memory for an account of %d tasks", timeline->task_count);
    }
    return status;
}

void ls_account_free(struct ls_account *account) {
    if (!account) return;
    free(account->devices);
    free(account->link_use);
    free(account);
}
