/* topk — top-k with error feedback: only the largest elements of each gradient are sent, and the rest is added to the
 * next gradient.
 *   idea  : a few elements of a gradient make up most of its norm. Each rank sends the k largest of each tensor as
 *           entries, index and value, and all ranks sum all ranks' lists. The part that a rank has not sent is its
 *           error, which it adds to its next gradient before it chooses. So nothing is lost, only delayed: the elements
 *           that a rank has sent and its error add up to the sum of its gradients. Without feedback small elements of
 *           constant sign are never sent k : max(1, floor(fraction n)) of a tensor of n elements: the same on all
 *           ranks, so that lists need no lengths
 *   bytes : a rank receives 8 k (W-1), where an all-reduce by a ring takes 8 n (W-1)/W: fewer only while k/n < 1/W.
 *           Lists are gathered, since the sum of lists with different indices is not a list of k entries
 *   cost  : an all-gather for each bucket; about six passes over each gradient, to find its largest elements and to
 *           sum; an error of the size of the gradients on each rank, and memory for W lists
 *   order : the reducer divides gradients by W, as always, so errors are also divided. Lists are added in rank order,
 *           the rank's own one among them: all ranks have the same bits. With k = n these are DDP's with "direct" and
 *           "naive"
 *   ties  : among equal elements the lower index is sent; NaN counts as largest, so that it is sent as in DDP
 *   before: the gradient is compressed; momentum, clipping and decay are applied after the sum, by the optimizer
 *   fails : an error has the loss scale of its gradient, and would keep an infinity for ever; values sent for a
 *           parameter that no rank has used are not applied, and lost: with feedback settings.c refuses both. A dead
 *           rank is detected in the all-gather */
#include "ddp_procs/topk.h"

#include <float.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/topk_internal.h"

/* Many decimal fractions are slightly smaller as a double: 0.29 of 100 must be 29. */
size_t ddp_topk_count(size_t count, double fraction) {
    size_t k = (size_t)((double)count * fraction * (1 + 4 * DBL_EPSILON));
    return k < 1 ? 1 : k < count ? k : count;
}

/* --- the step ------------------------------------------------------------------------------------------------------ */

/* Writes to `entries` the part of parameter p that this rank sends: the t->counts[p] largest elements of gradient plus
 * error. The rest becomes the new error, unless there is none (t->errors NULL: no feedback). */
static void choose_entries(const struct topk *t, ls_stream *stream, size_t p, struct ls_entry *entries) {
    const struct ls_tensor *tensor = ls_model_parameter(t->ddp.base.model, p);
    float *from = tensor->gradient;
    if (t->errors) {
        from = t->errors + t->error_at[p];
        ls_add(stream, LS_FP32, from, from, tensor->gradient, tensor->count);
    }
    ls_top_k(stream, entries, from, tensor->count, t->counts[p]);
    if (t->errors) ls_fill_entries(stream, from, entries, t->counts[p], 0);
}

/* The gradient becomes the sum of all ranks' lists, the first of which begins at `lists`, the next one `stride` entries
 * after it. */
static void sum_lists(const struct topk *t, ls_stream *stream, size_t p, const struct ls_entry *lists, size_t stride) {
    const struct ls_tensor *tensor = ls_model_parameter(t->ddp.base.model, p);
    ls_sum_entries(stream, tensor->gradient, lists, (size_t)t->ddp.base.data_size, stride, t->counts[p], tensor->count);
}

/* For the reducer, which counts the bytes (bucket.sent_nbytes: those of all ranks' lists): the gradients of a full
 * bucket become the sums of all ranks' lists. A list has the entries of the bucket's parameters, in the parameters'
 * order; the lists of all ranks are gathered in t->lists, in rank order. All work is on `stream`, in phase GATHER. Each
 * gradient's address is in its tensor. */
static ls_status reduce_bucket(void *context, size_t bucket, ls_stream *stream, void *values, size_t count,
                               ls_dtype dtype) {
    const struct topk *t = context;
    const ddp_reducer *r = t->ddp.reducer;
    size_t stride = r->buckets[bucket].sent_nbytes / sizeof *t->lists / (size_t)t->ddp.base.data_size, at = 0;
    struct ls_entry *own = t->lists + (size_t)t->ddp.base.data_rank * stride;
    (void)values, (void)count, (void)dtype;
    ls_phase_enter(r->clock, LS_PHASE_GATHER);
    for (size_t p = 0; p < r->parameter_count; p++) {
        if (r->bucket_of[p] != bucket) continue;
        choose_entries(t, stream, p, own + at);
        at += t->counts[p];
    }
    /* as 8-byte elements: a copy does not depend on their type */
    ls_status status = ls_comm_all_gather(t->ddp.comm, stream, own, t->lists, stride, LS_INT64);
    at = 0;
    for (size_t p = 0; p < r->parameter_count; p++) {
        if (r->bucket_of[p] != bucket) continue;
        sum_lists(t, stream, p, t->lists + at, stride);
        at += t->counts[p];
    }
    return status;
}

static ls_status reduce(ls_parallel *p) {
    ls_phase_enter(p->clocks, LS_PHASE_GATHER);
    return ddp_reducer_finish(ddp_of(p)->reducer);
}

static void count_bytes(const ls_parallel *p, struct ls_step_size size, int local, uint64_t bytes[LS_PHASE_COUNT]) {
    const struct topk *t = (const struct topk *)p;
    (void)size, (void)local;
    bytes[LS_PHASE_BROADCAST] = t->ddp.buffer_count * sizeof(float);
    bytes[LS_PHASE_GATHER] = ddp_reducer_sent_nbytes(t->ddp.reducer);
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

/* Without feedback a rank has no state of its own. */
static struct ls_rank_state rank_state(const ls_parallel *p, size_t parameter) {
    const struct topk *t = (const struct topk *)p;
    return (struct ls_rank_state){t->errors ? t->errors + t->error_at[parameter] : NULL, t->ddp.comm};
}

/* Computes for each parameter the number of entries to send and the offset of its error; *entries and *floats are the
 * totals. */
static ls_status plan(struct topk *t, double fraction, size_t *entries, size_t *floats) {
    const ls_model *model = t->ddp.base.model;
    size_t parameters = ls_model_parameter_count(model);
    t->counts = calloc(parameters + 1, sizeof *t->counts);
    t->error_at = calloc(parameters + 1, sizeof *t->error_at);
    if (!t->counts || !t->error_at)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to plan the gradients' messages");
    for (size_t p = 0; p < parameters; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        if (tensor->count > INT32_MAX)
            return ls_fail(LS_ERR_UNSUPPORTED, "%s has %zu elements, but top-k sends indices below 2^31", tensor->name,
                           tensor->count);
        t->counts[p] = ddp_topk_count(tensor->count, fraction);
        t->error_at[p] = *floats;
        *entries += t->counts[p];
        *floats += ls_aligned_floats(tensor->count);
    }
    return LS_OK;
}

static ls_status alloc_memory(struct topk *t, const ddp_compression *compression) {
    ls_device *device = t->ddp.base.devices[0];
    size_t entries = 0, floats = 0;
    void *lists = NULL;
    ls_status status = plan(t, compression->fraction, &entries, &floats);
    if (status == LS_OK && compression->feedback)
        status = ls_device_alloc(device, LS_MEMORY_GRADIENT, floats * sizeof(float), "what top-k has not sent",
                                 (void **)&t->errors);
    if (status == LS_OK) {
        size_t nbytes = (size_t)t->ddp.base.data_size * entries * sizeof *t->lists;
        status = ls_comm_alloc_shared(t->ddp.comm, device, nbytes, &lists);
    }
    t->lists = lists;
    return status;
}

/* For the reducer, whenever buckets are assigned: sets each bucket's sent bytes, those of all ranks' lists. */
static ls_status count_lists(void *context, const ddp_reducer *r, struct bucket *buckets, size_t count) {
    const struct topk *t = context;
    for (size_t b = 0; b < count; b++) buckets[b].sent_nbytes = 0;
    for (size_t p = 0; p < r->parameter_count; p++)
        buckets[r->bucket_of[p]].sent_nbytes += (size_t)t->ddp.base.data_size * t->counts[p] * sizeof *t->lists;
    return LS_OK;
}

static ls_status create_update(struct ddp *ddp, const ddp_options *options) {
    ls_parallel *p = &ddp->base;
    struct topk *t = topk_of(p);
    ddp_reducer_options reducer = options->reducer;
    reducer.reduce = reduce_bucket;
    reducer.phase = LS_PHASE_GATHER;
    reducer.place = count_lists;
    reducer.context = t;
    ddp_compression_text(&options->compression, t->text);
    p->compression = t->text;
    ls_status status = alloc_memory(t, &options->compression);
    if (status == LS_OK) status = ddp_reducer_create(&ddp->reducer, ddp->comm, p->model, p->clocks, &reducer);
    return status == LS_OK ? ls_optimizer_create(&p->optimizer, p->model, &options->optimizer) : status;
}

static void destroy(ls_parallel *p) {
    struct topk *t = topk_of(p);
    (void)ls_device_synchronize(p->devices[0]);
    ls_device_free(p->devices[0], t->errors);
    ls_comm_release_shared(t->ddp.comm, t->lists); /* the pages belong to the group */
    free(t->counts);
    free(t->error_at);
    ddp_destroy(p);
}

static const struct ls_parallel_ops topk_ops = {
    .prepare = ddp_prepare,
    .forward_backward = ddp_forward_backward,
    .reduce = reduce,
    .apply = ddp_apply,
    .abandon = ddp_abandon,
    .destroy = destroy,
};

const struct ls_mode ddp_topk_mode = {
    .name = "DistributedDataParallel with top-k",
    .option = "topk",
    .kept_as = "DistributedDataParallel",
    .step = &topk_ops,
    .process = &ddp_process_ops,
    .graph_obstacle = ddp_graph_obstacle,
    .count_bytes = count_bytes,
    .describe = ddp_describe,
    .rank_state = rank_state,
    .gathered = "largest elements of gradients, with their indices",
};

ls_status ddp_create_topk(ls_parallel **out, ls_model *model, const ddp_options *options) {
    const struct ddp_kind kind = {&ddp_topk_mode, sizeof(struct topk), create_update};
    return ddp_create_as(out, &kind, model, options);
}
