/* The driver of a step: the only caller of a mode's prepare, forward_backward, reduce and apply (mode.h).
 *
 *     each micro-batch     prepare, forward_backward     ls_step_gradients
 *     after the last       reduce
 *                          apply                         ls_step_update
 *
 * The loop, replay, labs and tests call ls_step. A caller that reads or changes gradients before they are used calls
 * ls_step_gradients and ls_step_update, which use no graphs. After each call the driver checks the devices
 * (ls_parallel_status); the first failure ends the step and is returned. The caller counts steps (p->step) and waits
 * for p->batch_copied before it overwrites a batch.
 *
 * Within no_sync gradients stay local: they are not reduced, and usually no update follows. */
#ifndef LS_SEAM_STEP_H
#define LS_SEAM_STEP_H

#include "common/seam/parallel.h"

/* ls_step_gradients, then ls_step_update; with p->graph, launches the captured steps instead (step_graph.h). */
ls_status ls_step(ls_parallel *p, const ls_batch *batch);

/* Cuts the batch into p->micro_batches (ls_micro_batch) and computes their gradients. */
ls_status ls_step_gradients(ls_parallel *p, const ls_batch *batch);

/* Returns micro-batch `index` of a step. Called just before that micro-batch is prepared. */
typedef ls_batch (*ls_micro_batch_fn)(void *context, int index);

/* ls_step_gradients for a step whose micro-batches are given one by one, not as a batch to cut. */
ls_status ls_step_gradients_of(ls_parallel *p, ls_micro_batch_fn next, void *context);

ls_status ls_step_update(ls_parallel *p);

/* forward_backward of the micro-batch that has been prepared and, if it is synchronised (ls_parallel_syncs), reduce. */
ls_status ls_parallel_run_micro_batch(ls_parallel *p);

#endif
