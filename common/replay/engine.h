/* engine — when everything in a trace would happen: a discrete-event simulation.
 *
 * It receives durations and edges. Rules:
 *   lanes       one task after another, in order
 *   edges       a task begins when all that it waits for have ended
 *   HOST        takes its us; with a lock, in the order of coming while it holds the lock of its rank
 *   KERNEL      needs the device: one kernel at a time, in the order of becoming ready (ties: lane, then task). While a
 *               collective of its device is in progress it goes on at 1 / slow_down of its speed
 *   COPY        with us: takes it. Without: the latency of its route, then `bytes` at a rate that is shared with whatever else
 *               crosses the same links: max-min fair, recomputed whenever a transfer begins or ends
 *   COLLECTIVE  begins when all tasks of its meeting are ready, takes the longest us among them
 * Deterministic: the same input gives the same output bytes. Cost: O((tasks + edges) log tasks), plus transfers in flight x
 * their links at each begin and end of a transfer. */
#ifndef LS_REPLAY_ENGINE_H
#define LS_REPLAY_ENGINE_H

#include "common/replay/node.h"
#include "common/trace/trace.h"

typedef struct ls_timeline {
    int task_count;
    double *ready_us, *start_us,
        *end_us; /* of each task, from 0 on; ready: all edges were there, and its lane had come to it */
    double makespan_us;
    int link_count;
    double *link_bytes[2];   /* carried by each link, forwards and backwards */
    double *link_busy_us[2]; /* time in which it carried anything */
} ls_timeline;

/* `node` may be NULL for a trace whose copies all have durations: it then has no links, and slow_down is 1.
 * LS_ERR_INVALID: a task without duration that is no copy, or a copy between devices that the node does not have. */
ls_status ls_engine_run(ls_timeline **out, const ls_trace *trace, const ls_node *node);

void ls_timeline_free(ls_timeline *timeline); /* NULL is a no-op */

#endif
