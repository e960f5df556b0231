/* tensor_parts — the kinds of layers that are not the whole network's with other sizes: layer norm of a rank's own rows,
 * embedding of a part of the vocabulary, and convolution of a part of the inputs.
 *   idea  : each does what the whole kind does with what the rank has. What it cannot know alone is added up: a layer norm's
 *           gradients here, the terms of an embedding and of a convolution in g behind it (tensor_layers.c)
 *   cost  : the whole kind's share; of a layer norm an all-reduce of 2 C floats for each backward
 *   order : as g's */
#include "common/base/log.h"
#include "common/nn/layer.h"

static size_t rows_of(struct ls_shape shape, size_t batch) { return batch * ls_shape_rows(shape); }

/* --- layer norm of this rank's rows: saved = the whole kind's, then its gradients of this backward ------------------------ */

static float *gradients_of(const ls_layer *layer, const struct ls_pass *pass) {
    return (float *)pass->saved + pass->batch * layer->saved_nbytes_per_sample / sizeof(float);
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
    for (size_t p = 0; p < 2; p++) {
        float *gradient = pass->parameters[p].gradient;
        if (pass->parameters[p].adds)
            ls_add(pass->stream, LS_FP32, gradient, gradient, sums + p * channels, channels);
        else
            ls_copy(pass->stream, gradient, sums + p * channels, channels * sizeof *gradient);
    }
}

const struct ls_layer_kind ls_layernorm_part = {
    .name = "layernorm of own rows",
    .plan = layernorm_part_plan,
    .init = layernorm_part_init,
    .forward = layernorm_part_forward,
    .backward = layernorm_part_backward,
};

/* --- embedding of a range of the vocabulary: terms of a sum, all but one of them zeros ------------------------------------- */

static ls_status embedding_part_plan(ls_layer *layer) {
    size_t channels = (size_t)layer->units;
    layer->out = (struct ls_shape){layer->units, 1, 1, .rows = layer->in.rows};
    ls_layer_add_parameter(layer, "wte.weight", 2, (size_t[]){layer->part.classes.room, channels});
    ls_layer_add_parameter(layer, "wpe.weight", 2, (size_t[]){ls_shape_rows(layer->in), channels});
    return LS_OK;
}

/* Positions are in rank 0's term: each row of the sum is one addition, as on one device. */
static void embedding_part_forward(const ls_layer *layer, const struct ls_pass *pass) {
    const float *positions = layer->part.rank == 0 ? pass->parameters[1].data : NULL;
    ls_embedding_part_forward(pass->stream, pass->dtype, pass->y, pass->x[0], pass->parameters[0].data, positions,
                              rows_of(layer->in, pass->batch), ls_shape_rows(layer->in), layer->part.classes,
                              (size_t)layer->units);
}

static void embedding_part_backward(const ls_layer *layer, const struct ls_pass *pass) {
    const struct ls_pass_parameter *tokens = &pass->parameters[0], *positions = &pass->parameters[1];
    ls_bias_gradient(pass->stream, pass->dtype, positions->gradient, pass->dy, pass->batch, ls_shape_count(layer->out),
                     positions->adds);
    ls_embedding_part_backward(pass->stream, pass->dtype, tokens->gradient, pass->dy, pass->x[0],
                               rows_of(layer->in, pass->batch), layer->part.classes, (size_t)layer->units,
                               tokens->adds);
}

const struct ls_layer_kind ls_embedding_part = {
    .name = "embedding of a part of the vocabulary",
    .apart = true,
    .plan = embedding_part_plan,
    .forward = embedding_part_forward,
    .backward = embedding_part_backward,
};

/* --- row-parallel convolution ---------------------------------------------------------------------------------------------- */

static ls_status conv2d_part_plan(ls_layer *layer) { return ls_conv2d.plan(layer); }

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
