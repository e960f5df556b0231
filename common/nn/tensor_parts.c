/* tensor_parts — two kinds of layers that differ from the whole network's in more than sizes: layer norm of a rank's
 * own rows, and convolution of a part of the inputs. (A third: tensor_embedding.c.)
 *   idea  : each applies the whole kind to the rank's data. The results of the ranks are added up: a layer norm's
 *           gradients here, the terms of a convolution in the following g (tensor_layers.c)
 *   cost  : the whole kind's share; for a layer norm also an all-reduce of 2 C floats in each backward
 *   order : as g's */
#include "common/base/log.h"
#include "common/comm/values.h"
#include "common/nn/layer.h"

/* --- layer norm of this rank's rows: saved = the whole kind's, then its gradients of this backward ------------------------ */

static float *gradients_of(const ls_layer *layer, const struct ls_pass *pass) {
    float *sums = (float *)pass->saved + pass->batch * layer->saved_nbytes_per_sample / sizeof(float);
    if (ls_values_on())
        ls_values_set(sums, layer->saved_nbytes, ls_labels_of(LS_PARTIAL, LS_PARTIAL), false,
                      "the gradient of %s from this rank's rows", layer->name);
    return sums;
}

static ls_status layernorm_part_plan(ls_layer *layer) {
    ls_status status = ls_layernorm.plan(layer);
    layer->saved_nbytes = 2 * layer->parameters[0].count * sizeof(float);
    return status;
}

static void layernorm_part_init(const ls_layer *layer, ls_generator *g, float *const *parameters) {
    ls_layernorm.init(layer, g, parameters);
}

static void layernorm_part_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_layernorm.forward(layer, pass);
}

/* Writes the sums to the gradients, or adds them if the parameter says so. */
static void hand_out(const struct ls_pass *pass, const float *sums, size_t channels) {
    for (size_t p = 0; p < 2; p++) {
        float *gradient = pass->parameters[p].gradient;
        if (pass->parameters[p].adds)
            ls_add(pass->stream, LS_FP32, gradient, gradient, sums + p * channels, channels);
        else
            ls_copy(pass->stream, gradient, sums + p * channels, channels * sizeof *gradient);
    }
}

/* The whole kind's backward for this rank's rows: their gradient, and sums over them, which are all-reduced. The
 * earlier values of the gradients are complete already. */
static void layernorm_part_backward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t channels = layer->parameters[0].count;
    float *sums = gradients_of(layer, pass);
    struct ls_pass own = *pass;
    for (size_t p = 0; p < 2; p++) {
        own.parameters[p].gradient = sums + p * channels;
        own.parameters[p].adds = false;
    }
    ls_layernorm.backward(layer, &own);
    ls_device_fail(ls_stream_device(pass->stream),
                   ls_comm_all_reduce(pass->tensor, pass->stream, sums, 2 * channels, LS_FP32, LS_REDUCE_SUM));
    hand_out(pass, sums, channels);
}

const struct ls_layer_kind ls_layernorm_part = {
    .name = "layernorm of own rows",
    .plan = layernorm_part_plan,
    .init = layernorm_part_init,
    .forward = layernorm_part_forward,
    .backward = layernorm_part_backward,
};

/* --- row-parallel convolution ---------------------------------------------------------------------------------------------- */

static ls_status conv2d_part_plan(ls_layer *layer) { return ls_conv2d.plan(layer); }

/* The whole kind's forward for this rank's inputs: a term of a sum. Only one rank's term has the bias. */
static void conv2d_part_forward(const ls_layer *layer, const struct ls_pass *pass) {
    struct ls_pass term = *pass;
    if (layer->part.rank > 0) term.parameters[1].operand = NULL;
    ls_conv2d.forward(layer, &term);
}

static void conv2d_part_backward(const ls_layer *layer, const struct ls_pass *pass) { ls_conv2d.backward(layer, pass); }

static size_t conv2d_part_workspace_nbytes(const ls_layer *layer, ls_dtype dtype, ls_device_kind kind, size_t batch) {
    return ls_conv2d.workspace_nbytes(layer, dtype, kind, batch);
}

const struct ls_layer_kind ls_conv2d_part = {
    .name = "conv2d of a part of the inputs",
    .plan = conv2d_part_plan,
    .forward = conv2d_part_forward,
    .backward = conv2d_part_backward,
    .workspace_nbytes = conv2d_part_workspace_nbytes,
};
