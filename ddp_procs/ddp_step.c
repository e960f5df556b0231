/* ddp_step — one training step of DistributedDataParallel on one rank, phase by phase.
 *
 *     rank 0                        rank r
 *     its shard arrives             its shard arrives
 *     buffers   ----------------->  rank 0's buffers      (with join: of the highest rank that has samples)
 *     forward                       forward
 *     loss of its own samples       loss of its own samples
 *     backward  <==== buckets ===>  backward      all-reduce on the comm stream, as soon as a bucket is full
 *     wait for the last bucket      wait for the last bucket
 *     optimizer                     optimizer
 *
 * With several micro-batches all from the shard's arrival to backward is done for each, and the gradients add up where
 * they are; buffers travel before the first, and buckets with the last (PyTorch's no_sync).
 *
 * No rank is special but for the buffers: nothing but gradients travels, once. A bucket that is full before backward
 * ends is reduced behind it, where a core is free for the comm stream; a model of less than 1 MiB has one bucket, which
 * is full at the end. With sync_bn, batch norm's statistics travel as well, inside of forward and backward, on the
 * compute stream and in a group of their own. The counterpart, five transfers through device 0, is
 * dp_threads/dp_step.c. */
#include "ddp_procs/ddp.h"
#include "kernels/kernels.h"

static void prepare(ls_parallel *p, const ls_batch *batch) {
    struct ddp *ddp = ddp_of(p);
    /* settled here, since a graph may be launched in place of forward_backward */
    ddp->micro_batch_syncs = ddp->sync && ls_parallel_is_last(p);
    ddp->broadcast_now = ddp->broadcast_buffers;
    ddp->broadcast_buffers = ddp->micro_batch_syncs;
    ls_phase_enter(p->clocks, LS_PHASE_INPUT);
    ls_device_batch_upload(&ddp->batch, ddp->copy, p->model, batch);
    ls_event_record(p->batch_copied, ddp->copy);
}

ls_status ddp_sync_buffers(struct ddp *ddp, bool due) {
    if (!due || ddp->buffer_count == 0) return LS_OK;
    ls_event_record(ddp->buffers_idle, ddp->compute);
    ls_stream_wait_event(ddp->comm_stream, ddp->buffers_idle);
    ls_status status =
        ls_comm_broadcast(ddp->comm, ddp->comm_stream, ddp->buffers, ddp->buffer_count, LS_FP32, ddp->buffers_root);
    ls_event_record(ddp->buffers_arrived, ddp->comm_stream);
    ls_stream_wait_event(ddp->compute, ddp->buffers_arrived);
    ddp->base.clocks->bytes[LS_PHASE_BROADCAST] += ddp->buffer_count * sizeof(float);
    return status;
}

/* local mean x (local samples x W / global samples): the reducer's average of it is the mean over the whole batch. With
 * join the gradients may be weighted less (join.c); the loss that is shown stays that mean. */
static void take_loss(struct ddp *ddp, const float *y) {
    ls_parallel *p = &ddp->base;
    size_t rows = ddp->batch.count, outputs = ls_model_outputs(p->model);
    double weight = (double)ddp->weight / (double)ddp->batch.global_count;
    ls_loss(ls_model_loss(p->model), ddp->compute, ls_parallel_loss_slot(p), ddp->dy, y,
            ls_device_batch_answers(&ddp->batch), rows, outputs, weight);
    if (ddp->weight != p->world_size) {
        float share = (float)p->world_size / (float)ddp->weight;
        ls_scale(ddp->compute, ls_parallel_loss_slot(p), share, 1);
    }
    ls_parallel_add_loss(p, ddp->compute);
    ls_parallel_scale_gradient(p, ddp->compute, ddp->dy, rows * outputs);
}

static ls_status forward_backward(ls_parallel *p) {
    struct ddp *ddp = ddp_of(p);
    size_t rows = ddp->batch.count; /* 0: a loss and gradients of zero, the same all-reduces */

    ls_phase_enter(p->clocks, LS_PHASE_BROADCAST);
    /* a recorded step always has it, though it changes nothing after an evaluation */
    ls_status status = ddp_sync_buffers(ddp, ddp->broadcast_now || (p->recording && ls_parallel_is_first(p)));
    if (status == LS_OK) status = ddp_reducer_arm(ddp->reducer, ddp->micro_batch_syncs, rows);
    if (status != LS_OK) return status;
    ls_parallel_await_batch(p, ddp->compute);

    ls_phase_enter(p->clocks, LS_PHASE_FORWARD);
    const float *y = ls_model_forward(p->model, ddp->batch.inputs, rows, true);

    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    take_loss(ddp, y);
    status = ls_check_loss(p);
    if (status != LS_OK) return status;

    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD); /* the reducer launches buckets from here */
    ls_model_backward(p->model, ddp->dy, ddp->accumulate);
    ls_parallel_batch_used(p, ddp->compute);
    ddp->accumulate = true;
    return LS_OK;
}

static ls_status reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_ALL_REDUCE);
    return ddp_reducer_finish(ddp_of(p)->reducer);
}

static ls_status apply(ls_parallel *p) {
    struct ddp *ddp = ddp_of(p);
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    /* all ranks have the same sums, with the same infinities, so they come to the same decisions without a word */
    ls_status status = ls_optimizer_step_without(p->optimizer, ddp_reducer_unused(ddp->reducer));
    ddp->accumulate = false; /* zero_grad: the next backward overwrites */
    if (status == LS_OK && ddp->compare_each_step) status = ddp_compare_after_step(ddp);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

const struct ls_parallel_ops ddp_ops = {
    .name = "DistributedDataParallel",
    .mode = "ddp",
    .prepare = prepare,
    .forward_backward = forward_backward,
    .reduce = reduce,
    .apply = apply,
    .before_evaluation = ddp_before_evaluation,
    .sum_over_ranks = ddp_sum_over_ranks,
    .join = ddp_join,
    .gather_from_ranks = ddp_gather_from_ranks,
    .find_nonfinite = ddp_find_nonfinite,
    .give_up = ddp_give_up,
    .abandon = ddp_abandon,
    .get_memory = ddp_get_memory,
    .set_memory = ddp_set_memory,
    .graph_obstacle = ddp_graph_obstacle,
    .describe = ddp_describe,
    .destroy = ddp_destroy,
};
