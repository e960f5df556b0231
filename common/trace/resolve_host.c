/* resolve_host — the time of a host thread, split into tasks (by the rules in resolve.h), and its waits (resolve.c).
 *   lists : of several tasks that something waits for, the last of each lane suffices */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/trace/resolve_internal.h"
#include "common/trace/trace_internal.h"

/* --- lists of tasks ----------------------------------------------------------------------------------------------- */

/* If out of memory, the trace remembers it (trace.h). */
void ls_resolve_add(struct ls_resolve *resolve, struct ls_task_list *list, int task) {
    if (resolve->trace->failed || task == LS_NONE) return;
    int lane = ls_trace_task(resolve->trace, task)->lane;
    for (int i = 0; i < list->count; i++) {
        if (ls_trace_task(resolve->trace, list->tasks[i])->lane != lane) continue;
        if (task > list->tasks[i]) list->tasks[i] = task;
        return;
    }
    if (!ls_trace_room(&list->tasks, list->count, &list->capacity, sizeof *list->tasks))
        resolve->trace->failed = true;
    else
        list->tasks[list->count++] = task;
}

void ls_resolve_join(struct ls_resolve *resolve, struct ls_task_list *list, int task) {
    for (int i = 0; i < list->count; i++) ls_trace_add_edge(resolve->trace, list->tasks[i], task);
    list->count = 0;
}

struct ls_resolved_stream *ls_resolve_stream(struct ls_resolve *resolve, uintptr_t object) {
    int index = ls_pair_map_find(&resolve->stream_by_object, object, 0);
    return index == LS_NONE ? NULL : &resolve->streams[index];
}

void ls_resolve_set(struct ls_resolve *resolve, struct ls_pair_map *map, uint64_t first, uint64_t second, int value) {
    int *at = ls_pair_map_at(map, first, second);
    if (at)
        *at = value;
    else
        resolve->trace->failed = true;
}

/* --- the time of a host thread ------------------------------------------------------------------------------------ */

/* The thread's own time from its cursor to `until_us`; moves the cursor's times there. */
double ls_resolve_spend(const struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index, double until_us,
                        double until_cpu_us) {
    double us = until_us - thread->cursor_us - thread->blocked_us;
    double cpu_us = until_cpu_us - thread->cursor_cpu_us - thread->blocked_cpu_us;
    for (int i = thread->cursor; i < index; i++) { /* work of streams that it ran for other threads */
        const struct ls_probe_record *run = &thread->probe->records[i];
        if (run->kind != LS_PROBE_RUN || thread->inside[i] != LS_NONE || run->begin_us < thread->cursor_us ||
            run->end_us > until_us)
            continue;
        us -= run->end_us - run->begin_us;
        cpu_us -= run->end_cpu_us - run->begin_cpu_us;
    }
    thread->blocked_us = thread->blocked_cpu_us = 0;
    thread->cursor_us = until_us;
    thread->cursor_cpu_us = until_cpu_us;
    return fmax(resolve->cpu_time ? cpu_us : us, 0);
}

/* X(kind, the text before the label in the name of its task) */
#define PREFIX_MAP(X)                                                                                                  \
    X(LAUNCH, "launch ")                                                                                               \
    X(SYNC_EVENT, "wait for ")                                                                                         \
    X(SYNC_STREAM, "wait for ") X(RAISE, "raise ") X(AWAIT, "wait for ") X(LOCK, "lock ") X(UNLOCK, "unlock ")
#define PREFIX(kind, text) [LS_PROBE_##kind] = text,
static const char *const prefixes[LS_PROBE_COUNT] = {PREFIX_MAP(PREFIX)};
#undef PREFIX

/* Adds a task of length `us`; `end`: the index after the last record that was written in it. */
static int add_host_task(struct ls_resolve *resolve, struct ls_resolved_thread *thread,
                         const struct ls_probe_record *record, int end, const char *name, double us, double begin_us) {
    struct ls_task task = ls_task_default(LS_TASK_HOST, name, thread->lane);
    task.phase = record->phase;
    task.step = record->step;
    task.us = us;
    task.lock = thread->lock;
    task.events = thread->events;
    thread->events = 0;
    task.probes_us = fmin(us, (end - thread->counted) * ls_probe_record_us());
    thread->counted = end;
    task.virtual_time = resolve->cpu_time;
    task.start_us = begin_us;
    task.end_us = thread->cursor_us;
    int index = ls_trace_add_task(resolve->trace, &task);
    ls_resolve_join(resolve, &thread->pending, index);
    thread->last_task = index;
    return index;
}

/* The same with a name made of the record's kind and label. */
int ls_resolve_host_task(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index, double us,
                         double begin_us) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    char name[200];
    snprintf(name, sizeof name, "%s%s", prefixes[record->kind], record->label ? record->label : "");
    return add_host_task(resolve, thread, record, index + 1, name, us, begin_us);
}

/* Adds the thread's time until the record's end as one task. */
static int spend_as_task(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    double begin_us = thread->cursor_us,
           us = ls_resolve_spend(resolve, thread, index, record->end_us, record->end_cpu_us);
    thread->cursor = index + 1;
    return ls_resolve_host_task(resolve, thread, index, us, begin_us);
}

/* The later of two times; NAN if one is unknown. */
double ls_resolve_later(double a_us, double b_us) { return isnan(a_us) || isnan(b_us) ? NAN : fmax(a_us, b_us); }

/* --- waits of the host -------------------------------------------------------------------------------------------- */

/* Adds two tasks: the thread's work before, and its wait for `waited`, which lasts only for the time after `over_us`,
 * the end of the waited tasks (as ls_resolve_add_completing returns it). */
static int wait_as_tasks(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index,
                         struct ls_task_list *waited, double over_us) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    double begin_us = thread->cursor_us;
    double us = ls_resolve_spend(resolve, thread, index, fmax(record->begin_us, begin_us), record->begin_cpu_us);
    (void)add_host_task(resolve, thread, record, index, "host", us, begin_us);
    begin_us = thread->cursor_us;
    us = ls_resolve_spend(resolve, thread, index, record->end_us, record->end_cpu_us);
    thread->cursor = index + 1;
    if (isnan(over_us)) us = 0;
    if (over_us > begin_us) us = fmin(us, fmax(record->end_us - over_us, 0));
    for (int i = 0; i < waited->count; i++) ls_resolve_add(resolve, &thread->pending, waited->tasks[i]);
    waited->count = 0;
    return ls_resolve_host_task(resolve, thread, index, us, begin_us);
}

void ls_resolve_sync(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    struct ls_task_list *waited = &resolve->waited;
    double over_us = -INFINITY;
    if (record->kind == LS_PROBE_SYNC_EVENT) {
        over_us = ls_resolve_add_completing(resolve, waited, record->event, record->number);
    } else {
        const struct ls_resolved_stream *stream = ls_resolve_stream(resolve, record->object);
        int task = ls_pair_map_find(&resolve->launched, record->object, record->number);
        if (stream && task == LS_NONE && record->number >= stream->last_number) task = stream->last_task;
        ls_resolve_add(resolve, waited, task);
        for (int i = 0; stream && task == stream->last_task && i < stream->pending.count; i++)
            ls_resolve_add(resolve, waited, stream->pending.tasks[i]);
        for (int i = 0; i < waited->count && !resolve->trace->failed; i++)
            over_us = ls_resolve_later(over_us, ls_trace_task(resolve->trace, waited->tasks[i])->end_us);
    }
    (void)wait_as_tasks(resolve, thread, index, waited, over_us);
}

void ls_resolve_await(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    int place = ls_resolve_find_raise(resolve, record->object, record->number);
    double over_us = place == LS_NONE ? -INFINITY : ls_resolve_record(resolve, place)->end_us;
    int task = wait_as_tasks(resolve, thread, index, &resolve->waited, over_us);
    if (place != LS_NONE) ls_resolve_set(resolve, &resolve->awaits, (uint64_t)task, 0, place);
}

void ls_resolve_raise(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    while (resolve->places[thread->next_place].record < index) thread->next_place++;
    struct ls_record_place *place = &resolve->places[thread->next_place];
    if (thread->inside[index] == LS_NONE) place->task = spend_as_task(resolve, thread, index);
}

void ls_resolve_lock(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    int task = ls_pair_map_find(&resolve->unlocked, record->object, 0);
    int number = ls_pair_map_find(&resolve->locks, record->object, 0);
    if (!resolve->cpu_time) ls_resolve_add(resolve, &resolve->waited, task); /* otherwise see resolve.h, locks */
    double over_us =
        task == LS_NONE || resolve->trace->failed ? -INFINITY : ls_trace_task(resolve->trace, task)->end_us;
    (void)wait_as_tasks(resolve, thread, index, &resolve->waited, over_us);
    if (number == LS_NONE) {
        number = (int)resolve->locks.count;
        ls_resolve_set(resolve, &resolve->locks, record->object, 0, number);
    }
    thread->lock = number;
}

void ls_resolve_unlock(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    int task = spend_as_task(resolve, thread, index);
    ls_resolve_set(resolve, &resolve->unlocked, thread->probe->records[index].object, 0, task);
    thread->lock = LS_NONE;
}
