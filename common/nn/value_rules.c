/* value_rules — derives the label of each layer's output (--debug-values) on the ranks of a network.
 *   idea  : labels propagate through the layers as values do. A rule depends only on the layer's operation and on how
 *           its weights are cut, and not on the layers that tensor_parallel.c inserts; so if one of those is missing or
 *           misplaced, a label does not match
 *
 *               layer                                  input         output        gradient of the input    of the weight
 *               product, weight cut by outputs         replicated    split         partial                  split
 *               product, weight cut by inputs          split         partial       split                    split
 *               embedding, vocabulary cut              replicated    partial       -                        split
 *               all others, product with a whole weight              as the input  as that of the output    see below
 *
 *           A whole weight of a layer that has split values sees this rank's rows only: its gradient is partial. f, g,
 *           gather and scatter have the label that their collective sets. A bias must not be added to a partial value
 *   data  : activations are varying on the data axis, gradients of parameters partial
 *   order : labels are set while operations are enqueued, in their order
 *   fails : kinds of layers that are unknown here pass labels on */
#include "common/nn/value_rules.h"

#include <stdio.h>

#include "common/base/log.h"

static bool is_product(const ls_layer *layer) {
    return layer->kind == &ls_linear || layer->kind == &ls_head || layer->kind == &ls_conv2d ||
           layer->kind == &ls_conv2d_part;
}

/* Whether the layer's collective determines the label: in forward, and in backward. */
static bool meets_forward(const ls_layer *layer) {
    return layer->kind == &ls_tensor_g || layer->kind == &ls_sequence_gather || layer->kind == &ls_sequence_scatter;
}
static bool meets_backward(const ls_layer *layer) {
    return layer->kind == &ls_tensor_f || layer->kind == &ls_sequence_gather || layer->kind == &ls_sequence_scatter;
}

/* The axis along which the layer's p-th parameter is cut, or LS_UNCUT. */
static int cut_axis(const ls_network *network, const ls_layer *layer, size_t p) {
    const struct ls_cut *cut =
        network->cuts && p < layer->parameter_count ? &network->cuts[layer->parameter_numbers[p]] : NULL;
    return ls_cut_is_cut(cut) ? cut->axis : LS_UNCUT;
}

/* The label of a layer's output by the network's description: for data from another stage, or unlabelled memory. */
static ls_value described(const ls_network *network, int l) {
    if (l == LS_NETWORK_INPUT) return LS_REPLICATED;
    const ls_layer *layer = &network->layers[l];
    if (layer->kind == &ls_tensor_g || layer->kind == &ls_sequence_gather) return LS_REPLICATED;
    if (layer->kind == &ls_sequence_scatter) return LS_SPLIT;
    if (layer->kind == &ls_embedding_part) return LS_PARTIAL;
    int axis = is_product(layer) ? cut_axis(network, layer, 0) : LS_UNCUT;
    return axis == LS_UNCUT ? described(network, layer->inputs[0]) : axis == 0 ? LS_SPLIT : LS_PARTIAL;
}

static ls_value found_at(const void *data, ls_value otherwise) {
    const struct ls_labels *labels = ls_values_find(data);
    return labels ? labels->on[LS_MESH_TENSOR] : otherwise;
}

static void need(const ls_frame *frame, const char *name, ls_value value, unsigned allowed, const char *reader) {
    const struct ls_labels labels = ls_labels_of(value, LS_VARYING);
    ls_device_fail(frame->device, ls_values_need(name, &labels, LS_MESH_TENSOR, allowed, reader));
}

static size_t output_nbytes(const ls_frame *frame, size_t l) {
    return frame->batch * ls_shape_count(frame->network->layers[l].out) * ls_dtype_nbytes(frame->precision);
}

/* --- before ------------------------------------------------------------------------------------------------------------ */

/* On the data axis their label is the one that the last gather, or the update, has set. */
static void label_parameters(const ls_frame *frame, const ls_parameters *parameters, const ls_layer *layer) {
    for (size_t p = 0; p < layer->parameter_count; p++) {
        const struct ls_tensor *tensor = &parameters->tensors[layer->parameter_numbers[p]];
        const struct ls_labels *known = ls_values_named("%s", tensor->name), *there = ls_values_find(tensor->data);
        bool cut = cut_axis(frame->network, layer, p) != LS_UNCUT;
        struct ls_labels labels = ls_labels_of(cut ? LS_SPLIT : LS_REPLICATED, LS_REPLICATED);
        if (known) labels.on[LS_MESH_PIPELINE] = known->on[LS_MESH_PIPELINE];
        if (there) labels.on[LS_MESH_DATA] = there->on[LS_MESH_DATA];
        ls_device_fail(frame->device,
                       ls_values_need(tensor->name, &labels, LS_MESH_DATA, 1u << LS_REPLICATED, layer->name));
        ls_values_set(tensor->data, tensor->count * sizeof(float), labels, true, "%s", tensor->name);
    }
}

void ls_value_rules_begin(const ls_frame *frame, const ls_parameters *parameters, size_t l, void *dy) {
    const ls_network *network = frame->network;
    ls_values_at(dy ? "backward" : "forward", network->layers[l].block);
    if (!dy) label_parameters(frame, parameters, &network->layers[l]);
    if (!dy || l + 1 < frame->end) return;
    ls_values_set(dy, output_nbytes(frame, l), ls_labels_of(described(network, (int)l), LS_VARYING), false,
                  "the gradient of %s's output", network->layers[l].name);
}

/* --- forward ----------------------------------------------------------------------------------------------------------- */

static ls_value input_of(const ls_frame *frame, const ls_layer *layer, int i, const struct ls_pass *pass) {
    ls_value expected = described(frame->network, layer->inputs[i]);
    return layer->inputs[i] < (int)frame->first ? expected : found_at(pass->x[i], expected);
}

static const char *input_name(const ls_frame *frame, const ls_layer *layer, int i) {
    return layer->inputs[i] == LS_NETWORK_INPUT ? "the network's input" : frame->network->layers[layer->inputs[i]].name;
}

/* A product of an input with label `in`: the first three rows of the table above. Fails (need) unless the input of a
 * cut weight has the table's label. */
static ls_value product(const ls_frame *frame, const ls_layer *layer, ls_value in) {
    int axis = cut_axis(frame->network, layer, 0);
    if (axis == LS_UNCUT) return in;
    need(frame, input_name(frame, layer, 0), in, axis == 0 ? 1u << LS_REPLICATED : 1u << LS_SPLIT, layer->name);
    return axis == 0 ? LS_SPLIT : LS_PARTIAL;
}

static ls_value output_value(const ls_frame *frame, const ls_layer *layer, const struct ls_pass *pass) {
    ls_value in = input_of(frame, layer, 0, pass);
    if (meets_forward(layer)) return found_at(pass->y, LS_REPLICATED);
    if (is_product(layer)) return product(frame, layer, in);
    if (layer->kind == &ls_embedding_part) return LS_PARTIAL;
    for (int i = 0; i < layer->input_count; i++) {
        ls_value value = input_of(frame, layer, i, pass);
        unsigned same = i == 0 ? 1u << LS_REPLICATED | 1u << LS_SPLIT : 1u << in;
        need(frame, input_name(frame, layer, i), value, same, layer->name);
    }
    return in;
}

/* Running statistics: of this rank's samples, or of those of all ranks of a synchronised batch norm. */
static void label_buffers(const ls_frame *frame, const ls_layer *layer, const struct ls_pass *pass) {
    const ls_network *network = frame->network;
    for (size_t b = 0; b < layer->buffer_count && pass->buffers[b]; b++) {
        size_t number = layer->buffer_numbers[b];
        const struct ls_tensor *buffer = &network->buffers[number];
        bool cut = network->cuts && ls_cut_is_cut(&network->cuts[network->parameter_count + number]);
        ls_values_set(pass->buffers[b], buffer->count * sizeof(float),
                      ls_labels_of(cut ? LS_SPLIT : LS_REPLICATED, pass->group ? LS_REPLICATED : LS_VARYING), true,
                      "%s", buffer->name);
    }
}

void ls_value_rules_forward(const ls_frame *frame, size_t l, const struct ls_pass *pass) {
    const ls_layer *layer = &frame->network->layers[l];
    ls_value out = output_value(frame, layer, pass);
    bool has_bias = (layer->kind == &ls_linear || layer->kind == &ls_conv2d) && layer->parameter_count > 1;
    if (has_bias) need(frame, layer->name, out, ~(1u << LS_PARTIAL), layer->parameters[1].name);
    label_buffers(frame, layer, pass);
    ls_values_set(pass->y, output_nbytes(frame, l), ls_labels_of(out, LS_VARYING), false, "the output of %s",
                  layer->name);
}

/* --- backward ---------------------------------------------------------------------------------------------------------- */

/* The label of the p-th parameter's gradient; the output's gradient has label `dy`. If a rank has rows of its own, a
 * weight that is not cut gets a term; a product's weight also if the input is split. A layer norm of own rows reduces
 * its sums itself: the gradient has their label. The same holds for scatter's bias, from the gathered dx. */
static ls_value parameter_value(const ls_frame *frame, const ls_layer *layer, size_t p, const struct ls_pass *pass,
                                ls_value dy) {
    if (cut_axis(frame->network, layer, p) != LS_UNCUT) return LS_SPLIT;
    if (layer->kind == &ls_layernorm_part) /* its sums over rows, which are then added to the gradients */
        return found_at((const char *)pass->saved + pass->batch * layer->saved_nbytes_per_sample, LS_PARTIAL);
    if (layer->kind == &ls_sequence_scatter) return found_at(pass->dx[0], LS_REPLICATED);
    bool rows = dy == LS_SPLIT || (p == 0 && is_product(layer) && input_of(frame, layer, 0, pass) == LS_SPLIT);
    return rows ? LS_PARTIAL : dy;
}

static void label_gradients(const ls_frame *frame, const ls_parameters *parameters, const ls_layer *layer,
                            const struct ls_pass *pass, ls_value dy) {
    for (size_t p = 0; p < layer->parameter_count; p++) {
        const struct ls_tensor *tensor = &parameters->tensors[layer->parameter_numbers[p]];
        ls_value value = parameter_value(frame, layer, p, pass, dy);
        ls_values_set(tensor->gradient, tensor->count * sizeof(float), ls_labels_of(value, LS_PARTIAL), true,
                      "the gradient of %s", tensor->name);
    }
}

static ls_value input_gradient(const ls_frame *frame, const ls_layer *layer, const struct ls_pass *pass, ls_value dy) {
    if (layer->kind == &ls_tensor_f) return dy;
    if (meets_backward(layer)) return pass->dx[0] ? found_at(pass->dx[0], dy) : dy;
    int axis = is_product(layer) ? cut_axis(frame->network, layer, 0) : LS_UNCUT;
    return axis == LS_UNCUT ? dy : axis == 0 ? LS_PARTIAL : LS_SPLIT;
}

/* A gradient can be added only to one with the same label. */
static void label_input(const ls_frame *frame, size_t l, int i, void *to, ls_value value) {
    const ls_layer *layer = &frame->network->layers[l];
    const char *name = input_name(frame, layer, i);
    if (!to) return;
    if (frame->layers[l].routes[i].how == LS_ROUTE_ADD)
        need(frame, layer->name, value, 1u << found_at(to, value), "the sum of gradients there");
    size_t count = layer->inputs[i] == LS_NETWORK_INPUT ? ls_shape_count(layer->in)
                                                        : ls_shape_count(frame->network->layers[layer->inputs[i]].out);
    ls_values_set(to, frame->batch * count * ls_dtype_nbytes(frame->precision), ls_labels_of(value, LS_VARYING), false,
                  "the gradient of %s's output", name);
}

void ls_value_rules_backward(const ls_frame *frame, const ls_parameters *parameters, size_t l,
                             const struct ls_pass *pass, void *const to[LS_LAYER_MAX_INPUTS]) {
    const ls_layer *layer = &frame->network->layers[l];
    ls_value dy = layer->is_unread || !pass->dy ? LS_REPLICATED : found_at(pass->dy, described(frame->network, (int)l));
    label_gradients(frame, parameters, layer, pass, dy);
    if (layer->is_unread) return;
    if (!meets_backward(layer)) {
        char name[64];
        snprintf(name, sizeof name, "the gradient of %s's output", layer->name);
        need(frame, name, dy, ~(1u << LS_PARTIAL), "its backward");
    }
    for (int i = 0; i < layer->input_count; i++)
        label_input(frame, l, i, to[i], input_gradient(frame, layer, pass, dy));
}
