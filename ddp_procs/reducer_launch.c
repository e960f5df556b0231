/* reducer_launch — when a bucket is reduced, and what waits for what.
 *   idea  : a complete bucket is ready as soon as the compute stream has reached its last gradient: the event `ready`.
 *           Its all-reduce runs on the comm stream and waits only for that event, so backward continues. Work after
 *           backward on the compute stream waits until the average has replaced the gradients: the event `reduced`
 *   order : buckets are launched in their order, which is the same on all ranks, since a rank's k-th all-reduce is
 *           matched with the others' k-th. A bucket that is complete before its turn waits for those before it
 *   none  : without overlap the host launches no bucket before backward has ended, and every all-reduce waits for all
 *           of backward
 *   cost  : a bucket has two events and two waits; the host does not wait
 *   fails : a missing wait is a race. If streams run inline, the bits are correct nevertheless */
#include "ddp_procs/reducer_internal.h"

/* The bucket's all-reduce, between the two events. */
static void launch(ddp_reducer *r, struct bucket *bucket) {
    ls_stream_wait_event(r->comm_stream, bucket->ready);
    ddp_reducer_sum(r, bucket);
    ls_event_record(bucket->reduced, r->comm_stream);
}

/* Launches every bucket whose turn it is. The host's time for that counts as all-reduce. */
static void launch_ready(ddp_reducer *r) {
    ls_phase before = ls_phase_enter(r->clock, LS_PHASE_ALL_REDUCE);
    while (r->launched < r->bucket_count && r->buckets[r->launched].pending_count == 0) {
        launch(r, &r->buckets[r->launched++]);
    }
    ls_phase_enter(r->clock, before);
}

void ddp_reducer_bucket_complete(ddp_reducer *r, struct bucket *bucket) {
    ls_event_record(bucket->ready, r->compute);
    if (r->options.overlap) launch_ready(r);
}

void ddp_reducer_await_buckets(ddp_reducer *r) {
    /* if the host runs ahead of the device, enqueueing the all-reduces late is not enough */
    for (size_t b = r->launched; b < r->bucket_count && !r->options.overlap; b++) {
        ls_event_record(r->buckets[b].ready, r->compute);
    }
    launch_ready(r);
    for (size_t b = 0; b < r->bucket_count; b++) ls_stream_wait_event(r->compute, r->buckets[b].reduced);
}
