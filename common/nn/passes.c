/* passes — forward through a model's layers, and back.
 *   half  : in half precision the input comes as halves (the loader rounds samples on the host). The output is cast to
 *           fp32, and its gradient back to halves. When the weights have changed, one operation casts them all. Layers
 *           see activations of one type only
 *   cost  : the layers', and in half precision 6 bytes for each parameter and output that is cast
 *   order : forward first to last, backward last to first; within a layer bias before weight is reported ready */
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/nn/layer.h"
#include "common/nn/model_internal.h"

/* Without samples only a layer that is awaited by other ranks has something to do. */
static bool has_work(const ls_layer *layer, size_t batch) { return batch > 0 || layer->group; }

void ls_model_parameters_changed(ls_model *model) { model->half_is_stale = true; }

/* What products read in half precision. */
static void renew_half_parameters(ls_model *model) {
    if (!ls_model_in_half(model) || !model->half_is_stale) return;
    ls_cast(model->compute, model->precision, model->half_slab, LS_FP32, model->slab, model->parameter_floats);
    model->half_is_stale = false;
}

static const float *cast_out(ls_model *model, const void *out, size_t batch) {
    if (!ls_model_in_half(model)) return out;
    if (batch > 0)
        ls_cast(model->compute, LS_FP32, model->outputs, model->precision, out, batch * ls_model_outputs(model));
    return model->outputs;
}

static void refuse(ls_model *model, size_t batch) {
    ls_device_fail(model->device,
                   ls_fail(LS_ERR_INVALID, "a batch of %zu samples on device %d, whose model has room for up to %zu",
                           batch, ls_device_index(model->device), model->max_batch));
}

const float *ls_model_forward(ls_model *model, const void *x, size_t batch, bool training) {
    if (batch > model->max_batch) {
        refuse(model, batch);
        return NULL;
    }
    model->x = x;
    model->batch = batch;
    if (ls_model_enqueue_described(model, model->compute, LS_DESCRIBED_FORWARD)) return model->slab;
    renew_half_parameters(model);
    const void *in = x;
    for (size_t l = 0; l < model->layout.layer_count; l++) {
        ls_layer *layer = &model->layout.layers[l];
        void *out = layer->kind->in_place ? (void *)in : layer->y;
        struct ls_pass pass = {.stream = model->compute, .batch = batch, .training = training, .x = in, .y = out};
        if (has_work(layer, batch)) layer->kind->forward(layer, &pass);
        in = out;
    }
    return cast_out(model, in, batch);
}

/* The memory that layer `l` reads and writes in the forward pass: its own, or for layers in place that of a layer
 * before. */
static void *output_of(ls_model *model, size_t l) {
    while (model->layout.layers[l].kind->in_place) l--;
    return model->layout.layers[l].y;
}

static void probe_ready(const ls_model *model, size_t parameter) {
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_MARK, "gradient ready");
    record.object = (uintptr_t)model->compute;
    record.number = (uint32_t)parameter;
    record.bytes = model->parameters[parameter]->count * sizeof(float);
    ls_probe_end(&record);
}

void ls_model_report_ready(ls_model *model, size_t parameter) {
    if (ls_device_status(model->device) != LS_OK) return;
    if (ls_probing()) probe_ready(model, parameter);
    if (model->hook) ls_device_fail(model->device, model->hook(model->hook_context, parameter));
}

static void report_ready(ls_model *model, const ls_layer *layer) {
    for (size_t p = layer->parameter_count; p > 0; p--) {
        if (layer->discarded[p - 1] || layer->kind->untaken) continue;
        ls_model_report_ready(model, layer->first_parameter + p - 1);
    }
}

/* The layer computes all of its gradients; those of parameters that are left out go where nobody looks. */
static void backward_of(ls_layer *layer, const struct ls_pass *pass) {
    float *places[LS_LAYER_MAX_TENSORS] = {0};
    for (size_t p = 0; p < layer->parameter_count; p++) {
        places[p] = layer->parameters[p].gradient;
        if (layer->discarded[p]) layer->parameters[p].gradient = layer->discarded[p];
    }
    if (has_work(layer, pass->batch))
        layer->kind->backward(layer, pass);
    else
        ls_layer_zero_gradients(layer, pass);
    for (size_t p = 0; p < layer->parameter_count; p++) {
        struct ls_tensor *parameter = &layer->parameters[p];
        parameter->gradient = places[p];
        if (layer->discarded[p] && !pass->accumulate) ls_fill(pass->stream, parameter->gradient, 0, parameter->count);
    }
}

/* The gradient of the output in the model's precision, where the layers may overwrite it; `turn`: the place for dx of
 * the last layer. */
static void *cast_back(ls_model *model, float *dy, int *turn) {
    *turn = 0;
    if (!ls_model_in_half(model)) return dy;
    *turn = 1;
    if (model->batch > 0) {
        ls_cast(model->compute, model->precision, model->exchange[0], LS_FP32, dy,
                model->batch * ls_model_outputs(model));
    }
    return model->exchange[0];
}

void ls_model_backward(ls_model *model, float *outputs_gradient, bool accumulate) {
    int turn;
    if (ls_model_enqueue_described(model, model->compute, LS_DESCRIBED_BACKWARD)) return;
    void *dy = cast_back(model, outputs_gradient, &turn);
    for (size_t l = model->layout.layer_count; l > 0; l--) {
        ls_layer *layer = &model->layout.layers[l - 1];
        struct ls_pass pass = {.stream = model->compute, .batch = model->batch, .accumulate = accumulate, .dy = dy};
        pass.x = l > 1 ? output_of(model, l - 2) : model->x;
        pass.y = output_of(model, l - 1);
        if (layer->kind->in_place) {
            pass.dx = dy;
        } else if (l > 1) {
            pass.dx = model->exchange[turn];
            turn = 1 - turn;
        }
        backward_of(layer, &pass);
        report_ready(model, layer);
        dy = pass.dx;
    }
}
