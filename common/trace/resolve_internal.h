/* What the files of ls_trace_resolve share. Private to common/trace. */
#ifndef LS_TRACE_RESOLVE_INTERNAL_H
#define LS_TRACE_RESOLVE_INTERNAL_H

#include "common/base/probe.h"
#include "common/trace/pair_map.h"
#include "common/trace/trace_internal.h"

/* Some tasks, to be waited for by the next one. */
struct ls_task_list {
    int *tasks;
    int count, capacity;
};

/* A stream: its lane, the last of its tasks so far, and what its next one waits for. */
struct ls_resolved_stream {
    uintptr_t object;
    int device, kind, lane;
    int last_task; /* or LS_NONE */
    uint32_t last_number;
    bool runs_inline; /* the launching thread runs its work: a wait enqueued on it is a wait of the host */
    struct ls_task_list pending;
};

/* A thread: its lane (LS_NONE: it only ran streams), and until when its time has been given to tasks. */
struct ls_resolved_thread {
    const struct ls_probe_thread *probe;
    int *inside;    /* for each record: the RUN of this thread within which it was written, or LS_NONE */
    int lane, next; /* next: record to be looked at */
    int next_place; /* of ls_resolve.places: those of a thread lie together, in its order */
    bool begun;     /* one of its records has been taken */
    double last_end_us;
    int last_task; /* or LS_NONE */
    int lock;      /* that it holds, or LS_NONE */
    int counted;   /* records that tasks so far have paid for */
    int events;    /* recorded and waited for by streams, on its word, since its last task */
    double cursor_us, cursor_cpu_us;
    int cursor;                        /* the first record behind the one that set it */
    double blocked_us, blocked_cpu_us; /* since then: time in which it waited for a stream */
    struct ls_task_list pending;       /* what its next task waits for */
};

/* A record of kind RUN, RAISE or MEETING, found by name. */
struct ls_record_place {
    int thread;
    int record;
    int task; /* RAISE: once it is there */
};

/* The `count` completing_tasks from `first` on. */
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
    struct ls_pair_map unlocked; /* lock's object, 0: the task that gave it back */
    struct ls_pair_map locks;    /* lock's object, 0: its number */
    struct ls_task_list waited;  /* empty between two records */
    struct ls_pair_map awaits;   /* the task of an AWAIT, 0: the place of the RAISE that it waits for */
};

const struct ls_probe_record *ls_resolve_record(const struct ls_resolve *resolve, int place);

/* Finds the streams, which record lies within which RUN, and RUNs, MEETINGs and RAISEs by their names; adds the
 * lanes. */
ls_status ls_resolve_index(struct ls_resolve *resolve);

/* The place of the RAISE that brought the flag to `number` or beyond; LS_NONE: it was before the probes began. */
int ls_resolve_find_raise(const struct ls_resolve *resolve, uintptr_t object, uint32_t number);

ls_status ls_resolve_no_memory(void);

/* --- resolve_host.c ----------------------------------------------------------------------------------------------- */

/* In these, out of memory is the trace's to remember. Adds a task (LS_NONE: nothing) to a list, which holds the last
 * one of each lane. */
void ls_resolve_add(struct ls_resolve *resolve, struct ls_task_list *list, int task);

/* Makes edges from all of the list to the task, and empties it. */
void ls_resolve_join(struct ls_resolve *resolve, struct ls_task_list *list, int task);

struct ls_resolved_stream *ls_resolve_stream(struct ls_resolve *resolve, uintptr_t object);
void ls_resolve_set(struct ls_resolve *resolve, struct ls_pair_map *map, uint64_t first, uint64_t second, int value);

/* The later of two moments; NAN if one is not known. */
double ls_resolve_later(double a_us, double b_us);

/* What the thread itself did since its cursor, until then; moves the cursor there, from where record `index` is
 * taken. */
double ls_resolve_spend(const struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index, double until_us,
                        double until_cpu_us);

/* A task of the host that takes `us`, from begin_us to the thread's cursor, named by the kind and the label of the
 * record `index`, which is the last that was written in it. */
int ls_resolve_host_task(struct ls_resolve *resolve, struct ls_resolved_thread *thread, int index, double us,
                         double begin_us);

/* One record of the kind that the name says. */
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
