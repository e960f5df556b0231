/* ddp_step — one training step of DistributedDataParallel on one rank, phase by phase.
 *
 *     rank 0                        rank r
 *     its shard arrives             its shard arrives
 *     buffers   ----------------->  rank 0's buffers
 *     forward                       forward
 *     loss of its own samples       loss of its own samples
 *     backward  <==== buckets ===>  backward      all-reduce on the comm stream, as soon as a bucket is ready
 *     wait for the last bucket      wait for the last bucket
 *     optimizer                     optimizer
 *
 * With several micro-batches everything from the shard's arrival to backward is done for each, and the gradients
 * accumulate in place; buffers are broadcast before the first, and buckets are reduced with the last (PyTorch's
 * no_sync).
 *
 * Buffers (batch norm's running statistics) are broadcast by rank 0. Otherwise only gradients are communicated, once,
 * and all ranks are equal. A bucket is ready when all its gradients are. If that is before backward ends, it is reduced
 * while backward continues (on CPU devices, if a core is free for the comm stream). The first step has one bucket,
 * which is ready at the end (except with find_unused and in resumed runs); so does a model of less than 1 MiB. With
 * sync_bn, batch norm's statistics are also reduced, within forward and backward, on the compute stream and in a group
 * of their own. The counterpart, five transfers through device 0, is dp_threads/dp_step.c. */
#include "ddp_procs/ddp.h"

void ddp_prepare(ls_parallel *p, const ls_batch *batch) {
    struct ddp *ddp = ddp_of(p);
    ls_parallel_upload(p, ddp->copy, batch);
    ddp_begin_forward(ddp);
}

/* A rank without samples has a loss and gradients of zero, and takes part in the same all-reduces. */
ls_status ddp_forward_backward(ls_parallel *p) {
    struct ddp *ddp = ddp_of(p);

    ls_phase_enter(p->clocks, LS_PHASE_BROADCAST);
    ddp_sync_buffers(ddp);
    ls_status status = ddp_reducer_arm(ddp->reducer, ls_parallel_syncs(p), p->batch->count);
    if (status != LS_OK) return status;
    ls_parallel_await_batch(p, ddp->compute);

    ls_phase_enter(p->clocks, LS_PHASE_FORWARD);
    const float *y = ls_model_forward(p->model, p->batch->inputs, p->batch->count, true);

    /* local mean x (local samples x W / global samples): the reducer's average of it is the mean over the whole
     * batch */
    ls_phase_enter(p->clocks, LS_PHASE_LOSS);
    ls_parallel_take_loss(p, ddp->compute, ddp->dy, y, ddp->gradient_weight);
    status = ls_check_loss(p);
    if (status != LS_OK) return status;

    ls_phase_enter(p->clocks, LS_PHASE_BACKWARD); /* the reducer launches buckets from here */
    ls_model_backward(p->model, ddp->dy, p->accumulates);
    ls_parallel_end_backward(p, ddp->compute);
    return LS_OK;
}

ls_status ddp_reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_ALL_REDUCE);
    return ddp_reducer_finish(ddp_of(p)->reducer);
}

/* All ranks have the same sums, with the same infinities, so they make the same decisions without communication. */
ls_status ddp_apply(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_OPTIMIZER);
    ls_status status = ddp_update(ddp_of(p));
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}
