/* transformer — the layers of transformers that are not linear: embedding, layer norm and attention. A sample is a
 * sequence of `rows` positions, each a row. */
#include "common/base/log.h"
#include "common/nn/layer.h"

static size_t rows_of(const ls_layer *layer, size_t batch) { return batch * ls_shape_rows(layer->in); }

/* --- embedding: y = token_table[token] + position_table[position] ---------------------------------------------------- */

static ls_status embedding_plan(ls_layer *layer) {
    size_t channels = (size_t)layer->units;
    layer->out = (struct ls_shape){layer->units, 1, 1, .rows = layer->in.rows};
    ls_layer_add_parameter(layer, "wte.weight", 2, (size_t[]){(size_t)layer->vocabulary, channels});
    ls_layer_add_parameter(layer, "wpe.weight", 2, (size_t[]){ls_shape_rows(layer->in), channels});
    return LS_OK;
}

static void embedding_init(const ls_layer *layer, ls_generator *g, float *const *parameters) {
    for (size_t p = 0; p < layer->parameter_count; p++)
        ls_init_normal(g, parameters[p], layer->parameters[p].count, layer->deviation);
}

static void embedding_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_embedding_forward(pass->stream, pass->dtype, pass->y, pass->x[0], pass->parameters[0].data,
                         pass->parameters[1].data, rows_of(layer, pass->batch), ls_shape_rows(layer->in),
                         (size_t)layer->vocabulary, (size_t)layer->units);
}

/* The position table's gradient is a sum over sequences. */
static void embedding_backward(const ls_layer *layer, const struct ls_pass *pass) {
    const struct ls_pass_parameter *tokens = &pass->parameters[0], *positions = &pass->parameters[1];
    ls_bias_gradient(pass->stream, pass->dtype, positions->gradient, pass->dy, pass->batch, ls_shape_count(layer->out),
                     positions->adds);
    ls_embedding_backward(pass->stream, pass->dtype, tokens->gradient, pass->dy, pass->x[0],
                          rows_of(layer, pass->batch), (size_t)layer->vocabulary, (size_t)layer->units, tokens->adds);
}

const struct ls_layer_kind ls_embedding = {
    .name = "embedding",
    .apart = true,
    .plan = embedding_plan,
    .init = embedding_init,
    .forward = embedding_forward,
    .backward = embedding_backward,
};

/* --- layer norm over the channels of each row; saved = mean [rows], invstd [rows] ----------------------------------- */

static ls_status layernorm_plan(ls_layer *layer) {
    size_t shape[] = {ls_shape_row_count(layer->in)};
    layer->out = layer->in;
    layer->saved_nbytes_per_sample = 2 * ls_shape_rows(layer->in) * sizeof(float);
    ls_layer_add_parameter(layer, "weight", 1, shape);
    ls_layer_add_parameter(layer, "bias", 1, shape);
    return LS_OK;
}

static void layernorm_init(const ls_layer *layer, ls_generator *g, float *const *parameters) {
    (void)g; /* no random draws */
    for (size_t i = 0; i < layer->parameters[0].count; i++) parameters[0][i] = 1;
}

static void layernorm_forward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t rows = rows_of(layer, pass->batch);
    float *mean = pass->saved, *invstd = mean + rows;
    ls_layernorm_forward(pass->stream, pass->dtype, pass->y, pass->x[0], pass->parameters[0].data,
                         pass->parameters[1].data, mean, invstd, rows, ls_shape_row_count(layer->in), 1e-5f);
}

static void layernorm_backward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t rows = rows_of(layer, pass->batch);
    const float *mean = pass->saved, *invstd = mean + rows;
    const struct ls_pass_parameter *gamma = &pass->parameters[0], *beta = &pass->parameters[1];
    ls_layernorm_backward(pass->stream, pass->dtype, pass->dx[0], gamma->gradient, beta->gradient, pass->dy, pass->x[0],
                          gamma->data, mean, invstd, rows, ls_shape_row_count(layer->in), gamma->adds);
}

const struct ls_layer_kind ls_layernorm = {
    .name = "layernorm",
    .plan = layernorm_plan,
    .init = layernorm_init,
    .forward = layernorm_forward,
    .backward = layernorm_backward,
};

/* --- causal attention among the rows of a sample; a row of the input is q, k, v -------------------------------------- */

static struct ls_attention_shape attention_shape(const ls_layer *layer, ls_dtype dtype, size_t batch) {
    return (struct ls_attention_shape){
        .batch = (int)batch,
        .context = (int)ls_shape_rows(layer->in),
        .heads = layer->heads,
        .channels = layer->out.channels,
        .dtype = dtype,
        .tiled = !layer->keeps_scores,
    };
}

static size_t attention_saved_nbytes(const ls_layer *layer, ls_dtype dtype, size_t batch) {
    struct ls_attention_shape shape = attention_shape(layer, dtype, batch);
    return ls_attention_saved_nbytes(&shape);
}

static size_t attention_workspace_nbytes(const ls_layer *layer, ls_dtype dtype, ls_device_kind kind, size_t batch) {
    struct ls_attention_shape shape = attention_shape(layer, dtype, batch);
    return ls_attention_workspace_nbytes(kind, &shape);
}

static ls_status attention_plan(ls_layer *layer) {
    int inputs = (int)ls_shape_row_count(layer->in), channels = inputs / 3, heads = layer->heads;
    if (inputs % 3 != 0 || heads < 1 || channels % heads != 0 || channels / heads > LS_ATTENTION_MAX_HEAD)
        return ls_fail(LS_ERR_INVALID,
                       "%s: rows of %d do not fit q, k and v of %d heads; expected the same number of channels for "
                       "each, at most %d",
                       layer->name, inputs, heads, LS_ATTENTION_MAX_HEAD);
    layer->out = (struct ls_shape){channels, 1, 1, .rows = layer->in.rows};
    return LS_OK;
}

/* Scores, and sums of values: each half of the square of the positions. */
static double attention_products(const ls_layer *layer) {
    double rows = (double)ls_shape_rows(layer->out);
    return rows * rows * layer->out.channels;
}

static void attention_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_attention_forward(pass->stream, attention_shape(layer, pass->dtype, pass->batch), pass->y, pass->x[0],
                         pass->saved, pass->workspace);
}

static void attention_backward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_attention_backward(pass->stream, attention_shape(layer, pass->dtype, pass->batch), pass->dx[0], pass->dy,
                          pass->x[0], pass->y, pass->saved, pass->workspace);
}

static const char *const causal_masks[] = {"bias", "masked_bias", NULL}; /* older nanoGPT's */

const struct ls_layer_kind ls_attention = {
    .name = "attention",
    .masks = causal_masks,
    .plan = attention_plan,
    .forward = attention_forward,
    .backward = attention_backward,
    .saved_nbytes = attention_saved_nbytes,
    .workspace_nbytes = attention_workspace_nbytes,
    .products = attention_products,
};
