/* tensor_check — checks on a network for tensor parallelism: whether it can be cut, which parts are cut, and the bytes
 * that a step sends. */
#include "common/base/log.h"
#include "common/nn/class_loss.h"
#include "common/nn/model_internal.h"
#include "common/nn/tensor_parallel.h"

/* --- what cannot be cut ---------------------------------------------------------------------------------------------- */

static ls_status refuse(const ls_layer *layer, int count, const char *what, int ranks) {
    return ls_fail(LS_ERR_USAGE, "layer %s has %d %s, which %d ranks cannot share equally; give --tensor a divisor",
                   layer->name, count, what, ranks);
}

static ls_status check_layer(const ls_layer *layer, int ranks) {
    switch (layer->cut) {
    case LS_CUT_HEADS: return layer->heads % ranks == 0 ? LS_OK : refuse(layer, layer->heads, "heads", ranks);
    case LS_CUT_QKV:
        return layer->units / 3 % ranks == 0 ? LS_OK : refuse(layer, layer->units / 3, "heads' channels", ranks);
    case LS_CUT_OUTPUTS: return layer->units % ranks == 0 ? LS_OK : refuse(layer, layer->units, "outputs", ranks);
    default: return LS_OK;
    }
}

static bool is_cut_somewhere(const ls_network *network) {
    for (size_t l = 0; l < network->layer_count; l++)
        if (network->layers[l].cut != LS_CUT_NONE) return true;
    return false;
}

ls_status ls_tensor_check(const ls_network *network, int ranks, bool sequence) {
    ls_status status = LS_OK;
    if (ranks > 1 && !is_cut_somewhere(network))
        return ls_fail(LS_ERR_USAGE, "this model has no pair of layers for --tensor to cut");
    /* heads first: their number is the one that the user chose */
    for (size_t l = 0; status == LS_OK && l < network->layer_count; l++)
        if (network->layers[l].cut == LS_CUT_HEADS) status = check_layer(&network->layers[l], ranks);
    for (size_t l = 0; status == LS_OK && l < network->layer_count; l++)
        status = check_layer(&network->layers[l], ranks);
    if (status != LS_OK || !sequence) return status;
    if (network->input_nbytes == 0)
        return ls_fail(LS_ERR_USAGE, "--sequence-parallel needs a text's positions; give --model gpt");
    if (ls_shape_rows(network->input) % (size_t)ranks != 0)
        return ls_fail(
            LS_ERR_USAGE,
            "a context of %d positions cannot be shared equally by %d ranks; --sequence-parallel needs a multiple",
            network->input.rows, ranks);
    return LS_OK;
}

ls_comm *ls_tensor_group(const ls_model *model) { return ls_model_network(model)->tensor; }

bool ls_tensor_counts_elsewhere(const ls_model *model, size_t index) {
    const ls_network *network = ls_model_network(model);
    return network->whole && network->tensor_rank > 0 && !ls_cut_is_cut(&network->cuts[index]);
}

/* Bytes that the layer communicates in `forwards` forward passes and one backward pass. */
static size_t layer_nbytes(const ls_layer *layer, size_t element, size_t samples, size_t forwards) {
    bool scatters = layer->kind == &ls_sequence_scatter, gathers = layer->kind == &ls_sequence_gather;
    size_t nbytes = samples * ls_shape_count(scatters ? layer->in : layer->out) * element;
    if (layer->kind == &ls_tensor_f) return nbytes;
    if (layer->kind == &ls_tensor_g) return forwards * nbytes;
    if (scatters || gathers) return (forwards + 1) * nbytes / 2; /* half of an all-reduce, each time */
    return layer->kind == &ls_layernorm_part ? 2 * layer->parameters[0].count * sizeof(float) : 0;
}

/* The sum over blocks; those before `kept` run forward twice. */
static size_t sum_layers(const ls_model *model, struct ls_blocks blocks, int kept, size_t samples) {
    const ls_network *network = model->network;
    bool has_loss = network->class_cut && blocks.end == network->block_count;
    size_t nbytes = has_loss ? ls_class_loss_nbytes(network, samples) : 0;
    for (size_t l = 0; network->whole && l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        if (layer->block >= blocks.first && layer->block < blocks.end)
            nbytes += layer_nbytes(layer, ls_dtype_nbytes(model->precision), samples, layer->block < kept ? 2 : 1);
    }
    return nbytes;
}

size_t ls_tensor_step_nbytes(const ls_model *model, size_t samples) {
    if (model->every == LS_FORWARD_ONLY) return 0;
    return sum_layers(model, ls_network_blocks(model->network), ls_segments_first_kept(model->segments), samples);
}

size_t ls_tensor_blocks_nbytes(const ls_model *model, struct ls_blocks blocks, size_t samples) {
    return sum_layers(model, blocks, 0, samples);
}
