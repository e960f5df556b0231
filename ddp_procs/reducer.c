/* reducer — from "this gradient is ready" to "the average of all ranks is in its place".
 *   terms : slot = a gradient's place in its bucket; a bucket is complete when all of its slots are ready.
 *           reducer_launch.c describes when its all-reduce is launched, and what waits for it
 *   cost  : one all-reduce per bucket, 2 (W-1)/W x bytes per rank; one pass over each gradient for the factor 1/W,
 *           while it is still in the cache if the host runs the device's work (CPU devices), or over a full bucket in
 *           one launch if the device runs behind the host (GPUs)
 *   order : fl(g / W) per rank, then the sum in the all-reduce's order. As in PyTorch with gradients as views of
 *           buckets, the first reduced backward multiplies by fl(1/W) and later ones divide by W; for a power of two
 *           both are exact
 *   halves: with --compress, PyTorch's fp16_compress_hook (docs/pytorch.md#compressed-gradients), or the same in bf16.
 *           A complete bucket is converted to half precision, divided by W, summed, and widened back into the slots; on
 *           one rank too, as the hook does. All of this is on the comm stream, so that backward continues. A value that
 *           overflows is infinite on all ranks, and with loss scaling all of them skip the step; one that underflows is
 *           0. cost: half the bytes are sent; 12 bytes of memory traffic per parameter for the two casts, in place of 8
 *           for the factor 1/W; memory for the half-precision copies
 *   unused: with find_unused, parameters that backward has not reported are ready when it ends (reducer_unused.c)
 *   fails : without find_unused a parameter without a gradient keeps its bucket and all later ones from being launched;
 *           ddp_reducer_finish reports it in the same step (PyTorch at the next forward) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/probe.h"
#include "ddp_procs/reducer_internal.h"
#include "kernels/kernels.h"

/* --- the step ---------------------------------------------------------------------------------------------------- */

ls_status ddp_reducer_arm(ddp_reducer *r, bool sync, size_t samples) {
    ls_status status = LS_OK;
    r->sync = sync || r->options.each_backward;
    r->has_samples = samples > 0;
    if (!r->sync) return LS_OK;
    if (r->reduced_once && !r->rebuilt && !r->buckets_stay) status = ddp_reducer_rebuild(r);
    for (size_t b = 0; b < r->bucket_count; b++) r->buckets[b].pending_count = r->buckets[b].parameter_count;
    memset(r->is_ready, 0, r->parameter_count * sizeof *r->is_ready);
    r->launched = 0;
    if (!r->reduced_once) r->ready_count = 0;
    return status;
}

static ls_status all_reduce(void *comm, size_t bucket, ls_stream *stream, void *values, size_t count, ls_dtype dtype) {
    (void)bucket;
    return ls_comm_all_reduce(comm, stream, values, count, dtype, LS_REDUCE_SUM);
}

/* Averages the bucket in half precision. */
static void average_compressed(ddp_reducer *r, const struct bucket *bucket) {
    ls_dtype half = r->options.compress;
    float world_size = (float)ls_comm_world_size(r->comm);
    ls_cast_divide(r->comm_stream, half, bucket->half, bucket->data, world_size, bucket->count);
    ls_device_fail(r->device, r->options.reduce(r->options.context, (size_t)(bucket - r->buckets), r->comm_stream,
                                                bucket->half, bucket->count, half));
    ls_cast(r->comm_stream, LS_FP32, bucket->data, half, bucket->half, bucket->count);
}

static void probe_bucket(const ddp_reducer *r, const struct bucket *bucket) {
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_MARK, "bucket");
    record.number = (uint32_t)(bucket - r->buckets);
    record.bytes = bucket->gradient_nbytes;
    ls_probe_end(&record);
}

void ddp_reducer_sum(ddp_reducer *r, const struct bucket *bucket) {
    if (ls_probing()) probe_bucket(r, bucket);
    ls_comm_label(r->comm, "bucket", (int)(bucket - r->buckets));
    r->clock->bytes[r->options.phase] += bucket->sent_nbytes;
    if (bucket->half)
        average_compressed(r, bucket);
    else
        ls_device_fail(r->device, r->options.reduce(r->options.context, (size_t)(bucket - r->buckets), r->comm_stream,
                                                    bucket->data, bucket->count, LS_FP32));
}

/* Applies the factor 1/W to a gradient, or to a bucket, whose padding stays zero. With compress the half-precision copy
 * is divided later. */
static void average(ddp_reducer *r, float *gradients, size_t count) {
    int world_size = ls_comm_world_size(r->comm);
    if (world_size == 1 || ddp_reducer_compresses(r)) return;
    if (r->reduced_once)
        ls_divide(r->compute, gradients, (float)world_size, count);
    else
        ls_scale(r->compute, gradients, (float)(1.0 / world_size), count);
}

static void mark_ready(ddp_reducer *r, size_t parameter) {
    const struct ls_tensor *tensor = ls_model_parameter(r->model, parameter);
    r->is_ready[parameter] = true;
    if (!r->reduced_once) r->ready_order[r->ready_count++] = (int64_t)parameter;
    struct bucket *bucket = &r->buckets[r->bucket_of[parameter]];
    bool at_once = ls_device_runs_behind(r->device);
    if (!at_once) average(r, tensor->gradient, tensor->count);
    if (--bucket->pending_count > 0) return;
    if (at_once) average(r, bucket->data, bucket->count);
    ddp_reducer_bucket_complete(r, bucket);
}

static ls_status on_grad_ready(void *context, size_t parameter) {
    ddp_reducer *r = context;
    if (r->has_samples) r->is_used[parameter] = true;
    if (!r->sync) return LS_OK;
    if (r->is_ready[parameter]) {
        return ls_fail(LS_ERR_INVALID, "the gradient of %s was reported ready twice in one backward",
                       ls_model_parameter(r->model, parameter)->name);
    }
    mark_ready(r, parameter);
    return LS_OK;
}

/* For find_unused, after backward: last parameters first, as in backward. */
static void mark_rest_ready(ddp_reducer *r) {
    for (size_t p = r->parameter_count; p > 0; p--) {
        if (!r->is_ready[p - 1]) mark_ready(r, p - 1);
    }
}

static ls_status report_missing(const ddp_reducer *r) {
    char names[600] = "";
    size_t length = 0, missing = 0;
    for (size_t p = 0; p < r->parameter_count; p++) {
        if (r->is_ready[p]) continue;
        missing++;
        if (length < sizeof names) {
            length +=
                (size_t)snprintf(names + length, sizeof names - length, " %s", ls_model_parameter(r->model, p)->name);
        }
    }
    size_t first = r->launched;
    while (r->buckets[first].pending_count == 0) first++;
    return ls_fail(LS_ERR_INVALID,
                   "%zu parameters got no gradient:%s; bucket %zu of %zu and all after it wait for them. Let every "
                   "parameter take part in the loss, or give --find-unused",
                   missing, names, first + 1, r->bucket_count);
}

ls_status ddp_reducer_finish(ddp_reducer *r) {
    r->any_unused = false;
    if (!r->sync) return LS_OK;
    if (r->options.find_unused) mark_rest_ready(r);
    for (size_t b = 0; b < r->bucket_count; b++) {
        if (r->buckets[b].pending_count > 0) return report_missing(r);
    }
    ddp_reducer_await_buckets(r);
    r->reduced_once = true;
    return r->options.find_unused ? ddp_reducer_share_used(r) : LS_OK;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

ls_status ddp_reducer_create(ddp_reducer **out, ls_comm *comm, ls_model *model, struct ls_phase_clock *clock,
                             const ddp_reducer_options *options) {
    *out = NULL;
    ddp_reducer *r = calloc(1, sizeof *r);
    if (!r) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the reducer");
    r->comm = comm;
    r->model = model;
    r->device = ls_model_device(model);
    r->compute = ls_device_stream(r->device, LS_STREAM_COMPUTE);
    r->comm_stream = ls_device_stream(r->device, LS_STREAM_COMM);
    r->clock = clock;
    r->options = *options;
    if (!options->reduce) {
        r->options.reduce = all_reduce;
        r->options.context = comm;
        r->options.phase = LS_PHASE_ALL_REDUCE;
    }
    r->buckets_stay = options->find_unused || options->sliced;
    r->slot_unit = ls_aligned_floats(1) * (options->sliced ? (size_t)ls_comm_world_size(comm) : 1);
    r->parameter_count = ls_model_parameter_count(model);
    r->nbytes = calloc(r->parameter_count, sizeof *r->nbytes);
    r->bucket_of = calloc(r->parameter_count, sizeof *r->bucket_of);
    r->is_ready = calloc(r->parameter_count, sizeof *r->is_ready);
    r->ready_order = calloc(r->parameter_count, sizeof *r->ready_order);
    r->is_used = calloc(r->parameter_count, sizeof *r->is_used);
    r->used_by = calloc(r->parameter_count, sizeof *r->used_by);
    r->is_unused = calloc(r->parameter_count, sizeof *r->is_unused);
    ls_status status = LS_OK;
    if (!r->nbytes || !r->bucket_of || !r->is_ready || !r->ready_order || !r->is_used || !r->used_by || !r->is_unused) {
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the reducer");
    }
    for (size_t p = 0; status == LS_OK && p < r->parameter_count; p++) {
        r->nbytes[p] = ls_model_parameter(model, p)->count * sizeof(float);
    }
    if (status == LS_OK) status = ddp_reducer_assign_first(r);
    if (status != LS_OK) {
        ddp_reducer_destroy(r);
        return status;
    }
    ls_model_on_grad_ready(model, on_grad_ready, r);
    *out = r;
    return LS_OK;
}

void ddp_reducer_destroy(ddp_reducer *r) {
    if (!r) return;
    ls_model_on_grad_ready(r->model, NULL, NULL);
    ls_comm_release_shared(r->comm, r->memory); /* the pages belong to the group */
    ls_comm_release_shared(r->comm, r->half_memory);
    ddp_reducer_destroy_buckets(r);
    free(r->nbytes);
    free(r->bucket_of);
    free(r->is_ready);
    free(r->ready_order);
    free(r->is_used);
    free(r->used_by);
    free(r->is_unused);
    free(r);
}
