/* dp_step — one training step of DataParallel, phase by phase.
 *
 *     device 0                     devices 1 .. N-1 (each in its thread)
 *     batch arrives
 *     scatter   ------------------>  its piece of the batch
 *     replicate ------------------>  all parameters
 *     forward                        forward
 *     gather    <------------------  its outputs
 *     loss of the whole batch
 *     scatter   ------------------>  the loss's gradient for its outputs
 *     backward                       backward
 *     reduce    <------------------  all gradients
 *     optimizer
 *
 * With several micro-batches all from scatter to backward is done for each, but parameters travel with the first and
 * gradients with the last; in between every replica adds up its own. With another output device, that one gathers the
 * outputs, and its compute stream, driven by the thread of device 0, takes the loss. With sync_bn the replicas also
 * meet inside of forward and backward, at each batch norm, through a group of threads; with --replicate nccl they meet
 * in replicate and reduce. A replica without a piece then goes through all of this with no rows. The counterpart, one
 * process per device and one all-reduce instead of five transfers through device 0, is ddp_procs/ddp_step.c. */
#include "dp_threads/dp.h"

static void prepare(ls_parallel *p, const ls_batch *batch) {
    struct dp *dp = dp_of(p);
    ls_phase_enter(p->clocks, LS_PHASE_INPUT);
    ls_stream *copy = dp->replicas[0].copy;
    ls_device_batch_upload(&dp->batch, copy, p->model, batch);
    ls_event_record(p->batch_copied, copy);
    dp_chunk_batch(dp);
}

/* A replica hands over. One that has failed must not leave the others waiting for it. */
static ls_status leave(struct dp_replica *r) {
    ls_status status = ls_device_status(r->device);
    ls_phase_enter(r->clock, LS_PHASE_OTHER);
    if (status != LS_OK && r->sync_bn) ls_comm_abort(r->sync_bn, "its replica failed");
    if (status != LS_OK && r->nccl) ls_comm_abort(r->nccl, "its replica failed");
    return status;
}

static ls_status forward_replica(void *context, int i) {
    struct dp *dp = context;
    struct dp_replica *r = &dp->replicas[i];

    ls_phase_enter(r->clock, LS_PHASE_SCATTER);
    dp_scatter_inputs(dp, r);

    ls_phase_enter(r->clock, LS_PHASE_REPLICATE);
    if (ls_parallel_is_first(&dp->base)) dp_replicate(dp, r);

    ls_phase_enter(r->clock, LS_PHASE_FORWARD);
    r->y = ls_model_forward(r->model, r->x, r->rows, true);

    ls_phase_enter(r->clock, LS_PHASE_GATHER);
    dp_gather_outputs(dp, r);
    return leave(r);
}

static void loss_on_output_device(struct dp *dp) {
    ls_parallel *p = &dp->base;
    ls_stream *compute = dp->replicas[dp->output_replica].compute;
    size_t rows = dp->batch.count;
    for (int i = 0; i < dp->active; i++) ls_stream_wait_event(compute, dp->replicas[i].gathered);
    if (ls_parallel_is_first(p)) dp_replicate_loss_scale(dp, compute);
    ls_loss(ls_model_loss(p->model), compute, ls_parallel_loss_slot(p), dp->gathered_outputs, dp->gathered_outputs,
            ls_device_batch_answers(&dp->batch), rows, dp->output_count, 1.0 / (double)dp->batch.global_count);
    ls_parallel_add_loss(p, compute);
    ls_parallel_scale_gradient(p, compute, dp->gathered_outputs, rows * dp->output_count);
    ls_event_record(dp->loss_taken, compute);
}

static ls_status backward_replica(void *context, int i) {
    struct dp *dp = context;
    struct dp_replica *r = &dp->replicas[i];

    ls_phase_enter(r->clock, LS_PHASE_SCATTER);
    float *dy = dp_scatter_gradient(dp, r);

    ls_phase_enter(r->clock, LS_PHASE_BACKWARD);
    ls_model_backward(r->model, dy, !ls_parallel_is_first(&dp->base));
    dp_end_backward(r);

    ls_phase_enter(r->clock, LS_PHASE_REDUCE);
    if (ls_parallel_is_last(&dp->base)) dp_send_gradients(dp, r);
    return leave(r);
}

static ls_status forward_backward(ls_parallel *p) {
    struct dp *dp = dp_of(p);
    ls_status status = dp_parallel_apply(dp->workers, dp->active, forward_replica, dp);
    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    if (status == LS_OK) loss_on_output_device(dp);
    if (status == LS_OK) status = ls_parallel_status(p, ls_check_loss(p));
    if (status == LS_OK) status = dp_parallel_apply(dp->workers, dp->active, backward_replica, dp);
    /* device 0's backward comes after the loss, and the loss after everything that read the batch, on any device */
    ls_parallel_batch_used(p, dp->replicas[0].compute);
    p->stuck = dp_workers_stuck(dp->workers);
    return status;
}

static ls_status reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_REDUCE);
    dp_reduce_gradients(dp_of(p));
    return LS_OK;
}

static ls_status apply(ls_parallel *p) {
    struct dp *dp = dp_of(p);
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    /* an infinity in any replica's gradients is in their sum: the one optimizer sees it, and nothing has to be
     * joined */
    ls_status status = ls_optimizer_step(p->optimizer);
    ls_event_record(dp->updated, dp->replicas[0].compute);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

const struct ls_parallel_ops dp_ops = {
    .name = "DataParallel",
    .mode = "dp",
    .prepare = prepare,
    .forward_backward = forward_backward,
    .reduce = reduce,
    .apply = apply,
    .find_nonfinite = dp_find_nonfinite,
    .abandon = dp_abandon,
    .graph_obstacle = dp_graph_obstacle,
    .destroy = dp_destroy,
};
