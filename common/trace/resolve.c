/* resolve — converts a process's probe records to tasks and edges.
 *   idea  : the records of all threads are processed in the order in which they ended. All records that one of them
 *           waited for have been processed by then. (Except RAISEs: the waiting thread may continue before the raising
 *           one has read the clock. So their tasks are connected to their AWAITs at the end.) A LAUNCH becomes a task
 *           of its host thread and one of its stream; RECORDs and WAITs of events add edges between streams; every wait
 *           of a host thread becomes a task
 *   cost  : O(records x threads + edges), and a few hash tables of the objects in records
 *   fails : impossible records (times that run backwards, a stream whose work is duplicated or out of order, two ranks
 *           of an operation that disagree about it) are LS_ERR_INVALID. References to a time before the probes began
 *           are left out: that work is over */
#include "common/trace/resolve.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/trace/resolve_internal.h"
#include "common/trace/trace_internal.h"

/* A mark of a stream (object) is put on the stream's lane, any other on the thread's. */
static void take_mark(struct ls_resolve *resolve, const struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    const struct ls_resolved_stream *stream = ls_resolve_stream(resolve, record->object);
    struct ls_mark mark = {.name = record->label,
                           .lane = stream ? stream->lane : thread->lane,
                           .step = record->step,
                           .number = record->number,
                           .after = stream ? stream->last_task : thread->last_task,
                           .at_us = record->end_us};
    if (mark.lane != LS_NONE) (void)ls_trace_add_mark(resolve->trace, &mark);
}

/* --- all records -------------------------------------------------------------------------------------------------- */

static ls_status take(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index) {
    const struct ls_probe_record *record = &thread->probe->records[index];
    ls_probe_kind kind = (ls_probe_kind)record->kind;
    if (kind == LS_PROBE_LAUNCH) return ls_resolve_launch(resolve, thread, index);
    thread->events += kind == LS_PROBE_RECORD || kind == LS_PROBE_WAIT;
    if (kind == LS_PROBE_RECORD) ls_resolve_event(resolve, record);
    if (kind == LS_PROBE_WAIT) ls_resolve_wait(resolve, thread, index);
    if (kind == LS_PROBE_RAISE) ls_resolve_raise(resolve, thread, index);
    if (kind == LS_PROBE_MARK) take_mark(resolve, thread, index);
    if (thread->inside[index] != LS_NONE) return LS_OK; /* other waits within a RUN are part of its time */
    if (kind == LS_PROBE_SYNC_EVENT || kind == LS_PROBE_SYNC_STREAM) ls_resolve_sync(resolve, thread, index);
    if (kind == LS_PROBE_AWAIT) ls_resolve_await(resolve, thread, index);
    if (kind == LS_PROBE_LOCK) ls_resolve_lock(resolve, thread, index);
    if (kind == LS_PROBE_UNLOCK) ls_resolve_unlock(resolve, thread, index);
    return LS_OK;
}

/* The thread whose next record ended first; NULL if no records are left. RUNs and MEETINGs are found by name. */
static struct ls_resolved_thread *next_thread(struct ls_resolve *resolve) {
    struct ls_resolved_thread *first = NULL;
    for (int t = 0; t < resolve->thread_count; t++) {
        struct ls_resolved_thread *thread = &resolve->threads[t];
        const struct ls_probe_record *records = thread->probe->records;
        int count = (int)thread->probe->count;
        while (thread->next < count &&
               (records[thread->next].kind == LS_PROBE_RUN || records[thread->next].kind == LS_PROBE_MEETING))
            thread->next++;
        if (thread->next < count &&
            (!first || records[thread->next].end_us < first->probe->records[first->next].end_us))
            first = thread;
    }
    return first;
}

static ls_status take_all(struct ls_resolve *resolve) {
    for (struct ls_resolved_thread *thread; (thread = next_thread(resolve));) {
        int index = thread->next++;
        const struct ls_probe_record *record = &thread->probe->records[index];
        if (thread->begun && thread->lane != LS_NONE && thread->last_end_us > record->end_us)
            return ls_fail(LS_ERR_INVALID, "record %d of thread \"%s\" ended before the one that it follows", index,
                           thread->probe->name);
        thread->last_end_us = record->end_us;
        if (!thread->begun) { /* its work before the first record is unknown */
            thread->begun = true;
            thread->cursor_us = record->begin_us;
            thread->cursor_cpu_us = record->begin_cpu_us;
        }
        ls_status status = take(resolve, thread, index);
        if (status != LS_OK) return status;
        if (resolve->trace->failed) return ls_resolve_no_memory();
    }
    return LS_OK;
}

/* The task of a RAISE; within a RUN, the RUN's. */
static int raising_task(const struct ls_resolve *resolve, int place) {
    const struct ls_record_place *at = &resolve->places[place];
    const struct ls_resolved_thread *thread = &resolve->threads[at->thread];
    int run = thread->inside[at->record];
    if (run == LS_NONE) return at->task;
    return ls_pair_map_find(&resolve->launched, thread->probe->records[run].object, thread->probe->records[run].number);
}

static void join_awaits(struct ls_resolve *resolve) {
    for (size_t i = 0; i < resolve->awaits.capacity; i++) {
        const struct ls_pair_entry *entry = &resolve->awaits.entries[i];
        int before = entry->used ? raising_task(resolve, entry->value) : LS_NONE;
        if (before != LS_NONE) ls_trace_add_edge(resolve->trace, before, (int)entry->first);
    }
}

static void clean_up(struct ls_resolve *resolve) {
    for (int t = 0; resolve->threads && t < resolve->thread_count; t++) {
        free(resolve->threads[t].inside);
        free(resolve->threads[t].pending.tasks);
    }
    for (int s = 0; s < resolve->stream_count; s++) free(resolve->streams[s].pending.tasks);
    struct ls_pair_map *maps[] = {
        &resolve->stream_by_object, &resolve->runs,     &resolve->meetings, &resolve->launched,
        &resolve->completed_by,     &resolve->unlocked, &resolve->locks,    &resolve->awaits};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) ls_pair_map_free(maps[i]);
    free(resolve->threads);
    free(resolve->streams);
    free(resolve->places);
    free(resolve->raises);
    free(resolve->ranges);
    free(resolve->completing_tasks.tasks);
    free(resolve->waited.tasks);
}

ls_status ls_trace_resolve(ls_trace *trace, const struct ls_probe_thread *threads, size_t thread_count, int rank,
                           int first_device, bool cpu_time) {
    struct ls_resolve resolve = {.trace = trace,
                                 .threads = calloc(thread_count + 1, sizeof *resolve.threads),
                                 .thread_count = (int)thread_count,
                                 .rank = rank,
                                 .first_device = first_device,
                                 .cpu_time = cpu_time};
    if (!resolve.threads) return ls_resolve_no_memory();
    for (size_t t = 0; t < thread_count; t++) {
        resolve.threads[t] =
            (struct ls_resolved_thread){.probe = &threads[t], .lane = LS_NONE, .last_task = LS_NONE, .lock = LS_NONE};
    }
    ls_status status = ls_resolve_index(&resolve);
    if (status == LS_OK) status = take_all(&resolve);
    if (status == LS_OK) join_awaits(&resolve);
    clean_up(&resolve);
    return status;
}
