/* replicate — every step, every replica gets device 0's parameters anew.
 *   cost  : (N-1) x parameter bytes out of device 0, one flat copy per replica (PyTorch coalesces into groups of 10 MiB; ours
 *           lie in one allocation, so one group always does)
 *   order : a replica's copy waits for device 0's last update. The replica's own last step needs no wait: its copy stream
 *           has sent that step's gradients, so it has passed its backward
 *   not   : the buffers, which PyTorch sends along. Nothing that a replica computes in training depends on its running
 *           statistics, and device 0's forward may already be changing the original ones while this copy runs */
#include "dp_threads/dp.h"

ls_status dp_replicate(struct dp *dp, struct dp_replica *r) {
    if (r == dp->replicas) return LS_OK;
    float *from, *to;
    size_t count;
    ls_model_parameters(dp->base.model, &from, &count);
    ls_model_parameters(r->model, &to, &count);
    r->clock->bytes[LS_PHASE_REPLICATE] += count * sizeof(float);
    ls_status status = ls_stream_wait_event(r->copy, dp->updated);
    if (status == LS_OK) status = ls_copy(r->copy, to, from, count * sizeof(float));
    if (status == LS_OK) status = ls_event_record(r->arrived, r->copy);
    if (status == LS_OK) status = ls_stream_wait_event(r->compute, r->arrived);
    return status;
}
