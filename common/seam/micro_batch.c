/* micro_batch — a step in pieces: the samples of each piece, and when gradients are communicated.
 *   idea  : gradients are accumulated locally, and communicated with the last piece (PyTorch's no_sync). So a step sends
 *           the same bytes for any number of pieces: the sum over ranks of a sum over pieces is taken once
 *   terms : micro-batch = a piece of a step's batch, cut by torch.chunk's rule: the last one may be shorter, and those
 *           after it are empty. A sample weighs 1 / (samples of the whole step) in any piece, so each piece knows that
 *           number, and there is no division by the number of pieces
 *   cost  : memory for the activations of one piece, not of the whole batch
 *   order : the pieces' gradients are added in their order: the bits differ from one backward over all samples */
#include "common/base/chunk.h"
#include "common/seam/parallel.h"

/* --- the pieces ---------------------------------------------------------------------------------------------------- */

ls_batch ls_micro_batch(const ls_batch *batch, int index, int count, size_t row_nbytes, size_t answer) {
    ls_batch part = *batch;
    size_t begin;
    ls_chunk(batch->count, count, index, &begin, &part.count);
    if (batch->inputs) part.inputs = (const char *)batch->inputs + begin * row_nbytes;
    if (batch->labels) part.labels = batch->labels + begin * answer;
    if (batch->targets) part.targets = batch->targets + begin * answer;
    return part;
}

size_t ls_micro_batch_rows(size_t rows, int count) { return (rows + (size_t)count - 1) / (size_t)count; }

static size_t chunk(size_t length, int pieces, int index) {
    size_t begin, count;
    ls_chunk(length, pieces, index, &begin, &count);
    return count;
}

size_t ls_parallel_rows(const ls_parallel *p, struct ls_step_size size, int replica, int micro_batch) {
    if (p->data_size > 1) return chunk(chunk(size.samples, p->data_size, replica), size.micro_batches, micro_batch);
    return chunk(chunk(size.samples, size.micro_batches, micro_batch), ls_parallel_replicas(p), replica);
}

/* --- running the pieces ------------------------------------------------------------------------------------------- */

bool ls_parallel_syncs(const ls_parallel *p) { return !p->no_sync && ls_parallel_is_last(p); }

void ls_parallel_end_backward(ls_parallel *p, ls_stream *compute) {
    p->accumulates = !ls_parallel_syncs(p);
    if (!p->is_capturing) ls_event_record(p->batch->used, compute);
}
