/* Records the work that a rank's reducer enqueues in a step: which buckets it launches and when, whether all accesses
 * to a gradient are ordered by streams and events, and which work may run while a bucket is reduced. */
#ifndef LABS_06_BUCKETS_ORDER_H
#define LABS_06_BUCKETS_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/device/device.h"
#include "common/nn/model.h"

enum { ORDER_TASKS = 256, ORDER_EVENTS = 64, ORDER_LAUNCHES = 64 };

struct order_vector {
    int of[2]; /* tasks of the compute and of the comm stream */
};

struct order_task {
    enum { ORDER_GRADIENT, ORDER_USE, ORDER_SUM } kind;
    char name[48]; /* of a gradient; copied, since the model is closed before the report; SUM: empty */
    int bucket, step;
    const char *begin;
    size_t nbytes;
    struct order_vector knows; /* the tasks that had to precede it, and itself */
};

/* The record of one rank, in memory of the probe. */
struct order {
    const ls_stream *streams[2];
    const size_t *parts; /* gradients of each bucket */
    struct order_vector clocks[2];
    struct order_task tasks[2][ORDER_TASKS];
    int counts[2];
    struct {
        const ls_event *event;
        struct order_vector clock;
    } events[ORDER_EVENTS];
    int event_count;
    struct {
        int step, bucket, gradients; /* `gradients`: those of the step that were ready */
    } launches[ORDER_LAUNCHES];
    int launch_count;
    int step, gradients; /* the current ones */
    const char *phase;   /* the host's phase while it launches buckets; if it differs once: the first different one */
    bool is_full;
};

/* Records the work that the calling thread enqueues on this device, until order_end. Meanwhile its buckets have as many
 * gradients as `parts` says, whatever their bytes are. */
void order_begin(struct order *o, ls_device *device, const size_t *parts);
void order_end(void);

/* The probe calls these in the product's place, on the compute stream: a step begins; a gradient is written, and
 * reported to the reducer's hook; an average is read. */
void order_step(int step);
ls_status order_report(size_t parameter, const struct ls_tensor *tensor);
void order_use(const struct ls_tensor *tensor);

/* "0 after gradient 3; 1 2 after gradient 7", of a step with `gradients` gradients; those at its end: "at the end". */
const char *order_launches(char *text, size_t capacity, const struct order *o, int step, int gradients);

/* "every access is ordered", or the first two accesses to the same memory that are not. */
const char *order_judge(char *text, size_t capacity, const struct order *o);

/* For each bucket of the step, in the order of the launches: how many of its gradients may be written while the bucket
 * is reduced. "7 3 0" */
const char *order_overlap(char *text, size_t capacity, const struct order *o, int step);

#endif
