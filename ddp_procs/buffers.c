/* buffers — broadcasts one rank's running statistics of batch norm, which every rank's own forward changes.
 *   idea  : PyTorch's broadcast_buffers: they are broadcast before a training forward if the previous one was
 *           synchronised, and before an evaluation, after which they do not change until the next training forward. So
 *           in a step with several micro-batches they are broadcast before the first, and never within no_sync
 *   whose : rank 0's; with join, those of the highest rank that has samples (join.c)
 *   graph : a captured graph always broadcasts with its first micro-batch, since it is launched after steps of both
 *           kinds. After an evaluation the broadcast changes nothing. prepare decides whether to broadcast, since a
 *           graph may be launched in place of forward_backward
 *   cost  : one broadcast of all buffers, which are one range, on the comm stream, before the forward pass */
#include "ddp_procs/ddp.h"

void ddp_begin_forward(struct ddp *ddp) {
    ddp->buffers_travel = ddp->buffers_changed;
    ddp->buffers_changed = ls_parallel_syncs(&ddp->base);
}

static void broadcast(struct ddp *ddp) {
    if (ddp->buffer_count == 0) return;
    ls_event_record(ddp->buffers_idle, ddp->compute);
    ls_stream_wait_event(ddp->comm_stream, ddp->buffers_idle);
    ls_comm_label(ddp->comm, "buffers", -1);
    ls_device_fail(ddp->base.devices[0], ls_comm_broadcast(ddp->comm, ddp->comm_stream, ddp->buffers, ddp->buffer_count,
                                                           LS_FP32, ddp->buffers_root));
    ls_event_record(ddp->buffers_arrived, ddp->comm_stream);
    ls_stream_wait_event(ddp->compute, ddp->buffers_arrived);
    ddp->base.clocks->bytes[LS_PHASE_BROADCAST] += ddp->buffer_count * sizeof(float);
}

void ddp_sync_buffers(struct ddp *ddp) {
    const ls_parallel *p = &ddp->base;
    bool captured = p->is_capturing && ls_parallel_is_first(p);
    if (ddp->buffers_travel || captured) broadcast(ddp);
}

ls_status ddp_share_buffers(struct ddp *ddp) {
    if (ddp->buffers_changed) broadcast(ddp);
    return ls_stream_synchronize(ddp->comm_stream);
}

ls_status ddp_before_evaluation(ls_parallel *p) {
    ls_status status = ddp_share_buffers(ddp_of(p));
    ddp_of(p)->buffers_changed = false; /* PyTorch: a forward without gradients clears it */
    return status;
}
