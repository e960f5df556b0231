/* sharded_gradients — ZeRO-2: a rank keeps only its slices of the gradients.
 *   idea  : after stage 1's reduce-scatter a rank needs only its own slice of each bucket. Here the sum of that slice
 *           is stored in the rank's shard, 1/W of all gradients, and the bucket's memory is reused: buckets take turns
 *           with a few buffers during backward
 *   turns : a bucket needs its buffer from its first gradient's first operation until its reduce-scatter has ended. It
 *           is known which layers write which gradients, and in which order buckets are launched; so turns are planned
 *           once, before the first step, by a backward without computation. A bucket takes the buffer that has been
 *           free for longest, except that of the bucket launched last, whose reduce-scatter is to overlap with
 *           backward: then it takes a new one. Tied weights, first written early and complete late, keep theirs for
 *           that time
 *   events: the compute stream waits until the buffer's previous bucket is reduced. The wait is enqueued when the
 *           bucket is launched after which this one may be written. (The host has then enqueued that reduction.)
 *   cost  : memory: 1/W of the gradients, and two or three buckets (--bucket-cap-mb: a bucket is no smaller than its
 *           largest gradient, so a model of one large tensor saves nothing). No more traffic than stage 1; but with
 *           --accumulate K each micro-batch is reduced, since no memory holds whole gradients: K reduce-scatters and
 *           one gather
 *   order : sums are in the ranks' order within a micro-batch, then over micro-batches. DDP adds micro-batches first:
 *           with --accumulate losses agree to 1e-5, without it bit by bit
 *   fails : a buffer that is written too early is a race, which shuffled streams show */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/nn/described.h"
#include "common/nn/network_internal.h"
#include "ddp_procs/sharded_internal.h"
#include "kernels/kernels.h"

/* --- planning ------------------------------------------------------------------------------------------------------ */

struct buffer {
    size_t count;      /* floats: of its largest bucket */
    size_t at, bucket; /* the bucket that had it last */
};

/* A backward without computation. */
struct rehearsal {
    struct turn *turns;
    const struct bucket *buckets;
    size_t bucket_count, launched;
    size_t *pending, *buffer_of; /* of each bucket: gradients that are not ready, its buffer + 1 */
    struct buffer *buffers;
    size_t buffer_count;
};

/* The free buffer whose bucket was launched first, but not the one launched last; if there is none, a new one. */
static struct buffer *take_buffer(struct rehearsal *r) {
    struct buffer *found = NULL;
    for (struct buffer *b = r->buffers; b < r->buffers + r->buffer_count; b++)
        if (b->bucket + 1 < r->launched && (!found || b->bucket < found->bucket)) found = b;
    return found ? found : &r->buffers[r->buffer_count++];
}

static void begin_bucket(struct rehearsal *r, size_t bucket) {
    if (r->buffer_of[bucket] > 0) return;
    struct buffer *buffer = take_buffer(r);
    r->buffer_of[bucket] = (size_t)(buffer - r->buffers) + 1;
    r->turns[bucket].born = r->launched;
    r->turns[bucket].before = buffer->count > 0 ? buffer->bucket : bucket;
    if (buffer->count < r->buckets[bucket].count) buffer->count = r->buckets[bucket].count;
    buffer->bucket = bucket;
}

static void complete_gradient(struct rehearsal *r, size_t bucket) {
    r->pending[bucket]--;
    while (r->launched < r->bucket_count && r->pending[r->launched] == 0) r->launched++;
}

/* For a network that is only described, the operations list the gradients that are ready after them. */
static void rehearse_described(struct rehearsal *r, const struct ls_described *d, const size_t *bucket_of) {
    for (const struct ls_described_op *op = d->ops; op < d->ops + d->op_count; op++) {
        const int *ready = d->ready + op->first_ready, *end = ready + op->ready_count;
        if (op->part != LS_DESCRIBED_BACKWARD) continue;
        for (const int *p = ready; p < end; p++) begin_bucket(r, bucket_of[*p]);
        for (const int *p = ready; p < end; p++) complete_gradient(r, bucket_of[*p]);
    }
}

static void rehearse(struct rehearsal *r, const ls_network *network, const size_t *bucket_of) {
    if (network->described) rehearse_described(r, network->described, bucket_of);
    for (size_t l = network->layer_count; l > 0; l--) {
        const ls_layer *layer = &network->layers[l - 1];
        for (size_t p = 0; p < layer->parameter_count; p++)
            if (layer->writes_gradient[p]) begin_bucket(r, bucket_of[layer->parameter_numbers[p]]);
        for (size_t p = 0; p < layer->parameter_count; p++)
            if (layer->completes_gradient[p]) complete_gradient(r, bucket_of[layer->parameter_numbers[p]]);
    }
    for (size_t b = 0; b < r->bucket_count; b++) begin_bucket(r, b); /* buckets whose gradients no layer writes */
}

/* Places buffers consecutively, each bucket in its buffer, and the buckets' slices in the shard. */
static void lay_out(struct rehearsal *r, struct bucket *buckets, size_t world_size) {
    size_t at = 0;
    for (struct buffer *b = r->buffers; b < r->buffers + r->buffer_count; at += b++->count) b->at = at;
    at = 0;
    for (size_t b = 0; b < r->bucket_count; at += buckets[b++].count / world_size) {
        buckets[b].at = r->buffers[r->buffer_of[b] - 1].at;
        r->turns[b].begin = at;
    }
}

static ls_status plan_turns(void *context, const ddp_reducer *reducer, struct bucket *buckets, size_t count) {
    struct sharded *s = context;
    struct rehearsal r = {.buckets = buckets, .bucket_count = count};
    r.turns = s->turns = calloc(count + 1, sizeof *r.turns);
    r.pending = calloc(count + 1, sizeof *r.pending);
    r.buffer_of = calloc(count + 1, sizeof *r.buffer_of);
    r.buffers = calloc(count + 1, sizeof *r.buffers);
    bool fits = r.turns && r.pending && r.buffer_of && r.buffers;
    for (size_t b = 0; fits && b < count; b++) r.pending[b] = buckets[b].parameter_count;
    if (fits) rehearse(&r, ls_model_network(reducer->model), reducer->bucket_of);
    if (fits) lay_out(&r, buckets, (size_t)s->ddp.base.data_size);
    free(r.pending);
    free(r.buffer_of);
    free(r.buffers);
    return fits ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to plan the buckets' turns");
}

/* --- a step -------------------------------------------------------------------------------------------------------- */

/* For the reducer: sums the rank's slice into its shard. Values that must be widened or added pass through the
 * bucket. */
static ls_status reduce_to_shard(void *context, size_t bucket, ls_stream *stream, void *values, size_t count,
                                 ls_dtype dtype) {
    struct sharded *s = context;
    size_t slice = slice_of(s, count), begin = slice_begin(s, count);
    float *to = s->shard + s->turns[bucket].begin, *wide = s->ddp.reducer->buckets[bucket].data + begin;
    char *own = (char *)values + begin * ls_dtype_nbytes(dtype);
    bool at_once = dtype == LS_FP32 && !s->adds;
    ls_phase_enter(s->ddp.base.clocks, LS_PHASE_REDUCE);
    ls_status status =
        ls_comm_reduce_scatter(s->ddp.comm, stream, values, at_once ? (void *)to : own, slice, dtype, LS_REDUCE_SUM);
    if (dtype != LS_FP32) ls_cast(stream, LS_FP32, s->adds ? wide : to, dtype, own, slice);
    if (s->adds) ls_add(stream, LS_FP32, to, to, wide, slice);
    return status;
}

/* After buckets have been launched: backward waits for the buffers of the buckets that it may write next. */
static void claim_buffers(struct sharded *s) {
    const ddp_reducer *r = s->ddp.reducer;
    while (s->claimed < r->launched) {
        s->claimed++;
        for (size_t b = 0; b < r->bucket_count; b++)
            if (s->turns[b].born == s->claimed && s->turns[b].before != b)
                ls_stream_wait_event(s->ddp.compute, r->buckets[s->turns[b].before].reduced);
    }
}

static ls_status on_grad_ready(void *context, size_t parameter) {
    struct sharded *s = context;
    ls_status status = s->reducers.grad_ready(s->reducers.context, parameter);
    claim_buffers(s);
    return status;
}

/* Sharded gradients are written again and reduced for every micro-batch; the driver calls reduce for the last one
 * only. */
ls_status ddp_sharded_forward_backward(ls_parallel *p) {
    struct sharded *s = sharded_of(p);
    if (!s->shard) return ddp_forward_backward(p);
    s->claimed = 0;
    /* also after a micro-batch that was launched as a graph, without this function */
    s->adds = s->adds || !ls_parallel_is_first(p);
    p->accumulates = false;
    ls_status status = ddp_forward_backward(p);
    return status == LS_OK && !ls_parallel_syncs(p) ? ddp_sharded_reduce(p) : status;
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

void ddp_shard_gradients(ddp_reducer_options *reducer) {
    reducer->reduce = reduce_to_shard;
    reducer->place = plan_turns;
    reducer->each_backward = true;
}

ls_status ddp_alloc_shard(struct sharded *s) {
    const ddp_reducer *r = s->ddp.reducer;
    ls_model *model = s->ddp.base.model;
    size_t floats = 0;
    for (size_t b = 0; b < r->bucket_count; b++) floats += slice_of(s, r->buckets[b].count);
    s->reducers = *ls_model_hooks(model);
    ls_model_on_grad_ready(model, on_grad_ready, s);
    return ls_device_alloc(r->device, LS_MEMORY_GRADIENT, floats * sizeof(float), "a rank's shard of the gradients",
                           (void **)&s->shard);
}

void ddp_place_own(const struct sharded *s, size_t p, ls_optimizer_range *own) {
    if (own->count == 0) return;
    size_t bucket = s->ddp.reducer->bucket_of[p], slice = slice_begin(s, s->ddp.reducer->buckets[bucket].count);
    size_t begin = (size_t)(own->tensor->data - s->parameters[bucket]) + own->first; /* in the bucket */
    if (s->units) own->values = ls_model_tensors(s->ddp.base.model)->parts[p].values;
    if (s->shard) own->gradient = s->shard + s->turns[bucket].begin + (begin - slice);
}

void ddp_free_shard(struct sharded *s) {
    ls_device_free(s->ddp.base.devices[0], s->shard);
    free(s->turns);
}
