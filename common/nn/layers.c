/* layers — plan, forward and backward of each kind of layer, as calls of kernels. (Others: batchnorm.c, pools.c.) */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/layer.h"

static void add_tensor(ls_layer *layer, struct ls_tensor *tensor, const char *suffix, int ndim, const size_t *shape) {
    snprintf(tensor->name, sizeof tensor->name, "%s.%s", layer->name, suffix);
    tensor->ndim = ndim;
    tensor->count = 1;
    for (int d = 0; d < ndim; d++) {
        tensor->shape[d] = shape[d];
        tensor->count *= shape[d];
    }
}

void ls_layer_add_parameter(ls_layer *layer, const char *suffix, int ndim, const size_t *shape) {
    add_tensor(layer, &layer->parameters[layer->parameter_count++], suffix, ndim, shape);
}

void ls_layer_add_buffer(ls_layer *layer, const char *suffix, int ndim, const size_t *shape) {
    add_tensor(layer, &layer->buffers[layer->buffer_count++], suffix, ndim, shape);
}

void ls_layer_zero_gradients(const ls_layer *layer, const struct ls_pass *pass) {
    for (size_t p = 0; p < layer->parameter_count; p++) {
        const struct ls_pass_parameter *parameter = &pass->parameters[p];
        if (!parameter->adds) ls_fill(pass->stream, parameter->gradient, 0, layer->parameters[p].count);
    }
}

/* The order of these operations, in double, is PyTorch's; the last bits of the bound depend on it. */
void ls_init_kaiming_uniform(const ls_layer *layer, ls_generator *g, float *const *parameters) {
    size_t inputs = layer->parameters[0].count / layer->parameters[0].shape[0];
    double fan_in = (double)inputs;
    double slope = sqrt(5.0), gain = sqrt(2.0 / (1 + slope * slope));
    double weight_bound = sqrt(3.0) * (gain / sqrt(fan_in)), bias_bound = 1 / sqrt(fan_in);
    ls_fill_uniform(g, parameters[0], layer->parameters[0].count, -weight_bound, weight_bound);
    if (layer->parameter_count > 1)
        ls_fill_uniform(g, parameters[1], layer->parameters[1].count, -bias_bound, bias_bound);
}

void ls_init_normal(ls_generator *g, float *values, size_t count, double deviation) {
    ls_fill_normal(g, values, count);
    for (size_t i = 0; i < count; i++) values[i] *= (float)deviation;
}

/* Rows of a batch; each is processed independently. */
static size_t rows_of(const ls_layer *layer, size_t batch) { return batch * ls_shape_rows(layer->in); }

/* --- linear: y = x w^T + b, or its ReLU or GELU; w [units, inputs]; head: without b ------------------------------- */

static ls_status head_plan(ls_layer *layer) {
    size_t inputs = ls_shape_row_count(layer->in), units = (size_t)layer->units;
    layer->out = (struct ls_shape){layer->units, 1, 1, .rows = layer->in.rows};
    ls_layer_add_parameter(layer, "weight", 2, (size_t[]){units, inputs});
    return LS_OK;
}

static ls_status linear_plan(ls_layer *layer) {
    ls_status status = head_plan(layer);
    if (!layer->no_bias) ls_layer_add_parameter(layer, "bias", 1, (size_t[]){(size_t)layer->units});
    return status;
}

static void linear_init(const ls_layer *layer, ls_generator *g, float *const *parameters) {
    if (layer->deviation > 0)
        ls_init_normal(g, parameters[0], layer->parameters[0].count, layer->deviation); /* and biases are 0 */
    else
        ls_init_kaiming_uniform(layer, g, parameters);
}

static double weight_products(const ls_layer *layer) { /* each weight once for each position of the output */
    double positions = (double)ls_shape_count(layer->out) / layer->out.channels;
    return positions * (double)layer->parameters[0].count;
}

/* The input of a GELU. */
static size_t linear_saved_nbytes(const ls_layer *layer, ls_dtype dtype, size_t batch) {
    return layer->gelu ? rows_of(layer, batch) * (size_t)layer->units * ls_dtype_nbytes(dtype) : 0;
}

static void bias_forward(const ls_layer *layer, const struct ls_pass *pass) {
    const void *bias = pass->parameters[1].operand;
    size_t rows = rows_of(layer, pass->batch), units = (size_t)layer->units;
    if (layer->relu)
        ls_add_bias_relu(pass->stream, pass->dtype, pass->y, bias, rows, units);
    else if (layer->gelu)
        ls_add_bias_gelu(pass->stream, pass->dtype, pass->y, pass->saved, bias, rows, units);
    else
        ls_add_bias(pass->stream, pass->dtype, pass->y, bias, rows, units);
}

/* In any precision, gradients of parameters are stored by their matrix multiply in fp32, without other roundings. */
static void linear_forward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t inputs = ls_shape_row_count(layer->in), units = (size_t)layer->units;
    ls_gemm(pass->stream, pass->dtype, false, true, rows_of(layer, pass->batch), units, inputs, pass->x[0],
            pass->parameters[0].operand, 0, pass->dtype, layer->gelu ? pass->saved : pass->y, pass->workspace);
    if (layer->parameter_count > 1) bias_forward(layer, pass);
}

/* With a ReLU or GELU, dy becomes the gradient of its input. */
static void bias_backward(const ls_layer *layer, const struct ls_pass *pass) {
    const struct ls_pass_parameter *bias = &pass->parameters[1];
    size_t units = (size_t)layer->units;
    if (layer->relu) {
        ls_relu_bias_gradient(pass->stream, pass->dtype, bias->gradient, pass->dy, pass->y, rows_of(layer, pass->batch),
                              units, bias->adds);
    } else if (layer->gelu) {
        ls_gelu_bias_gradient(pass->stream, pass->dtype, bias->gradient, pass->dy, pass->saved,
                              rows_of(layer, pass->batch), units, bias->adds);
    } else {
        ls_bias_gradient(pass->stream, pass->dtype, bias->gradient, pass->dy, rows_of(layer, pass->batch), units,
                         bias->adds);
    }
}

static void linear_backward(const ls_layer *layer, const struct ls_pass *pass) {
    const struct ls_pass_parameter *weight = &pass->parameters[0];
    size_t inputs = ls_shape_row_count(layer->in), units = (size_t)layer->units;
    ls_dtype dtype = pass->dtype;
    if (layer->parameter_count > 1) bias_backward(layer, pass);
    ls_gemm(pass->stream, dtype, true, false, units, inputs, rows_of(layer, pass->batch), pass->dy, pass->x[0],
            weight->adds ? 1 : 0, LS_FP32, weight->gradient, pass->workspace);
    if (!pass->dx[0]) return;
    ls_gemm(pass->stream, dtype, false, false, rows_of(layer, pass->batch), inputs, units, pass->dy, weight->operand, 0,
            dtype, pass->dx[0], pass->workspace);
}

/* The largest need of the three matrix multiplies. */
static size_t linear_workspace_nbytes(const ls_layer *layer, ls_dtype dtype, ls_device_kind kind, size_t batch) {
    size_t rows = rows_of(layer, batch);
    size_t inputs = ls_shape_row_count(layer->in), units = (size_t)layer->units;
    size_t forward = ls_gemm_workspace_nbytes(kind, dtype, rows, units, inputs);
    size_t weights = ls_gemm_workspace_nbytes(kind, dtype, units, inputs, rows);
    size_t data = ls_gemm_workspace_nbytes(kind, dtype, rows, inputs, units);
    size_t largest = forward > weights ? forward : weights;
    return largest > data ? largest : data;
}

const struct ls_layer_kind ls_linear = {
    .name = "linear",
    .apart = true,
    .plan = linear_plan,
    .init = linear_init,
    .forward = linear_forward,
    .backward = linear_backward,
    .saved_nbytes = linear_saved_nbytes,
    .workspace_nbytes = linear_workspace_nbytes,
    .products = weight_products,
};

/* Its weight is another layer's, which initialises it. */
const struct ls_layer_kind ls_head = {
    .name = "head",
    .plan = head_plan,
    .forward = linear_forward,
    .backward = linear_backward,
    .workspace_nbytes = linear_workspace_nbytes,
    .products = weight_products,
};

/* --- flatten: a change of shape only ----------------------------------------------------------------------------- */

static ls_status flatten_plan(ls_layer *layer) {
    layer->out = ls_features((int)ls_shape_count(layer->in));
    return LS_OK;
}

static void nothing(const ls_layer *layer, const struct ls_pass *pass) { (void)layer, (void)pass; }

const struct ls_layer_kind ls_flatten = {
    .name = "flatten",
    .in_place = true,
    .leaves_input = true,
    .hands_on = true,
    .plan = flatten_plan,
    .forward = nothing,
};

/* --- add: y = a + b (+ c), or the ReLU of it, for residual connections ----------------------------------------------------------------- */

static ls_status add_plan(ls_layer *layer) {
    layer->out = layer->in;
    return layer->input_count > 1
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "layer %s has nothing to add; expected two inputs", layer->name);
}

static void add_forward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t count = pass->batch * ls_shape_count(layer->out);
    ls_add(pass->stream, pass->dtype, pass->y, pass->x[0], pass->x[1], count);
    for (int i = 2; i < layer->input_count; i++) ls_add(pass->stream, pass->dtype, pass->y, pass->y, pass->x[i], count);
    if (layer->relu) ls_relu_forward(pass->stream, pass->dtype, pass->y, pass->y, count);
}

/* dy becomes the gradient of the sum, which all inputs get. */
static void add_backward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t count = pass->batch * ls_shape_count(layer->out);
    if (layer->relu) ls_relu_backward(pass->stream, pass->dtype, pass->dy, pass->dy, pass->y, count);
}

const struct ls_layer_kind ls_addition = {
    .name = "add",
    .hands_on = true,
    .plan = add_plan,
    .forward = add_forward,
    .backward = add_backward,
};

/* --- a ReLU that is not fused into another layer ------------------------------------------------------------------ */

static ls_status relu_plan(ls_layer *layer) {
    layer->out = layer->in;
    return LS_OK;
}

static void relu_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_relu_forward(pass->stream, pass->dtype, pass->y, pass->x[0], pass->batch * ls_shape_count(layer->out));
}

static void relu_backward(const ls_layer *layer, const struct ls_pass *pass) {
    size_t count = pass->batch * ls_shape_count(layer->out);
    if (pass->dx[0]) ls_relu_backward(pass->stream, pass->dtype, pass->dx[0], pass->dy, pass->y, count);
}

const struct ls_layer_kind ls_relu = {
    .name = "relu",
    .plan = relu_plan,
    .forward = relu_forward,
    .backward = relu_backward,
};

/* --- conv2d: w [units, channels, kernel, kernel] ------------------------------------------------------------------- */

static struct ls_conv2d_shape conv2d_shape(const ls_layer *layer, ls_dtype dtype, size_t batch) {
    return (struct ls_conv2d_shape){
        .batch = (int)rows_of(layer, batch),
        .in_channels = layer->in.channels,
        .in_height = layer->in.height,
        .in_width = layer->in.width,
        .out_channels = layer->units,
        .kernel_h = layer->kernel,
        .kernel_w = layer->kernel,
        .stride = layer->stride,
        .padding = layer->padding,
        .dtype = dtype,
    };
}

static size_t conv2d_workspace_nbytes(const ls_layer *layer, ls_dtype dtype, ls_device_kind kind, size_t batch) {
    struct ls_conv2d_shape shape = conv2d_shape(layer, dtype, batch);
    return ls_conv2d_workspace_nbytes(kind, &shape);
}

static ls_status conv2d_plan(ls_layer *layer) {
    struct ls_conv2d_shape shape = conv2d_shape(layer, LS_FP32, 1);
    size_t kernel = (size_t)layer->kernel;
    layer->out =
        (struct ls_shape){layer->units, ls_conv2d_out_height(&shape), ls_conv2d_out_width(&shape), layer->in.rows};
    ls_layer_add_parameter(layer, "weight", 4,
                           (size_t[]){(size_t)layer->units, (size_t)layer->in.channels, kernel, kernel});
    if (!layer->no_bias) ls_layer_add_parameter(layer, "bias", 1, (size_t[]){(size_t)layer->units});
    return LS_OK;
}

/* Without a bias, the arguments for the bias and its gradient are NULL. */
static void conv2d_forward(const ls_layer *layer, const struct ls_pass *pass) {
    ls_conv2d_forward(pass->stream, conv2d_shape(layer, pass->dtype, pass->batch), pass->x[0],
                      pass->parameters[0].operand, pass->parameters[1].operand, pass->y, pass->workspace);
}

static void conv2d_backward(const ls_layer *layer, const struct ls_pass *pass) {
    struct ls_conv2d_shape shape = conv2d_shape(layer, pass->dtype, pass->batch);
    const struct ls_pass_parameter *w = &pass->parameters[0], *b = &pass->parameters[1];
    ls_conv2d_backward_weights(pass->stream, shape, pass->x[0], pass->dy, w->gradient, b->gradient, w->adds,
                               pass->workspace);
    if (!pass->dx[0]) return;
    ls_conv2d_backward_data(pass->stream, shape, pass->dy, w->operand, pass->dx[0], pass->workspace);
}

const struct ls_layer_kind ls_conv2d = {
    .name = "conv2d",
    .plan = conv2d_plan,
    .init = ls_init_kaiming_uniform,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
    .workspace_nbytes = conv2d_workspace_nbytes,
    .products = weight_products,
};
