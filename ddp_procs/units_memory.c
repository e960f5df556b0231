/* units_memory — where the parameters lie that come and go.
 *   idea  : each rank's slices of all units are one range, in the order of the blocks; a unit's slice has W-th parts of its
 *           block's slots, cut anywhere. Buffers are as large as the largest unit, with room for its copy in half precision
 *   places: on CPU devices slices lie in the group's memory, where other ranks read them in place: a gather copies once. The
 *           device is charged for them as for all parameters. Buffers are the rank's own
 *   fails : tied weights are refused by name: a block would have to find another one's unit gathered, too */
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/units_internal.h"

static ls_status refuse_shared(const ls_model *model) {
    const char *name = ls_network_shared_parameter(ls_model_network(model));
    if (!name) return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "--shard-state 3 gathers the parameters of one block at a time, but several blocks read %s; take "
                   "--shard-state 2",
                   name);
}

/* Where other ranks can reach the slices, so that a gather copies once. */
static ls_status alloc_slices(ddp_units *u) {
    ls_status status;
    u->slices_nbytes = u->parameters->parameter_floats / u->world_size * sizeof(float);
    u->is_shared = ls_device_kind_of(u->device) == LS_DEVICE_CPU;
    if (!u->is_shared)
        return ls_device_alloc(u->device, LS_MEMORY_PARAMETER, u->slices_nbytes, "slices", (void **)&u->slices);
    status = ls_device_adopt(u->device, LS_MEMORY_PARAMETER, u->slices_nbytes, "slices");
    u->is_adopted = status == LS_OK;
    return status == LS_OK ? ls_comm_alloc_shared(u->comm, NULL, u->slices_nbytes, (void **)&u->slices) : status;
}

static ls_status alloc_buffers(ddp_units *u) {
    size_t largest = 0, element = u->parameters->precision == LS_FP32 ? 0 : ls_dtype_nbytes(u->parameters->precision);
    ls_status status = ls_event_create(&u->updated, "parameters updated");
    for (int b = 0; b < u->parameters->block_count; b++) {
        if (unit_floats(u, b) > largest) largest = unit_floats(u, b);
    }
    size_t nbytes = largest * (sizeof(float) + element);
    if (status == LS_OK)
        status = ls_device_alloc(u->device, LS_MEMORY_PARAMETER, (size_t)u->buffer_count * nbytes, "gathered units",
                                 (void **)&u->memory);
    for (int k = 0; status == LS_OK && k < u->buffer_count; k++) {
        struct buffer *buffer = &u->buffers[k];
        buffer->values = (float *)(void *)(u->memory + (size_t)k * nbytes);
        buffer->half = element > 0 ? buffer->values + largest : NULL;
        status = ls_event_create(&buffer->gathered, "unit gathered");
        if (status == LS_OK) status = ls_event_create(&buffer->left, "unit left");
    }
    return status;
}

/* What of parameter p lies in this rank's slice of its unit, perhaps nothing. */
static struct ls_part find_part(const ddp_units *u, size_t p) {
    const ls_parameters *all = u->parameters;
    int block = all->block_of[p];
    size_t at = all->offsets[p] - all->block_begins[block], to = at + all->tensors[p].count; /* in the unit */
    size_t slice = slice_floats(u, block), begin = slice * u->rank, end = begin + slice;
    float *values = u->slices + slice_begin(u, block);
    size_t first = begin > at ? begin : at, last = end < to ? end : to;
    if (first >= last) return (struct ls_part){values, 0, 0};
    return (struct ls_part){values + (first - begin), first - at, last - first};
}

static ls_status place_blocks(ddp_units *u) {
    ls_parameters *all = u->parameters;
    u->parts = calloc(all->count + 1, sizeof *u->parts);
    u->visits = calloc(3 * (size_t)all->block_count, sizeof *u->visits);
    if (!u->parts || !u->visits) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a list of units");
    u->visit_count = ls_model_visits(u->model, u->visits);
    for (size_t p = 0; p < all->count; p++) u->parts[p] = find_part(u, p);
    for (int b = 0; b < all->block_count; b++) {
        const struct buffer *buffer = &u->buffers[b % u->buffer_count];
        ls_parameters_place_block(all, b, buffer->values, buffer->half);
    }
    return LS_OK;
}

ls_status ddp_units_place(ddp_units *u) {
    ls_status status = refuse_shared(u->model);
    if (status == LS_OK) status = ls_parameters_widen_slots(u->parameters, ls_aligned_floats(1) * u->world_size);
    if (status == LS_OK) status = alloc_slices(u);
    if (status == LS_OK) status = alloc_buffers(u);
    return status == LS_OK ? place_blocks(u) : status;
}

void ddp_units_displace(ddp_units *u) {
    for (int b = 0; b < u->parameters->block_count; b++) ls_parameters_place_block(u->parameters, b, NULL, NULL);
    for (int k = 0; k < u->buffer_count; k++) {
        ls_event_destroy(u->buffers[k].gathered);
        ls_event_destroy(u->buffers[k].left);
    }
    ls_event_destroy(u->updated);
    if (u->is_shared) ls_comm_release_shared(u->comm, u->slices);
    if (u->is_adopted) ls_device_disown(u->device, LS_MEMORY_PARAMETER, u->slices_nbytes);
    if (!u->is_shared) ls_device_free(u->device, u->slices);
    ls_device_free(u->device, u->memory);
    free(u->visits);
    free(u->parts);
}
