/* reduce — sends the replicas' gradients to device 0, which adds them to its own.
 *   cost  : (N-1) x parameter bytes into device 0, once a step, for any number of micro-batches that the replicas have
 *           accumulated, then one pass over N arrays there: all of it on device 0's memory, which is why DataParallel's
 *           device 0 is the busiest. nccl: parameter bytes into device 0, summed on the way, and no memory for the
 *           replicas' gradients there
 *   order : g0 + g1, + g2, ... in replica order, a sum and never a mean (the loss is already the mean of the whole
 *           batch); the naive and the direct all-reduce of DDP add in the same order. nccl: the order of NCCL's ring or
 *           tree, the same in each step */
#include "dp_threads/dp.h"
#include "kernels/kernels.h"

/* On every replica, including device 0's, where the sum replaces its own gradients. */
static void reduce_by_nccl(const struct dp *dp, const struct dp_replica *r) {
    float *gradients;
    size_t count;
    ls_model_gradients(r->model, &gradients, &count);
    if (r != dp->replicas) r->clock->bytes[LS_PHASE_REDUCE] += count * sizeof(float);
    ls_stream_wait_event(r->comm, r->backward_done);
    ls_comm_label(r->nccl, "gradients", -1);
    ls_device_fail(r->device, ls_comm_reduce(r->nccl, r->comm, gradients, count, LS_FP32, LS_REDUCE_SUM, 0));
    ls_event_record(r->gradients_sent, r->comm);
}

static void copy_gradients(const struct dp *dp, const struct dp_replica *r) {
    if (r == dp->replicas) return;
    float *gradients;
    size_t count;
    ls_model_gradients(r->model, &gradients, &count);
    r->clock->bytes[LS_PHASE_REDUCE] += count * sizeof(float);
    /* the copy stream waits for backward_done already */
    ls_copy(r->copy, r->sent, gradients, count * sizeof(float));
    ls_event_record(r->gradients_sent, r->copy);
}

void dp_send_gradients(struct dp *dp, struct dp_replica *r) {
    if (r->nccl)
        reduce_by_nccl(dp, r);
    else
        copy_gradients(dp, r);
}

static void add_gradients(const struct dp *dp, ls_stream *compute) {
    float *gradients;
    size_t count;
    ls_model_gradients(dp->base.model, &gradients, &count);
    for (int i = 1; i < dp->active; i++) ls_stream_wait_event(compute, dp->replicas[i].gradients_sent);
    if (dp->active > 1) ls_reduce_add(compute, gradients, dp->sent, dp->active - 1, count);
}

void dp_reduce_gradients(struct dp *dp) {
    ls_stream *compute = dp->replicas[0].compute;
    if (dp->replicas[0].nccl)
        ls_stream_wait_event(compute, dp->replicas[0].gradients_sent);
    else
        add_gradients(dp, compute);
}
