/* passes — forward and backward through a frame's layers.
 *   half  : in half precision the input is in that type already (the loader rounds samples on the host). The output is
 *           cast to fp32, and its gradient back. When the weights have changed, one operation casts all of them; if a
 *           hook runs when a block is entered, which may gather its weights, one operation per block. Layers see
 *           activations of one type only
 *   cost  : the layers', and in half precision 6 bytes for each parameter and output that is cast
 *   order : forward first to last, backward last to first; within a layer bias before weight is reported ready, and a
 *           parameter of several layers after the last that backward reaches */
#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/nn/frame_internal.h"
#include "common/nn/value_rules.h"

static const ls_layer *layer_at(const ls_frame *frame, size_t l) { return &frame->network->layers[l]; }

/* The group of a batch norm that is synchronised with other ranks. */
static ls_comm *group_of(const ls_frame *frame, size_t l) { return frame->layers[l].shared ? frame->group : NULL; }

/* Without samples, only a layer for which other ranks wait has work. */
static bool has_work(const ls_frame *frame, size_t l) {
    return frame->batch > 0 || group_of(frame, l) || layer_at(frame, l)->kind->reports;
}

static size_t count_of(const ls_frame *frame, size_t l) {
    return frame->batch * ls_shape_count(layer_at(frame, l)->out);
}

/* The address of a gradient; `given`: the caller's buffer. */
static void *gradient_at(const ls_frame *frame, int slot, void *given) {
    if (slot == LS_GIVEN) return given;
    return slot >= 0 ? frame->arena + frame->slots_offset + (size_t)slot * frame->slot_nbytes : NULL;
}

/* The fields that are the same in both passes. */
static struct ls_pass begin_pass(const ls_frame *frame, const ls_parameters *parameters, size_t l) {
    const ls_layer *layer = layer_at(frame, l);
    struct ls_pass pass = {.stream = frame->compute,
                           .dtype = frame->precision,
                           .batch = frame->batch,
                           .y = ls_frame_output(frame, (int)l),
                           .saved = frame->layers[l].saved,
                           .workspace = frame->workspace,
                           .tensor = frame->network->tensor,
                           .group = group_of(frame, l),
                           .shared = frame->layers[l].shared};
    for (int i = 0; i < layer->input_count; i++) pass.x[i] = ls_frame_output(frame, layer->inputs[i]);
    for (size_t p = 0; p < layer->parameter_count; p++) {
        const struct ls_tensor *tensor = &parameters->tensors[layer->parameter_numbers[p]];
        pass.parameters[p].data = tensor->data;
        pass.parameters[p].operand = tensor->half ? tensor->half : tensor->data;
    }
    return pass;
}

static void call_block_hook(const ls_frame *frame, void (*hook)(void *, int, bool), const struct ls_hooks *hooks,
                            int block, bool backward) {
    if (hook && ls_device_status(frame->device) == LS_OK) hook(hooks->block_context, block, backward);
}

/* --- forward ------------------------------------------------------------------------------------------------------- */

/* Casts the weights that matrix multiplies of the layers first .. end - 1 read in half precision. */
static void renew_half(const ls_frame *frame, ls_parameters *parameters, size_t first, size_t end) {
    if (frame->precision == LS_FP32) return;
    for (size_t l = first; l < end; l++)
        for (size_t p = 0; p < layer_at(frame, l)->parameter_count; p++)
            ls_parameters_want_half(parameters,
                                    frame->network->parameters[layer_at(frame, l)->parameter_numbers[p]].block);
    ls_parameters_renew_half(parameters, frame->compute);
}

static void forward_layer(ls_frame *frame, ls_parameters *parameters, size_t l, ls_forward_kind kind) {
    const ls_layer *layer = layer_at(frame, l);
    if (layer->is_unread || !has_work(frame, l)) return;
    struct ls_pass pass = begin_pass(frame, parameters, l);
    pass.training = kind != LS_EVALUATING;
    for (size_t b = 0; b < layer->buffer_count && kind != LS_RECOMPUTING; b++) {
        pass.buffers[b] = parameters->tensors[parameters->count + layer->buffer_numbers[b]].data;
        if (kind == LS_TRAINING) parameters->batches_tracked[layer->buffer_numbers[b]]++;
    }
    if (ls_values_on()) ls_value_rules_begin(frame, parameters, l, NULL);
    layer->kind->forward(layer, &pass);
    if (ls_values_on()) ls_value_rules_forward(frame, l, &pass);
}

static const void *cast_out(ls_frame *frame, const ls_parameters *parameters, ls_forward_kind kind) {
    const void *out = ls_frame_output(frame, (int)frame->end - 1);
    bool has_part = frame->network->class_cut && frame->end == frame->network->layer_count;
    if (has_part && kind == LS_EVALUATING && frame->batch > 0) return ls_frame_gather_classes(frame, parameters);
    if (!ls_frame_casts_output(frame)) return out;
    if (frame->batch > 0)
        ls_cast(frame->compute, LS_FP32, frame->outputs, frame->precision, out, count_of(frame, frame->end - 1));
    return frame->outputs;
}

const void *ls_frame_forward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks, const void *x,
                             size_t batch, ls_forward_kind kind) {
    if (batch > frame->max_batch) {
        ls_device_fail(frame->device,
                       ls_fail(LS_ERR_INVALID,
                               "a batch of %zu samples on device %d does not fit the model; expected at most %zu",
                               batch, ls_device_index(frame->device), frame->max_batch));
        return NULL;
    }
    frame->x = x;
    frame->batch = batch;
    if (!hooks->enter) renew_half(frame, parameters, frame->first, frame->end);
    for (size_t l = frame->first; l < frame->end; l++) {
        int block = layer_at(frame, l)->block;
        if (l == frame->first || layer_at(frame, l - 1)->block != block)
            call_block_hook(frame, hooks->enter, hooks, block, false);
        if (hooks->enter) renew_half(frame, parameters, l, l + 1);
        forward_layer(frame, parameters, l, kind);
        if (l + 1 == frame->end || layer_at(frame, l + 1)->block != block)
            call_block_hook(frame, hooks->leave, hooks, block, false);
    }
    return cast_out(frame, parameters, kind);
}

/* --- backward ------------------------------------------------------------------------------------------------------ */

/* What is needed to report that a gradient is ready. */
struct ls_ready {
    ls_device *device;
    const ls_parameters *parameters;
    const struct ls_hooks *hooks;
};

static void probe_ready(ls_device *device, const ls_parameters *parameters, size_t parameter) {
    struct ls_probe_record record = ls_probe_begin(LS_PROBE_MARK, "gradient ready");
    record.object = (uintptr_t)ls_device_stream(device, LS_STREAM_COMPUTE);
    record.number = (uint32_t)parameter;
    record.bytes = parameters->tensors[parameter].count * sizeof(float);
    ls_probe_end(&record);
}

/* The gradient's last operation has been enqueued. A failure of the hook sticks to the device, as one of its operations
 * does; on a device that has failed nothing is done. */
static void report_ready(const struct ls_ready *r, size_t parameter) {
    if (ls_device_status(r->device) != LS_OK) return;
    if (ls_probing()) probe_ready(r->device, r->parameters, parameter);
    if (r->hooks->grad_ready) ls_device_fail(r->device, r->hooks->grad_ready(r->hooks->context, parameter));
}

void ls_pass_ready(const struct ls_pass *pass, size_t number) { report_ready(pass->ready, number); }

static void report_layer_ready(const struct ls_ready *r, const ls_layer *layer) {
    for (size_t p = layer->parameter_count; p > 0; p--)
        if (layer->completes_gradient[p - 1]) report_ready(r, layer->parameter_numbers[p - 1]);
}

/* The gradients of parameters that no pass uses are zero. */
static void zero_untaken(const ls_frame *frame, const ls_parameters *parameters, const ls_layer *layer) {
    for (size_t p = 0; p < layer->parameter_count; p++) {
        size_t number = layer->parameter_numbers[p];
        const struct ls_tensor *tensor = &parameters->tensors[number];
        if (frame->network->untaken[number] && !layer->shares[p])
            ls_fill(frame->compute, tensor->gradient, 0, tensor->count);
    }
}

/* For layers whose inputs' gradients equal their output's (LS_ROUTE_KEEP: it stays where it is). */
static void hand_on(const ls_frame *frame, const struct ls_route *route, void *to, const void *dy, size_t count) {
    if (count == 0) return;
    if (route->how == LS_ROUTE_ADD) ls_add(frame->compute, frame->precision, to, to, dy, count);
    if (route->how == LS_ROUTE_COPY) ls_copy(frame->compute, to, dy, count * ls_dtype_nbytes(frame->precision));
}

static void hand_on_all(const ls_frame *frame, size_t l, void *dy, void *given) {
    const struct ls_route *routes = frame->layers[l].routes;
    for (int i = 0; i < layer_at(frame, l)->input_count; i++)
        hand_on(frame, &routes[i], gradient_at(frame, routes[i].slot, given), dy, count_of(frame, l));
}

/* Adds a layer's gradient of a value to the gradients of the value's other readers. */
static void add_to_others(const ls_frame *frame, size_t l, void *given) {
    const struct ls_route *routes = frame->layers[l].routes;
    size_t count = frame->batch * ls_shape_count(layer_at(frame, l)->in);
    for (int i = 0; i < layer_at(frame, l)->input_count; i++)
        if (routes[i].how == LS_ROUTE_ADD)
            hand_on(frame, &routes[i], gradient_at(frame, routes[i].slot, given),
                    gradient_at(frame, routes[i].spare, given), count);
}

static void set_gradients(struct ls_pass *pass, const ls_layer *layer, const ls_parameters *parameters,
                          bool accumulate) {
    for (size_t p = 0; p < layer->parameter_count; p++) {
        pass->parameters[p].gradient = parameters->tensors[layer->parameter_numbers[p]].gradient;
        pass->parameters[p].adds = accumulate || !layer->writes_gradient[p];
    }
}

/* For --debug-values. */
static void label(const ls_frame *frame, const ls_parameters *parameters, size_t l, const struct ls_pass *pass,
                  void *given) {
    void *to[LS_LAYER_MAX_INPUTS] = {NULL};
    for (int i = 0; i < layer_at(frame, l)->input_count; i++)
        to[i] = gradient_at(frame, frame->layers[l].routes[i].slot, given);
    ls_value_rules_backward(frame, parameters, l, pass, to);
}

static void backward_layer(ls_frame *frame, const struct ls_ready *ready, size_t l, void *given, bool accumulate) {
    const ls_layer *layer = layer_at(frame, l);
    const ls_parameters *parameters = ready->parameters;
    const struct ls_frame_layer *place = &frame->layers[l];
    void *dy = gradient_at(frame, place->dy, given);
    struct ls_pass pass = begin_pass(frame, parameters, l);
    set_gradients(&pass, layer, parameters, accumulate);
    pass.dy = dy;
    pass.ready = ready;
    for (int i = 0; i < layer->input_count; i++) {
        const struct ls_route *route = &place->routes[i];
        pass.dx[i] = gradient_at(frame, route->how == LS_ROUTE_ADD ? route->spare : route->slot, given);
    }
    if (ls_values_on()) ls_value_rules_begin(frame, parameters, l, dy);
    if (!has_work(frame, l))
        ls_layer_zero_gradients(layer, &pass);
    else if (layer->kind->backward)
        layer->kind->backward(layer, &pass);
    if (layer->kind->hands_on)
        hand_on_all(frame, l, dy, given);
    else
        add_to_others(frame, l, given);
    if (ls_values_on()) label(frame, parameters, l, &pass, given);
}

void *ls_frame_backward(ls_frame *frame, ls_parameters *parameters, const struct ls_hooks *hooks, void *dy,
                        bool accumulate) {
    const struct ls_ready ready = {frame->device, parameters, hooks};
    size_t last = frame->end - 1;
    if (ls_frame_casts_output(frame) && frame->batch > 0)
        ls_cast(frame->compute, frame->precision, gradient_at(frame, frame->layers[last].dy, NULL), LS_FP32, dy,
                count_of(frame, last));
    for (size_t l = frame->end; l > frame->first; l--) {
        const ls_layer *layer = layer_at(frame, l - 1);
        if (l == frame->end || layer_at(frame, l)->block != layer->block)
            call_block_hook(frame, hooks->enter, hooks, layer->block, true);
        if (hooks->enter)
            renew_half(frame, parameters, l - 1, l); /* forward's may have been overwritten by another block's */
        if (!layer->is_unread)
            backward_layer(frame, &ready, l - 1, dy, accumulate);
        else if (!accumulate)
            zero_untaken(frame, parameters, layer);
        report_layer_ready(&ready, layer);
        if (l - 1 == frame->first || layer_at(frame, l - 2)->block != layer->block)
            call_block_hook(frame, hooks->leave, hooks, layer->block, true);
    }
    return gradient_at(frame, frame->input_slot, dy);
}
