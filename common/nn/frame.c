/* frame — the memory layout of the activations of a range of blocks and of their gradients, planned before the first
 * pass.
 *   idea  : the graph determines each step, so every address is an offset in one arena. Outputs, and what layers
 *           keep for backward, stay valid until the next forward, so that a search for a NaN finds all of them. The
 *           gradients of activations are temporary: each has a slot from the last of its readers, which backward
 *           reaches first, to the layer that computed the activation
 *   sums  : an activation with several readers gets the sum of their gradients, in the order in which backward reaches
 *           them: the first writes, the others add
 *   pass by: an output that only the next layer's forward reads is stored in one of the first two slots, which are free
 *           until backward
 *   cost  : batch x (outputs + what is kept) of each layer (none for layers in place), and a slot of the largest
 *           activation for each gradient that is alive at the same time: two for a chain of layers, one more for a
 *           value that is kept for an add. A frame has at least two slots, even if unused. In half precision an element
 *           has 2 bytes, except in the network's output and its gradient, which are fp32 outside of the layers */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/frame_internal.h"

enum { MOST_SLOTS = 64 };

/* --- the plan: outputs, and what is kept ------------------------------------------------------------------------------ */

static size_t take(ls_frame *frame, size_t nbytes) {
    size_t offset = frame->nbytes;
    frame->used_nbytes += nbytes;
    frame->nbytes += ls_frame_aligned(nbytes);
    return offset;
}

static size_t slot_offset(const ls_frame *frame, int slot) {
    return frame->slots_offset + (size_t)slot * frame->slot_nbytes;
}

static void plan_outputs(ls_frame *frame) {
    size_t element = ls_dtype_nbytes(frame->precision);
    for (size_t l = frame->first; l < frame->end; l++) {
        const ls_layer *layer = &frame->network->layers[l];
        if (layer->is_unread) continue;
        struct ls_frame_layer *place = &frame->layers[l];
        bool has_place = !layer->kind->in_place && !layer->passes_by;
        size_t count = has_place ? frame->max_batch * ls_shape_count(layer->out) : 0;
        place->y_offset = take(frame, count * element);
        size_t saved = layer->saved_nbytes + frame->max_batch * layer->saved_nbytes_per_sample;
        if (layer->kind->saved_nbytes) saved += layer->kind->saved_nbytes(layer, frame->precision, frame->max_batch);
        place->saved_offset = take(frame, saved);
    }
}

/* --- the plan: slots of the gradients ----------------------------------------------------------------------------- */

struct way {
    ls_frame *frame;
    bool busy[MOST_SLOTS];
    int input; /* the slot of the frame's input; LS_NO_SLOT: no reader so far */
};

static int take_slot(struct way *way) {
    int slot = 0;
    while (slot < MOST_SLOTS && way->busy[slot]) slot++;
    if (slot == MOST_SLOTS) return LS_NO_SLOT;
    way->busy[slot] = true;
    if (slot >= way->frame->slot_count) way->frame->slot_count = slot + 1;
    return slot;
}

static void free_slot(struct way *way, int slot) {
    if (slot >= 0) way->busy[slot] = false;
}

/* The last of the layer's inputs that needs a gradient may use the memory of dy. */
static bool is_last_needed(const ls_layer *layer, int input) {
    for (int i = input + 1; i < layer->input_count; i++)
        if (layer->inputs[i] != LS_NETWORK_INPUT) return false;
    return true;
}

static struct ls_route route_input(struct way *way, const ls_layer *layer, int i, int *dy) {
    int input = layer->inputs[i];
    if (input == LS_NETWORK_INPUT) return (struct ls_route){LS_ROUTE_NOWHERE, LS_NO_SLOT, LS_NO_SLOT};
    int *slot = input < (int)way->frame->first ? &way->input : &way->frame->layers[input].dy;
    if (*slot != LS_NO_SLOT) { /* a later layer reads it, too */
        struct ls_route route = {LS_ROUTE_ADD, *slot, LS_NO_SLOT};
        if (!layer->kind->hands_on) free_slot(way, route.spare = take_slot(way));
        return route;
    }
    if (layer->kind->hands_on && is_last_needed(layer, i)) {
        *slot = *dy;
        *dy = LS_NO_SLOT; /* not to be freed */
        return (struct ls_route){LS_ROUTE_KEEP, *slot, LS_NO_SLOT};
    }
    *slot = take_slot(way);
    return (struct ls_route){layer->kind->hands_on ? LS_ROUTE_COPY : LS_ROUTE_WRITE, *slot, LS_NO_SLOT};
}

static ls_status plan_gradients(ls_frame *frame) {
    struct way way = {.frame = frame, .input = LS_NO_SLOT};
    for (size_t l = 0; l < frame->end; l++) frame->layers[l].dy = LS_NO_SLOT;
    frame->layers[frame->end - 1].dy = ls_frame_casts_output(frame) ? take_slot(&way) : LS_GIVEN;
    for (size_t l = frame->end; l > frame->first; l--) {
        const ls_layer *layer = &frame->network->layers[l - 1];
        if (layer->is_unread) continue;
        int dy = frame->layers[l - 1].dy;
        for (int i = 0; i < layer->input_count; i++) frame->layers[l - 1].routes[i] = route_input(&way, layer, i, &dy);
        free_slot(&way, dy);
    }
    frame->input_slot = way.input;
    if (frame->slot_count == MOST_SLOTS)
        return ls_fail(LS_ERR_INVALID, "a network cannot keep more than %d gradients of activations at a time",
                       MOST_SLOTS - 1);
    return LS_OK;
}

/* The largest activation that has a gradient in a slot. */
static size_t largest_count(const ls_frame *frame) {
    const ls_network *network = frame->network;
    size_t largest = ls_frame_casts_output(frame) ? ls_shape_count(network->layers[frame->end - 1].out) : 0;
    for (size_t l = frame->first; l < frame->end; l++) {
        const ls_layer *layer = &network->layers[l];
        bool needed = false;
        for (int i = 0; i < layer->input_count; i++) needed = needed || layer->inputs[i] != LS_NETWORK_INPUT;
        if (needed && !layer->is_unread && ls_shape_count(layer->in) > largest) largest = ls_shape_count(layer->in);
    }
    return largest;
}

static void plan_slots(ls_frame *frame) {
    if (frame->slot_count < 2) frame->slot_count = 2;
    frame->slot_nbytes = frame->max_batch * largest_count(frame) * ls_dtype_nbytes(frame->precision);
    frame->slots_offset = frame->nbytes;
    for (int s = 0; s < frame->slot_count; s++) (void)take(frame, frame->slot_nbytes);
    frame->slot_nbytes = (frame->nbytes - frame->slots_offset) / (size_t)frame->slot_count;
    size_t outputs = ls_shape_count(frame->network->layers[frame->end - 1].out);
    if (ls_frame_casts_output(frame)) frame->outputs_offset = take(frame, frame->max_batch * outputs * sizeof(float));
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

static void find_layers(ls_frame *frame) {
    const ls_network *network = frame->network;
    while (network->layers[frame->first].block < frame->blocks.first) frame->first++;
    frame->end = frame->first;
    while (frame->end < network->layer_count && network->layers[frame->end].block < frame->blocks.end) frame->end++;
}

ls_status ls_frame_create(ls_frame **out, ls_device *device, const ls_network *network, ls_dtype precision,
                          struct ls_blocks blocks, size_t max_batch) {
    *out = NULL;
    ls_frame *frame = calloc(1, sizeof *frame);
    struct ls_frame_layer *layers = calloc(network->layer_count, sizeof *layers);
    if (!frame || !layers) {
        free(frame);
        free(layers);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a model's activations");
    }
    *frame = (ls_frame){.device = device,
                        .network = network,
                        .precision = precision,
                        .blocks = blocks,
                        .max_batch = max_batch,
                        .layers = layers};
    frame->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    find_layers(frame);
    plan_outputs(frame);
    ls_status status = plan_gradients(frame);
    plan_slots(frame);
    if (status != LS_OK) {
        ls_frame_destroy(frame);
        return status;
    }
    *out = frame;
    return LS_OK;
}

size_t ls_frame_nbytes(const ls_frame *frame) { return frame->nbytes; }

size_t ls_frame_workspace_nbytes(const ls_frame *frame) {
    size_t largest = 0;
    for (size_t l = frame->first; l < frame->end; l++) {
        const ls_layer *layer = &frame->network->layers[l];
        if (layer->is_unread || !layer->kind->workspace_nbytes) continue;
        size_t nbytes =
            layer->kind->workspace_nbytes(layer, frame->precision, ls_device_kind_of(frame->device), frame->max_batch);
        if (nbytes > largest) largest = nbytes;
    }
    return largest;
}

static ls_status alloc_workspace(ls_frame *frame) {
    size_t nbytes = ls_frame_workspace_nbytes(frame);
    if (nbytes == 0) return LS_OK;
    return ls_device_alloc(frame->device, LS_MEMORY_WORKSPACE, nbytes, "products", &frame->owned_workspace);
}

ls_status ls_frame_place(ls_frame *frame, void *arena, void *workspace) {
    ls_status status = workspace ? LS_OK : alloc_workspace(frame);
    frame->workspace = workspace ? workspace : frame->owned_workspace;
    if (status == LS_OK && !arena) {
        status = ls_device_alloc_padded(frame->device, LS_MEMORY_ACTIVATION, frame->used_nbytes,
                                        frame->nbytes - frame->used_nbytes, "activations", (void **)&frame->owned);
        arena = frame->owned;
    }
    if (status != LS_OK) return status;
    frame->arena = arena;
    for (size_t l = frame->first; l < frame->end; l++) {
        struct ls_frame_layer *place = &frame->layers[l];
        place->saved = frame->arena + place->saved_offset;
        const ls_layer *layer = &frame->network->layers[l];
        int first_input = layer->inputs[0];
        if (!layer->kind->in_place)
            place->y =
                frame->arena + (layer->passes_by > 0 ? slot_offset(frame, layer->passes_by - 1) : place->y_offset);
        else if (first_input >= (int)frame->first)
            place->y = frame->layers[first_input].y;
    }
    frame->outputs = (float *)(void *)(frame->arena + frame->outputs_offset);
    return LS_OK;
}

static void free_shared(ls_frame *frame) {
    for (size_t l = frame->first; l < frame->end; l++) {
        ls_device_free(frame->device, frame->layers[l].shared);
        frame->layers[l].shared = NULL;
    }
    frame->group = NULL;
}

void ls_frame_destroy(ls_frame *frame) {
    if (!frame) return;
    free_shared(frame);
    ls_device_free(frame->device, frame->gathered);
    ls_device_free(frame->device, frame->owned_workspace);
    ls_device_free(frame->device, frame->owned);
    free(frame->layers);
    free(frame);
}

ls_status ls_frame_sync_batchnorm(ls_frame *frame, ls_comm *group) {
    int world_size = group ? ls_comm_world_size(group) : 1;
    ls_status status = LS_OK;
    free_shared(frame);
    for (size_t l = frame->first; status == LS_OK && world_size > 1 && l < frame->end; l++) {
        const ls_layer *layer = &frame->network->layers[l];
        if (layer->batchnorm_count == 0) continue;
        size_t nbytes = layer->kind->shared_nbytes(layer, world_size);
        status = ls_device_alloc(frame->device, LS_MEMORY_WORKSPACE, nbytes, "statistics of all ranks",
                                 &frame->layers[l].shared);
    }
    if (status != LS_OK)
        free_shared(frame);
    else if (world_size > 1)
        frame->group = group;
    return status;
}
