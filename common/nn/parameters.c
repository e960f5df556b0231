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
    p->tensors = calloc(count + 1, sizeof *p->tensors);
    p->block_begins = calloc((size_t)p->block_count + 1, sizeof *p->block_begins);
    p->half_states = calloc((size_t)p->block_count + 1, 1);
    p->batches_tracked = calloc(p->buffer_count + 1, sizeof *p->batches_tracked);
    if (!p->batches_tracked || !p->tensors || !p->block_begins || !p->half_states)
        return ls_fail(LS_ERR_NO_MEMORY, "no memory for a model's tensors");
    for (size_t t = 0; t < p->count; t++) p->tensors[t] = declared->parameters[t].tensor;
    for (size_t t = p->count; t < count; t++) p->tensors[t] = declared->buffers[t - p->count];
    return LS_OK;
}

static ls_status alloc_slab(ls_parameters *p, const struct ls_declared *declared) {
    size_t t = 0;
    for (int b = 0; b < p->block_count; b++) {
        p->block_begins[b] = p->slab_floats;
        for (; t < p->count && declared[t].block == b; t++) p->slab_floats += ls_aligned_floats(p->tensors[t].count);
    }
    p->block_begins[p->block_count] = p->parameter_floats = p->slab_floats;
    for (; t < p->count + p->buffer_count; t++) p->slab_floats += ls_aligned_floats(p->tensors[t].count);
    ls_status status = ls_device_alloc(p->device, LS_MEMORY_PARAMETER, p->slab_floats * sizeof(float), "parameters",
                                       (void **)&p->slab);
    float *at = p->slab;
    for (t = 0; status == LS_OK && t < p->count + p->buffer_count; t++) {
        p->tensors[t].data = at;
        at += ls_aligned_floats(p->tensors[t].count);
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
    if (status == LS_OK) status = alloc_slab(p, declared->parameters);
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
    free(p->tensors);
    free(p);
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
