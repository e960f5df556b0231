/* nonfinite — finds the first NaN or infinity in a model.
 *   idea  : in the order of the computation, the cause of a value that is not finite precedes it, so the first tensor
 *           that has one is the cause: the batch itself, a layer's parameters, or the output of a layer with finite
 *           inputs and finite parameters
 *   cost  : everything up to that tensor is copied to the host, once, when the run ends
 *   half  : an input value outside of the type's range is infinite in the batch. A weight outside of it appears as the
 *           output of the first layer that reads its copy
 *   not   : a ReLU has no memory of its own: its result is the output of the layer that it belongs to */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/nn/model_internal.h"

enum { CHUNK = 4096 };

static bool is_finite_half(uint16_t bits, ls_dtype dtype) {
    return isfinite(dtype == LS_FP16 ? ls_fp16_to_float(bits) : ls_bf16_to_float(bits));
}

static ls_status is_finite(ls_stream *stream, ls_dtype dtype, const void *data, size_t count, bool *finite) {
    float host[CHUNK];
    uint16_t halves[CHUNK];
    size_t element = ls_dtype_nbytes(dtype);
    *finite = true;
    for (size_t at = 0; *finite && at < count; at += CHUNK) {
        size_t here = count - at < CHUNK ? count - at : CHUNK;
        void *place = dtype == LS_FP32 ? (void *)host : (void *)halves;
        ls_status status = ls_copy_now(stream, place, (const char *)data + at * element, here * element);
        if (status != LS_OK) return status;
        for (size_t i = 0; i < here; i++) {
            *finite = *finite && (dtype == LS_FP32 ? isfinite(host[i]) : is_finite_half(halves[i], dtype));
        }
    }
    return LS_OK;
}

/* Searches one range; names it if it has such a value. */
static ls_status search_tensor(ls_model *model, ls_dtype dtype, const void *data, size_t count, const char *kind,
                               const char *name, char *place, size_t capacity) {
    bool finite;
    ls_status status =
        is_finite(ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE), dtype, data, count, &finite);
    if (status == LS_OK && !finite) snprintf(place, capacity, "%s%s", kind, name);
    return status;
}

struct search {
    ls_model *model;
    char *place;
    size_t capacity;
    bool has_values; /* the frames' parameters are in memory */
};

/* A layer's parameters, then its output. */
static ls_status search_layer(const struct search *s, const ls_frame *frame, size_t l) {
    const ls_layer *layer = &frame->network->layers[l];
    ls_model *model = s->model;
    ls_status status = LS_OK;
    size_t parameters = s->has_values ? layer->parameter_count : 0;
    for (size_t p = 0; status == LS_OK && s->place[0] == '\0' && p < parameters; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, layer->parameter_numbers[p]);
        status = search_tensor(model, LS_FP32, tensor->data, tensor->count, "parameter ", tensor->name, s->place,
                               s->capacity);
    }
    bool has_output = !layer->kind->in_place && !layer->is_unread && !layer->passes_by;
    if (status != LS_OK || s->place[0] != '\0' || !has_output) return status;
    size_t count = frame->batch * ls_shape_count(layer->out);
    return search_tensor(model, model->precision, frame->layers[l].y, count, "the output of ", layer->name, s->place,
                         s->capacity);
}

static ls_status search_input(const struct search *s, const ls_frame *frame) {
    const ls_network *network = frame->network;
    ls_dtype dtype = s->model->precision;
    if (frame->first == 0 && network->input_nbytes > 0) return LS_OK; /* integers are finite */
    if (frame->first == 0)
        return search_tensor(s->model, dtype, frame->x, frame->batch * ls_shape_count(network->input),
                             "the input batch", "", s->place, s->capacity);
    const ls_layer *before = &network->layers[frame->first - 1];
    return search_tensor(s->model, dtype, frame->x, frame->batch * ls_shape_count(before->out), "the output of ",
                         before->name, s->place, s->capacity);
}

static ls_status search_layers(const struct search *s, const ls_frame *frame) {
    ls_status status = LS_OK;
    for (size_t l = frame->first; status == LS_OK && s->place[0] == '\0' && l < frame->end; l++)
        status = search_layer(s, frame, l);
    return status;
}

static ls_status search_frame(void *context, const ls_frame *frame, bool *done) {
    const struct search *s = context;
    ls_status status = search_input(s, frame);
    if (status == LS_OK) status = search_layers(s, frame);
    *done = s->place[0] != '\0';
    return status;
}

ls_status ls_model_find_nonfinite(ls_model *model, char *place, size_t capacity) {
    /* if parameters are gathered per block, at most the last blocks' are in memory */
    struct search search = {model, place, capacity, .has_values = !model->parameters->is_placed};
    place[0] = '\0';
    return ls_segments_look(model->segments, model->parameters, search_frame, &search);
}

ls_status ls_model_search_frame(ls_model *model, const ls_frame *frame, char *place, size_t capacity, bool *in_input) {
    struct search search = {model, place, capacity, .has_values = true};
    place[0] = '\0';
    ls_status status = search_input(&search, frame);
    *in_input = place[0] != '\0';
    return status == LS_OK ? search_layers(&search, frame) : status;
}

ls_status ls_model_search_block(ls_model *model, int block, char *place, size_t capacity) {
    const ls_parameters *all = model->parameters;
    ls_status status = LS_OK;
    place[0] = '\0';
    for (size_t p = 0; status == LS_OK && place[0] == '\0' && p < all->count; p++) {
        const struct ls_tensor *tensor = &all->tensors[p];
        if (all->block_of[p] == block)
            status =
                search_tensor(model, LS_FP32, tensor->data, tensor->count, "parameter ", tensor->name, place, capacity);
    }
    return status;
}
