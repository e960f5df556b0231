/* resolve_streams — launches, and the events that order streams (resolve.c).
 *   idea  : a LAUNCH becomes a task of its host thread and one of its stream, with the times of its RUN. An event's
 *           RECORD refers to the last task of its stream; after a WAIT, the next task of its stream waits for that one
 *   inline: if a thread runs its stream's work itself, the RUN is within the launch (resolve.h, times) */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/dtype.h"
#include "common/base/log.h"
#include "common/trace/resolve_internal.h"
#include "common/trace/trace_internal.h"

static double duration(const struct ls_resolve *resolve, const struct ls_probe_record *record) {
    return resolve->cpu_time ? record->end_cpu_us - record->begin_cpu_us : record->end_us - record->begin_us;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static int copy_end(const struct ls_resolve *resolve, int place) {
    return place < 0 ? LS_HOST_MEMORY : resolve->first_device + place;
}

static ls_status join_meeting(struct ls_resolve *resolve, struct ls_task *task, int place,
                              const struct ls_probe_record *run) {
    const struct ls_probe_record *record = ls_resolve_record(resolve, place);
    char group[40];
    snprintf(group, sizeof group, "group %" PRIxPTR, record->object);
    struct ls_meeting meeting = {.group = group,
                                 .number = record->number,
                                 .operation = record->label,
                                 .algorithm = record->detail,
                                 .ranks = record->peers,
                                 .bytes = record->bytes,
                                 .elements = record->elements,
                                 .dtype = record->dtype < LS_DTYPE_COUNT ? ls_dtype_name((ls_dtype)record->dtype) : ""};
    task->kind = LS_TASK_COLLECTIVE;
    task->bytes = record->bytes;
    task->meeting = ls_trace_join_meeting(resolve->trace, &meeting);
    if (resolve->trace->failed) return LS_OK;
    const struct ls_meeting *joined = ls_trace_meeting(resolve->trace, task->meeting);
    if (joined->ranks != meeting.ranks || strcmp(joined->operation, meeting.operation ? meeting.operation : "") != 0)
        return ls_fail(LS_ERR_INVALID, "operation %u of %s is \"%s\" of %d ranks to one, \"%s\" of %d to another",
                       meeting.number, group, joined->operation, joined->ranks, meeting.operation, meeting.ranks);
    /* a record whose time is outside of the RUN was written at the launch: the whole RUN counts */
    bool is_timed =
        run && run->end_us > run->begin_us && record->end_us >= run->begin_us && record->end_us <= run->end_us;
    if (is_timed) task->us = resolve->cpu_time ? run->end_cpu_us - record->end_cpu_us : run->end_us - record->end_us;
    return LS_OK;
}

static ls_status make_stream_task(struct ls_resolve *resolve, struct ls_task *task,
                                  const struct ls_resolved_stream *stream, const struct ls_probe_record *launch,
                                  const struct ls_probe_record *run) {
    *task = ls_task_default(LS_TASK_KERNEL, launch->label, stream->lane);
    task->phase = launch->phase ? launch->phase : "";
    task->step = launch->step;
    task->bytes = launch->bytes;
    task->flops = launch->flops;
    task->virtual_time = resolve->cpu_time;
    task->launched_us = launch->begin_us;
    task->work = (int)launch->elements - 1;
    if (run && run->end_us > run->begin_us) { /* a RUN of length 0 was not timed: meta devices */
        task->us = fmax(duration(resolve, run), 0);
        task->start_us = run->begin_us;
        task->end_us = run->end_us;
    }
    int meeting = ls_pair_map_find(&resolve->meetings, launch->object, launch->number);
    if (meeting != LS_NONE) return join_meeting(resolve, task, meeting, run);
    if (!launch->label || strcmp(launch->label, "copy") != 0) return LS_OK;
    task->kind = LS_TASK_COPY;
    task->from = copy_end(resolve, launch->from);
    task->to = copy_end(resolve, launch->to);
    return LS_OK;
}

/* The host's task: it ends where the stream's work began, if the thread ran that work itself. */
static int launch_on_host(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index,
                          const struct ls_probe_record *run) {
    const struct ls_probe_record *launch = &thread->probe->records[index];
    double begin_us = thread->cursor_us;
    double us = run ? ls_resolve_spend(resolve, thread, index, run->begin_us, run->begin_cpu_us)
                    : ls_resolve_spend(resolve, thread, index, launch->end_us, launch->end_cpu_us);
    int task = ls_resolve_host_task(resolve, thread, index, us, begin_us);
    thread->cursor = index + 1;
    if (run) {
        thread->cursor_us = run->end_us;
        thread->cursor_cpu_us = run->end_cpu_us;
    }
    return task;
}

ls_status ls_resolve_launch(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *launch = &thread->probe->records[index];
    struct ls_resolved_stream *stream = ls_resolve_stream(resolve, launch->object);
    if (stream->last_task != LS_NONE && launch->number <= stream->last_number)
        return ls_fail(LS_ERR_INVALID,
                       "work %" PRIu32 " (\"%s\") of a stream of device %d was launched behind %" PRIu32,
                       launch->number, launch->label, launch->device, stream->last_number);
    int place = ls_pair_map_find(&resolve->runs, launch->object, launch->number);
    const struct ls_probe_record *run = place == LS_NONE ? NULL : ls_resolve_record(resolve, place);
    bool is_inline = run && &resolve->threads[resolve->places[place].thread] == thread &&
                     run->begin_us >= launch->begin_us && run->end_us <= launch->end_us;
    /* work launched within a RUN follows the last task of its thread */
    bool is_nested = thread->inside[index] != LS_NONE;
    int host_task = is_nested ? thread->last_task : launch_on_host(resolve, thread, index, is_inline ? run : NULL);
    struct ls_task task;
    ls_status status = make_stream_task(resolve, &task, stream, launch, run);
    if (status != LS_OK) return status;
    int added = ls_trace_add_task(resolve->trace, &task);
    if (host_task != LS_NONE) ls_trace_add_edge(resolve->trace, host_task, added);
    ls_resolve_join(resolve, &stream->pending, added);
    stream->last_task = added;
    stream->last_number = launch->number;
    ls_resolve_set(resolve, &resolve->launched, launch->object, launch->number, added);
    if (is_inline && !is_nested) ls_resolve_add(resolve, &thread->pending, added);
    return LS_OK;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* Stores the tasks that the event completes: the stream's last one, and those that its next one waits for. */
void ls_resolve_event(struct ls_resolve *resolve, const struct ls_probe_record *record) {
    const struct ls_resolved_stream *stream = ls_resolve_stream(resolve, record->object);
    struct ls_task_range range = {.first = resolve->completing_tasks.count};
    int wanted = stream ? stream->pending.count + (stream->last_task != LS_NONE) : 0;
    for (int i = 0; i < wanted; i++) {
        struct ls_task_list *all = &resolve->completing_tasks;
        if (!ls_trace_room(&all->tasks, all->count, &all->capacity, sizeof *all->tasks)) {
            resolve->trace->failed = true;
            return;
        }
        all->tasks[all->count++] = i < stream->pending.count ? stream->pending.tasks[i] : stream->last_task;
        range.count++;
    }
    if (!ls_trace_room(&resolve->ranges, resolve->range_count, &resolve->range_capacity, sizeof *resolve->ranges)) {
        resolve->trace->failed = true;
        return;
    }
    resolve->ranges[resolve->range_count] = range;
    ls_resolve_set(resolve, &resolve->completed_by, record->event, record->number, resolve->range_count++);
}

/* Adds the tasks that the event's record completes to a list; returns the latest recorded end among them: NAN if one is
 * unknown, -INFINITY if there are none. */
double ls_resolve_add_completing(struct ls_resolve *resolve, struct ls_task_list *list, uintptr_t event,
                                 uint32_t ticket) {
    int range = ls_pair_map_find(&resolve->completed_by, event, ticket);
    double end_us = -INFINITY;
    if (range == LS_NONE) return end_us;
    for (int i = 0; i < resolve->ranges[range].count && !resolve->trace->failed; i++) {
        int task = resolve->completing_tasks.tasks[resolve->ranges[range].first + i];
        ls_resolve_add(resolve, list, task);
        end_us = ls_resolve_later(end_us, ls_trace_task(resolve->trace, task)->end_us);
    }
    return end_us;
}

/* A wait enqueued on a stream that its host runs inline blocks the host. */
void ls_resolve_wait(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *wait = &thread->probe->records[index];
    struct ls_resolved_stream *stream = ls_resolve_stream(resolve, wait->object);
    if (!stream) return;
    double end_us = ls_resolve_add_completing(resolve, &stream->pending, wait->event, wait->number);
    if (!stream->runs_inline || thread->inside[index] != LS_NONE) return;
    (void)ls_resolve_add_completing(resolve, &thread->pending, wait->event, wait->number);
    if (!(end_us > wait->begin_us)) return;
    double waking_us = fmax(wait->end_us - end_us, 0), cpu_us = wait->end_cpu_us - wait->begin_cpu_us;
    thread->blocked_us += wait->end_us - wait->begin_us - waking_us;
    thread->blocked_cpu_us += cpu_us - fmin(cpu_us, waking_us);
}
