/* A training step as one launch: --cuda-graph. Used by the loop, between prepare and the next step, in place of
 * forward_backward, reduce and apply.
 *
 * The first steps run as always. Then the work of a step is captured into a graph (device.h). From then on the graph is
 * launched: one call instead of one for each operation. A step whose batch has another size (the last of an epoch) runs
 * as always. The results have the same bits as without. */
#ifndef LS_TRAIN_STEP_GRAPH_H
#define LS_TRAIN_STEP_GRAPH_H

#include "common/seam/parallel.h"

/* Steps before the first capture: DDP rebuilds its buckets in its second, and libraries allocate memory in their first
 * calls. */
#define LS_GRAPH_WARMUP_STEPS 3

typedef struct ls_step_graph ls_step_graph;

/* For the places that the batch has now (parallel.h). LS_ERR_USAGE, with one line, where steps cannot be captured: on
 * CPU devices, or for the reason that graph_obstacle gives. On failure *out is NULL. */
ls_status ls_step_graph_create(ls_step_graph **out, ls_parallel *parallel);

/* ls_parallel_run_micro_batch of the micro-batch that prepare has begun. */
ls_status ls_step_graph_run(ls_step_graph *graph);

/* Launches so far, for tests. */
int64_t ls_step_graph_launches(const ls_step_graph *graph);

/* The devices must be idle. NULL is a no-op. */
void ls_step_graph_destroy(ls_step_graph *graph);

#endif
