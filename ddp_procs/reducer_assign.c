/* reducer_assign — which gradient is in which bucket.
 *   idea  : the first backward has one bucket with everything, and shows in which order gradients become ready. Before
 *           the next backward that communicates they are assigned again, once, in rank 0's order, on all ranks
 *           (docs/pytorch.md#buckets). With find_unused the order may differ in each step, and if ranks own slices of
 *           the buckets the owners must not change: then buckets are assigned at the start in the order of definition,
 *           and launched last to first
 *   memory: all buckets together have the same number of floats, however the gradients are assigned: their memory is
 *           allocated once (and may be shared in turn if the assignment is final: sharded_gradients.c). With compress
 *           each bucket has a half-precision copy with the same layout
 *   resume: later steps need only the order from the first step. A reducer that is created with an order begins as if
 *           it had run that step: with the buckets that follow from it, and the rounding of later steps (reducer.c,
 *           order)
 *   cost  : at most twice in a run (at the start, and when buckets are assigned again), a copy of all gradients to the
 *           host and back */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/reducer_internal.h"

static void destroy_buckets(struct bucket *buckets, size_t count) {
    for (size_t b = 0; buckets && b < count; b++) {
        ls_event_destroy(buckets[b].ready);
        ls_event_destroy(buckets[b].reduced);
    }
    free(buckets);
}

void ddp_reducer_destroy_buckets(ddp_reducer *r) { destroy_buckets(r->buckets, r->bucket_count); }

/* Whole cache lines; for slices, the same number for each rank. */
static size_t slot_floats(const ddp_reducer *r, size_t parameter) {
    size_t count = ls_model_parameter(r->model, parameter)->count;
    return (count + r->slot_unit - 1) / r->slot_unit * r->slot_unit;
}

static ls_status create_buckets(struct bucket **out, ddp_reducer *r, const struct ddp_buckets *plan) {
    struct bucket *buckets = calloc(plan->bucket_count, sizeof *buckets);
    ls_status status = buckets ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for buckets");
    const size_t *parameter = plan->parameters;
    size_t at = 0;
    for (size_t b = 0; status == LS_OK && b < plan->bucket_count; at += buckets[b++].count) {
        buckets[b].at = at;
        buckets[b].parameter_count = plan->sizes[b];
        for (size_t i = 0; i < plan->sizes[b]; i++, parameter++) {
            buckets[b].count += slot_floats(r, *parameter);
            buckets[b].gradient_nbytes += r->nbytes[*parameter];
            r->bucket_of[*parameter] = b;
        }
        buckets[b].sent_nbytes = buckets[b].count * ls_dtype_nbytes(r->options.compress);
        status = ls_event_create(&buckets[b].ready, "bucket ready");
        if (status == LS_OK) status = ls_event_create(&buckets[b].reduced, "bucket reduced");
    }
    if (status == LS_OK && r->options.place)
        status = r->options.place(r->options.context, r, buckets, plan->bucket_count);
    if (status != LS_OK) {
        destroy_buckets(buckets, plan->bucket_count);
        buckets = NULL;
    }
    *out = buckets;
    return status;
}

/* Called once in a run. */
static ls_status alloc_memory(ddp_reducer *r, const struct bucket *buckets, size_t bucket_count) {
    size_t count = 0;
    for (size_t b = 0; b < bucket_count; b++) {
        size_t end = buckets[b].at + buckets[b].count;
        if (count < end) count = end;
    }
    r->memory_nbytes = count * sizeof(float);
    ls_status status = ls_comm_alloc_shared(r->comm, r->device, r->memory_nbytes, (void **)&r->memory);
    if (status != LS_OK || !ddp_reducer_compresses(r)) return status;
    size_t half_nbytes = count * ls_dtype_nbytes(r->options.compress);
    return ls_comm_alloc_shared(r->comm, r->device, half_nbytes, &r->half_memory);
}

size_t ddp_reducer_sent_nbytes(const ddp_reducer *r) {
    size_t nbytes = 0;
    for (size_t b = 0; b < r->bucket_count; b++) nbytes += r->buckets[b].sent_nbytes;
    return nbytes;
}

/* The half-precision copy of the floats at `slot`. */
static void *half_of(const ddp_reducer *r, const float *slot) {
    if (!r->half_memory) return NULL;
    return (char *)r->half_memory + (size_t)(slot - r->memory) * ls_dtype_nbytes(r->options.compress);
}

/* Moves every gradient, with its content if it has one, to its slot. Old and new slots share their memory, so the
 * contents are copied through host memory, which is not charged to a device. */
static ls_status place_gradients(ddp_reducer *r, const struct ddp_buckets *plan, struct bucket *buckets) {
    bool computes =
        ls_device_computes(r->device); /* a meta device's gradients have no content that a host could hold */
    float *contents = computes ? calloc(1, r->memory_nbytes) : r->memory;
    if (!contents)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to move %zu bytes of gradients", r->memory_nbytes);
    const size_t *parameter = plan->parameters;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        float *slot = buckets[b].data = r->memory + buckets[b].at;
        buckets[b].half = half_of(r, slot);
        for (size_t i = 0; i < plan->sizes[b]; i++, parameter++) {
            const struct ls_tensor *tensor = ls_model_parameter(r->model, *parameter);
            float *aside = contents + (slot - r->memory);
            if (tensor->gradient) ls_copy(r->compute, aside, tensor->gradient, r->nbytes[*parameter]);
            ls_model_place_gradient(r->model, *parameter, slot);
            slot += slot_floats(r, *parameter);
        }
    }
    ls_copy(r->compute, r->memory, contents, r->memory_nbytes);
    ls_status status = ls_stream_synchronize(r->compute);
    if (computes) free(contents);
    return status;
}

/* Replaces the current assignment by `plan`. */
static ls_status adopt_plan(ddp_reducer *r, const struct ddp_buckets *plan) {
    struct bucket *buckets;
    ls_status status = create_buckets(&buckets, r, plan);
    if (status != LS_OK) return status;
    if (!r->memory) status = alloc_memory(r, buckets, plan->bucket_count);
    if (status == LS_OK) status = place_gradients(r, plan, buckets);
    ddp_reducer_destroy_buckets(r);
    r->buckets = buckets;
    r->bucket_count = plan->bucket_count;
    return status;
}

struct limits {
    size_t bytes[2]; /* of the first bucket and of the others */
};

static size_t bytes_of(double mib) {
    double bytes = mib * 1048576;
    return bytes < (double)(SIZE_MAX / 2) ? (size_t)bytes : SIZE_MAX / 2;
}

static struct limits bucket_limits(const ddp_reducer *r) {
    double first_mb = r->options.first_bucket_mb;
    size_t cap = bytes_of(r->options.bucket_cap_mb), first = first_mb > 0 ? bytes_of(first_mb) : DDP_FIRST_BUCKET_BYTES;
    return (struct limits){{cap < first ? cap : first, cap}};
}

void ddp_reducer_describe(const ddp_reducer *r, struct ls_trace_about *about) {
    struct limits limits = bucket_limits(r);
    about->first_bucket_bytes = limits.bytes[0];
    about->bucket_bytes = limits.bytes[1];
    about->overlap = r->options.overlap;
}

static ls_status assign(ddp_reducer *r, const int64_t *order, struct limits limits, bool reverse) {
    struct ddp_buckets plan;
    ls_status status = ddp_assign_buckets(&plan, r->nbytes, order, r->parameter_count, limits.bytes, 2, reverse);
    if (status == LS_OK) status = adopt_plan(r, &plan);
    ddp_buckets_free(&plan);
    return status;
}

/* A bucket for each block: its limit is the size of the block's gradients. */
static ls_status assign_blocks(ddp_reducer *r) {
    const int *block_of = ls_model_tensors(r->model)->block_of;
    size_t *limits = calloc(r->parameter_count + 1, sizeof *limits), count = 0;
    struct ddp_buckets plan = {0};
    if (!limits) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the list of buckets");
    for (size_t p = 0; p < r->parameter_count; p++) {
        count += p == 0 || block_of[p] != block_of[p - 1];
        limits[count - 1] += r->nbytes[p];
    }
    ls_status status = ddp_assign_buckets(&plan, r->nbytes, r->ready_order, r->parameter_count, limits, count, true);
    if (status == LS_OK) status = adopt_plan(r, &plan);
    ddp_buckets_free(&plan);
    free(limits);
    return status;
}

ls_status ddp_reducer_assign_first(ddp_reducer *r) {
    struct limits everything = {{SIZE_MAX, SIZE_MAX}};
    for (size_t p = 0; p < r->parameter_count; p++) r->ready_order[p] = (int64_t)p;
    if (r->options.by_block) return assign_blocks(r);
    return assign(r, r->ready_order, r->buckets_stay ? bucket_limits(r) : everything, true);
}

ls_status ddp_reducer_rebuild(ddp_reducer *r) {
    ls_comm_label(r->comm, "order of gradients", -1);
    ls_status status = ls_comm_settle(
        r->comm_stream, ls_comm_broadcast(r->comm, r->comm_stream, r->ready_order, r->parameter_count, LS_INT64, 0));
    if (status == LS_OK) status = assign(r, r->ready_order, bucket_limits(r), false);
    r->rebuilt = true;
    return status;
}

/* --- for runs that are resumed ------------------------------------------------------------------------------------ */

size_t ddp_reducer_get_order(const ddp_reducer *r, const int64_t **order) {
    *order = r->ready_order;
    return r->reduced_once ? r->parameter_count : 0;
}

/* Whether `order` names each of the model's parameters once. */
static ls_status check_order(const ddp_reducer *r, const int64_t *order, size_t count) {
    bool *named = calloc(r->parameter_count, sizeof *named);
    ls_status status =
        named ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the order of the gradients");
    if (status == LS_OK && count != r->parameter_count) {
        status = ls_fail(LS_ERR_INVALID,
                         "invalid gradient order: found %zu entries, expected one for each of %zu parameters", count,
                         r->parameter_count);
    }
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        bool in_range = order[i] >= 0 && order[i] < (int64_t)count;
        if (!in_range || named[order[i]]) {
            status = ls_fail(LS_ERR_INVALID,
                             "invalid gradient order: entry %zu is %" PRId64 "; expected each of 0..%zu once", i,
                             order[i], count - 1);
        } else {
            named[order[i]] = true;
        }
    }
    free(named);
    return status;
}

ls_status ddp_reducer_set_order(ddp_reducer *r, const int64_t *order, size_t count) {
    if (count == 0) return LS_OK;
    ls_status status = check_order(r, order, count);
    if (status == LS_OK && r->reduced_once) {
        status = ls_fail(LS_ERR_INVALID, "the gradient order was set too late: this run already has its own");
    }
    if (status == LS_OK && !r->buckets_stay) status = assign(r, order, bucket_limits(r), false);
    if (status != LS_OK) return status;
    for (size_t p = 0; p < count; p++) r->ready_order[p] = order[p];
    r->reduced_once = r->rebuilt = true;
    return status;
}
