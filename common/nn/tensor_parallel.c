/* tensor_parallel — a rank's part of a network: its layers, and the communication between them.
 *   idea  : layers are cut by pairs. The first of a pair computes a part of its outputs (column-parallel: a rank has
 *           rows of the weight), the layers that follow work on a part as on the whole (ReLU, GELU, heads of attention,
 *           batch norm, pools), and the second reads parts (row-parallel: columns of the weight), so that its outputs
 *           are terms of a sum. So a pair communicates once in forward, after the second layer, and once in backward,
 *           in front of the first (tensor_layers.c)
 *   values: each layer's output is known when the next is added: the same on all ranks, a part, or rows. A layer gets
 *           an input that its kind accepts, or the network is refused
 *   rows  : with sequence parallelism no value between pairs is replicated: each rank has rows of it
 *   cuts  : a tensor is cut along the one axis in which its shape in the part differs from that in the whole
 *   initial weights: every rank draws all weights of the whole network, and keeps its part, so that they are those of
 *           one device and fan-ins those of whole layers (model.c)
 *   cost  : weights, gradients, moments and activations inside of pairs are divided by T; values between pairs are
 *           divided only with sequence parallelism
 *   fails : sizes that T does not divide are refused before anything starts (ls_tensor_check) */
#include "common/nn/tensor_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/network_internal.h"
#include "common/nn/tensor_values.h"

struct cutting {
    ls_network *out;
    const ls_network *whole;
    int rank, ranks;
    bool sequence;
    enum ls_tensor_value *values; /* per layer of the whole: its output */
    size_t *stands_for;           /* ... and the layer of the part that has this output */
};

/* --- layers of the part ------------------------------------------------------------------------------------------------ */

/* Equal consecutive ranges, large enough for all classes; the last ranks may have fewer, or none. */
static struct ls_class_part classes_of(size_t classes, size_t rank, size_t ranks) {
    size_t room = (classes + ranks - 1) / ranks, first = rank * room;
    size_t left = first < classes ? classes - first : 0;
    return (struct ls_class_part){first, left < room ? left : room, room, classes};
}

/* The layer's description, without the fields that its network has set. */
static ls_layer description_of(const ls_layer *whole, const struct cutting *c) {
    ls_layer layer = {.kind = whole->kind,
                      .units = whole->units,
                      .kernel = whole->kernel,
                      .stride = whole->stride,
                      .padding = whole->padding,
                      .vocabulary = whole->vocabulary,
                      .heads = whole->heads,
                      .deviation = whole->deviation,
                      .no_bias = whole->no_bias,
                      .reads_input = whole->reads_input,
                      .relu = whole->relu,
                      .gelu = whole->gelu,
                      .keeps_scores = whole->keeps_scores,
                      .begins_block = whole->begins_block,
                      .cut = whole->cut,
                      .part = {c->rank, c->ranks, {0}}};
    memcpy(layer.name, whole->name, sizeof layer.name);
    memcpy(layer.shares, whole->shares, sizeof layer.shares);
    if (whole->cut == LS_CUT_CLASSES)
        layer.part.classes = classes_of((size_t)(whole->vocabulary > 0 ? whole->vocabulary : whole->units),
                                        (size_t)c->rank, (size_t)c->ranks);
    return layer;
}

/* Sets the inputs of layer `l` of the whole: the names of the corresponding layers of the part. */
static void read_as_whole(const struct cutting *c, const ls_layer *whole, ls_layer *layer) {
    if (c->out->layer_count == 0) return; /* the first layer reads the input anyway */
    for (int i = 0; i < whole->input_count; i++)
        if (whole->inputs[i] != LS_NETWORK_INPUT)
            layer->reads[i] = c->out->layers[c->stands_for[whole->inputs[i]]].name;
}

static ls_status add_beside(struct cutting *c, const ls_layer *whole, const char *suffix, ls_layer layer) {
    if (snprintf(layer.name, sizeof layer.name, "%s.%s", whole->name, suffix) >= (int)sizeof layer.name)
        return ls_fail(LS_ERR_INVALID, "the name of layer %s is too long to be cut", whole->name);
    layer.part = (struct ls_layer_part){c->rank, c->ranks, {0}};
    return ls_network_add(c->out, layer);
}

/* The layer's input is the same on all ranks, or rows: after f or gather it is the same, its gradient perhaps partial. */
static ls_status enter(struct cutting *c, const ls_layer *whole, ls_layer *layer) {
    if (whole->inputs[0] == LS_NETWORK_INPUT) { /* no layer needs its gradient */
        read_as_whole(c, whole, layer);
        return LS_OK;
    }
    bool gathers = c->values[whole->inputs[0]] == LS_TENSOR_ROWS;
    ls_layer before = {.kind = gathers ? &ls_sequence_gather : &ls_tensor_f, .begins_block = layer->begins_block};
    read_as_whole(c, whole, &before);
    layer->begins_block = false;
    return add_beside(c, whole, "f", before);
}

/* After terms of a sum. The bias keeps its name (bias: its parameter number in the whole; -1: none). */
static ls_status leave(struct cutting *c, const ls_layer *whole, int bias) {
    ls_layer behind = {.kind = c->sequence ? &ls_sequence_scatter : &ls_tensor_g,
                       .units = bias >= 0 ? whole->units : 0,
                       .relu = bias >= 0 && whole->relu};
    const ls_layer *reader = ls_tensor_only_reader(c->whole, whole);
    if (c->sequence && reader && reader->kind == &ls_addition) behind.passes_by = 2; /* the sum is kept */
    ls_status status = add_beside(c, whole, "g", behind);
    if (status != LS_OK || bias < 0) return status;
    const char *name = whole->parameters[bias].name;
    ls_layer *added = &c->out->layers[c->out->layer_count - 1];
    memcpy(added->parameters[0].name, name, LS_TENSOR_NAME_NBYTES);
    memcpy(c->out->parameters[added->parameter_numbers[0]].tensor.name, name, LS_TENSOR_NAME_NBYTES);
    return LS_OK;
}

static ls_status add_terms(struct cutting *c, const ls_layer *whole, ls_layer layer) {
    bool is_linear = whole->kind == &ls_linear;
    if (is_linear) layer.kind = &ls_head; /* without the bias */
    if (whole->kind == &ls_conv2d) layer.kind = &ls_conv2d_part;
    if (whole->kind == &ls_embedding) layer.kind = &ls_embedding_part;
    if (is_linear) layer.relu = false;
    layer.passes_by = c->sequence ? 1 : 0;
    read_as_whole(c, whole, &layer);
    ls_status status = ls_network_add(c->out, layer);
    return status == LS_OK ? leave(c, whole, is_linear ? 1 : -1) : status;
}

static ls_status add_outputs(struct cutting *c, const ls_layer *whole, ls_layer layer) {
    layer.units = whole->cut == LS_CUT_CLASSES ? (int)layer.part.classes.room : whole->units / c->ranks;
    ls_status status = enter(c, whole, &layer);
    return status == LS_OK ? ls_network_add(c->out, layer) : status;
}

static ls_status add_whole(struct cutting *c, const ls_layer *whole, ls_layer layer) {
    if (whole->kind == &ls_layernorm && whole->inputs[0] != LS_NETWORK_INPUT &&
        c->values[whole->inputs[0]] == LS_TENSOR_ROWS) {
        const ls_layer *reader = ls_tensor_only_reader(c->whole, whole);
        layer.kind = &ls_layernorm_part;
        layer.passes_by = reader && reader->cut != LS_CUT_NONE ? 1 : 0; /* the gathered rows are kept */
    }
    if (whole->cut == LS_CUT_HEADS) layer.heads = whole->heads / c->ranks;
    read_as_whole(c, whole, &layer);
    return ls_network_add(c->out, layer);
}

/* --- all layers --------------------------------------------------------------------------------------------------- */

static ls_status add_layer(struct cutting *c, size_t l) {
    const ls_layer *whole = &c->whole->layers[l];
    ls_layer layer = description_of(whole, c);
    ls_status status = ls_tensor_find_value(whole, c->values, c->sequence, &c->values[l]);
    if (status != LS_OK) return status;
    if (whole->cut == LS_CUT_INPUTS || ls_tensor_is_embedding(whole))
        status = add_terms(c, whole, layer);
    else if (c->values[l] == LS_TENSOR_PART && (whole->cut != LS_CUT_NONE && whole->cut != LS_CUT_HEADS))
        status = add_outputs(c, whole, layer);
    else
        status = add_whole(c, whole, layer);
    c->stands_for[l] = c->out->layer_count - 1;
    return status;
}

/* --- tensors -------------------------------------------------------------------------------------------------------------- */

static struct ls_cut cut_of(const struct ls_tensor *whole, const struct ls_tensor *part, size_t ranges) {
    struct ls_cut cut = {.whole = *whole, .axis = LS_UNCUT, .ranges = ranges};
    for (int d = 0; d < whole->ndim; d++)
        if (part->shape[d] != whole->shape[d]) cut.axis = d;
    if (cut.axis != LS_UNCUT) cut.held = part->shape[cut.axis];
    return cut;
}

static ls_status note_cuts(ls_network *out, const ls_network *whole) {
    size_t parameters = whole->parameter_count;
    out->cuts = calloc(parameters + whole->buffer_count + 1, sizeof *out->cuts);
    if (!out->cuts) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a part of a network");
    for (size_t p = 0; p < parameters; p++)
        out->cuts[p] = cut_of(&whole->parameters[p].tensor, &out->parameters[p].tensor, 1);
    for (size_t b = 0; b < whole->buffer_count; b++)
        out->cuts[parameters + b] = cut_of(&whole->buffers[b], &out->buffers[b], 1);
    for (size_t l = 0; l < whole->layer_count; l++)
        for (size_t p = 0; whole->layers[l].cut == LS_CUT_QKV && p < whole->layers[l].parameter_count; p++)
            out->cuts[whole->layers[l].parameter_numbers[p]].ranges = 3;
    return LS_OK;
}

/* --- the whole part ----------------------------------------------------------------------------------------------- */

static ls_status add_all(struct cutting *c) {
    ls_status status = LS_OK;
    c->values = calloc(c->whole->layer_count, sizeof *c->values);
    c->stands_for = calloc(c->whole->layer_count, sizeof *c->stands_for);
    if (!c->values || !c->stands_for)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a part of a network");
    for (size_t l = 0; status == LS_OK && l < c->whole->layer_count; l++) status = add_layer(c, l);
    free(c->values);
    free(c->stands_for);
    return status == LS_OK ? ls_network_finish(c->out) : status;
}

static void note_class_cut(ls_network *out) {
    const ls_layer *last = &out->layers[out->layer_count - 1];
    if (last->cut == LS_CUT_CLASSES) out->class_cut = last;
}

ls_status ls_tensor_cut(ls_network **out, ls_network *whole, const ls_tensor_options *options) {
    *out = NULL;
    ls_network *part = ls_network_begin(whole->input, whole->loss);
    if (!part) {
        ls_network_destroy(whole);
        return LS_ERR_NO_MEMORY;
    }
    part->whole = whole;
    part->input_nbytes = whole->input_nbytes;
    part->tensor_rank = options->rank;
    struct cutting c = {
        .out = part, .whole = whole, .rank = options->rank, .ranks = options->ranks, .sequence = options->sequence};
    ls_status status = ls_tensor_check(whole, options->ranks, options->sequence);
    if (status == LS_OK) status = add_all(&c);
    if (status == LS_OK) status = note_cuts(part, whole);
    if (status != LS_OK) {
        ls_network_destroy(part);
        return status;
    }
    note_class_cut(part);
    *out = part;
    return LS_OK;
}
