/* engine — computes when each task of a trace would run: a discrete-event simulation.
 *
 * It receives durations and edges. Rules:
 *   lanes       one task after another, in order
 *   edges       a task begins when all tasks on which it depends have ended
 *   HOST        takes its us; with a lock, it first waits for the lock of its rank: first come, first served
 *   KERNEL      needs the device: one kernel at a time, in the order in which they become ready (ties: lane, then
 *               task). While a collective of its device is in progress it runs at 1 / slow_down of its speed
 *   COPY        with us: takes that time, and uses no link. Without: the latency of its route, then `bytes` at a rate
 *               that is shared with all other transfers over the same links: max-min fair, recomputed whenever a
 *               transfer begins or ends. No bytes: the latency alone; within a device, or within the host's memory: no
 *               time
 *   COLLECTIVE  begins when all tasks of its meeting are ready, takes the longest us among them. It does not wait for
 *               ranks without a task in the trace (if one rank of a symmetric job was recorded)
 * At the same moment: first all ends, then requests for a device or a lock, by lane. Deterministic: the same input
 * gives the same output bytes. Cost: O((tasks + edges) log lanes), plus, at each begin and end of transfers, those in
 * flight x their links. 28 bytes per task. Any number of threads may each replay the same sealed trace. */
#ifndef LABS_REPLAY_ENGINE_ENGINE_H
#define LABS_REPLAY_ENGINE_ENGINE_H

#include "common/trace/trace.h"
#include "labs/replay/engine/node.h"

typedef struct ls_timeline {
    int task_count;
    double *ready_us, *start_us,
        *end_us; /* of each task, from 0 on; ready: its edges and the task before it on its lane have ended */
    double makespan_us;
    int link_count;
    double *link_bytes[2];   /* carried by each link, forwards and backwards, without copies that have a duration */
    double *link_busy_us[2]; /* time in which it carried any bytes */
} ls_timeline;

/* `node` may be NULL for a trace whose copies all have durations: it then has no links, and slow_down is 1.
 * LS_ERR_INVALID, with the reason: a task without duration that is not a copy, a copy between devices that the node
 * does not have, a kernel on a lane without a device, a link without a rate, an end that overflows a double.
 * LS_ERR_NO_MEMORY. On failure *out is NULL. */
ls_status ls_engine_run(ls_timeline **out, const ls_trace *trace, const ls_node *node);

void ls_timeline_free(ls_timeline *timeline); /* NULL is a no-op */

#endif
