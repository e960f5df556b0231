/* join — ranks that run out of samples at different steps.
 *   idea  : at the start of each step every rank tells the others how many samples it has. A rank that has run out
 *           continues with empty batches: the same collectives, gradients of zero, the same optimizer step. When no
 *           rank has a batch any more, all ranks learn so in the same step, and the epoch ends.
 *   terms : active = ranks that have a batch in this step; n, N = samples of this rank and of all in this step; W = all
 *           ranks
 *   weight: w = gradient_weight. The reducer sums the ranks' gradients and divides by W, so a sample that is weighted
 *           by w / N counts w / (N W). w = W gives the mean over the samples of the step (divide by the active ranks).
 *           w = active gives what PyTorch does by default (divide by the initial world size): with equal batches the
 *           sum of the active ranks' means over W, so that the last samples of an epoch, which fewer ranks share, do
 *           not weigh more than those before them.
 *   buffers: a step uses the batch norm statistics of the highest rank that has samples; at the end all ranks take
 *            them, and the counts of batches, from the last such rank.
 *   cost  : one all-gather of 8 bytes a rank, for which the host waits at the start of each step, before the forward
 *           pass
 *   fails : the others detect a dead rank in that all-gather, or in the step's first all-reduce.
 *
 * In PyTorch a rank that has run out answers the others' collectives in a loop and skips its optimizer; it takes the
 * last rank's parameters at the end. Here it steps with the averaged gradients like every other rank, so that all ranks
 * have the same parameters and optimizer state after every step. The parameters at the end are the same: those of a
 * rank that took every step. */
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/ddp.h"

enum { RUN_OUT = -1 }; /* sent by a rank without a batch instead of its number of samples, which may be 0 */

/* Computes from the ranks' numbers of samples, or RUN_OUT: the batch's global_count, the number of active ranks, the
 * rank whose buffers are used (unchanged without samples), and the gradients' weight. */
static void take_counts(struct ddp *ddp, const int64_t *counts, ls_batch *batch, int *active) {
    int world_size = ddp->base.world_size;
    batch->global_count = 0;
    *active = 0;
    for (int r = 0; r < world_size; r++) {
        *active += counts[r] != RUN_OUT;
        if (counts[r] <= 0) continue;
        batch->global_count += (size_t)counts[r];
        ddp->buffers_root = r;
    }
    ddp->gradient_weight = ddp->join.divide_by_initial_world_size ? *active : world_size;
}

/* Every rank fails at the step at which the first ranks have run out, and reports which. */
static ls_status stop_early(const struct ddp *ddp, const int64_t *counts) {
    int first = 0;
    while (counts[first] != RUN_OUT) first++;
    unsigned long long step = ddp->base.step;
    if (counts[ddp->base.rank] == RUN_OUT) {
        return ls_fail(LS_ERR_INVALID,
                       "rank %d has run out of samples at step %llu, which ends the run on all ranks (--join-throw)",
                       ddp->base.rank, step);
    }
    return ls_fail(LS_ERR_INVALID,
                   "rank %d has run out of samples at step %llu: this rank, which has more, stops as well", first,
                   step);
}

static ls_status take_batches_tracked(struct ddp *ddp) {
    ls_model *model = ddp->base.model;
    size_t count = ls_model_batchnorm_count(model);
    if (count == 0) return LS_OK;
    int64_t *tracked = calloc(count, sizeof *tracked);
    if (!tracked) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for batch norm's counts");
    for (size_t i = 0; i < count; i++) tracked[i] = *ls_model_batches_tracked(model, i);
    ls_comm_label(ddp->comm, "counts of batches", -1);
    ls_status status = ls_comm_settle(
        ddp->comm_stream, ls_comm_broadcast(ddp->comm, ddp->comm_stream, tracked, count, LS_INT64, ddp->buffers_root));
    for (size_t i = 0; status == LS_OK && i < count; i++) *ls_model_batches_tracked(model, i) = tracked[i];
    free(tracked);
    return status;
}

/* No rank has samples any more: all ranks take the state of the last rank that had some. */
static ls_status take_final_state(struct ddp *ddp) {
    ls_status status = ddp_share_buffers(ddp);
    return status == LS_OK ? take_batches_tracked(ddp) : status;
}

ls_status ddp_join(ls_parallel *p, ls_batch *batch, bool *anyone) {
    struct ddp *ddp = ddp_of(p);
    *anyone = batch->inputs != NULL;
    if (!ddp->join.enable) return LS_OK;
    int64_t mine = *anyone ? (int64_t)batch->count : RUN_OUT, counts[LS_COMM_MAX_RANKS] = {0};
    ls_phase_enter(p->clocks, LS_PHASE_BROADCAST);
    ls_comm_label(ddp->comm, "samples of the step", -1);
    ls_status status =
        ls_comm_settle(ddp->comm_stream, ls_comm_all_gather(ddp->comm, ddp->comm_stream, &mine, counts, 1, LS_INT64));
    if (status != LS_OK) return status;
    int active = 0;
    take_counts(ddp, counts, batch, &active);
    *anyone = active > 0;
    if (active == 0) return take_final_state(ddp);
    if (ddp->join.throw_on_early_termination && active < p->world_size) return stop_early(ddp, counts);
    return LS_OK;
}
