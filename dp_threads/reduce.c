/* reduce — the replicas' gradients travel to device 0, which adds them to its own.
 *   cost  : (N-1) x parameter bytes into device 0, once a step, however many micro-batches the replicas have added up, then
 *           one pass over N arrays there: all of it on device 0's memory, which is why DataParallel's device 0 is the busy one. nccl: parameter bytes into device 0, summed on the way, and no memory
 *           for the replicas' gradients there
 *   order : g0 + g1, + g2, ... in replica order, a sum and never a mean (the loss is already the mean of the whole batch); the
 *           naive and the direct all-reduce of DDP add in the same order. nccl: the order of NCCL's ring or tree, the same in each step */
#include "dp_threads/dp.h"
#include "kernels/kernels.h"

ls_status dp_send_gradients(struct dp *dp, struct dp_replica *r) {
    if (r == dp->replicas && !r->nccl) return LS_OK;
    float *gradients;
    size_t count;
    ls_model_gradients(r->model, &gradients, &count);
    if (r != dp->replicas) r->clock->bytes[LS_PHASE_REDUCE] += count * sizeof(float);
    ls_stream *stream = r->nccl ? r->comm : r->copy; /* the latter waits for backward_done already */
    ls_status status = r->nccl ? ls_stream_wait_event(stream, r->backward_done) : LS_OK;
    if (status == LS_OK) {
        status = r->nccl ? ls_comm_reduce(r->nccl, stream, gradients, count, LS_FP32, LS_REDUCE_SUM, 0)
                         : ls_copy(stream, r->sent, gradients, count * sizeof(float));
    }
    if (status == LS_OK) status = ls_event_record(r->gradients_sent, stream);
    return status;
}

ls_status dp_reduce_gradients(struct dp *dp) {
    float *gradients;
    size_t count;
    ls_model_gradients(dp->base.model, &gradients, &count);
    ls_stream *compute = dp->replicas[0].compute;
    if (dp->replicas[0].nccl) return ls_stream_wait_event(compute, dp->replicas[0].gradients_sent);
    ls_status status = LS_OK;
    for (int i = 1; status == LS_OK && i < dp->active; i++) {
        status = ls_stream_wait_event(compute, dp->replicas[i].gradients_sent);
    }
    if (status != LS_OK || dp->active == 1) return status;
    return ls_reduce_add(compute, gradients, dp->sent, dp->active - 1, count);
}
