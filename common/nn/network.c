/* network — the graph of layers: the readers of each value, blocks, and shared parameters.
 *   idea  : layers are added in the order of the forward pass, so that an input is always an earlier layer. A layer
 *           that has no reader is not computed (the head of `branched`), but its parameters belong to the network
 *   shared: a parameter of several layers is defined by the first of them. In backward the last of these layers writes
 *           its gradient, the others add to it, and after the first layer it is ready
 *   blocks: consecutive layers. A block reads the output of the block before, and no other value of an earlier one, so
 *           that only one activation must be kept, or sent, between two blocks */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/network_internal.h"

ls_network *ls_network_begin(struct ls_shape input, ls_loss_kind loss) {
    ls_network *network = calloc(1, sizeof *network);
    if (!network) {
        (void)ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a network");
        return NULL;
    }
    network->input = input;
    network->loss = loss;
    return network;
}

void ls_network_destroy(ls_network *network) {
    if (!network) return;
    free(network->layers);
    free(network->parameters);
    free(network->buffers);
    free(network->untaken);
    free(network->cuts);
    ls_network_destroy(network->whole);
    free(network);
}

/* --- adding a layer ------------------------------------------------------------------------------------------------ */

/* Returns the array with room for one more: it doubles at counts that are powers of two. NULL, reported: unchanged. */
static void *with_room(void *array, size_t count, size_t element_nbytes) {
    if ((count & (count - 1)) != 0) return array;
    void *larger = realloc(array, (count > 0 ? 2 * count : 1) * element_nbytes);
    if (!larger) (void)ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a network");
    return larger;
}

static bool same_shape(struct ls_shape a, struct ls_shape b) {
    return a.channels == b.channels && a.height == b.height && a.width == b.width &&
           ls_shape_rows(a) == ls_shape_rows(b);
}

static struct ls_shape shape_of(const ls_network *network, int layer) {
    return layer == LS_NETWORK_INPUT ? network->input : network->layers[layer].out;
}

static ls_status find_input(const ls_network *network, const ls_layer *layer, const char *name, int *input) {
    for (*input = (int)network->layer_count - 1; *input >= 0; --*input)
        if (strcmp(network->layers[*input].name, name) == 0) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "layer %s reads %s, but there is no layer of that name before it", layer->name,
                   name);
}

static ls_status connect(const ls_network *network, ls_layer *layer) {
    ls_status status = LS_OK;
    int last = LS_LAYER_MAX_INPUTS;
    while (last > 0 && !layer->reads[last - 1]) last--;
    layer->input_count = last > 0 ? last : 1;
    /* the layer before, or the network's input */
    layer->inputs[0] = layer->reads_input ? LS_NETWORK_INPUT : (int)network->layer_count - 1;
    for (int i = 0; status == LS_OK && i < last; i++) {
        layer->inputs[i] = LS_NETWORK_INPUT;
        if (layer->reads[i]) status = find_input(network, layer, layer->reads[i], &layer->inputs[i]);
    }
    if (status != LS_OK) return status;
    layer->in = shape_of(network, layer->inputs[0]);
    for (int i = 1; i < layer->input_count; i++)
        if (!same_shape(shape_of(network, layer->inputs[i]), layer->in))
            return ls_fail(LS_ERR_INVALID, "the inputs of layer %s differ in shape", layer->name);
    return LS_OK;
}

ls_status ls_network_declare_parameter(ls_network *network, const struct ls_tensor *tensor) {
    struct ls_declared *list = with_room(network->parameters, network->parameter_count, sizeof *list);
    if (!list) return LS_ERR_NO_MEMORY;
    network->parameters = list;
    list[network->parameter_count++] = (struct ls_declared){*tensor, network->block_count - 1};
    return LS_OK;
}

ls_status ls_network_declare_buffer(ls_network *network, const struct ls_tensor *tensor) {
    struct ls_tensor *list = with_room(network->buffers, network->buffer_count, sizeof *list);
    if (!list) return LS_ERR_NO_MEMORY;
    network->buffers = list;
    list[network->buffer_count++] = *tensor;
    return LS_OK;
}

static bool alike(const struct ls_tensor *a, const struct ls_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* Sets the number of the layer's p-th parameter: a new one, or that of the parameter that it shares. */
static ls_status number_parameter(ls_network *network, ls_layer *layer, size_t p) {
    size_t *number = &layer->parameter_numbers[p];
    const struct ls_tensor *tensor = &layer->parameters[p];
    if (!layer->shares[p]) {
        *number = network->parameter_count;
        return ls_network_declare_parameter(network, tensor);
    }
    for (*number = 0; *number < network->parameter_count; ++*number) {
        const struct ls_tensor *other = &network->parameters[*number].tensor;
        if (strcmp(other->name, layer->shares[p]) == 0 && alike(other, tensor)) return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID, "%s cannot share %s: no earlier parameter has that name and shape", tensor->name,
                   layer->shares[p]);
}

static ls_status check_name(const ls_network *network, const char *name) {
    for (size_t l = 0; l < network->layer_count; l++)
        if (strcmp(network->layers[l].name, name) == 0)
            return ls_fail(LS_ERR_INVALID, "layer name %s is already taken; give each layer a name of its own", name);
    return LS_OK;
}

ls_status ls_network_add(ls_network *network, ls_layer description) {
    ls_status status = check_name(network, description.name);
    if (status == LS_OK) status = connect(network, &description);
    if (status == LS_OK) status = description.kind->plan(&description);
    if (status != LS_OK) return status;
    ls_layer *list = with_room(network->layers, network->layer_count, sizeof *list), *layer;
    if (!list) return LS_ERR_NO_MEMORY;
    network->layers = list;
    layer = &list[network->layer_count];
    *layer = description;
    if (network->layer_count == 0 || layer->begins_block) network->block_count++;
    layer->block = network->block_count - 1;
    for (size_t p = 0; status == LS_OK && p < layer->parameter_count; p++) status = number_parameter(network, layer, p);
    for (size_t b = 0; status == LS_OK && b < layer->buffer_count; b++) {
        layer->buffer_numbers[b] = network->buffer_count;
        status = ls_network_declare_buffer(network, &layer->buffers[b]);
    }
    network->layer_count++;
    return status;
}

/* --- what the whole graph determines for each layer --------------------------------------------------------------- */

static void mark_unread(ls_network *network) {
    for (size_t l = 0; l < network->layer_count; l++) network->layers[l].is_unread = l + 1 < network->layer_count;
    for (size_t l = network->layer_count; l > 0; l--) {
        const ls_layer *layer = &network->layers[l - 1];
        for (int i = 0; !layer->is_unread && i < layer->input_count; i++)
            if (layer->inputs[i] != LS_NETWORK_INPUT) network->layers[layer->inputs[i]].is_unread = false;
    }
}

/* Marks the parameters that only unread layers have. */
static void mark_untaken(ls_network *network) {
    for (size_t number = 0; number < network->parameter_count; number++) network->untaken[number] = true;
    for (size_t l = 0; l < network->layer_count; l++)
        for (size_t p = 0; !network->layers[l].is_unread && p < network->layers[l].parameter_count; p++)
            network->untaken[network->layers[l].parameter_numbers[p]] = false;
    for (size_t number = 0; number < network->parameter_count; number++)
        network->has_untaken = network->has_untaken || network->untaken[number];
}

/* Marks the layer that writes each gradient, and the one that completes it (layer.h). seen: a flag for each parameter
 * of the network, all false. */
static void mark_gradients(ls_network *network, bool *seen) {
    for (size_t l = network->layer_count; l > 0; l--) {
        ls_layer *layer = &network->layers[l - 1];
        for (size_t p = 0; !layer->is_unread && p < layer->parameter_count; p++) {
            layer->writes_gradient[p] = !seen[layer->parameter_numbers[p]];
            seen[layer->parameter_numbers[p]] = true;
        }
    }
    for (size_t l = 0; l < network->layer_count; l++) {
        ls_layer *layer = &network->layers[l];
        for (size_t p = 0; !layer->is_unread && p < layer->parameter_count; p++) {
            layer->completes_gradient[p] = seen[layer->parameter_numbers[p]];
            seen[layer->parameter_numbers[p]] = false;
        }
    }
}

static int readers_of(const ls_network *network, int value) {
    int count = 0;
    for (size_t l = 0; l < network->layer_count; l++)
        for (int i = 0; i < network->layers[l].input_count; i++) count += network->layers[l].inputs[i] == value;
    return count;
}

/* An in-place layer that changes its input must be the input's only reader. */
static bool overwrites_what_others_read(const ls_network *network, const ls_layer *layer) {
    if (!layer->kind->in_place || layer->kind->leaves_input) return false;
    return layer->inputs[0] == LS_NETWORK_INPUT || readers_of(network, layer->inputs[0]) > 1;
}

static ls_status check_layer(const ls_network *network, const ls_layer *layer) {
    if (overwrites_what_others_read(network, layer))
        return ls_fail(LS_ERR_INVALID, "layer %s works in place, but other layers read its input as well", layer->name);
    for (size_t p = 1; p < layer->parameter_count; p++)
        if (layer->writes_gradient[p] != layer->writes_gradient[0] && !layer->kind->apart)
            return ls_fail(LS_ERR_INVALID, "layer %s may share all of its parameters or none", layer->name);
    for (int i = 0; i < layer->input_count; i++) {
        int input = layer->inputs[i], block = input == LS_NETWORK_INPUT ? -1 : network->layers[input].block;
        bool ends_block = input == LS_NETWORK_INPUT || network->layers[input + 1].block > block;
        if (block != layer->block && !(ends_block && block == layer->block - 1))
            return ls_fail(LS_ERR_INVALID,
                           "layer %s of block %d may read only its own block and the end of the block before",
                           layer->name, layer->block);
    }
    return LS_OK;
}

ls_status ls_network_finish(ls_network *network) {
    bool *seen = calloc(network->parameter_count + 1, sizeof *seen);
    network->has_untaken = false;
    free(network->untaken); /* if layers were added after an earlier finish */
    network->untaken = calloc(network->parameter_count + 1, sizeof *network->untaken);
    ls_status status =
        seen && network->untaken ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a network");
    if (status == LS_OK) {
        network->answer_nbytes =
            ls_network_answers(network) * (network->loss == LS_LOSS_CROSS_ENTROPY ? sizeof(int64_t) : sizeof(float));
        mark_unread(network);
        mark_untaken(network);
        mark_gradients(network, seen);
    }
    free(seen);
    for (size_t l = 0; status == LS_OK && l < network->layer_count; l++)
        status = check_layer(network, &network->layers[l]);
    return status;
}

struct ls_blocks ls_network_blocks(const ls_network *network) {
    return (struct ls_blocks){0, network->block_count};
}

bool ls_network_block_is_shared(const ls_network *network, int block) {
    for (size_t l = 0; l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        for (size_t p = 0; layer->block != block && p < layer->parameter_count; p++)
            if (network->parameters[layer->parameter_numbers[p]].block == block) return true;
    }
    return false;
}

double ls_network_block_cost(const ls_network *network, int block) {
    double cost = 0;
    for (size_t l = 0; l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        if (layer->block != block || layer->is_unread) continue;
        cost += (double)ls_shape_count(layer->out) + (layer->kind->products ? layer->kind->products(layer) : 0);
    }
    return cost;
}

/* NAME of "<layer>.NAME"; NULL if the text begins otherwise. */
static const char *suffix_of(const char *text, const ls_layer *layer) {
    size_t length = strlen(layer->name);
    return strncmp(text, layer->name, length) == 0 && text[length] == '.' ? text + length + 1 : NULL;
}

bool ls_network_may_name(const ls_network *network, const char *name, const char **same) {
    *same = NULL;
    if (network->whole) return ls_network_may_name(network->whole, name, same);
    for (size_t l = 0; l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        const char *suffix = suffix_of(name, layer);
        for (size_t p = 0; suffix && p < layer->parameter_count; p++) {
            if (!layer->shares[p] || strcmp(layer->parameters[p].name, name) != 0) continue;
            *same = network->parameters[layer->parameter_numbers[p]].tensor.name;
            return true;
        }
        for (const char *const *mask = layer->kind->masks; suffix && mask && *mask; mask++)
            if (strcmp(*mask, suffix) == 0) return true;
    }
    return false;
}

struct ls_shape ls_network_output(const ls_network *network) {
    if (network->whole) return ls_network_output(network->whole);
    return network->layers[network->layer_count - 1].out;
}

bool ls_network_takes_integers(const ls_network *network) { return network->input_nbytes > 0; }

size_t ls_network_answers(const ls_network *network) {
    struct ls_shape out = ls_network_output(network);
    return network->loss == LS_LOSS_CROSS_ENTROPY ? ls_shape_rows(out) : ls_shape_count(out);
}

struct ls_shape ls_network_block_input(const ls_network *network, int block) {
    size_t l = 0;
    while (network->layers[l].block < block) l++;
    return l > 0 ? network->layers[l - 1].out : network->input;
}
