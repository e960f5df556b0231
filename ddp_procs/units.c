/* units — ZeRO-3: parameters are gathered when a block is entered, and released when it is left.
 *   idea  : a pass reads a block's parameters while it is in that block. So each rank keeps a slice of each unit (all
 *           parameters of a block, concatenated), and the ranks gather a unit before its block needs it. Only that unit
 *           and the prefetched ones are gathered at a time. The update has all it needs: slices of values, of gradients
 *           and of moments, cut at the same offsets. Nothing is gathered after it; the next forward does that
 *
 *               compute   | block 0 | block 1 | block 2 |      block 2 is entered when its unit has arrived
 *               comm   (0)|(1)      |(2)      |(3)      |      (b): gather unit b; here one is prefetched
 *
 *   places: unit b is in buffer b mod K, K = 1 + prefetched units; so a tensor's address is fixed, and a buffer is free
 *           for another unit once compute has left the block that used it (event unit left)
 *   tied  : a unit with a parameter that other blocks also read has a buffer of its own. It is gathered when its own
 *           block, the first of them, is entered, and stays until the next update, as FSDP's root unit does. The
 *           gradients are summed in the bucket, from the head's to the embedding's, and are reduced once
 *   ahead : the next unit follows from the network (ls_model_visits: forward, then backward, with recomputation in
 *           between), never from timing, so all ranks gather in the same order. A unit that is still in its buffer is
 *           not gathered again: backward uses the last K of forward, and those of a recomputed segment of at most K
 *           blocks. No unit is fetched into a buffer that is needed before it
 *   cost  : memory for 1/W of the parameters and K units (each as large as the largest), in half precision also their
 *           half copies; and for the units that stay. A step of L other blocks gathers 2 L - K units, with
 *           recomputation up to 3 L. With the reduce-scatter a rank sends 1.5 x the bytes of DDP's all-reduce, less the
 *           units that stay in the buffers. Padding is less than W x 64 bytes per parameter
 *   order : nothing is summed here, so the bits are those of ZeRO-2
 *   fails : a gather before the update (event parameters updated), a block before its gather (unit gathered) and a
 *           gather into a buffer that is still read (unit left) are races. If a rank dies in a gather, the others
 *           detect it in theirs */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/comm/values.h"
#include "ddp_procs/units_internal.h"

/* --- the order of gathers ----------------------------------------------------------------------------------------- */

/* Whether a visit in [at, end) needs the buffer. */
static bool is_needed(const ddp_units *u, size_t at, size_t end, int buffer) {
    for (; at < end; at++)
        if (u->buffer_of[u->visits[at]] == buffer) return true;
    return false;
}

/* Writes to `chosen` the units to gather when visit `at` begins: its block's and the next ones. Updates held[]. */
static int choose(const ddp_units *u, size_t at, int *held, int chosen[MOST_CHOSEN]) {
    int count = 0;
    for (size_t i = at; i < u->visit_count && i <= at + u->prefetch; i++) {
        int block = u->visits[i], buffer = u->buffer_of[block];
        if (held[buffer] == block || slice_floats(u, block) == 0) continue;
        if (is_needed(u, at, i, buffer)) break;
        held[buffer] = chosen[count++] = block;
    }
    return count;
}

static void forget(const ddp_units *u, int *held) {
    for (int k = 0; k < u->buffer_count; k++) held[k] = -1;
}

uint64_t ddp_units_step_nbytes(const ddp_units *u, int micro_batches) {
    int chosen[MOST_CHOSEN];
    uint64_t floats = 0;
    forget(u, u->forecast);
    for (int m = 0; m < micro_batches; m++)
        for (size_t at = 0; at < u->visit_count; at++)
            for (int i = choose(u, at, u->forecast, chosen); i > 0; i--) floats += unit_floats(u, chosen[i - 1]);
    return floats * sizeof(float);
}

/* --- passes --------------------------------------------------------------------------------------------------------- */

/* Gathers a block's unit from all ranks' slices. Its copy in half precision is stale from now on. */
static void gather(ddp_units *u, int block) {
    const float *slice = u->slices + slice_begin(u, block);
    size_t floats = slice_floats(u, block);
    struct buffer *buffer = &u->buffers[u->buffer_of[block]];
    ls_comm_label(u->comm, "parameters of block", block);
    ls_stream_wait_event(u->comm_stream, u->updated);
    ls_stream_wait_event(u->comm_stream, buffer->left);
    ls_device_fail(u->device, ls_comm_all_gather(u->comm, u->comm_stream, slice, buffer->values, floats, LS_FP32));
    ls_event_record(buffer->gathered, u->comm_stream);
    ls_parameters_block_changed(u->parameters, block);
}

/* Gathers in this order. Bytes and time of an evaluation do not count for a step. */
static void gather_units(ddp_units *u, const int *blocks, int count) {
    ls_phase before = u->clock->phase;
    bool in_step = before != LS_PHASE_OTHER;
    if (in_step) ls_phase_enter(u->clock, LS_PHASE_GATHER);
    for (int i = 0; i < count; i++) {
        if (ls_values_on())
            ls_values_set(u->slices + slice_begin(u, blocks[i]), slice_floats(u, blocks[i]) * sizeof *u->slices,
                          ls_labels_of(LS_REPLICATED, LS_SPLIT), false, "a slice of block %d", blocks[i]);
        gather(u, blocks[i]);
        if (in_step) u->clock->bytes[LS_PHASE_GATHER] += unit_floats(u, blocks[i]) * sizeof(float);
    }
    if (in_step) ls_phase_enter(u->clock, before);
}

/* Units gathered before the slices were written belong to an earlier step. An evaluation belongs to no step; a step
 * after an evaluation gathers the same units as any other. */
static void notice_update(ddp_units *u) {
    bool is_updated = u->version != u->parameters->version, in_step = u->clock->phase != LS_PHASE_OTHER;
    if (is_updated) ls_event_record(u->updated, u->compute);
    if (is_updated || (in_step && !u->was_in_step)) {
        forget(u, u->held);
        /* for units that stay, whichever block has read them last */
        for (int k = u->turn_count; k < u->buffer_count; k++) ls_event_record(u->buffers[k].left, u->compute);
    }
    u->version = u->parameters->version;
    u->was_in_step = in_step;
}

/* A pass begins to compute a block. */
static void enter(void *context, int block, bool backward) {
    ddp_units *u = context;
    int chosen[MOST_CHOSEN];
    (void)backward;
    notice_update(u);
    if (u->at >= u->visit_count || u->visits[u->at] != block) u->at = 0; /* an evaluation has no backward */
    int count = choose(u, u->at++, u->held, chosen);
    gather_units(u, chosen, count);
    ls_stream_wait_event(u->compute, u->buffers[u->buffer_of[block]].gathered);
}

/* The pass has enqueued its work on a block. */
static void leave(void *context, int block, bool backward) {
    ddp_units *u = context;
    (void)backward;
    ls_event_record(u->buffers[u->buffer_of[block]].left, u->compute);
}

/* --- life ----------------------------------------------------------------------------------------------------------- */

ls_status ddp_units_create(ddp_units **out, ls_comm *comm, ls_comm *beside, ls_model *model,
                           struct ls_phase_clock *clock, int prefetch) {
    *out = NULL;
    ddp_units *u = calloc(1, sizeof *u);
    if (!u) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for units");
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
    u->turn_count = u->buffer_count = 1 + prefetch;
    ls_status status = ddp_units_place(u);
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
    ddp_units_displace(u);
    free(u);
}
