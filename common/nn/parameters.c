#include "common/nn/parameters.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

/* --- layout -------------------------------------------------------------------------------------------------------- */

static ls_status copy_declarations(ls_parameters *p, const struct ls_declarations *declared) {
    size_t count = declared->parameter_count + declared->buffer_count;
    p->count = declared->parameter_count;
    p->buffer_count = declared->buffer_count;
    p->block_count = declared->block_count;
    p->slot_unit = ls_aligned_floats(1);
    p->tensors = calloc(count + 1, sizeof *p->tensors);
    p->block_of = calloc(p->count + 1, sizeof *p->block_of);
    p->block_begins = calloc((size_t)p->block_count + 1, sizeof *p->block_begins);
    p->half_states = calloc((size_t)p->block_count + 1, 1);
    p->batches_tracked = calloc(p->buffer_count + 1, sizeof *p->batches_tracked);
    if (!p->batches_tracked || !p->tensors || !p->block_of || !p->block_begins || !p->half_states)
        return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model's tensors");
    for (size_t t = 0; t < p->count; t++) {
        p->tensors[t] = declared->parameters[t].tensor;
        p->block_of[t] = declared->parameters[t].block;
    }
    for (size_t t = p->count; t < count; t++) p->tensors[t] = declared->buffers[t - p->count];
    return LS_OK;
}

static size_t slot_floats(const ls_parameters *p, size_t tensor) {
    size_t unit = tensor < p->count ? p->slot_unit : ls_aligned_floats(1);
    return (p->tensors[tensor].count + unit - 1) / unit * unit;
}

static ls_status alloc_slab(ls_parameters *p) {
    size_t t = 0;
    p->slab_floats = 0;
    for (int b = 0; b < p->block_count; b++) {
        p->block_begins[b] = p->slab_floats;
        for (; t < p->count && p->block_of[t] == b; t++) p->slab_floats += slot_floats(p, t);
    }
    p->block_begins[p->block_count] = p->parameter_floats = p->slab_floats;
    for (; t < p->count + p->buffer_count; t++) p->slab_floats += slot_floats(p, t);
    ls_status status = ls_device_alloc(p->device, LS_MEMORY_PARAMETER, p->slab_floats * sizeof(float), "parameters",
                                       (void **)&p->slab);
    float *at = p->slab;
    for (t = 0; status == LS_OK && t < p->count + p->buffer_count; t++) {
        p->tensors[t].data = at;
        at += slot_floats(p, t);
    }
    return status;
}

static ls_status alloc_half(ls_parameters *p) {
    if (p->precision == LS_FP32) return LS_OK;
    size_t element = ls_dtype_nbytes(p->precision);
    ls_status status = ls_device_alloc(p->device, LS_MEMORY_PARAMETER, p->parameter_floats * element,
                                       "parameters in half precision", &p->half_slab);
    for (size_t t = 0; status == LS_OK && t < p->count; t++)
        p->tensors[t].half = (char *)p->half_slab + (size_t)(p->tensors[t].data - p->slab) * element;
    return status;
}

ls_status ls_parameters_create(ls_parameters **out, ls_device *device, ls_dtype precision,
                               const struct ls_declarations *declared) {
    *out = NULL;
    ls_parameters *p = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model's tensors");
    p->device = device;
    p->precision = precision;
    ls_status status = copy_declarations(p, declared);
    if (status == LS_OK) status = alloc_slab(p);
    if (status == LS_OK) status = alloc_half(p);
    if (status != LS_OK) {
        ls_parameters_destroy(p);
        return status;
    }
    ls_parameters_changed(p);
    *out = p;
    return LS_OK;
}

void ls_parameters_destroy(ls_parameters *p) {
    if (!p) return;
    ls_device_free(p->device, p->gradient_slab);
    ls_device_free(p->device, p->half_slab);
    ls_device_free(p->device, p->slab);
    free(p->batches_tracked);
    free(p->half_states);
    free(p->block_begins);
    free(p->block_of);
    free(p->tensors);
    free(p);
}

/* The slabs, and no content. */
static ls_status replace_slabs(ls_parameters *p) {
    ls_device_free(p->device, p->half_slab);
    ls_device_free(p->device, p->slab);
    p->half_slab = p->slab = NULL;
    ls_status status = alloc_slab(p);
    if (status == LS_OK) status = alloc_half(p);
    ls_parameters_changed(p);
    return status;
}

static float *keep_values(const ls_parameters *p, ls_stream *stream, ls_status *status) {
    float *values = calloc(p->slab_floats + 1, sizeof *values), *at = values;
    if (!values) *status = ls_fail(LS_ERR_NO_MEMORY, "no memory to lay out %zu parameters anew", p->count);
    for (size_t t = 0; values && *status == LS_OK && t < p->count + p->buffer_count; at += p->tensors[t++].count)
        *status = ls_copy_now(stream, at, p->tensors[t].data, p->tensors[t].count * sizeof *at);
    return values;
}

ls_status ls_parameters_widen_slots(ls_parameters *p, size_t unit) {
    if (p->slot_unit == unit) return LS_OK;
    ls_stream *stream = ls_device_stream(p->device, LS_STREAM_COMPUTE);
    bool computes = ls_device_computes(p->device); /* else there are no values, and perhaps too many for the host */
    ls_status status = LS_OK;
    p->slot_unit = unit;
    float *values = computes ? keep_values(p, stream, &status) : NULL, *at = values;
    if (status == LS_OK) status = replace_slabs(p);
    for (size_t t = 0; values && status == LS_OK && t < p->count + p->buffer_count; at += p->tensors[t++].count)
        status = ls_copy_now(stream, p->tensors[t].data, at, p->tensors[t].count * sizeof *at);
    free(values);
    return status;
}

ls_status ls_parameters_alloc_gradients(ls_parameters *p) {
    ls_status status = ls_device_alloc(p->device, LS_MEMORY_GRADIENT, p->parameter_floats * sizeof(float), "gradients",
                                       (void **)&p->gradient_slab);
    for (size_t t = 0; status == LS_OK && t < p->count; t++)
        p->tensors[t].gradient = p->gradient_slab + (p->tensors[t].data - p->slab);
    return status;
}

/* --- copies in half precision -------------------------------------------------------------------------------------- */

void ls_parameters_changed(ls_parameters *p) {
    for (int b = 0; b < p->block_count; b++) p->half_states[b] = LS_HALF_STALE;
}

void ls_parameters_want_half(ls_parameters *p, int block) {
    if (p->half_states[block] == LS_HALF_STALE) p->half_states[block] = LS_HALF_WANTED;
}

void ls_parameters_renew_half(ls_parameters *p, ls_stream *stream) {
    size_t element = ls_dtype_nbytes(p->precision);
    for (int b = 0, end; b < p->block_count; b = end) {
        for (end = b; end < p->block_count && p->half_states[end] == LS_HALF_WANTED; end++)
            p->half_states[end] = LS_HALF_FRESH;
        size_t begin = p->block_begins[b], count = p->block_begins[end] - begin;
        if (count > 0)
            ls_cast(stream, p->precision, (char *)p->half_slab + begin * element, LS_FP32, p->slab + begin, count);
        if (end == b) end++;
    }
}
