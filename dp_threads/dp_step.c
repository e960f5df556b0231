/* dp_step — one training step of DataParallel, phase by phase.
 *
 *     device 0                     devices 1 .. N-1 (each in its thread)
 *     batch arrives
 *     scatter   ------------------>  its piece of the batch
 *     replicate ------------------>  all parameters
 *     forward                        forward
 *     gather    <------------------  its outputs
 *     loss of the whole batch      (on the output device: device 0 unless an option names another)
 *     scatter   ------------------>  the loss's gradient for its outputs
 *     backward                       backward
 *     reduce    <------------------  all gradients are sent, and added up on device 0
 *     optimizer
 *
 * With several micro-batches everything from scatter to backward is done for each, but parameters are sent with the
 * first and gradients with the last; in between every replica accumulates its own. With another output device, that one
 * gathers the outputs, and its compute stream, driven by the thread of device 0, computes the loss. With sync_bn the
 * replicas also communicate inside of forward and backward, at each batch norm, through a group of threads; with
 * --replicate nccl they communicate in replicate and reduce. A replica without a piece of the batch skips the step; but
 * if replicas communicate, or with several micro-batches, it runs all parts with no rows. The counterpart, one process
 * per device and one all-reduce in place of five transfers through device 0, is ddp_procs/ddp_step.c. */
#include "dp_threads/dp.h"

static void forward_replica(struct dp *dp, struct dp_replica *r);
static ls_status take_loss(struct dp *dp);
static void from_gradient(struct dp *dp, struct dp_replica *r);

void dp_prepare(ls_parallel *p, const ls_batch *batch) {
    struct dp *dp = dp_of(p);
    ls_parallel_upload(p, dp->replicas[0].copy, batch);
    dp_chunk_batch(dp);
}

ls_status dp_forward_backward(ls_parallel *p) {
    struct dp *dp = dp_of(p);
    ls_status status = dp_on_replicas(dp, forward_replica); /* in each device's thread; waits for all of them */
    if (status == LS_OK) status = take_loss(dp);
    if (status == LS_OK) status = dp_on_replicas(dp, from_gradient);
    /* from here on the batch's memory may be overwritten: device 0's backward follows the loss, and the loss follows
     * all reads of the batch, on any device */
    ls_parallel_end_backward(p, dp->replicas[0].compute);
    return status;
}

ls_status dp_reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_REDUCE);
    dp_reduce_gradients(dp_of(p));
    return LS_OK;
}

/* An infinity in any replica's gradients is in their sum: the one optimizer detects it, without merging flags. */
ls_status dp_apply(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    ls_status status = ls_parallel_update(p, dp_of(p)->without_gradient);
    /* the next step's replicate waits for it */
    ls_event_record(dp_of(p)->updated, dp_of(p)->replicas[0].compute);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

/* --- forward_backward's three parts: in each device's thread, on the output device, in each device's thread ------------ */

static void forward_replica(struct dp *dp, struct dp_replica *r) {
    ls_phase_enter(r->clock, LS_PHASE_SCATTER);
    dp_scatter_inputs(dp, r);
    ls_phase_enter(r->clock, LS_PHASE_REPLICATE);
    if (ls_parallel_is_first(&dp->base)) dp_replicate(dp, r); /* of the step's micro-batches */
    ls_phase_enter(r->clock, LS_PHASE_FORWARD);
    r->y = ls_model_forward(r->model, r->x, r->rows, true);
    ls_phase_enter(r->clock, LS_PHASE_GATHER);
    dp_gather_outputs(dp, r);
}

static ls_status take_loss(struct dp *dp) {
    ls_parallel *p = &dp->base;
    ls_stream *compute = dp->replicas[dp->output_replica].compute;
    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    dp_await_outputs(dp, compute);
    if (ls_parallel_is_first(p)) dp_replicate_loss_scale(dp, compute);
    /* the gradient takes the place of the outputs; weight 1: these are all samples of the batch */
    ls_parallel_take_loss(p, compute, dp->gathered_outputs, dp->gathered_outputs, 1);
    ls_event_record(dp->loss_taken, compute);
    return ls_check_loss(p);
}

static void from_gradient(struct dp *dp, struct dp_replica *r) {
    ls_phase_enter(r->clock, LS_PHASE_SCATTER);
    float *dy = dp_scatter_gradient(dp, r);
    ls_phase_enter(r->clock, LS_PHASE_BACKWARD);
    ls_model_backward(r->model, dy, dp->base.accumulates);
    dp_end_backward(r);
    ls_phase_enter(r->clock, LS_PHASE_REDUCE);
    if (ls_parallel_syncs(&dp->base)) dp_send_gradients(dp, r); /* with the last one */
}
