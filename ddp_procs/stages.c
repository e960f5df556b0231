/* stages — which stage has which blocks of a network, and their layout in memory.
 *   idea  : a stage's parameters are one range, laid out as in a whole model, and so are their gradients: the update,
 *           and a sum over ranks that train the same stage, process the range at once
 *   tie   : a parameter that a later stage also reads has a copy there, and two gradients, which are parts of one sum;
 *           pipeline.c adds them, and renews the copy after each update. Norm, moments, files and hash include only the
 *           original
 *   passes: an evaluation takes each rank's samples through all blocks. Each block is broadcast by its stage when the
 *           ranks enter it, into a buffer that all blocks share; a rank reads its own blocks in place
 *   cost  : from the first evaluation on a buffer for the largest block, and with a tie one for the tied block; an
 *           evaluation sends all parameters to each rank once per pass */
#include "ddp_procs/stages.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/nn/network_internal.h"

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static size_t block_floats(const ls_parameters *all, int block) {
    return all->block_begins[block + 1] - all->block_begins[block];
}

static bool has_copy(const ddp_stage *s) { return s->tie.is_there && s->tie.reader == s->number; }
static int tied_block(const ddp_stage *s) { return ls_model_tensors(s->model)->block_of[s->tie.parameter]; }

static bool is_own(const ddp_stage *s, int block) { return block >= s->blocks.first && block < s->blocks.end; }

/* The offset of this rank's own block, in floats from the beginning of its values. */
static size_t own_offset(const ddp_stage *s, int block) {
    const ls_parameters *all = ls_model_tensors(s->model);
    return is_own(s, block) ? all->block_begins[block] - all->block_begins[s->blocks.first] : s->floats;
}

/* Places the rank's own block in its values, and sets the others' to NULL, also outside of passes. */
static void place_own(const ddp_stage *s, int block) {
    ls_parameters *all = ls_model_tensors(s->model);
    bool is_here = is_own(s, block) || (has_copy(s) && block == tied_block(s));
    size_t at = is_here ? own_offset(s, block) : 0;
    char *half = s->halves;
    if (half && is_here) half += at * ls_dtype_nbytes(all->precision);
    ls_parameters_place_block(all, block, is_here ? s->values + at : NULL, is_here ? half : NULL);
    ls_parameters_block_changed(all, block);
}

static ls_status alloc_values(ddp_stage *s, const ls_parameters *all) {
    size_t floats = s->floats + (has_copy(s) ? block_floats(all, tied_block(s)) : 0);
    size_t half = all->precision == LS_FP32 ? 0 : ls_dtype_nbytes(all->precision);
    ls_status status = ls_device_alloc(all->device, LS_MEMORY_PARAMETER, floats * sizeof(float), "a stage's parameters",
                                       (void **)&s->values);
    if (status != LS_OK || half == 0) return status;
    return ls_device_alloc(all->device, LS_MEMORY_PARAMETER, floats * half, "parameters in half precision", &s->halves);
}

static ls_status alloc_gradients(ddp_stage *s, const ls_parameters *all, ls_comm *data) {
    size_t floats = s->floats + (has_copy(s) ? ls_aligned_floats(all->tensors[s->tie.parameter].count) : 0);
    if (ls_comm_world_size(data) > 1)
        return ls_comm_alloc_shared(data, all->device, floats * sizeof(float), (void **)&s->gradients);
    return ls_device_alloc(all->device, LS_MEMORY_GRADIENT, floats * sizeof(float), "gradients",
                           (void **)&s->gradients);
}

/* `replica`: the others read the first replica's parameters. */
static void place_parameters(ddp_stage *s, int replica) {
    ls_parameters *all = ls_model_tensors(s->model);
    for (int b = 0; b < all->block_count; b++) place_own(s, b);
    for (size_t p = 0; p < all->count; p++) {
        struct ls_tensor *tensor = &all->tensors[p];
        bool own = is_own(s, all->block_of[p]);
        bool is_tied = has_copy(s) && p == s->tie.parameter;
        s->is_copy[p] = is_tied || replica > 0;
        if (own) tensor->gradient = s->gradients + (all->offsets[p] - all->block_begins[s->blocks.first]);
        if (is_tied) tensor->gradient = s->gradients + s->floats;
        s->parts[p] =
            own || is_tied ? (struct ls_part){tensor->data, 0, tensor->count} : (struct ls_part){s->values, 0, 0};
    }
}

/* --- passes ---------------------------------------------------------------------------------------------------------- */

/* Allocates buffer `i` for blocks of other stages: the largest (0), or that of a tie (1). A run without evaluation has
 * none. */
static void make_room(ddp_stage *s, int i) {
    const ls_parameters *all = ls_model_tensors(s->model);
    size_t floats = 0, half = all->precision == LS_FP32 ? 0 : ls_dtype_nbytes(all->precision);
    for (int b = 0; b < all->block_count; b++)
        if ((i == 0 ? !is_own(s, b) : b == tied_block(s)) && block_floats(all, b) > floats)
            floats = block_floats(all, b);
    ls_device_fail(all->device, ls_device_alloc(all->device, LS_MEMORY_PARAMETER, floats * (sizeof(float) + half),
                                                "a block of another stage", (void **)&s->brought[i]));
    if (s->brought[i] && half > 0) s->brought_half[i] = s->brought[i] + floats;
}

/* Broadcasts block `block` from its stage into buffer `i` of the other ranks. */
static void broadcast_block(ddp_stage *s, int block, int i) {
    ls_parameters *all = ls_model_tensors(s->model);
    bool own = is_own(s, block);
    if (!own && !s->brought[i]) make_room(s, i);
    float *values = own ? s->values + own_offset(s, block) : s->brought[i];
    ls_comm_label(s->beside, "parameters of block", block);
    ls_device_fail(all->device, ls_comm_broadcast(s->beside, ls_device_stream(all->device, LS_STREAM_COMPUTE), values,
                                                  block_floats(all, block), LS_FP32, ddp_stage_of(&s->cut, block)));
    if (!own) ls_parameters_place_block(all, block, values, s->brought_half[i]);
    ls_parameters_block_changed(all, block);
}

/* Whether layers of the block read the tied parameter, which belongs to another block. */
static bool reads_tied(const ddp_stage *s, int block) {
    const ls_network *network = ls_model_network(s->model);
    for (size_t l = 0; s->tie.is_there && block != tied_block(s) && l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        for (size_t p = 0; layer->block == block && p < layer->parameter_count; p++)
            if (layer->parameter_numbers[p] == s->tie.parameter) return true;
    }
    return false;
}

static void enter(void *context, int block, bool backward) {
    ddp_stage *s = context;
    (void)backward;
    broadcast_block(s, block, 0);
    if (reads_tied(s, block)) broadcast_block(s, tied_block(s), 1);
}

static void leave(void *context, int block, bool backward) {
    const ddp_stage *s = context;
    (void)backward;
    place_own(s, block);
    if (reads_tied(s, block)) place_own(s, tied_block(s));
}

/* --- buffers --------------------------------------------------------------------------------------------------------- */

/* Broadcasts one buffer, for which all ranks have memory. */
static ls_status share_buffer(const ddp_stage *s, ls_parameters *all, size_t buffer, int owner) {
    ls_stream *compute = ls_device_stream(all->device, LS_STREAM_COMPUTE);
    const struct ls_tensor *tensor = &all->tensors[all->count + buffer];
    ls_comm_label(s->beside, tensor->name, -1);
    ls_status status = ls_comm_broadcast(s->beside, compute, tensor->data, tensor->count, LS_FP32, owner);
    int64_t *tracked = &all->batches_tracked[buffer];
    if (status == LS_OK) status = ls_comm_broadcast(s->beside, compute, tracked, 1, LS_INT64, owner);
    return ls_comm_settle(compute, status);
}

ls_status ddp_stage_share_buffers(const ddp_stage *s) {
    const ls_network *network = ls_model_network(s->model);
    ls_status status = LS_OK;
    for (size_t l = 0; l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        int owner = ddp_stage_of(&s->cut, layer->block);
        for (size_t b = 0; status == LS_OK && b < layer->buffer_count; b++)
            status = share_buffer(s, ls_model_tensors(s->model), layer->buffer_numbers[b], owner);
    }
    return status;
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

static ls_status build(ddp_stage *s, ls_comm *data, ls_comm *all_ranks) {
    ls_parameters *all = ls_model_tensors(s->model);
    const ls_network *network = ls_model_network(s->model);
    ls_status status = ddp_cut_network(&s->cut, network, ls_comm_world_size(s->beside));
    if (status != LS_OK) return status;
    s->tie = ddp_tie_of(&s->cut, network);
    s->blocks = (struct ls_blocks){s->cut.begins[s->number], s->cut.begins[s->number + 1]};
    size_t unit = ls_aligned_floats(1) * (size_t)ls_comm_world_size(data);
    s->floats = all->block_begins[s->blocks.end] - all->block_begins[s->blocks.first];
    s->floats = (s->floats + unit - 1) / unit * unit;
    s->parts = calloc(all->count + 1, sizeof *s->parts);
    s->is_copy = calloc(all->count + 1, sizeof *s->is_copy);
    if (!s->parts || !s->is_copy)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stage's list of parameters");
    status = alloc_values(s, all);
    if (status == LS_OK) status = alloc_gradients(s, all, data);
    if (status == LS_OK) place_parameters(s, all_ranks ? ls_comm_rank(data) : 0);
    return status;
}

ls_status ddp_stage_create(ddp_stage **out, ls_comm *beside, ls_comm *data, ls_comm *all_ranks, ls_model *model) {
    *out = NULL;
    ddp_stage *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a stage");
    *s = (ddp_stage){.model = model, .beside = beside, .number = ls_comm_rank(beside)};
    ls_status status = build(s, data, all_ranks);
    if (status != LS_OK) {
        ddp_stage_destroy(s, data);
        return status;
    }
    ls_parameters *all = ls_model_tensors(model);
    all->parts = s->parts;
    all->is_copy = s->is_copy;
    all->group = all_ranks ? all_ranks : beside;
    ls_model_on_blocks(model, enter, leave, s);
    *out = s;
    return LS_OK;
}

void ddp_stage_destroy(ddp_stage *s, ls_comm *data) {
    if (!s) return;
    ls_parameters *all = ls_model_tensors(s->model);
    ls_model_on_blocks(s->model, NULL, NULL, NULL);
    all->parts = NULL;
    all->is_copy = NULL;
    all->group = NULL;
    for (int b = 0; b < all->block_count; b++) ls_parameters_place_block(all, b, NULL, NULL);
    for (int i = 0; i < 2; i++) ls_device_free(all->device, s->brought[i]);
    if (ls_comm_world_size(data) > 1)
        ls_comm_release_shared(data, s->gradients);
    else
        ls_device_free(all->device, s->gradients);
    ls_device_free(all->device, s->halves);
    ls_device_free(all->device, s->values);
    free(s->is_copy);
    free(s->parts);
    free(s);
}
