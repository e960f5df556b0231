/* One persistent thread per device, and the hand-off of work to all of them: DataParallel's parallel_apply.
 *
 * The caller's own thread drives device 0; devices 1 .. count-1 have a thread each, started once and pinned to the
 * device's core. Between calls the threads wait (they spin briefly if each has a core, then sleep). */
#ifndef DP_PARALLEL_APPLY_H
#define DP_PARALLEL_APPLY_H

#include <stdbool.h>

#include "common/device/device.h"

typedef struct dp_workers dp_workers;

/* Starts the threads and binds the calling thread to devices[0]. On failure *out is NULL and no thread is left. */
ls_status dp_workers_create(dp_workers **out, ls_device *const *devices, int count);

/* Ends the threads. NULL is a no-op. False: a thread is stuck and still uses the arguments of its task; do not free
 * them. */
bool dp_workers_destroy(dp_workers *workers);

/* Whether a replica has missed its deadline. */
bool dp_workers_stuck(const dp_workers *workers);

/* A replica's task. */
typedef ls_status (*dp_replica_fn)(void *context, int replica);

/* Runs task(context, i) for i in 0 .. replicas-1, each in its device's thread, and returns when all have returned.
 * Errors inside the threads are held back until then. One failing replica is reported, as "replica i on device d: ...",
 * and its status returned: the first in replica order that failed by itself and reported why. A replica that failed
 * without a report is named only if no other reported one; a replica that gave up because another had failed
 * (LS_ERR_PEER) only if there is no other failure. A replica that has not returned after twice ls_wait_timeout_s() (so
 * that the waits inside it may report first) is LS_ERR_TIMEOUT, and stuck from then on. Only the thread that created
 * the workers calls this. */
ls_status dp_parallel_apply(dp_workers *workers, int replicas, dp_replica_fn task, void *context);

#endif
