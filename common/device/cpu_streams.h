/* The streams of CPU devices, used by device_cpu.c. Private to this folder. */
#ifndef LS_DEVICE_CPU_STREAMS_H
#define LS_DEVICE_CPU_STREAMS_H

#include "common/device/device_internal.h"

typedef enum ls_item_kind { LS_ITEM_TASK, LS_ITEM_RECORD, LS_ITEM_WAIT } ls_item_kind;

/* One entry of a stream's queue. */
struct ls_item {
    ls_item_kind kind;
    bool brief;      /* takes less time than waking a worker */
    bool meets;      /* waits for tasks of other streams */
    uint32_t ticket; /* record, wait: the number of the event's record */
    uint32_t number; /* task: the number of the stream's launch; 0: the probes were off */
    const char *label;
    ls_event *event;
    ls_task_fn task;
    _Alignas(16) unsigned char arguments[LS_TASK_ARGUMENTS_NBYTES];
};

/* A way to run a stream's items: inline, by a worker, or shuffled. Every slot is required. */
struct ls_stream_policy {
    const char *name;
    ls_status (*start)(ls_stream *stream);
    void (*stop)(ls_stream *stream);
    ls_status (*enqueue)(ls_stream *stream, const struct ls_item *item);
    ls_status (*drain)(ls_stream *stream);                /* returns when all items enqueued so far have run */
    ls_status (*reach)(ls_event *event, uint32_t ticket); /* returns when the record has been reached */
};

extern const struct ls_stream_policy ls_policy_inline, ls_policy_worker, ls_policy_shuffle;

#define LS_QUEUE_CAPACITY 1024

/* A ring with one producer and one consumer. The counters only grow; item k lies at k mod capacity. */
struct ls_queue {
    struct ls_item *items;
    ls_flag produced, consumed;
};

struct ls_cpu_stream {
    ls_stream base;
    const struct ls_stream_policy *policy;
    struct ls_queue queue; /* worker and shuffle */
    pthread_t worker;      /* worker */
    _Atomic int stopping;  /* worker */
    bool busy;             /* shuffle: an item is being run; guarded by the scheduler's lock */
    ls_stream *next;       /* shuffle: the list of all streams; guarded likewise */
};

static inline struct ls_cpu_stream *ls_cpu_stream_of(ls_stream *stream) { return (struct ls_cpu_stream *)stream; }

/* Runs one item now: a task is skipped on a poisoned device, a wait blocks until its deadline. */
ls_status ls_stream_run_item(ls_stream *stream, const struct ls_item *item);

/* The absolute deadline of a wait that begins now. */
double ls_wait_until_us(void);

ls_status ls_queue_create(struct ls_queue *queue);
void ls_queue_destroy(struct ls_queue *queue);

/* Sets the seed of the shuffle policy. */
void ls_shuffle_seed(uint64_t seed);

#endif
