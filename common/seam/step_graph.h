/* A training step as one launch: --cuda-graph.
 *
 * The first steps run normally. Then the work of a step is captured into a graph (device.h). From then on the graph is
 * launched: one call instead of one per operation. A step whose batch has a different size (the last of an epoch) runs
 * normally. The results have the same bits as without. */
#ifndef LS_SEAM_STEP_GRAPH_H
#define LS_SEAM_STEP_GRAPH_H

#include "common/seam/parallel.h"

/* Steps before the first capture: DDP rebuilds its buckets in its second, and libraries allocate memory in their first
 * calls. */
#define LS_GRAPH_WARMUP_STEPS 3

/* From now on ls_step runs steps through graphs, one for each micro-batch and each present place (parallel.h).
 * LS_ERR_USAGE, with one line, if steps cannot be captured: on CPU devices, or for the reason that graph_obstacle
 * gives. On failure p->graph is NULL. */
ls_status ls_step_graph_create(ls_parallel *p);

/* For the driver (step.h): runs the micro-batch that has been prepared, and with the last one the update, through its
 * graph. `enqueue` does the same operation by operation: for the first steps, for other batch sizes, and to be
 * captured. */
ls_status ls_step_graph_run(ls_parallel *p, ls_status (*enqueue)(ls_parallel *p));

/* Launches so far. */
int64_t ls_step_graph_launches(const ls_parallel *p);

/* For rank 0, at the end: prints a note if there were no launches. Without a graph a no-op. */
void ls_step_graph_note_idle(const ls_parallel *p);

/* The devices must be idle. Without a graph a no-op. */
void ls_step_graph_destroy(ls_parallel *p);

#endif
