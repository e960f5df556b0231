#include "common/nn/parameters.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

/* --- layout -------------------------------------------------------------------------------------------------------- */

static ls_status copy_declarations(ls_parameters *p, const struct ls_declarations *declared) {
    size_t count = declared->parameter_count + declared->buffer_count, blocks = (size_t)declared->block_count + 1;
    p->count = declared->parameter_count;
    p->buffer_count = declared->buffer_count;
    p->block_count = declared->block_count;
    p->cuts = declared->cuts;
    p->cut_rank = declared->cut_rank;
    p->slot_unit = ls_aligned_floats(1);
    p->tensors = calloc(count + 1, sizeof *p->tensors);
    p->offsets = calloc(count + 1, sizeof *p->offsets);
    p->block_of = calloc(p->count + 1, sizeof *p->block_of);
    p->block_begins = calloc(blocks, sizeof *p->block_begins);
    p->block_values = calloc(blocks, sizeof *p->block_values);
    p->block_halves = calloc(blocks, sizeof *p->block_halves);
    p->half_states = calloc(blocks, 1);
    p->batches_tracked = calloc(p->buffer_count + 1, sizeof *p->batches_tracked);
    if (!p->batches_tracked || !p->tensors || !p->offsets || !p->block_of || !p->block_begins || !p->block_values ||
        !p->block_halves || !p->half_states)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a model's tensors");
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

static void lay_out(ls_parameters *p) {
    size_t t = 0, at = 0;
    for (int b = 0; b < p->block_count; b++) {
        p->block_begins[b] = at;
        for (; t < p->count && p->block_of[t] == b; at += slot_floats(p, t++)) p->offsets[t] = at;
    }
    p->block_begins[p->block_count] = p->parameter_floats = at;
    for (; t < p->count + p->buffer_count; at += slot_floats(p, t++)) p->offsets[t] = at;
    p->all_floats = at;
}

/* Where the slab begins: at 0, or after the parameters if they are placed elsewhere. */
static size_t slab_begin(const ls_parameters *p) { return p->is_placed ? p->parameter_floats : 0; }

static ls_status alloc_slab(ls_parameters *p) {
    lay_out(p);
    p->slab_floats = p->all_floats - slab_begin(p);
    return ls_device_alloc(p->device, LS_MEMORY_PARAMETER, p->slab_floats * sizeof(float), "parameters",
                           (void **)&p->slab);
}

static void free_slab(ls_parameters *p) {
    if (p->slab_is_shared)
        ls_device_disown(p->device, LS_MEMORY_PARAMETER, p->slab_floats * sizeof(float));
    else
        ls_device_free(p->device, p->slab);
    p->slab = NULL;
    p->slab_is_shared = false;
}

static ls_status alloc_half(ls_parameters *p) {
    if (p->precision == LS_FP32 || p->is_placed) return LS_OK;
    return ls_device_alloc(p->device, LS_MEMORY_PARAMETER, p->parameter_floats * ls_dtype_nbytes(p->precision),
                           "parameters in half precision", &p->half_slab);
}

static void place_tensors(ls_parameters *p) {
    for (size_t t = p->count; t < p->count + p->buffer_count; t++)
        p->tensors[t].data = p->slab + (p->offsets[t] - slab_begin(p));
    for (int b = 0; !p->is_placed && b < p->block_count; b++) {
        char *half = p->half_slab;
        if (half) half += p->block_begins[b] * ls_dtype_nbytes(p->precision);
        ls_parameters_place_block(p, b, p->slab + p->block_begins[b], half);
    }
    ls_parameters_changed(p);
}

static ls_status alloc_slabs(ls_parameters *p) {
    ls_status status = alloc_slab(p);
    if (status == LS_OK) status = alloc_half(p);
    if (status == LS_OK) place_tensors(p);
    return status;
}

ls_status ls_parameters_create(ls_parameters **out, ls_device *device, ls_dtype precision, bool placed,
                               const struct ls_declarations *declared) {
    *out = NULL;
    ls_parameters *p = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a model's tensors");
    p->device = device;
    p->precision = precision;
    p->is_placed = placed;
    ls_status status = copy_declarations(p, declared);
    if (status == LS_OK) status = alloc_slabs(p);
    if (status != LS_OK) {
        ls_parameters_destroy(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls_parameters_destroy(ls_parameters *p) {
    if (!p) return;
    ls_device_free(p->device, p->gradient_slab);
    ls_device_free(p->device, p->half_slab);
    free_slab(p);
    free(p->batches_tracked);
    free(p->half_states);
    free(p->block_halves);
    free(p->block_values);
    free(p->block_begins);
    free(p->block_of);
    free(p->offsets);
    free(p->tensors);
    free(p);
}

void ls_parameters_place_block(ls_parameters *p, int block, float *values, void *half) {
    p->block_values[block] = values;
    p->block_halves[block] = half;
    for (size_t t = 0; t < p->count; t++) {
        size_t at = p->offsets[t] - p->block_begins[block];
        if (p->block_of[t] != block) continue;
        p->tensors[t].data = values ? values + at : NULL;
        p->tensors[t].half = half ? (char *)half + at * ls_dtype_nbytes(p->precision) : NULL;
    }
}

static float *keep_values(const ls_parameters *p, ls_stream *stream, ls_status *status) {
    float *values = calloc(p->all_floats + 1, sizeof *values), *at = values;
    if (!values)
        *status =
            ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to lay out %zu parameters in a new order", p->count);
    for (size_t t = 0; values && *status == LS_OK && t < p->count + p->buffer_count; at += p->tensors[t++].count)
        *status = ls_copy_now(stream, at, p->tensors[t].data, p->tensors[t].count * sizeof *at);
    return values;
}

/* Replaces the slabs, without their content. */
static ls_status replace_slabs(ls_parameters *p) {
    ls_device_free(p->device, p->half_slab);
    p->half_slab = NULL;
    free_slab(p);
    return alloc_slabs(p);
}

ls_status ls_parameters_widen_slots(ls_parameters *p, size_t unit) {
    if (p->slot_unit == unit) return LS_OK;
    ls_stream *stream = ls_device_stream(p->device, LS_STREAM_COMPUTE);
    /* otherwise there are no values yet, or none at all and perhaps too many for the host */
    bool has_values = ls_device_computes(p->device) && !p->is_placed;
    ls_status status = LS_OK;
    p->slot_unit = unit;
    float *values = has_values ? keep_values(p, stream, &status) : NULL, *at = values;
    if (status == LS_OK) status = replace_slabs(p);
    for (size_t t = 0; values && status == LS_OK && t < p->count + p->buffer_count; at += p->tensors[t++].count)
        status = ls_copy_now(stream, p->tensors[t].data, at, p->tensors[t].count * sizeof *at);
    free(values);
    return status;
}

ls_status ls_parameters_share_slab(ls_parameters *p, ls_comm *comm) {
    size_t nbytes = p->slab_floats * sizeof(float);
    float *shared;
    if (ls_device_kind_of(p->device) != LS_DEVICE_CPU) return LS_OK;
    ls_status status = ls_comm_alloc_shared(comm, NULL, nbytes, (void **)&shared);
    if (status == LS_OK) status = ls_copy_now(ls_device_stream(p->device, LS_STREAM_COMPUTE), shared, p->slab, nbytes);
    if (status != LS_OK) return status;
    free_slab(p); /* first, so that the device never holds both */
    status = ls_device_adopt(p->device, LS_MEMORY_PARAMETER, nbytes, "parameters");
    if (status != LS_OK) return status;
    p->slab = shared;
    p->slab_is_shared = true;
    place_tensors(p);
    return LS_OK;
}

ls_status ls_parameters_alloc_gradients(ls_parameters *p) {
    ls_status status = ls_device_alloc(p->device, LS_MEMORY_GRADIENT, p->parameter_floats * sizeof(float), "gradients",
                                       (void **)&p->gradient_slab);
    for (size_t t = 0; status == LS_OK && t < p->count; t++) p->tensors[t].gradient = p->gradient_slab + p->offsets[t];
    return status;
}

/* --- reading and writing ------------------------------------------------------------------------------------------- */

ls_status ls_part_gather(ls_comm *group, ls_stream *stream, const struct ls_part *part, float *whole, size_t count) {
    size_t floats = ls_aligned_floats(count), pairs = floats / 2;
    ls_fill(stream, whole, 0, floats);
    ls_copy(stream, whole + part->first, part->values, part->count * sizeof *whole);
    ls_comm_label(group, "parts of a tensor", -1);
    return ls_comm_settle(stream, ls_comm_all_reduce(group, stream, whole, pairs, LS_INT64, LS_REDUCE_SUM));
}

const struct ls_tensor *ls_parameters_whole(const ls_parameters *p, size_t index) {
    return p->cuts ? &p->cuts[index].whole : &p->tensors[index];
}

bool ls_parameters_are_collective(const ls_parameters *p) { return p->parts || p->cuts; }

/* How the tensor is cut; NULL if it is not. */
static const struct ls_cut *cut_of(const ls_parameters *p, size_t index) {
    return p->cuts && ls_cut_is_cut(&p->cuts[index]) ? &p->cuts[index] : NULL;
}

/* Reads the part that this rank of the cut owns. */
static ls_status read_part(const ls_parameters *p, size_t index, float *host) {
    ls_stream *stream = ls_device_stream(p->device, LS_STREAM_COMPUTE);
    size_t count = p->tensors[index].count;
    float *whole;
    if (!p->parts || index >= p->count) return ls_copy_now(stream, host, p->tensors[index].data, count * sizeof *host);
    ls_status status = ls_device_alloc(p->device, LS_MEMORY_WORKSPACE, ls_aligned_floats(count) * sizeof *whole,
                                       "a split parameter", (void **)&whole);
    if (status != LS_OK) return status;
    struct ls_part part = p->parts[index];
    if (p->is_copy && p->is_copy[index]) part.count = 0;
    status = ls_part_gather(p->group, stream, &part, whole, count);
    if (status == LS_OK) status = ls_copy_now(stream, host, whole, count * sizeof *host);
    ls_device_free(p->device, whole);
    return status;
}

ls_status ls_parameters_read(const ls_parameters *p, size_t index, float *host) {
    const struct ls_cut *cut = cut_of(p, index);
    if (!cut) return read_part(p, index, host);
    float *part = malloc(p->tensors[index].count * sizeof *part);
    if (!part) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", cut->whole.name);
    ls_status status = read_part(p, index, part);
    if (status == LS_OK)
        status = ls_cut_gather(cut, p->cut_group, ls_device_stream(p->device, LS_STREAM_COMPUTE), part, host);
    free(part);
    return status;
}

static ls_status write_part(ls_parameters *p, size_t index, const float *host) {
    ls_stream *stream = ls_device_stream(p->device, LS_STREAM_COMPUTE);
    struct ls_part part = {p->tensors[index].data, 0, p->tensors[index].count};
    if (p->parts && index < p->count) part = p->parts[index];
    return ls_copy_now(stream, part.values, host + part.first, part.count * sizeof *host);
}

ls_status ls_parameters_write(ls_parameters *p, size_t index, const float *host) {
    const struct ls_cut *cut = cut_of(p, index);
    if (!cut) return write_part(p, index, host);
    float *part = malloc(p->tensors[index].count * sizeof *part);
    if (!part) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", cut->whole.name);
    ls_cut_take(cut, p->cut_rank, part, host);
    ls_status status = write_part(p, index, part);
    free(part);
    return status;
}

/* --- copies in half precision -------------------------------------------------------------------------------------- */

void ls_parameters_changed(ls_parameters *p) {
    p->version++;
    for (int b = 0; b < p->block_count; b++) p->half_states[b] = LS_HALF_STALE;
}

void ls_parameters_block_changed(ls_parameters *p, int block) { p->half_states[block] = LS_HALF_STALE; }

void ls_parameters_want_half(ls_parameters *p, int block) {
    if (p->half_states[block] == LS_HALF_STALE) p->half_states[block] = LS_HALF_WANTED;
}

/* Whether the block's values and copies follow directly on those of the block before. */
static bool continues(const ls_parameters *p, int block) {
    size_t floats = p->block_begins[block] - p->block_begins[block - 1];
    const char *half = p->block_halves[block - 1];
    return p->block_values[block] == p->block_values[block - 1] + floats &&
           p->block_halves[block] == half + floats * ls_dtype_nbytes(p->precision);
}

void ls_parameters_renew_half(ls_parameters *p, ls_stream *stream) {
    for (int b = 0, end; b < p->block_count; b = end) {
        for (end = b; end < p->block_count && p->half_states[end] == LS_HALF_WANTED; end++) {
            if (end > b && !continues(p, end)) break;
            p->half_states[end] = LS_HALF_FRESH;
        }
        size_t count = p->block_begins[end] - p->block_begins[b];
        if (count > 0) ls_cast(stream, p->precision, p->block_halves[b], LS_FP32, p->block_values[b], count);
        if (end == b) end++;
    }
}
