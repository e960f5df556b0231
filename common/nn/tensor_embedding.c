/* tensor_embedding — an embedding of which each rank has a range of the vocabulary.
 *   idea  : a token of another rank's range gives a row of zeros. So the outputs are terms of a sum, all but one of
 *           them zeros, which the following g adds up (tensor_layers.c)
 *   cost  : the table and its gradient are divided by T; the sum is an all-reduce of the activations
 *   order : a row of the sum is one addition, as on one device: positions are in rank 0's term
 *   fails : a token outside of the vocabulary is LS_ERR_INVALID (kernels.h) */
#include "common/nn/layer.h"

static size_t rows_of(struct ls_shape shape, size_t batch) { return batch * ls_shape_rows(shape); }

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
