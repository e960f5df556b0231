/* ddp_step — one training step of DistributedDataParallel on one rank, phase by phase.
 *
 *     rank 0                        rank r
 *     its shard arrives             its shard arrives
 *     buffers   ----------------->  rank 0's buffers
 *     forward                       forward
 *     loss of its own samples       loss of its own samples
 *     backward  <==== buckets ===>  backward      all-reduce on the comm stream, as soon as a bucket is full
 *     wait for the last bucket      wait for the last bucket
 *     optimizer                     optimizer
 *
 * No rank is special but for the buffers: nothing but gradients travels, once. A bucket that is full before backward ends is reduced
 * behind it, where a core is free for the comm stream; a model of less than 1 MiB has one bucket, which is full at the end.
 * Its counterpart, five transfers through device 0, is dp_threads/dp_step.c. */
#include "ddp_procs/ddp.h"
#include "kernels/kernels.h"

static ls_status prepare(ls_parallel *p, const ls_batch *batch) {
    struct ddp *ddp = ddp_of(p);
    ls_phase_enter(p->clocks, LS_PHASE_INPUT);
    ls_status status = ls_stream_wait_event(ddp->copy, ddp->batch_used);
    if (status == LS_OK) status = ls_device_batch_upload(&ddp->batch, ddp->copy, p->model, batch);
    if (status == LS_OK) status = ls_event_record(p->batch_copied, ddp->copy);
    return status;
}

ls_status ddp_sync_buffers(struct ddp *ddp) {
    if (!ddp->broadcast_buffers || ddp->buffer_count == 0) return LS_OK;
    ls_status status = ls_event_record(ddp->buffers_idle, ddp->compute);
    if (status == LS_OK) status = ls_stream_wait_event(ddp->comm_stream, ddp->buffers_idle);
    if (status == LS_OK) {
        status = ls_comm_broadcast(ddp->comm, ddp->comm_stream, ddp->buffers, ddp->buffer_count, LS_FP32, 0);
    }
    if (status == LS_OK) status = ls_event_record(ddp->buffers_arrived, ddp->comm_stream);
    if (status == LS_OK) status = ls_stream_wait_event(ddp->compute, ddp->buffers_arrived);
    ddp->base.clocks->bytes[LS_PHASE_BROADCAST] += ddp->buffer_count * sizeof(float);
    return status;
}

/* A rank whose shard of this batch is empty: no loss, gradients of zero (or what no_sync has left), the same all-reduces. */
static ls_status nothing_to_compute(struct ddp *ddp) {
    ls_parallel *p = &ddp->base;
    ls_status status = ls_fill(ddp->compute, ls_parallel_loss_slot(p), 0, 1);
    for (size_t i = 0; !ddp->accumulate && status == LS_OK && i < ls_model_parameter_count(p->model); i++) {
        const struct ls_tensor *parameter = ls_model_parameter(p->model, i);
        status = ls_fill(ddp->compute, parameter->gradient, 0, parameter->count);
    }
    return status == LS_OK ? ddp_reducer_all_ready(ddp->reducer) : status;
}

static ls_status forward_backward(ls_parallel *p) {
    struct ddp *ddp = ddp_of(p);
    size_t rows = ddp->batch.count, outputs = ls_model_outputs(p->model);
    const float *y = NULL;

    ls_phase_enter(p->clocks, LS_PHASE_BROADCAST);
    ls_status status = ddp_sync_buffers(ddp);
    if (status == LS_OK) status = ddp_reducer_arm(ddp->reducer, ddp->sync);
    if (status == LS_OK) status = ls_stream_wait_event(ddp->compute, p->batch_copied);
    ddp->broadcast_buffers = ddp->sync;
    if (status != LS_OK) return status;
    if (rows == 0) return nothing_to_compute(ddp);

    ls_phase_enter(p->clocks, LS_PHASE_FORWARD);
    status = ls_model_forward(p->model, ddp->batch.inputs, rows, true, &y);

    /* local mean x (local samples x W / global samples): the reducer's average of it is the mean over the whole batch */
    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    double weight = (double)p->world_size / (double)ddp->batch.global_count;
    if (status == LS_OK) {
        status = ls_loss(ls_model_loss(p->model), ddp->compute, ls_parallel_loss_slot(p), ddp->dy, y,
                         ls_device_batch_answers(&ddp->batch), rows, outputs, weight);
    }

    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD); /* the reducer launches buckets from here */
    if (status == LS_OK) status = ls_model_backward(p->model, ddp->dy, ddp->accumulate);
    if (status == LS_OK) status = ls_event_record(ddp->batch_used, ddp->compute);
    if (status == LS_OK) ddp->accumulate = true;
    return status;
}

static ls_status reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_ALL_REDUCE);
    return ddp_reducer_finish(ddp_of(p)->reducer);
}

static ls_status apply(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    ls_status status = ls_optimizer_step(p->optimizer);
    ddp_of(p)->accumulate = false; /* zero_grad: the next backward overwrites */
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

const struct ls_parallel_ops ddp_ops = {
    .name = "DistributedDataParallel",
    .prepare = prepare,
    .forward_backward = forward_backward,
    .reduce = reduce,
    .apply = apply,
    .before_evaluation = ddp_before_evaluation,
    .sum_over_ranks = ddp_sum_over_ranks,
    .destroy = ddp_destroy,
};
