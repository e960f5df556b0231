/* reducer — from "this gradient is ready" to "the average of all ranks is in its place".
 *   terms : slot = a gradient's place in its bucket; a bucket is launched when all of its slots are ready and all buckets before it
 *           have been launched
 *   cost  : one all-reduce per bucket, 2 (W-1)/W x bytes per rank; one pass over each gradient for the factor 1/W, on
 *           CPU devices while it is still in the cache, on GPUs over a full bucket in one launch
 *   order : fl(g / W) per rank, then the sum in the all-reduce's order. As in PyTorch with gradients as views of buckets, the
 *           first reduced backward multiplies by fl(1/W) and later ones divide by W; for a power of two both are exact
 *   unused: with find_unused, parameters that backward has not reported by its end are ready as they are, with gradients of zero (or
 *           what no_sync has left). That holds back their buckets until then, so there is less to overlap. How many ranks have
 *           used each parameter is added up after the buckets; those that nobody has used are left alone by the optimizer, as
 *           PyTorch leaves a gradient of None. PyTorch finds out before backward, from its graph; here there is none.
 *           The buckets keep the order of the definition: the order of readiness may change from step to step.
 *           cost: 4 bytes more per parameter and step, in an all-reduce for which the host waits
 *   fails : otherwise a parameter without a gradient keeps its bucket and all later ones from being launched; ddp_reducer_finish
 *           names it, in the same step (PyTorch tells at the next forward) */
#include "ddp_procs/reducer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/buckets.h"
#include "kernels/kernels.h"

/* Steps in which every rank uses every parameter, before find_unused is called a waste. */
enum { STEPS_UNTIL_WASTE = 10 };

struct bucket {
    float *data;
    size_t count;                          /* floats of `data`: the gradients, each padded to whole cache lines */
    size_t gradient_nbytes;                /* without the padding */
    size_t parameter_count, pending_count; /* parameters; those whose gradients are not ready yet */
    ls_event *ready;                       /* on the compute stream: all slots are written */
    ls_work *reduced;
};

struct ddp_reducer {
    /* constant after create */
    ls_comm *comm;
    ls_model *model;
    ls_device *device;
    ls_stream *compute, *comm_stream;
    struct ls_phase_clock *clock;
    ddp_reducer_options options;
    size_t parameter_count;
    size_t *nbytes; /* of each parameter */
    /* the present assignment */
    float *memory; /* shared: all buckets, one after the other */
    size_t memory_nbytes, bucket_count;
    struct bucket *buckets;
    size_t *bucket_of; /* of each parameter */
    /* the step in progress */
    bool sync, has_samples;
    bool *is_ready;
    size_t launched; /* buckets */
    /* the order of the first reduced backward */
    size_t *ready_order, ready_count;
    bool reduced_once, rebuilt;
    bool *is_used;    /* find_unused: has been reported since the last reduction, in a backward with or without sync */
    int32_t *used_by; /* so many ranks have used the parameter in the last step */
    bool *is_unused;  /* nobody has */
    bool any_unused;
    int wasted_steps; /* at the start of the run, or -1: find_unused is of use */
};

/* --- assignment -------------------------------------------------------------------------------------------------- */

static void destroy_buckets(struct bucket *buckets, size_t count) {
    for (size_t b = 0; buckets && b < count; b++) {
        ls_event_destroy(buckets[b].ready);
        ls_work_destroy(buckets[b].reduced);
    }
    free(buckets);
}

static ls_status create_buckets(struct bucket **out, const ddp_reducer *r, const struct ddp_buckets *plan) {
    struct bucket *buckets = calloc(plan->bucket_count, sizeof *buckets);
    ls_status status = buckets ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "no memory for buckets");
    const size_t *parameter = plan->parameters;
    for (size_t b = 0; status == LS_OK && b < plan->bucket_count; b++) {
        buckets[b].parameter_count = plan->sizes[b];
        for (size_t i = 0; i < plan->sizes[b]; i++, parameter++) {
            buckets[b].count += ls_aligned_floats(ls_model_parameter(r->model, *parameter)->count);
            buckets[b].gradient_nbytes += r->nbytes[*parameter];
        }
        status = ls_event_create(&buckets[b].ready, "bucket ready");
        if (status == LS_OK) status = ls_work_create(&buckets[b].reduced, "bucket reduced");
    }
    if (status != LS_OK) {
        destroy_buckets(buckets, plan->bucket_count);
        buckets = NULL;
    }
    *out = buckets;
    return status;
}

/* All buckets together hold the same number of floats, however the gradients are assigned: they get their memory once.
 * Collective. */
static ls_status alloc_memory(ddp_reducer *r) {
    for (size_t p = 0; p < r->parameter_count; p++) {
        r->memory_nbytes += ls_aligned_floats(ls_model_parameter(r->model, p)->count) * sizeof(float);
    }
    return ls_comm_alloc_shared(r->comm, r->device, r->memory_nbytes, (void **)&r->memory);
}

/* Moves every gradient, with its content if it has one, to its slot. Old and new slots share their memory, so the
 * contents go through the host's, which no device pays for; it happens twice in a run. */
static ls_status place_gradients(ddp_reducer *r, const struct ddp_buckets *plan, struct bucket *buckets) {
    float *contents = calloc(1, r->memory_nbytes), *slot = r->memory;
    if (!contents) return ls_fail(LS_ERR_NO_MEMORY, "no memory to move %zu bytes of gradients", r->memory_nbytes);
    ls_status status = LS_OK;
    const size_t *parameter = plan->parameters;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        buckets[b].data = slot;
        for (size_t i = 0; i < plan->sizes[b]; i++, parameter++) {
            const struct ls_tensor *tensor = ls_model_parameter(r->model, *parameter);
            float *aside = contents + (slot - r->memory);
            if (tensor->gradient && status == LS_OK) {
                status = ls_copy(r->compute, aside, tensor->gradient, r->nbytes[*parameter]);
            }
            ls_model_place_gradient(r->model, *parameter, slot);
            r->bucket_of[*parameter] = b;
            slot += ls_aligned_floats(tensor->count);
        }
    }
    if (status == LS_OK) status = ls_copy(r->compute, r->memory, contents, r->memory_nbytes);
    ls_status done = ls_stream_synchronize(r->compute);
    free(contents);
    return status != LS_OK ? status : done;
}

/* Replaces the present assignment by `plan`. */
static ls_status adopt_plan(ddp_reducer *r, const struct ddp_buckets *plan) {
    struct bucket *buckets;
    ls_status status = create_buckets(&buckets, r, plan);
    if (status != LS_OK) return status;
    status = place_gradients(r, plan, buckets);
    destroy_buckets(r->buckets, r->bucket_count);
    r->buckets = buckets;
    r->bucket_count = plan->bucket_count;
    return status;
}

struct limits {
    size_t bytes[2]; /* of the first bucket and of the others */
};

static struct limits bucket_limits(const ddp_reducer *r) {
    double cap_bytes = r->options.bucket_cap_mb * 1048576;
    size_t cap = cap_bytes < (double)(SIZE_MAX / 2) ? (size_t)cap_bytes : SIZE_MAX / 2;
    return (struct limits){{cap < DDP_FIRST_BUCKET_BYTES ? cap : DDP_FIRST_BUCKET_BYTES, cap}};
}

/* One bucket for everything, until the first backward shows in which order gradients become ready. With find_unused
 * that order may be another one each time, so that the one of the definition, reversed, is as good as any. */
static ls_status assign_first(ddp_reducer *r) {
    struct ddp_buckets plan;
    struct limits limits = {{SIZE_MAX, SIZE_MAX}};
    if (r->options.find_unused) limits = bucket_limits(r);
    for (size_t p = 0; p < r->parameter_count; p++) r->ready_order[p] = p;
    ls_status status = ddp_assign_buckets(&plan, r->nbytes, r->ready_order, r->parameter_count, limits.bytes, 2, true);
    if (status == LS_OK) status = adopt_plan(r, &plan);
    ddp_buckets_free(&plan);
    return status;
}

/* Rank 0's ready order to everybody: the buckets follow from it and from the limits, which are the same on all
 * ranks. */
static ls_status share_ready_order(ddp_reducer *r) {
    int64_t *shared = calloc(r->parameter_count, sizeof *shared);
    if (!shared) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the order of the gradients");
    for (size_t p = 0; p < r->parameter_count; p++) shared[p] = (int64_t)r->ready_order[p];
    ls_status status = ls_comm_broadcast(r->comm, r->comm_stream, shared, r->parameter_count, LS_INT64, 0);
    ls_status done = ls_stream_synchronize(r->comm_stream);
    for (size_t p = 0; p < r->parameter_count; p++) r->ready_order[p] = (size_t)shared[p];
    free(shared);
    return status != LS_OK ? status : done;
}

static ls_status rebuild(ddp_reducer *r) {
    ls_status status = share_ready_order(r);
    struct limits limits = bucket_limits(r);
    struct ddp_buckets plan = {0};
    if (status == LS_OK) {
        status = ddp_assign_buckets(&plan, r->nbytes, r->ready_order, r->parameter_count, limits.bytes, 2, false);
    }
    if (status == LS_OK) status = adopt_plan(r, &plan);
    ddp_buckets_free(&plan);
    r->rebuilt = true;
    return status;
}

/* --- the step ---------------------------------------------------------------------------------------------------- */

ls_status ddp_reducer_arm(ddp_reducer *r, bool sync, size_t samples) {
    ls_status status = LS_OK;
    r->sync = sync;
    r->has_samples = samples > 0;
    if (!sync) return LS_OK;
    if (r->reduced_once && !r->rebuilt && !r->options.find_unused) status = rebuild(r);
    for (size_t b = 0; b < r->bucket_count; b++) r->buckets[b].pending_count = r->buckets[b].parameter_count;
    memset(r->is_ready, 0, r->parameter_count * sizeof *r->is_ready);
    r->launched = 0;
    if (!r->reduced_once) r->ready_count = 0;
    return status;
}

static ls_status launch(ddp_reducer *r, struct bucket *bucket) {
    ls_status status = ls_stream_wait_event(r->comm_stream, bucket->ready);
    if (status == LS_OK) {
        status = ls_comm_all_reduce(r->comm, r->comm_stream, bucket->data, bucket->count, LS_FP32, LS_REDUCE_SUM);
    }
    if (status == LS_OK) status = ls_work_record(bucket->reduced, r->comm, r->comm_stream);
    r->clock->bytes[LS_PHASE_ALL_REDUCE] += bucket->count * sizeof(float);
    return status;
}

/* Launches every bucket whose turn it is. */
static ls_status launch_ready(ddp_reducer *r) {
    ls_status status = LS_OK;
    ls_phase before = ls_phase_enter(r->clock, LS_PHASE_ALL_REDUCE);
    while (status == LS_OK && r->launched < r->bucket_count && r->buckets[r->launched].pending_count == 0) {
        status = launch(r, &r->buckets[r->launched++]);
    }
    ls_phase_enter(r->clock, before);
    return status;
}

/* A gradient, or a bucket, whose padding is and stays zero. */
static ls_status average(ddp_reducer *r, float *gradients, size_t count) {
    int world_size = ls_comm_world_size(r->comm);
    if (world_size == 1) return LS_OK;
    if (r->reduced_once) return ls_divide(r->compute, gradients, (float)world_size, count);
    return ls_scale(r->compute, gradients, (float)(1.0 / world_size), count);
}

static ls_status mark_ready(ddp_reducer *r, size_t parameter) {
    const struct ls_tensor *tensor = ls_model_parameter(r->model, parameter);
    if (r->is_ready[parameter]) {
        return ls_fail(LS_ERR_INVALID, "the gradient of %s was reported ready twice in one backward", tensor->name);
    }
    r->is_ready[parameter] = true;
    if (!r->reduced_once) r->ready_order[r->ready_count++] = parameter;
    struct bucket *bucket = &r->buckets[r->bucket_of[parameter]];
    bool at_once = !ls_device_memory_is_host(r->device);
    ls_status status = at_once ? LS_OK : average(r, tensor->gradient, tensor->count);
    if (--bucket->pending_count > 0 || status != LS_OK) return status;
    if (at_once) status = average(r, bucket->data, bucket->count);
    if (status == LS_OK) status = ls_event_record(bucket->ready, r->compute);
    if (status == LS_OK && r->options.overlap) status = launch_ready(r);
    return status;
}

static ls_status on_grad_ready(void *context, size_t parameter) {
    ddp_reducer *r = context;
    if (r->has_samples) r->is_used[parameter] = true;
    return r->sync ? mark_ready(r, parameter) : LS_OK;
}

/* find_unused, after backward: last parameters first, as backward would. */
static ls_status mark_rest_ready(ddp_reducer *r) {
    ls_status status = LS_OK;
    for (size_t p = r->parameter_count; status == LS_OK && p > 0; p--) {
        if (!r->is_ready[p - 1]) status = mark_ready(r, p - 1);
    }
    return status;
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
    return ls_fail(
        LS_ERR_INVALID,
        "this step's reduction cannot finish: %zu parameters got no gradient:%s; bucket %zu of %zu waits for "
        "them, and all after it. Every parameter must take part in the loss, or be allowed not to by "
        "--find-unused, which costs a small all-reduce a step and some overlap",
        missing, names, first + 1, r->bucket_count);
}

static void note_waste(ddp_reducer *r, bool all_used) {
    if (r->wasted_steps < 0) return;
    r->wasted_steps = all_used ? r->wasted_steps + 1 : -1;
    if (r->wasted_steps < STEPS_UNTIL_WASTE) return;
    r->wasted_steps = -1;
    if (ls_comm_rank(r->comm) != 0) return;
    ls_warn(
        "in the first %d steps all parameters were used on all ranks: without --find-unused the steps take less time",
        STEPS_UNTIL_WASTE);
}

/* Behind the last bucket, on all ranks. */
static ls_status share_used(ddp_reducer *r) {
    for (size_t p = 0; p < r->parameter_count; p++) r->used_by[p] = r->is_used[p];
    ls_status status =
        ls_comm_all_reduce(r->comm, r->comm_stream, r->used_by, r->parameter_count, LS_INT32, LS_REDUCE_SUM);
    ls_status done = ls_stream_synchronize(r->comm_stream);
    if (status == LS_OK) status = done;
    if (status != LS_OK) return status;
    bool all_used = true;
    r->any_unused = false;
    for (size_t p = 0; p < r->parameter_count; p++) {
        r->is_unused[p] = r->used_by[p] == 0;
        r->any_unused = r->any_unused || r->is_unused[p];
        all_used = all_used && r->used_by[p] == ls_comm_world_size(r->comm);
    }
    note_waste(r, all_used);
    memset(r->is_used, 0, r->parameter_count * sizeof *r->is_used);
    return LS_OK;
}

const bool *ddp_reducer_unused(const ddp_reducer *r) { return r->any_unused ? r->is_unused : NULL; }

ls_status ddp_reducer_finish(ddp_reducer *r) {
    r->any_unused = false;
    if (!r->sync) return LS_OK;
    ls_status status = r->options.find_unused ? mark_rest_ready(r) : LS_OK;
    for (size_t b = 0; status == LS_OK && b < r->bucket_count; b++) {
        if (r->buckets[b].pending_count > 0) return report_missing(r);
    }
    if (status == LS_OK) status = launch_ready(r);
    for (size_t b = 0; status == LS_OK && b < r->bucket_count; b++) {
        status = ls_work_wait(r->buckets[b].reduced, r->compute);
    }
    if (status == LS_OK && r->options.find_unused) status = share_used(r);
    r->reduced_once = true;
    return status;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

ls_status ddp_reducer_create(ddp_reducer **out, ls_comm *comm, ls_model *model, struct ls_phase_clock *clock,
                             const ddp_reducer_options *options) {
    *out = NULL;
    ddp_reducer *r = calloc(1, sizeof *r);
    if (!r) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the reducer");
    r->comm = comm;
    r->model = model;
    r->device = ls_model_device(model);
    r->compute = ls_device_stream(r->device, LS_STREAM_COMPUTE);
    r->comm_stream = ls_device_stream(r->device, LS_STREAM_COMM);
    r->clock = clock;
    r->options = *options;
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
        status = ls_fail(LS_ERR_NO_MEMORY, "no memory for the reducer");
    }
    for (size_t p = 0; status == LS_OK && p < r->parameter_count; p++) {
        r->nbytes[p] = ls_model_parameter(model, p)->count * sizeof(float);
    }
    if (status == LS_OK) status = alloc_memory(r);
    if (status == LS_OK) status = assign_first(r);
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
    destroy_buckets(r->buckets, r->bucket_count);
    free(r->nbytes);
    free(r->bucket_of);
    free(r->is_ready);
    free(r->ready_order);
    free(r->is_used);
    free(r->used_by);
    free(r->is_unused);
    free(r);
}

size_t ddp_reducer_bucket_count(const ddp_reducer *r) { return r->bucket_count; }
size_t ddp_reducer_bucket_nbytes(const ddp_reducer *r, size_t bucket) { return r->buckets[bucket].gradient_nbytes; }
