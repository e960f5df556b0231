/* passes — forward through a model's layers, and back.
 *   half  : in half precision the input is cast on its way in, the output on its way out and its gradient on its way
 *           back, so that nobody outside knows; the weights are cast by one operation over the slab when they have
 *           changed. Layers see activations of one type only
 *   cost  : the layers', and in half precision 6 bytes for each parameter, input and output that is cast
 *   order : forward first to last, backward last to first; within a layer bias before weight is reported ready */
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/nn/layer.h"
#include "common/nn/model_internal.h"

/* Without samples only a layer that is awaited by other ranks has something to do. */
static bool has_work(const ls_layer *layer, size_t batch) { return batch > 0 || layer->group; }

void ls_model_parameters_changed(ls_model *model) { model->half_is_stale = true; }

/* What the layers read: in half precision, copies of the parameters and of x. */
static ls_status cast_in(ls_model *model, const float *x, size_t batch, const void **in) {
    *in = x;
    if (!ls_model_in_half(model)) return LS_OK;
    *in = model->half_x;
    ls_status status = LS_OK;
    if (model->half_is_stale) {
        status =
            ls_cast(model->compute, model->precision, model->half_slab, LS_FP32, model->slab, model->parameter_floats);
        model->half_is_stale = false;
    }
    if (status != LS_OK || batch == 0) return status;
    return ls_cast(model->compute, model->precision, model->half_x, LS_FP32, x,
                   batch * ls_image_count(model->layout.input));
}

static ls_status cast_out(ls_model *model, const void *out, size_t batch, const float **y) {
    *y = ls_model_in_half(model) ? model->outputs : out;
    if (!ls_model_in_half(model) || batch == 0) return LS_OK;
    return ls_cast(model->compute, LS_FP32, model->outputs, model->precision, out, batch * ls_model_outputs(model));
}

ls_status ls_model_forward(ls_model *model, const float *x, size_t batch, bool training, const float **y) {
    if (batch > model->max_batch) {
        ls_status status =
            ls_fail(LS_ERR_INVALID, "a batch of %zu samples on device %d, whose model has room for up to %zu", batch,
                    ls_device_index(model->device), model->max_batch);
        ls_device_fail(model->device, status);
        return status;
    }
    model->x = x;
    model->batch = batch;
    const void *in;
    ls_status status = cast_in(model, x, batch, &in);
    for (size_t l = 0; status == LS_OK && l < model->layout.layer_count; l++) {
        ls_layer *layer = &model->layout.layers[l];
        void *out = layer->kind->in_place ? (void *)in : layer->y;
        struct ls_pass pass = {.stream = model->compute, .batch = batch, .training = training, .x = in, .y = out};
        if (has_work(layer, batch)) status = layer->kind->forward(layer, &pass);
        in = out;
    }
    return status == LS_OK ? cast_out(model, in, batch, y) : status;
}

/* The memory that layer `l` reads and writes in the forward pass: its own, or for layers in place that of a layer
 * before. */
static void *output_of(ls_model *model, size_t l) {
    while (model->layout.layers[l].kind->in_place) l--;
    return model->layout.layers[l].y;
}

static void probe_ready(const ls_model *model, const ls_layer *layer, size_t p) {
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_MARK, "gradient ready");
    record.object = (uintptr_t)model->compute;
    record.number = (uint32_t)(layer->first_parameter + p);
    record.bytes = layer->parameters[p].count * sizeof(float);
    ls_probe_end(&record);
}

static ls_status report_ready(ls_model *model, const ls_layer *layer) {
    ls_status status = LS_OK;
    for (size_t p = layer->parameter_count; status == LS_OK && p > 0; p--) {
        if (layer->discarded[p - 1] || layer->kind->untaken) continue;
        if (ls_probing()) probe_ready(model, layer, p - 1);
        if (model->hook) status = model->hook(model->hook_context, layer->first_parameter + p - 1);
    }
    return status;
}

/* The gradients of a layer that has seen no samples. */
static ls_status add_nothing(const ls_layer *layer, const struct ls_pass *pass) {
    ls_status status = LS_OK;
    for (size_t p = 0; !pass->accumulate && status == LS_OK && p < layer->parameter_count; p++) {
        const struct ls_tensor *parameter = &layer->parameters[p];
        status = ls_fill(pass->stream, parameter->gradient, 0, parameter->count);
    }
    return status;
}

/* The layer computes all of its gradients; those of parameters that are left out go where nobody looks. */
static ls_status backward_of(ls_layer *layer, const struct ls_pass *pass) {
    float *places[LS_LAYER_MAX_TENSORS] = {0};
    for (size_t p = 0; p < layer->parameter_count; p++) {
        places[p] = layer->parameters[p].gradient;
        if (layer->discarded[p]) layer->parameters[p].gradient = layer->discarded[p];
    }
    ls_status status = has_work(layer, pass->batch) ? layer->kind->backward(layer, pass) : add_nothing(layer, pass);
    for (size_t p = 0; p < layer->parameter_count; p++) {
        struct ls_tensor *parameter = &layer->parameters[p];
        parameter->gradient = places[p];
        if (status != LS_OK || !layer->discarded[p] || pass->accumulate) continue;
        status = ls_fill(pass->stream, parameter->gradient, 0, parameter->count);
    }
    return status;
}

/* The gradient of the output in the model's precision, where the layers may overwrite it; `turn`: the place for dx of
 * the last layer. */
static ls_status cast_back(ls_model *model, float *dy, void **in, int *turn) {
    *in = dy;
    *turn = 0;
    if (!ls_model_in_half(model)) return LS_OK;
    *in = model->exchange[0];
    *turn = 1;
    if (model->batch == 0) return LS_OK;
    return ls_cast(model->compute, model->precision, *in, LS_FP32, dy, model->batch * ls_model_outputs(model));
}

ls_status ls_model_backward(ls_model *model, float *outputs_gradient, bool accumulate) {
    void *dy;
    int turn;
    ls_status status = cast_back(model, outputs_gradient, &dy, &turn);
    for (size_t l = model->layout.layer_count; status == LS_OK && l > 0; l--) {
        ls_layer *layer = &model->layout.layers[l - 1];
        struct ls_pass pass = {.stream = model->compute, .batch = model->batch, .accumulate = accumulate, .dy = dy};
        pass.x = l > 1 ? output_of(model, l - 2) : ls_model_in_half(model) ? model->half_x : model->x;
        pass.y = output_of(model, l - 1);
        if (layer->kind->in_place) {
            pass.dx = dy;
        } else if (l > 1) {
            pass.dx = model->exchange[turn];
            turn = 1 - turn;
        }
        status = backward_of(layer, &pass);
        if (status == LS_OK) status = report_ready(model, layer);
        dy = pass.dx;
    }
    return status;
}
