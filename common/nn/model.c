/* model — a network on one device: its parameters, and its activations, in one segment or several (segments.c). */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/class_loss.h"
#include "common/nn/model_internal.h"

/* --- create ------------------------------------------------------------------------------------------------------ */

static ls_model *new_model(ls_device *device, size_t max_batch, ls_dtype precision) {
    ls_model *model = calloc(1, sizeof *model);
    if (!model) return NULL;
    model->device = device;
    model->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    model->max_batch = max_batch;
    model->precision = precision;
    return model;
}

/* Sets *out to the model, or to NULL after a failure. */
static ls_status return_model(ls_model **out, ls_model *model, ls_status status) {
    *out = status == LS_OK ? model : NULL;
    if (status != LS_OK) ls_model_destroy(model);
    return status;
}

ls_status ls_model_create_segments_of(ls_model **out, ls_device *device, const ls_network *network, size_t max_batch,
                                      ls_dtype precision, int every, bool placed) {
    *out = NULL;
    ls_model *model = new_model(device, max_batch, precision);
    if (!model) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a model");
    model->network = network;
    model->every = every;
    struct ls_declarations declared = {network->parameters,   network->buffers,     network->parameter_count,
                                       network->buffer_count, network->block_count, network->cuts,
                                       network->tensor_rank};
    ls_status status = ls_parameters_create(&model->parameters, device, precision, placed, &declared);
    if (status == LS_OK) status = ls_segments_create(&model->segments, device, network, precision, every, max_batch);
    if (status == LS_OK && network->class_cut)
        status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, ls_class_loss_nbytes(network, max_batch),
                                 "sums over classes", (void **)&model->class_sums);
    return return_model(out, model, status);
}

ls_status ls_model_create_of(ls_model **out, ls_device *device, const ls_network *network, size_t max_batch,
                             ls_dtype precision) {
    return ls_model_create_segments_of(out, device, network, max_batch, precision, 0, false);
}

ls_status ls_model_create_owning(ls_model **out, ls_device *device, ls_network *network, size_t max_batch,
                                 ls_dtype precision, int every, bool placed) {
    ls_status status = ls_model_create_segments_of(out, device, network, max_batch, precision, every, placed);
    if (status == LS_OK)
        (*out)->owned = network;
    else
        ls_network_destroy(network);
    return status;
}

ls_status ls_model_create_segments(ls_model **out, ls_device *device, const char *description, size_t max_batch,
                                   ls_dtype precision, int every, bool placed) {
    *out = NULL;
    ls_network *network;
    ls_status status = ls_network_create(&network, description);
    if (status != LS_OK) return status;
    return ls_model_create_owning(out, device, network, max_batch, precision, every, placed);
}

ls_status ls_model_create(ls_model **out, ls_device *device, const char *description, size_t max_batch,
                          ls_dtype precision) {
    return ls_model_create_segments(out, device, description, max_batch, precision, 0, false);
}

ls_status ls_model_create_like(ls_model **out, ls_device *device, const ls_model *model, size_t max_batch) {
    return ls_model_create_segments_of(out, device, model->network, max_batch, model->precision, model->every, false);
}

void ls_model_destroy(ls_model *model) {
    if (!model) return;
    ls_device_free(model->device, model->class_sums);
    ls_segments_destroy(model->segments);
    ls_parameters_destroy(model->parameters);
    ls_network_destroy(model->owned);
    free(model);
}

/* --- passes ------------------------------------------------------------------------------------------------------- */

void ls_model_parameters_changed(ls_model *model) { ls_parameters_changed(model->parameters); }

const float *ls_model_forward(ls_model *model, const void *x, size_t batch, bool training) {
    return ls_segments_forward(model->segments, model->parameters, &model->hooks, x, batch,
                               training ? LS_TRAINING : LS_EVALUATING);
}

void ls_model_backward(ls_model *model, float *dy, bool accumulate) {
    ls_segments_backward(model->segments, model->parameters, &model->hooks, dy, accumulate);
}

void ls_model_on_grad_ready(ls_model *model, ls_grad_ready_fn hook, void *context) {
    model->hooks.grad_ready = hook;
    model->hooks.context = context;
}

void ls_model_on_blocks(ls_model *model, ls_block_fn enter, ls_block_fn leave, void *context) {
    model->hooks.enter = enter;
    model->hooks.leave = leave;
    model->hooks.block_context = context;
}

size_t ls_model_visits(const ls_model *model, int *visits) { return ls_segments_visits(model->segments, visits); }

const struct ls_hooks *ls_model_hooks(const ls_model *model) { return &model->hooks; }

/* --- initial values ---------------------------------------------------------------------------------------------- */

/* Draws whole parameters, of which a rank may keep a part, and writes them. A parameter shared with an earlier layer is
 * drawn, too, and discarded: a PyTorch module draws its own weight before another replaces it. */
static ls_status init_layer(ls_parameters *parameters, const ls_network *network, const ls_layer *layer,
                            ls_generator *generator) {
    float *values[LS_LAYER_MAX_TENSORS] = {0};
    ls_status status = LS_OK;
    for (size_t p = 0; status == LS_OK && p < layer->parameter_count; p++) {
        values[p] = calloc(layer->parameters[p].count + 1, sizeof *values[p]);
        if (!values[p]) status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for initial weights");
    }
    if (status == LS_OK && layer->kind->init) layer->kind->init(layer, generator, values);
    for (size_t p = 0; p < layer->parameter_count; p++) {
        size_t number = layer->parameter_numbers[p];
        bool is_own = strcmp(network->parameters[number].tensor.name, layer->parameters[p].name) == 0;
        if (status == LS_OK && is_own) status = ls_parameters_write(parameters, number, values[p]);
        free(values[p]);
    }
    return status;
}

/* running_mean 0, running_var 1 */
static ls_status init_buffer(ls_parameters *parameters, const ls_network *network, size_t number) {
    const struct ls_tensor *buffer = &network->buffers[number];
    float *values = calloc(buffer->count + 1, sizeof *values);
    if (!values) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for initial weights");
    bool is_variance = strstr(buffer->name, "running_var") != NULL;
    for (size_t i = 0; i < buffer->count; i++) values[i] = is_variance ? 1 : 0;
    ls_status status = ls_parameters_write(parameters, network->parameter_count + number, values);
    free(values);
    return status;
}

ls_status ls_model_init(ls_model *model, uint64_t seed) {
    const ls_network *network = model->network->whole ? model->network->whole : model->network;
    ls_generator generator;
    ls_status status = LS_OK;
    ls_model_parameters_changed(model);
    if (!ls_device_computes(model->device)) return LS_OK; /* a meta device has no memory for them */
    ls_generator_seed(&generator, seed);
    for (size_t l = 0; status == LS_OK && l < network->layer_count; l++)
        status = init_layer(model->parameters, network, &network->layers[l], &generator);
    for (size_t b = 0; status == LS_OK && b < network->buffer_count; b++)
        status = init_buffer(model->parameters, network, b);
    return status;
}

/* --- gradients --------------------------------------------------------------------------------------------------- */

ls_status ls_model_alloc_gradients(ls_model *model) { return ls_parameters_alloc_gradients(model->parameters); }

void ls_model_gradients(const ls_model *model, float **data, size_t *count) {
    *data = model->parameters->gradient_slab;
    *count = model->parameters->parameter_floats;
}

void ls_model_place_gradient(ls_model *model, size_t index, float *gradient) {
    model->parameters->tensors[index].gradient = gradient;
}

/* --- components --------------------------------------------------------------------------------------------------- */

ls_device *ls_model_device(const ls_model *model) { return model->device; }
const ls_network *ls_model_network(const ls_model *model) { return model->network; }
ls_parameters *ls_model_tensors(const ls_model *model) { return model->parameters; }
ls_dtype ls_model_precision(const ls_model *model) { return model->precision; }
struct ls_shape ls_model_input(const ls_model *model) {
    return model->network->input;
}
struct ls_shape ls_model_output(const ls_model *model) {
    return ls_network_output(model->network);
}
size_t ls_model_outputs(const ls_model *model) {
    return ls_shape_count(model->network->layers[model->network->layer_count - 1].out);
}
size_t ls_model_input_nbytes(const ls_model *model) {
    if (model->network->input_nbytes > 0) return model->network->input_nbytes;
    return ls_shape_count(model->network->input) * ls_dtype_nbytes(model->precision);
}
size_t ls_model_answer_nbytes(const ls_model *model) { return model->network->answer_nbytes; }
ls_loss_kind ls_model_loss(const ls_model *model) { return model->network->loss; }

size_t ls_model_parameter_count(const ls_model *model) { return model->parameters->count; }
const bool *ls_model_untaken(const ls_model *model) {
    return model->network->has_untaken ? model->network->untaken : NULL;
}
const struct ls_tensor *ls_model_parameter(const ls_model *model, size_t index) {
    return &model->parameters->tensors[index];
}
size_t ls_model_buffer_count(const ls_model *model) { return model->parameters->buffer_count; }
const struct ls_tensor *ls_model_buffer(const ls_model *model, size_t index) {
    return &model->parameters->tensors[model->parameters->count + index];
}

void ls_model_state(const ls_model *model, float **data, size_t *count) {
    *data = model->parameters->slab;
    *count = model->parameters->slab_floats;
}

void ls_model_parameters(const ls_model *model, float **data, size_t *count) {
    *data = model->parameters->slab;
    *count = model->parameters->is_placed ? 0 : model->parameters->parameter_floats;
}

/* --- batch norm ---------------------------------------------------------------------------------------------------- */

ls_status ls_model_sync_batchnorm(ls_model *model, ls_comm *group) {
    return ls_segments_sync_batchnorm(model->segments, group);
}

/* The index-th batch norm layer; NULL if there are fewer. */
static const ls_layer *batchnorm_at(const ls_model *model, size_t index) {
    const ls_network *network = model->network;
    for (size_t l = 0; l < network->layer_count; index -= network->layers[l++].batchnorm_count)
        if (index < network->layers[l].batchnorm_count) return &network->layers[l];
    return NULL;
}

size_t ls_model_batchnorm_count(const ls_model *model) {
    size_t count = 0;
    for (size_t l = 0; l < model->network->layer_count; l++) count += model->network->layers[l].batchnorm_count;
    return count;
}

const char *ls_model_batchnorm_name(const ls_model *model, size_t index) { return batchnorm_at(model, index)->name; }
int64_t *ls_model_batches_tracked(ls_model *model, size_t index) {
    return &model->parameters->batches_tracked[batchnorm_at(model, index)->buffer_numbers[0]];
}
