/* tensor_values — the distribution of a value over the tensor axis: of a layer's input, and of its output. */
#include "common/nn/tensor_values.h"

#include "common/base/log.h"

const ls_layer *ls_tensor_only_reader(const ls_network *network, const ls_layer *layer) {
    const ls_layer *reader = NULL;
    int count = 0;
    for (size_t l = 0; l < network->layer_count; l++)
        for (int i = 0; i < network->layers[l].input_count; i++) {
            if (network->layers[l].inputs[i] != (int)(layer - network->layers)) continue;
            reader = &network->layers[l];
            count++;
        }
    return count == 1 ? reader : NULL;
}

bool ls_tensor_is_embedding(const ls_layer *layer) {
    return layer->cut == LS_CUT_CLASSES && layer->kind == &ls_embedding;
}

ls_status ls_tensor_find_value(const ls_layer *layer, const enum ls_tensor_value *values, bool sequence,
                               enum ls_tensor_value *out) {
    enum ls_tensor_value in = layer->inputs[0] == LS_NETWORK_INPUT ? LS_TENSOR_ALIKE : values[layer->inputs[0]];
    bool by_channel = layer->kind == &ls_batchnorm2d || layer->kind == &ls_maxpool2d,
         by_row = layer->kind == &ls_layernorm || layer->kind == &ls_addition, fits = true;
    for (int i = 1; i < layer->input_count; i++)
        fits = fits && layer->inputs[i] != LS_NETWORK_INPUT && values[layer->inputs[i]] == in;
    switch (layer->cut) {
    case LS_CUT_NONE:
        fits = (fits || layer->input_count == 1) &&
               (in == LS_TENSOR_ALIKE || (in == LS_TENSOR_PART && by_channel) || (in == LS_TENSOR_ROWS && by_row));
        *out = in;
        break;
    case LS_CUT_OUTPUTS:
    case LS_CUT_QKV:
        fits = in != LS_TENSOR_PART;
        *out = LS_TENSOR_PART;
        break;
    case LS_CUT_HEADS:
        fits = in == LS_TENSOR_PART;
        *out = LS_TENSOR_PART;
        break;
    case LS_CUT_INPUTS:
        fits = in == LS_TENSOR_PART && !layer->gelu && !(sequence && layer->relu);
        *out = sequence ? LS_TENSOR_ROWS : LS_TENSOR_ALIKE;
        break;
    case LS_CUT_CLASSES:
        fits = in != LS_TENSOR_PART;
        *out = !ls_tensor_is_embedding(layer) ? LS_TENSOR_PART : sequence ? LS_TENSOR_ROWS : LS_TENSOR_ALIKE;
        break;
    }
    return fits ? LS_OK : ls_fail(LS_ERR_INVALID, "layer %s cannot be cut among ranks as described", layer->name);
}
