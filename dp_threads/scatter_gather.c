/* scatter_gather — sends pieces of the batch to the replicas, gathers their outputs, and sends the outputs' gradients
 * back.
 *   cost  : (1 - 1/N) of the inputs leave device 0 each step; all outputs go to the output device and back as
 *           gradients. Each replica's copies run on its own copy stream, driven by its own thread, so they run
 *           concurrently
 *   order : copies only; torch.chunk's rule assigns rows to pieces. It may leave replicas without rows: 5 samples
 *           on 4 devices are 2, 2, 1. Only the first `active` replicas run the step's parts, send gradients and are
 *           added up. If replicas communicate (sync_bn, nccl), and with several micro-batches, all are active, and
 *           those without a piece run every part with no rows */
#include "common/base/chunk.h"
#include "dp_threads/dp.h"

void dp_chunk_batch(struct dp *dp) {
    /* collectives need every replica, also one without rows; so do gradients that are sent with the last micro-batch */
    bool all_take_part = dp->replicas->sync_bn || dp->replicas->nccl || dp->base.micro_batches > 1;
    size_t rows = dp->base.batch->count;
    dp->active = all_take_part ? dp->base.device_count : (int)ls_chunk_count(rows, dp->base.device_count);
    for (int i = 0; i < dp->active; i++) {
        ls_chunk(rows, dp->base.device_count, i, &dp->replicas[i].begin, &dp->replicas[i].rows);
    }
}

void dp_scatter_inputs(struct dp *dp, struct dp_replica *r) {
    size_t row_nbytes = ls_model_input_nbytes(r->model);
    const char *piece = (const char *)dp->base.batch->inputs + r->begin * row_nbytes;
    if (!r->inputs) { /* replica 0: the batch is on its device */
        r->x = piece;
        ls_parallel_await_batch(&dp->base, r->compute);
        return;
    }
    size_t nbytes = r->rows * row_nbytes;
    r->x = r->inputs;
    r->clock->bytes[LS_PHASE_SCATTER] += nbytes;
    ls_stream_wait_event(r->copy, dp->base.batch_copied);
    ls_copy(r->copy, r->inputs, piece, nbytes);
    /* the parameters follow on this stream, and the wait for them (dp_replicate) covers the piece */
    if (ls_parallel_is_first(&dp->base) && !r->nccl) return;
    ls_event_record(r->piece_arrived, r->copy);
    ls_stream_wait_event(r->compute, r->piece_arrived);
}

/* The gathered outputs' memory still has the gradient of the previous micro-batch, and other replicas may be reading
 * it. (Between two steps the update orders this, and a replica's own backward precedes its own outputs.) */
static void await_backward_of_others(struct dp *dp, struct dp_replica *r) {
    for (int i = 0; i < dp->active; i++) {
        if (&dp->replicas[i] != r) ls_stream_wait_event(r->copy, dp->replicas[i].backward_done);
    }
}

void dp_gather_outputs(struct dp *dp, struct dp_replica *r) {
    size_t nbytes = r->rows * dp->output_count * sizeof(float);
    r->clock->bytes[LS_PHASE_GATHER] += nbytes;
    ls_event_record(r->outputs_ready, r->compute);
    ls_stream_wait_event(r->copy, r->outputs_ready);
    if (!ls_parallel_is_first(&dp->base)) await_backward_of_others(dp, r);
    ls_copy(r->copy, dp->gathered_outputs + r->begin * dp->output_count, r->y, nbytes);
    ls_event_record(r->gathered, r->copy);
}

void dp_await_outputs(struct dp *dp, ls_stream *compute) {
    for (int i = 0; i < dp->active; i++) ls_stream_wait_event(compute, dp->replicas[i].gathered);
}

float *dp_scatter_gradient(struct dp *dp, struct dp_replica *r) {
    float *piece = dp->gathered_outputs + r->begin * dp->output_count;
    if (!r->dy) {
        ls_stream_wait_event(r->compute, dp->loss_taken);
        return piece;
    }
    size_t nbytes = r->rows * dp->output_count * sizeof(float);
    r->clock->bytes[LS_PHASE_SCATTER] += nbytes;
    ls_stream_wait_event(r->copy, dp->loss_taken);
    ls_copy(r->copy, r->dy, piece, nbytes);
    ls_event_record(r->gradient_arrived, r->copy);
    ls_stream_wait_event(r->compute, r->gradient_arrived);
    return r->dy;
}

void dp_end_backward(struct dp_replica *r) {
    ls_event_record(r->backward_done, r->compute);
    /* replica 0 reads the batch in place, and sends nothing */
    if (r->inputs) ls_stream_wait_event(r->copy, r->backward_done);
}
