/* replicate — in every step, with its first micro-batch, every replica gets a copy of device 0's parameters. The output
 * device gets the scale for its gradient, which the last update may have changed.
 *   cost  : (N-1) x parameter bytes out of device 0, one flat copy per replica (PyTorch coalesces into groups of 10
 *           MiB; ours are one allocation, so one group always suffices). nccl: one broadcast, in which replicas forward
 *           the bytes
 *   order : a replica's copy waits for device 0's last update. The replica's own last step needs no wait: its copy
 *           stream (nccl: its comm stream) has sent that step's gradients, so its backward is over
 *   not   : the buffers, which PyTorch copies, too. No result of a replica in training depends on its running
 *           statistics, and device 0's forward may already change the originals while this copy runs */
#include "dp_threads/dp.h"

/* In place on each device. Only device 0's part waits: the others receive nothing before it has begun. */
static void broadcast(struct dp *dp, struct dp_replica *r) {
    float *parameters;
    size_t count;
    ls_model_parameters(r->model, &parameters, &count);
    bool is_root = r == dp->replicas;
    if (!is_root) ls_model_parameters_changed(r->model);
    if (!is_root) r->clock->bytes[LS_PHASE_REPLICATE] += count * sizeof(float);
    if (is_root) ls_stream_wait_event(r->comm, dp->updated);
    ls_comm_label(r->nccl, "parameters", -1);
    ls_device_fail(r->device, ls_comm_broadcast(r->nccl, r->comm, parameters, count, LS_FP32, 0));
    if (is_root) return;
    ls_event_record(r->arrived, r->comm);
    ls_stream_wait_event(r->compute, r->arrived);
}

static void copy_parameters(struct dp *dp, struct dp_replica *r) {
    if (r == dp->replicas) return;
    ls_model_parameters_changed(r->model);
    float *from, *to;
    size_t count;
    ls_model_parameters(dp->base.model, &from, &count);
    ls_model_parameters(r->model, &to, &count);
    r->clock->bytes[LS_PHASE_REPLICATE] += count * sizeof(float);
    ls_stream_wait_event(r->copy, dp->updated);
    ls_copy(r->copy, to, from, count * sizeof(float));
    ls_event_record(r->arrived, r->copy);
    ls_stream_wait_event(r->compute, r->arrived);
}

void dp_replicate(struct dp *dp, struct dp_replica *r) {
    if (r->nccl)
        broadcast(dp, r);
    else
        copy_parameters(dp, r);
}

void dp_replicate_loss_scale(struct dp *dp, ls_stream *compute) {
    const float *scale = ls_optimizer_loss_scale(dp->base.optimizer);
    if (dp->loss_scale) ls_copy(compute, dp->loss_scale, scale, sizeof *scale);
}
