/* units — ZeRO-3: parameters come when a block is entered, and go when it is left.
 *   idea  : a pass reads a block's parameters while it is in that block. So each rank keeps a slice of each unit (all parameters
 *           of a block, one behind the other), and the ranks gather a unit before its block needs it. What lies gathered is one
 *           unit and those that are fetched ahead. The update has all it needs: slices of values, of gradients and of moments,
 *           cut at the same places. Nothing is gathered behind it; the next forward does that
 *
 *               compute   | block 0 | block 1 | block 2 |      block 2 is entered: its unit has come meanwhile
 *               comm   (0)|(1)      |(2)      |(3)      |      (b): gather unit b; here one is prefetched
 *
 *   places: unit b lies in buffer b mod K, K = 1 + prefetched units; so a tensor's address is fixed, and a buffer is free for
 *           another unit once compute has left the block that was there (event unit left)
 *   ahead : which unit is next follows from the network (ls_model_visits: forward, then backward, with recomputation in
 *           between), never from what happens to be ready, so all ranks gather in the same order. A unit that is still in its
 *           buffer is not gathered again: the last K of forward serve backward, and where a segment that is run again has at
 *           most K blocks, so do its. No unit is fetched into a buffer that is needed before it
 *   cost  : memory for 1/W of the parameters and K units (the largest one's each), with their half copies in half precision.
 *           A step of L blocks gathers 2 L - K units, with recomputation up to 3 L. With the reduce-scatter a rank moves
 *           1.5 x what DDP's all-reduce does, less what stays in the buffers. Of each parameter less than W x 64 bytes padding
 *   order : nothing is added up here, so the bits are those of ZeRO-2
 *   fails : a gather before the update (event parameters updated), a block before its gather (unit gathered) and a gather into a
 *           buffer that is still read (unit left) are races. A rank that dies in a gather is missed by the others in theirs */
#include "ddp_procs/units.h"

#include <stdlib.h>

#include "common/base/log.h"

enum { MOST_BUFFERS = 1 + DDP_MOST_PREFETCHED };

struct buffer {
    float *values;
    void *half;
    ls_event *gathered, *left;
};

struct ddp_units {
    /* constant after create */
    ls_comm *comm;
    ls_model *model;
    ls_parameters *parameters;
    ls_device *device;
    ls_stream *compute, *comm_stream;
    struct ls_phase_clock *clock;
    size_t rank, world_size, prefetch;
    float *slices; /* this rank's of all units, one behind the other */
    size_t slices_nbytes;
    bool is_shared, is_adopted; /* the slices are the group's memory; the device is charged for it */
    struct ls_part *parts;      /* the same, parameter by parameter */
    char *memory;               /* of the buffers */
    struct buffer buffers[MOST_BUFFERS];
    int buffer_count;
    ls_event *updated;
    int *visits;
    size_t visit_count;
    /* changes from step to step */
    int held
        [MOST_BUFFERS]; /* the block whose unit a buffer has, or will have once what has been enqueued is done; -1: none */
    size_t at;          /* how many of the visits the pass in progress has made */
    uint64_t version; /* of the parameters that have been gathered */
};

/* --- which, and when ------------------------------------------------------------------------------------------------ */

/* Whether a visit from `at` on, but before `end`, needs the buffer. */
static bool is_needed(const ddp_units *u, size_t at, size_t end, int buffer) {
    for (; at < end; at++)
        if (u->visits[at] % u->buffer_count == buffer) return true;
    return false;
}

/* What is to be gathered when visit `at` begins: its block's unit, and the next ones. Into `chosen`; held[] has them then. */
static int choose(const ddp_units *u, size_t at, int held[MOST_BUFFERS], int chosen[MOST_BUFFERS]) {
    int count = 0;
    for (size_t i = at; i < u->visit_count && i <= at + u->prefetch; i++) {
        int block = u->visits[i], buffer = block % u->buffer_count;
        if (held[buffer] == block || ddp_units_slice_floats(u, block) == 0) continue;
        if (is_needed(u, at, i, buffer)) break;
        held[buffer] = chosen[count++] = block;
    }
    return count;
}

static void forget(const ddp_units *u, int held[MOST_BUFFERS]) {
    for (int k = 0; k < u->buffer_count; k++) held[k] = -1;
}

size_t ddp_units_slice_begin(const ddp_units *u, int block) {
    return u->parameters->block_begins[block] / u->world_size;
}

size_t ddp_units_slice_floats(const ddp_units *u, int block) {
    return ddp_units_slice_begin(u, block + 1) - ddp_units_slice_begin(u, block);
}

uint64_t ddp_units_step_nbytes(const ddp_units *u, int micro_batches) {
    int held[MOST_BUFFERS], chosen[MOST_BUFFERS];
    uint64_t floats = 0;
    forget(u, held);
    for (int m = 0; m < micro_batches; m++)
        for (size_t at = 0; at < u->visit_count; at++)
            for (int i = choose(u, at, held, chosen); i > 0; i--)
                floats += ddp_units_slice_floats(u, chosen[i - 1]) * u->world_size;
    return floats * sizeof(float);
}

/* --- passes --------------------------------------------------------------------------------------------------------- */

static void gather(ddp_units *u, int block) {
    struct buffer *buffer = &u->buffers[block % u->buffer_count];
    size_t floats = ddp_units_slice_floats(u, block);
    const float *slice = u->slices + ddp_units_slice_begin(u, block);
    ls_stream_wait_event(u->comm_stream, u->updated);
    ls_stream_wait_event(u->comm_stream, buffer->left);
    ls_device_fail(u->device, ls_comm_all_gather(u->comm, u->comm_stream, slice, buffer->values, floats, LS_FP32));
    ls_event_record(buffer->gathered, u->comm_stream);
    ls_parameters_block_changed(u->parameters, block);
    u->clock->bytes[LS_PHASE_GATHER] += floats * u->world_size * sizeof(float);
}

/* Units gathered before the slices were written are those of an earlier step. */
static void notice_update(ddp_units *u) {
    if (u->version == u->parameters->version) return;
    u->version = u->parameters->version;
    ls_event_record(u->updated, u->compute);
    forget(u, u->held);
}

static void enter(void *context, int block, bool backward) {
    ddp_units *u = context;
    int chosen[MOST_BUFFERS];
    notice_update(u);
    (void)backward;
    if (u->at >= u->visit_count || u->visits[u->at] != block) u->at = 0; /* an evaluation has no backward */
    ls_phase before = ls_phase_enter(u->clock, LS_PHASE_GATHER);
    int count = choose(u, u->at++, u->held, chosen);
    for (int i = 0; i < count; i++) gather(u, chosen[i]);
    ls_phase_enter(u->clock, before);
    ls_stream_wait_event(u->compute, u->buffers[block % u->buffer_count].gathered);
}

static void leave(void *context, int block, bool backward) {
    ddp_units *u = context;
    (void)backward;
    ls_event_record(u->buffers[block % u->buffer_count].left, u->compute);
}

/* --- life ----------------------------------------------------------------------------------------------------------- */

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
        size_t floats = ddp_units_slice_floats(u, b) * u->world_size;
        if (floats > largest) largest = floats;
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
    size_t slice = ddp_units_slice_floats(u, block), begin = slice * u->rank, end = begin + slice;
    float *values = u->slices + ddp_units_slice_begin(u, block);
    size_t first = begin > at ? begin : at, last = end < to ? end : to;
    if (first >= last) return (struct ls_part){values, 0, 0};
    return (struct ls_part){values + (first - begin), first - at, last - first};
}

static ls_status place(ddp_units *u) {
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

ls_status ddp_units_create(ddp_units **out, ls_comm *comm, ls_comm *beside, ls_model *model,
                           struct ls_phase_clock *clock, int prefetch) {
    *out = NULL;
    ddp_units *u = calloc(1, sizeof *u);
    if (!u) return ls_fail(LS_ERR_NO_MEMORY, "no memory for units");
    u->comm = comm;
    u->model = model;
    u->parameters = ls_model_tensors(model);
    u->device = ls_model_device(model);
    u->compute = ls_device_stream(u->device, LS_STREAM_COMPUTE);
    u->comm_stream = ls_device_stream(u->device, LS_STREAM_COMM);
    u->clock = clock;
    u->rank = (size_t)ls_comm_rank(comm);
    u->world_size = (size_t)ls_comm_world_size(comm);
    u->prefetch = (size_t)prefetch;
    u->buffer_count = 1 + prefetch;
    forget(u, u->held);
    ls_status status = refuse_shared(model);
    if (status == LS_OK) status = ls_parameters_widen_slots(u->parameters, ls_aligned_floats(1) * u->world_size);
    if (status == LS_OK) status = alloc_slices(u);
    if (status == LS_OK) status = alloc_buffers(u);
    if (status == LS_OK) status = place(u);
    if (status != LS_OK) {
        ddp_units_destroy(u);
        return status;
    }
    u->parameters->parts = u->parts;
    u->parameters->group = beside;
    ls_model_on_blocks(model, enter, leave, u);
    *out = u;
    return LS_OK;
}

void ddp_units_destroy(ddp_units *u) {
    if (!u) return;
    ls_model_on_blocks(u->model, NULL, NULL, NULL);
    u->parameters->parts = NULL;
    u->parameters->group = NULL;
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
    free(u);
}
