/* sharded — ZeRO-1: each rank owns a part of the optimizer's state.
 *   idea  : under DDP all ranks have the same gradients and compute the same update, W times the same work and memory.
 *           Here each rank owns 1/W of the parameters. An all-reduce is a reduce-scatter and an all-gather, and the
 *           update fits between the two: it needs sums of the rank's own part only, and the new parameters are gathered
 *           instead of the sums
 *   slices: every bucket is cut into W equal slices; rank r owns the r-th. A tensor may be in several slices, so that
 *           all ranks own the same amount, however large a tensor is (PyTorch's ZeroRedundancyOptimizer assigns whole
 *           tensors)
 *   layout: the slots of parameters and of gradients are multiples of W x 64 bytes, and in the same order. So a
 *           bucket's gradients have the same layout as its parameters in the model's slab, both are cut at the same
 *           offsets, and the parameters are gathered in place (on CPU devices in the group's memory, so that a gather
 *           copies once). Padding has gradients of zero and no update, and stays zero
 *   cost  : a rank sends (W-1)/W of the bytes in the reduce-scatter and as much in the all-gather, together as much as
 *           in the all-reduce. The update is 1/W of DDP's, its state too; padding: less than W x 64 bytes a tensor.
 *           Backward overlaps with the reduce-scatter; nothing overlaps with the all-gather, for which the next forward
 *           waits
 *   order : the reduce-scatter sums in the ranks' order, and has the bits of DDP with "naive" or "direct". The norm of
 *           all gradients is the root of the sum of the ranks' square sums, which are added in a different order than
 *           on one rank
 *   fails : an update before its sum, or a forward before the gather, is a race: the events bucket reduced, parameters
 *           updated, parameters gathered. A dead rank is detected in either collective, as in DDP's */
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/sharded_internal.h"

/* --- the step ----------------------------------------------------------------------------------------------------- */

/* For the reducer: each rank gets the sum of its own slice of a full bucket, in place, on `stream`. The host is in
 * phase REDUCE until the reducer continues. */
static ls_status reduce_scatter(void *context, size_t bucket, ls_stream *stream, void *values, size_t count,
                                ls_dtype dtype) {
    struct sharded *s = context;
    (void)bucket;
    ls_phase_enter(s->ddp.base.clocks, LS_PHASE_REDUCE);
    void *own = (char *)values + slice_begin(s, count) * ls_dtype_nbytes(dtype);
    return ls_comm_reduce_scatter(s->ddp.comm, stream, values, own, slice_of(s, count), dtype, LS_REDUCE_SUM);
}

ls_status ddp_sharded_reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_REDUCE);
    sharded_of(p)->adds = true;
    return ddp_reducer_finish(ddp_of(p)->reducer);
}

/* Gathers every rank's slices of the parameters on all ranks, in place, after the update and before the next forward.
 * Counts the buckets' bytes in phase GATHER. */
static void gather(struct sharded *s) {
    struct ddp *ddp = &s->ddp;
    const ddp_reducer *r = ddp->reducer;
    ls_event_record(s->updated, ddp->compute);
    ls_stream_wait_event(ddp->comm_stream, s->updated);
    for (size_t b = 0; b < r->bucket_count; b++) {
        size_t count = r->buckets[b].count;
        float *all = s->parameters[b];
        ls_comm_label(ddp->comm, "parameters of bucket", (int)b);
        ls_device_fail(r->device, ls_comm_all_gather(ddp->comm, ddp->comm_stream, all + slice_begin(s, count), all,
                                                     slice_of(s, count), LS_FP32));
        ddp->base.clocks->bytes[LS_PHASE_GATHER] += count * sizeof(float);
    }
    ls_event_record(s->gathered, ddp->comm_stream);
    ls_stream_wait_event(ddp->compute, s->gathered);
}

/* Updates the rank's own ranges, except parameters that no rank has used, in phase OPTIMIZER; then gathers the new
 * values in phase GATHER. After a failed update nothing is gathered. */
static ls_status update_and_gather(struct sharded *s) {
    struct ls_phase_clock *clock = s->ddp.base.clocks;
    ls_phase_enter(clock, LS_PHASE_OPTIMIZER);
    ls_status status = ls_parallel_update(&s->ddp.base, ddp_reducer_unused(s->ddp.reducer));
    if (status != LS_OK) return status;
    ls_phase_enter(clock, LS_PHASE_GATHER);
    gather(s);
    return LS_OK;
}

static ls_status apply(ls_parallel *p) {
    struct sharded *s = sharded_of(p);
    s->adds = false;
    if (s->units) return ddp_apply(p); /* the next forward gathers units */
    ls_status status = update_and_gather(s);
    if (status == LS_OK && s->ddp.compare_each_step) status = ddp_compare_state(&s->ddp, s->ddp.sync_bn != NULL);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    return status;
}

/* In stage 2 each micro-batch's gradients are reduced. */
static void count_bytes(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]) {
    const struct sharded *s = (const struct sharded *)p;
    const struct ddp *ddp = &s->ddp;
    const ddp_reducer *r = ddp->reducer;
    (void)local;
    bytes[LS_PHASE_BROADCAST] = ddp->buffer_count * sizeof(float);
    bytes[LS_PHASE_REDUCE] = ddp_reducer_sent_nbytes(r);
    if (s->shard) bytes[LS_PHASE_REDUCE] *= (uint64_t)size.micro_batches;
    for (size_t b = 0; b < r->bucket_count; b++) bytes[LS_PHASE_GATHER] += r->buckets[b].count * sizeof(float);
    if (s->units) bytes[LS_PHASE_GATHER] = ddp_units_step_nbytes(s->units, size.micro_batches);
}

/* --- owners ------------------------------------------------------------------------------------------------------- */

/* Where the parameters of each bucket begin. */
static ls_status find_parameters(struct sharded *s) {
    const ddp_reducer *r = s->ddp.reducer;
    s->parameters = calloc(r->bucket_count + 1, sizeof *s->parameters);
    if (!s->parameters) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the places of parameters");
    for (size_t p = r->parameter_count; p > 0; p--) /* the first of a bucket is stored last */
        s->parameters[r->bucket_of[p - 1]] = ls_model_parameter(r->model, p - 1)->data;
    return LS_OK;
}

/* The elements of parameter p in the rank's slice of its bucket; may be none, never includes padding. */
static ls_optimizer_range find_own(const struct sharded *s, size_t p) {
    const ddp_reducer *r = s->ddp.reducer;
    const struct ls_tensor *tensor = ls_model_parameter(r->model, p);
    size_t bucket = r->bucket_of[p], floats = r->buckets[bucket].count;
    size_t begin = slice_begin(s, floats), end = begin + slice_of(s, floats);                /* in the bucket */
    size_t at = (size_t)(tensor->data - s->parameters[bucket]), behind = at + tensor->count; /* in the bucket, too */
    if (begin < at) begin = at;
    if (end > behind) end = behind;
    if (begin >= end) return (ls_optimizer_range){.tensor = tensor};
    return (ls_optimizer_range){.tensor = tensor, .first = begin - at, .count = end - begin};
}

/* Creates the optimizer over one range per parameter, in `own`: range p is the rank's part of parameter p, from
 * find_own and ddp_place_own. The norm of the gradients is over all ranks of options->shards. */
static ls_status create_over_own(struct sharded *s, ls_optimizer_range *own, const ddp_options *options) {
    ls_parallel *p = &s->ddp.base;
    size_t count = ls_model_parameter_count(p->model);
    for (size_t i = 0; i < count; i++) {
        own[i] = find_own(s, i);
        ddp_place_own(s, i, &own[i]);
    }
    return ls_optimizer_create_of(&p->optimizer, p->devices[0], own, count, options->shards, &options->optimizer);
}

static ls_status create_optimizer(struct sharded *s, const ddp_options *options) {
    ls_optimizer_range *own = calloc(ls_model_parameter_count(s->ddp.base.model) + 1, sizeof *own);
    if (!own) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a rank's part of an optimizer");
    ls_status status = create_over_own(s, own, options);
    free(own);
    return status == LS_OK ? ls_optimizer_share_norm(s->ddp.base.optimizer, s->ddp.base.model) : status;
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

static ls_status create_update(struct ddp *ddp, const ddp_options *options) {
    ls_parallel *p = &ddp->base;
    struct sharded *s = sharded_of(p);
    bool values = p->mode == &ddp_zero3_mode, gradients = values || p->mode == &ddp_zero2_mode;
    ddp_reducer_options reducer = options->reducer;
    reducer.reduce = reduce_scatter;
    reducer.phase = LS_PHASE_REDUCE;
    reducer.sliced = true;
    reducer.context = s;
    reducer.by_block = values;
    if (gradients) ddp_shard_gradients(&reducer);
    ls_status status = LS_OK;
    if (values)
        status = ddp_units_create(&s->units, ddp->comm, options->shards, p->model, p->clocks, options->prefetch_blocks);
    if (status == LS_OK) status = ls_event_create(&s->updated, "parameters updated");
    if (status == LS_OK) status = ls_event_create(&s->gathered, "parameters gathered");
    if (status == LS_OK) status = ddp_reducer_create(&ddp->reducer, ddp->comm, p->model, p->clocks, &reducer);
    if (status == LS_OK && gradients) status = ddp_alloc_shard(s);
    if (status == LS_OK) status = find_parameters(s);
    return status == LS_OK ? create_optimizer(s, options) : status;
}

static void destroy(ls_parallel *p) {
    struct sharded *s = sharded_of(p);
    (void)ls_device_synchronize(p->devices[0]);
    ls_event_destroy(s->updated);
    ls_event_destroy(s->gathered);
    free(s->parameters);
    ddp_free_shard(s);
    ddp_units_destroy(s->units);
    ddp_destroy(p);
}

static const struct ls_parallel_ops sharded_ops = {
    .prepare = ddp_prepare,
    .forward_backward = ddp_sharded_forward_backward,
    .reduce = ddp_sharded_reduce,
    .apply = apply,
    .abandon = ddp_abandon,
    .destroy = destroy,
};

const struct ls_mode ddp_zero1_mode = {
    .name = "DistributedDataParallel with ZeRO-1",
    .option = "zero1",
    .equals = "ddp",
    .kept_as = "DistributedDataParallel",
    .step = &sharded_ops,
    .process = &ddp_process_ops,
    .graph_obstacle = ddp_graph_obstacle,
    .count_bytes = count_bytes,
    .describe = ddp_describe,
    .gathered = "parameters",
};

const struct ls_mode ddp_zero2_mode = {
    .name = "DistributedDataParallel with ZeRO-2",
    .option = "zero2",
    .equals = "ddp",
    .kept_as = "DistributedDataParallel",
    .step = &sharded_ops,
    .process = &ddp_process_ops,
    .graph_obstacle = ddp_graph_obstacle,
    .count_bytes = count_bytes,
    .describe = ddp_describe,
    .gathered = "parameters",
};

/* Only the host knows which units are still gathered, and they differ from step to step. */
static const char *graph_obstacle(const ls_parallel *p) {
    (void)p;
    return "--shard-state 3, under which a step gathers what the one before has not left";
}

const struct ls_mode ddp_zero3_mode = {
    .name = "DistributedDataParallel with ZeRO-3",
    .option = "zero3",
    .equals = "ddp",
    .kept_as = "DistributedDataParallel",
    .step = &sharded_ops,
    .process = &ddp_process_ops,
    .graph_obstacle = graph_obstacle,
    .count_bytes = count_bytes,
    .describe = ddp_describe,
    .gathered = "parameters",
    .find_nonfinite = ddp_units_find_nonfinite,
};

static ls_status create(ls_parallel **out, const struct ls_mode *mode, ls_model *model, const ddp_options *options) {
    const struct ddp_kind kind = {mode, sizeof(struct sharded), create_update};
    ls_parameters *all = ls_model_tensors(model);
    *out = NULL;
    ls_status status = ls_parameters_widen_slots(all, ls_aligned_floats(1) * (size_t)ls_comm_world_size(options->comm));
    if (status == LS_OK && !all->is_placed) status = ls_parameters_share_slab(all, options->comm);
    return status == LS_OK ? ddp_create_as(out, &kind, model, options) : status;
}

ls_status ddp_create_zero1(ls_parallel **out, ls_model *model, const ddp_options *options) {
    return create(out, &ddp_zero1_mode, model, options);
}

ls_status ddp_create_zero2(ls_parallel **out, ls_model *model, const ddp_options *options) {
    return create(out, &ddp_zero2_mode, model, options);
}

ls_status ddp_create_zero3(ls_parallel **out, ls_model *model, const ddp_options *options) {
    return create(out, &ddp_zero3_mode, model, options);
}
