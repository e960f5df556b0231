/* Shared by the files of ls_trace_resolve. Private to common/trace. */
#ifndef LS_TRACE_RESOLVE_INTERNAL_H
#define LS_TRACE_RESOLVE_INTERNAL_H

#include "common/base/probe.h"
#include "common/trace/pair_map.h"
#include "common/trace/trace_internal.h"

/* Tasks that the next one waits for. */
struct ls_task_list {
    int *tasks;
    int count, capacity;
};

/* A stream: its lane, its last task so far, and the tasks that its next one waits for. */
struct ls_resolved_stream {
    uintptr_t object;
    int device, kind, lane;
    int last_task; /* or LS_NONE */
    uint32_t last_number;
    bool runs_inline; /* the launching thread runs its work: a wait enqueued on it is a wait of the host */
    struct ls_task_list pending;
};

/* A thread: its lane (LS_NONE: it only ran streams), and the time up to which its time is assigned to tasks. */
struct ls_resolved_thread {
    const struct ls_probe_thread *probe;
    int *inside;    /* for each record: the RUN of this thread within which it was written, or LS_NONE */
    int lane, next; /* next: the next record to process */
    int next_place; /* in ls_resolve.places: those of a thread are consecutive, in its order */
    bool begun;     /* one of its records has been processed */
    double last_end_us;
    int last_task; /* or LS_NONE */
    int lock;      /* the lock that it holds, or LS_NONE */
    int counted;   /* records whose cost is included in tasks so far */
    int events;    /* its records of events and waits of streams since its last task */
    double cursor_us, cursor_cpu_us;
    int cursor;                        /* the first record after the one that set it */
    double blocked_us, blocked_cpu_us; /* since then: time in which it waited for a stream */
    struct ls_task_list pending;       /* the tasks that its next one waits for */
};

/* A record of kind RUN, RAISE or MEETING, found by name. */
struct ls_record_place {
    int thread;
    int record;
    int task; /* RAISE: its task, once created */
};

/* `count` entries of completing_tasks, from `first` on. */
struct ls_task_range {
    int first, count;
};

struct ls_resolve {
    ls_trace *trace;
    struct ls_resolved_thread *threads;
    int thread_count, rank, first_device;
    bool cpu_time;

    struct ls_resolved_stream *streams;
    int stream_count, stream_capacity;
    struct ls_pair_map stream_by_object; /* object, 0 */

    struct ls_record_place *places; /* of RUNs, MEETINGs and RAISEs */
    int place_count, place_capacity;
    struct ls_pair_map runs;     /* stream's object, number: a place */
    struct ls_pair_map meetings; /* likewise: the MEETING within it */
    int *raises;                 /* places of RAISEs, by object, then number, then time */
    int raise_count;

    struct ls_pair_map launched;     /* stream's object, number: its task */
    struct ls_pair_map completed_by; /* event, ticket: a range of completing_tasks */
    struct ls_task_range *ranges;
    int range_count, range_capacity;
    struct ls_task_list completing_tasks;
    struct ls_pair_map unlocked; /* lock's object, 0: the task that released it */
    struct ls_pair_map locks;    /* lock's object, 0: its number */
    struct ls_task_list waited;  /* empty between two records */
    struct ls_pair_map awaits;   /* the task of an AWAIT, 0: the place of the RAISE that it waits for */
};

const struct ls_probe_record *ls_resolve_record(const struct ls_resolve *resolve, int place);

/* Finds the streams, the RUN around each record, and RUNs, MEETINGs and RAISEs by their names; adds the
 * lanes. */
ls_status ls_resolve_index(struct ls_resolve *resolve);

/* The place of the RAISE that raised the flag to `number` or beyond; LS_NONE: before the probes began. */
int ls_resolve_find_raise(const struct ls_resolve *resolve, uintptr_t object, uint32_t number);

ls_status ls_resolve_no_memory(void);

/* --- resolve_host.c ----------------------------------------------------------------------------------------------- */

/* If these run out of memory, the trace remembers it. Adds a task (LS_NONE: no-op) to a list, which keeps the last
 * one of each lane. */
void ls_resolve_add(struct ls_resolve *resolve, struct ls_task_list *list, int task);

/* Adds edges from all tasks of the list to this one, and empties the list. */
void ls_resolve_join(struct ls_resolve *resolve, struct ls_task_list *list, int task);

struct ls_resolved_stream *ls_resolve_stream(struct ls_resolve *resolve, uintptr_t object);
void ls_resolve_set(struct ls_resolve *resolve, struct ls_pair_map *map, uint64_t first, uint64_t second, int value);

/* The later of two times; NAN if one is unknown. */
double ls_resolve_later(double a_us, double b_us);

/* The thread's own time from its cursor to `until_us`; moves the cursor there, to record `index`. */
double ls_resolve_spend(const struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index, double until_us,
                        double until_cpu_us);

/* Adds a host task of length `us`, from begin_us to the thread's cursor, named by the kind and the label of record
 * `index`, the last one written in it. */
int ls_resolve_host_task(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index, double us,
                         double begin_us);

/* Each processes one record of the kind in its name. */
void ls_resolve_sync(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);
void ls_resolve_await(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);
void ls_resolve_raise(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);
void ls_resolve_lock(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);
void ls_resolve_unlock(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);

/* --- resolve_streams.c -------------------------------------------------------------------------------------------- */

ls_status ls_resolve_launch(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);
void ls_resolve_event(struct ls_resolve *resolve, const struct ls_probe_record *record);
void ls_resolve_wait(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index);

/* Adds the tasks that complete an event to a list. Returns their latest recorded end: NAN if one end is not known,
 * -INFINITY if there are no tasks. */
double ls_resolve_add_completing(struct ls_resolve *resolve, struct ls_task_list *list, uintptr_t event,
                                 uint32_t ticket);

#endif
