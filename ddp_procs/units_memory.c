/* units_memory — the layout of the gathered parameters and each rank's slices.
 *   idea  : each rank's slices of all units are one range, in the order of the blocks; a unit's slice is 1/W of its
 *           block's slots, cut at any element. A buffer is as large as the largest unit that uses it, with space for
 *           its copy in half precision
 *   places: on CPU devices slices are in the group's memory, where other ranks read them in place: a gather copies
 *           once. They are charged to the device like all parameters. Buffers are in the rank's own memory */
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/units_internal.h"

static ls_status alloc_lists(ddp_units *u) {
    size_t blocks = (size_t)u->parameters->block_count, most_buffers = (size_t)u->turn_count + blocks;
    u->parts = calloc(u->parameters->count + 1, sizeof *u->parts);
    u->visits = calloc(3 * blocks, sizeof *u->visits);
    u->buffers = calloc(most_buffers, sizeof *u->buffers);
    u->buffer_of = calloc(blocks, sizeof *u->buffer_of);
    u->held = calloc(most_buffers, sizeof *u->held);
    u->forecast = calloc(most_buffers, sizeof *u->forecast);
    bool fits = u->parts && u->visits && u->buffers && u->buffer_of && u->held && u->forecast;
    return fits ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a list of units");
}

/* Allocates slices in memory that other ranks can read, so that a gather copies once. */
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

static void assign_buffers(ddp_units *u) {
    const ls_network *network = ls_model_network(u->model);
    for (int b = 0; b < u->parameters->block_count; b++) {
        int k = ls_network_block_is_shared(network, b) ? u->buffer_count++ : b % u->turn_count;
        u->buffer_of[b] = k;
        if (unit_floats(u, b) > u->buffers[k].floats) u->buffers[k].floats = unit_floats(u, b);
    }
}

static ls_status alloc_buffers(ddp_units *u) {
    size_t element = u->parameters->precision == LS_FP32 ? 0 : ls_dtype_nbytes(u->parameters->precision), nbytes = 0;
    ls_status status = ls_event_create(&u->updated, "parameters updated");
    for (int k = 0; k < u->buffer_count; k++) nbytes += u->buffers[k].floats * (sizeof(float) + element);
    if (status == LS_OK)
        status = ls_device_alloc(u->device, LS_MEMORY_PARAMETER, nbytes, "gathered units", (void **)&u->memory);
    char *at = u->memory;
    for (int k = 0; status == LS_OK && k < u->buffer_count; k++) {
        struct buffer *buffer = &u->buffers[k];
        buffer->values = (float *)(void *)at;
        buffer->half = element > 0 ? buffer->values + buffer->floats : NULL;
        at += buffer->floats * (sizeof(float) + element);
        status = ls_event_create(&buffer->gathered, "unit gathered");
        if (status == LS_OK) status = ls_event_create(&buffer->left, "unit left");
    }
    return status;
}

/* The part of parameter p in this rank's slice of its unit; may be empty. */
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

static void place_blocks(ddp_units *u) {
    ls_parameters *all = u->parameters;
    u->visit_count = ls_model_visits(u->model, u->visits);
    for (size_t p = 0; p < all->count; p++) u->parts[p] = find_part(u, p);
    for (int b = 0; b < all->block_count; b++) {
        const struct buffer *buffer = &u->buffers[u->buffer_of[b]];
        ls_parameters_place_block(all, b, buffer->values, buffer->half);
    }
}

ls_status ddp_units_place(ddp_units *u) {
    ls_status status = ls_parameters_widen_slots(u->parameters, ls_aligned_floats(1) * u->world_size);
    if (status == LS_OK) status = alloc_lists(u);
    if (status == LS_OK) status = alloc_slices(u);
    if (status == LS_OK) assign_buffers(u);
    if (status == LS_OK) status = alloc_buffers(u);
    if (status == LS_OK) place_blocks(u);
    return status;
}

void ddp_units_displace(ddp_units *u) {
    for (int b = 0; b < u->parameters->block_count; b++) ls_parameters_place_block(u->parameters, b, NULL, NULL);
    for (int k = 0; u->buffers && k < u->buffer_count; k++) {
        ls_event_destroy(u->buffers[k].gathered);
        ls_event_destroy(u->buffers[k].left);
    }
    ls_event_destroy(u->updated);
    if (u->is_shared) ls_comm_release_shared(u->comm, u->slices);
    if (u->is_adopted) ls_device_disown(u->device, LS_MEMORY_PARAMETER, u->slices_nbytes);
    if (!u->is_shared) ls_device_free(u->device, u->slices);
    ls_device_free(u->device, u->memory);
    free(u->forecast);
    free(u->held);
    free(u->buffer_of);
    free(u->buffers);
    free(u->visits);
    free(u->parts);
}
