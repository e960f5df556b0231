/* model — what a model consists of, and its memory.
 *   terms : slab = one allocation for all parameters and then all buffers, each tensor at a multiple of 64 bytes
 *   cost  : activations are kept from forward to backward: per layer batch x outputs (none for layers in place); backward
 *           needs two more arrays of the largest activation, used in turn for dy and dx. In half precision all of them
 *           take 2 bytes an element, and the copy of the parameters 2 bytes each; input and output stay fp32 */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/layer.h"
#include "common/nn/model_internal.h"

size_t ls_image_count(struct ls_image image) {
    return (size_t)image.channels * (size_t)image.height * (size_t)image.width;
}

/* --- create ------------------------------------------------------------------------------------------------------ */

static ls_status collect_tensors(ls_model *model) {
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        model->layout.layers[l].first_parameter = model->parameter_count;
        model->parameter_count += model->layout.layers[l].parameter_count;
        model->buffer_count += model->layout.layers[l].buffer_count;
    }
    model->parameters = calloc(model->parameter_count, sizeof *model->parameters);
    model->buffers = calloc(model->buffer_count + 1, sizeof *model->buffers);
    if (!model->parameters || !model->buffers) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model's tensors");
    size_t p = 0, b = 0;
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        ls_layer *layer = &model->layout.layers[l];
        for (size_t i = 0; i < layer->parameter_count; i++) model->parameters[p++] = &layer->parameters[i];
        for (size_t i = 0; i < layer->buffer_count; i++) model->buffers[b++] = &layer->buffers[i];
    }
    return LS_OK;
}

/* Parameters of branches that no pass takes; most models have none. */
static ls_status mark_untaken(ls_model *model) {
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        const ls_layer *layer = &model->layout.layers[l];
        if (!layer->kind->untaken) continue;
        if (!model->untaken) model->untaken = calloc(model->parameter_count, sizeof *model->untaken);
        if (!model->untaken) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model's tensors");
        for (size_t p = 0; p < layer->parameter_count; p++) model->untaken[layer->first_parameter + p] = true;
    }
    return LS_OK;
}

static ls_status alloc_slab(ls_model *model) {
    for (size_t p = 0; p < model->parameter_count; p++) {
        model->parameter_floats +=
            ls_aligned_floats(model->parameters[p]->count); // NOLINT: collect_tensors has filled the array
    }
    model->slab_floats = model->parameter_floats;
    for (size_t b = 0; b < model->buffer_count; b++) model->slab_floats += ls_aligned_floats(model->buffers[b]->count);
    ls_status status = ls_device_alloc(model->device, LS_MEMORY_PARAMETER, model->slab_floats * sizeof(float),
                                       "parameters", (void **)&model->slab);
    if (status != LS_OK) return status;
    float *at = model->slab;
    for (size_t p = 0; p < model->parameter_count; p++) {
        model->parameters[p]->data = at;
        at += ls_aligned_floats(model->parameters[p]->count);
    }
    for (size_t b = 0; b < model->buffer_count; b++) {
        model->buffers[b]->data = at;
        at += ls_aligned_floats(model->buffers[b]->count);
    }
    return LS_OK;
}

static ls_status alloc_half(ls_model *model) {
    if (!ls_model_in_half(model)) return LS_OK;
    size_t element = ls_dtype_nbytes(model->precision);
    ls_status status = ls_device_alloc(model->device, LS_MEMORY_PARAMETER, model->parameter_floats * element,
                                       "parameters in half precision", &model->half_slab);
    for (size_t p = 0; status == LS_OK && p < model->parameter_count; p++) {
        struct ls_tensor *parameter = model->parameters[p];
        parameter->half = (char *)model->half_slab + (size_t)(parameter->data - model->slab) * element;
    }
    if (status == LS_OK) {
        size_t nbytes = model->max_batch * ls_model_outputs(model) * sizeof(float);
        status = ls_device_alloc(model->device, LS_MEMORY_ACTIVATION, nbytes, "output", (void **)&model->outputs);
    }
    return status;
}

static ls_status alloc_layer(ls_model *model, ls_layer *layer) {
    ls_status status = LS_OK;
    layer->dtype = model->precision;
    if (!layer->kind->in_place) {
        size_t nbytes = model->max_batch * ls_image_count(layer->out) * ls_dtype_nbytes(layer->dtype);
        status = ls_device_alloc(model->device, LS_MEMORY_ACTIVATION, nbytes, layer->name, &layer->y);
    }
    size_t saved_nbytes = layer->saved_nbytes + model->max_batch * layer->saved_nbytes_per_sample;
    if (status == LS_OK && saved_nbytes > 0) {
        status = ls_device_alloc(model->device, LS_MEMORY_ACTIVATION, saved_nbytes, layer->name, &layer->saved);
    }
    return status;
}

static ls_status alloc_layers(ls_model *model) {
    size_t workspace_nbytes = 0, largest = ls_model_in_half(model) ? ls_model_outputs(model) : 0;
    ls_status status = LS_OK;
    for (size_t l = 0; status == LS_OK && l < model->layout.layer_count; l++) {
        ls_layer *layer = &model->layout.layers[l];
        status = alloc_layer(model, layer);
        size_t nbytes = ls_layer_workspace_nbytes(layer, ls_device_kind_of(model->device), model->max_batch);
        if (nbytes > workspace_nbytes) workspace_nbytes = nbytes;
        if (l > 0 && ls_image_count(layer->in) > largest) largest = ls_image_count(layer->in);
    }
    size_t exchange_nbytes = model->max_batch * largest * ls_dtype_nbytes(model->precision);
    for (int i = 0; status == LS_OK && i < 2; i++) {
        status = ls_device_alloc(model->device, LS_MEMORY_ACTIVATION, exchange_nbytes, "activation gradients",
                                 &model->exchange[i]);
    }
    if (status == LS_OK && workspace_nbytes > 0) {
        status = ls_device_alloc(model->device, LS_MEMORY_WORKSPACE, workspace_nbytes, "products", &model->workspace);
    }
    for (size_t l = 0; l < model->layout.layer_count; l++) model->layout.layers[l].workspace = model->workspace;
    return status;
}

static ls_model *new_model(ls_device *device, size_t max_batch, ls_dtype precision) {
    ls_model *model = calloc(1, sizeof *model);
    if (!model) return NULL;
    model->device = device;
    model->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    model->max_batch = max_batch;
    model->precision = precision;
    model->half_is_stale = true;
    return model;
}

/* The model, or if something failed nothing. */
static ls_status hand_out(ls_model **out, ls_model *model, ls_status status) {
    *out = status == LS_OK ? model : NULL;
    if (status != LS_OK) ls_model_destroy(model);
    return status;
}

ls_status ls_model_create(ls_model **out, ls_device *device, const char *description, size_t max_batch,
                          ls_dtype precision) {
    *out = NULL;
    ls_model *model = new_model(device, max_batch, precision);
    if (!model || !(model->description = strdup(description))) {
        free(model);
        return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model");
    }
    ls_status status = ls_describe_model(&model->layout, description);
    if (status == LS_OK) status = collect_tensors(model);
    if (status == LS_OK) status = mark_untaken(model);
    if (status == LS_OK) status = alloc_slab(model);
    if (status == LS_OK) status = alloc_half(model);
    if (status == LS_OK) status = alloc_layers(model);
    return hand_out(out, model, status);
}

ls_status ls_model_create_described(ls_model **out, ls_device *device, const struct ls_described *described,
                                    size_t max_batch) {
    *out = NULL;
    if (ls_device_computes(device))
        return ls_fail(LS_ERR_INVALID, "device %d computes: a model that is only described has nothing for it",
                       ls_device_index(device));
    ls_model *model = new_model(device, max_batch, described->precision);
    if (!model) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model");
    model->described = described;
    ls_status status = ls_describe_tensors(model);
    if (status == LS_OK) status = alloc_slab(model);
    if (status == LS_OK) status = alloc_half(model);
    if (status == LS_OK) {
        size_t nbytes = max_batch * described->activation_nbytes;
        status = ls_device_alloc(device, LS_MEMORY_ACTIVATION, nbytes, "activations", &model->exchange[0]);
    }
    return hand_out(out, model, status);
}

ls_status ls_model_create_like(ls_model **out, ls_device *device, const ls_model *model, size_t max_batch) {
    if (model->described) return ls_model_create_described(out, device, model->described, max_batch);
    return ls_model_create(out, device, model->description, max_batch, model->precision);
}

void ls_model_destroy(ls_model *model) {
    if (!model) return;
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        ls_device_free(model->device, model->layout.layers[l].y);
        ls_device_free(model->device, model->layout.layers[l].saved);
        ls_device_free(model->device, model->layout.layers[l].shared);
        for (size_t p = 0; p < LS_LAYER_MAX_TENSORS; p++) {
            ls_device_free(model->device, model->layout.layers[l].discarded[p]);
        }
    }
    ls_device_free(model->device, model->shared);
    ls_device_free(model->device, model->exchange[0]);
    ls_device_free(model->device, model->exchange[1]);
    ls_device_free(model->device, model->workspace);
    ls_device_free(model->device, model->half_slab);
    ls_device_free(model->device, model->outputs);
    ls_device_free(model->device, model->gradient_slab);
    ls_device_free(model->device, model->slab);
    free(model->untaken);
    free(model->description);
    free(model->tensors);
    free(model->parameters);
    free(model->buffers);
    free(model);
}

/* --- initial values ---------------------------------------------------------------------------------------------- */

static float *at_offset(float *host, const ls_model *model, const struct ls_tensor *tensor) {
    return host + (tensor->data - model->slab);
}

ls_status ls_model_init(ls_model *model, uint64_t seed) {
    ls_model_parameters_changed(model);
    if (!ls_device_computes(model->device)) return LS_OK; /* there is no place for them, and they may be many */
    float *host = calloc(model->slab_floats, sizeof *host);
    if (!host) return ls_fail(LS_ERR_NO_MEMORY, "no memory for initial weights");
    ls_generator generator;
    ls_generator_seed(&generator, seed);
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        const ls_layer *layer = &model->layout.layers[l];
        float *parameters[LS_LAYER_MAX_TENSORS];
        for (size_t p = 0; p < layer->parameter_count; p++)
            parameters[p] = at_offset(host, model, &layer->parameters[p]);
        if (layer->kind->init) layer->kind->init(layer, &generator, parameters);
    }
    for (size_t b = 0; b < model->buffer_count; b++) { /* running_mean 0, running_var 1 */
        const struct ls_tensor *buffer = model->buffers[b];
        bool variance = strstr(buffer->name, "running_var") != NULL;
        for (size_t i = 0; i < buffer->count; i++) at_offset(host, model, buffer)[i] = variance ? 1 : 0;
    }
    ls_status status = ls_copy_now(model->compute, model->slab, host, model->slab_floats * sizeof *host);
    free(host);
    return status;
}

/* --- gradients --------------------------------------------------------------------------------------------------- */

ls_status ls_model_alloc_gradients(ls_model *model) {
    ls_status status = ls_device_alloc(model->device, LS_MEMORY_GRADIENT, model->parameter_floats * sizeof(float),
                                       "gradients", (void **)&model->gradient_slab);
    for (size_t p = 0; status == LS_OK && p < model->parameter_count; p++) {
        model->parameters[p]->gradient = at_offset(model->gradient_slab, model, model->parameters[p]);
    }
    return status;
}

void ls_model_gradients(const ls_model *model, float **data, size_t *count) {
    *data = model->gradient_slab;
    *count = model->parameter_floats;
}

void ls_model_place_gradient(ls_model *model, size_t index, float *gradient) {
    model->parameters[index]->gradient = gradient;
}

static ls_layer *layer_of(ls_model *model, size_t parameter) {
    ls_layer *layer = model->layout.layers;
    while (parameter >= layer->first_parameter + layer->parameter_count) layer++;
    return layer;
}

ls_status ls_model_set_unused(ls_model *model, size_t index, bool unused) {
    ls_layer *layer = layer_of(model, index);
    float **discarded = &layer->discarded[index - layer->first_parameter];
    if (unused && !*discarded) {
        return ls_device_alloc(model->device, LS_MEMORY_WORKSPACE, model->parameters[index]->count * sizeof(float),
                               "a gradient that is left out", (void **)discarded);
    }
    if (unused) return LS_OK;
    ls_status status = ls_stream_synchronize(model->compute); /* the last backward may still write there */
    ls_device_free(model->device, *discarded);
    *discarded = NULL;
    return status;
}

void ls_model_on_grad_ready(ls_model *model, ls_grad_ready_fn hook, void *context) {
    model->hook = hook;
    model->hook_context = context;
}

/* --- what it consists of ----------------------------------------------------------------------------------------- */

ls_device *ls_model_device(const ls_model *model) { return model->device; }
ls_dtype ls_model_precision(const ls_model *model) { return model->precision; }
struct ls_image ls_model_input(const ls_model *model) {
    return model->layout.input;
}
size_t ls_model_input_nbytes(const ls_model *model) {
    if (model->described) return model->described->input_nbytes;
    return ls_image_count(model->layout.input) * ls_dtype_nbytes(model->precision);
}
ls_loss_kind ls_model_loss(const ls_model *model) { return model->layout.loss; }

size_t ls_model_answer_nbytes(const ls_model *model) {
    if (model->described) return model->described->answer_nbytes;
    return ls_model_loss(model) == LS_LOSS_CROSS_ENTROPY ? sizeof(int64_t) : ls_model_outputs(model) * sizeof(float);
}

size_t ls_model_outputs(const ls_model *model) {
    if (model->described) return model->described->outputs;
    return ls_image_count(model->layout.layers[model->layout.layer_count - 1].out);
}

size_t ls_model_parameter_count(const ls_model *model) { return model->parameter_count; }
const bool *ls_model_untaken(const ls_model *model) { return model->untaken; }
const struct ls_tensor *ls_model_parameter(const ls_model *model, size_t index) { return model->parameters[index]; }
size_t ls_model_buffer_count(const ls_model *model) { return model->buffer_count; }
const struct ls_tensor *ls_model_buffer(const ls_model *model, size_t index) { return model->buffers[index]; }

void ls_model_state(const ls_model *model, float **data, size_t *count) {
    *data = model->slab;
    *count = model->slab_floats;
}

void ls_model_parameters(const ls_model *model, float **data, size_t *count) {
    *data = model->slab;
    *count = model->parameter_floats;
}

const ls_layer *ls_model_layers(const ls_model *model, size_t *count) {
    *count = model->layout.layer_count;
    return model->layout.layers;
}

const void *ls_model_last_input(const ls_model *model, size_t *batch) {
    *batch = model->batch;
    return model->x;
}

static ls_layer *batchnorm_at(const ls_model *model, size_t index) {
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        const ls_layer *layer = &model->layout.layers[l];
        if (layer->kind == &ls_batchnorm2d && index-- == 0) return (ls_layer *)layer;
    }
    return NULL;
}

ls_status ls_model_sync_batchnorm(ls_model *model, ls_comm *group) {
    if (model->described) return ls_describe_sync_batchnorm(model, group);
    int world_size = group ? ls_comm_world_size(group) : 1;
    ls_status status = LS_OK;
    ls_layer *layer;
    for (size_t b = 0; status == LS_OK && (layer = batchnorm_at(model, b)); b++) {
        ls_device_free(model->device, layer->shared);
        layer->shared = NULL;
        layer->group = NULL;
        if (world_size == 1) continue;
        status = ls_device_alloc(model->device, LS_MEMORY_WORKSPACE, ls_batchnorm_shared_nbytes(layer, world_size),
                                 "statistics of all ranks", &layer->shared);
        if (status == LS_OK) layer->group = group;
    }
    if (status != LS_OK) (void)ls_model_sync_batchnorm(model, NULL);
    return status;
}

size_t ls_model_batchnorm_count(const ls_model *model) {
    if (model->described) return ls_described_batchnorm_count(model->described);
    size_t count = 0;
    while (batchnorm_at(model, count)) count++;
    return count;
}

const char *ls_model_batchnorm_name(const ls_model *model, size_t index) { return batchnorm_at(model, index)->name; }
int64_t *ls_model_batches_tracked(ls_model *model, size_t index) {
    return model->described ? &model->batches_tracked : &batchnorm_at(model, index)->batches_tracked;
}
