/* state_dict — copies tensors between memory and a file.
 *   order : the whole file is checked before the first tensor is set, so that a file that does not fit changes nothing
 *   cost  : writing needs host memory for all tensors on the device; reading needs it for the file, and for one tensor
 *           if types are converted
 *   fails : with one line that names file, tensor and reason */
#include "common/checkpoint/state_dict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

ls_status ls_state_dict_open(ls_state_dict *dict, const ls_model *model, size_t more) {
    size_t capacity =
        ls_model_parameter_count(model) + ls_model_buffer_count(model) + ls_model_batchnorm_count(model) + more;
    *dict = (ls_state_dict){.device = ls_model_device(model), .capacity = capacity};
    dict->tensors = calloc(capacity, sizeof *dict->tensors);
    return dict->tensors ? LS_OK
                         : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a list of %zu tensors", capacity);
}

void ls_state_dict_close(ls_state_dict *dict) {
    free(dict->tensors);
    *dict = (ls_state_dict){0};
}

void ls_state_dict_add(ls_state_dict *dict, const struct ls_state_tensor *tensor) {
    struct ls_state_tensor *added = &dict->tensors[dict->count++];
    *added = *tensor;
    added->nbytes = ls_safetensor_dtype_nbytes(tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++) added->nbytes *= tensor->shape[d];
}

void ls_state_dict_shape(struct ls_state_tensor *tensor, const ls_parameters *all, size_t index) {
    const struct ls_tensor *whole = ls_parameters_whole(all, index);
    tensor->dtype = LS_SAFETENSOR_F32;
    tensor->on_device = true;
    tensor->ndim = whole->ndim;
    memcpy(tensor->shape, whole->shape, sizeof tensor->shape);
    tensor->part_count = all->tensors[index].count;
    tensor->cut = all->cuts && ls_cut_is_cut(&all->cuts[index]) ? &all->cuts[index] : NULL;
}

/* `part`: the part that this rank has; NULL: all. */
static void add_weight(ls_state_dict *dict, const ls_parameters *all, size_t index, const struct ls_part *part) {
    const struct ls_tensor *weight = &all->tensors[index];
    struct ls_state_tensor tensor = {.memory = weight->data};
    ls_state_dict_shape(&tensor, all, index);
    if (part) {
        tensor.memory = part->values;
        tensor.is_shared_out = true;
        tensor.first = part->first;
        tensor.held = part->count;
        tensor.is_copy = all->is_copy && all->is_copy[index];
    }
    memcpy(tensor.name, weight->name, sizeof weight->name);
    ls_state_dict_add(dict, &tensor);
}

void ls_state_dict_add_model(ls_state_dict *dict, ls_model *model) {
    const ls_parameters *all = ls_model_tensors(model);
    if (all->parts) dict->group = all->group;
    dict->cut_group = all->cut_group;
    dict->cut_rank = all->cut_rank;
    for (size_t p = 0; p < all->count; p++) add_weight(dict, all, p, all->parts ? &all->parts[p] : NULL);
    for (size_t b = 0; b < all->buffer_count; b++) add_weight(dict, all, all->count + b, NULL);
    for (size_t i = 0; i < ls_model_batchnorm_count(model); i++) {
        struct ls_state_tensor tensor = {
            .dtype = LS_SAFETENSOR_I64, .memory = ls_model_batches_tracked(model, i), .optional = true};
        snprintf(tensor.name, sizeof tensor.name, "%s.num_batches_tracked", ls_model_batchnorm_name(model, i));
        ls_state_dict_add(dict, &tensor);
    }
}

void ls_state_dict_put_prefix(ls_state_dict *dict, const char *prefix) {
    size_t length = strlen(prefix);
    for (size_t t = 0; t < dict->count; t++) {
        char *name = dict->tensors[t].name;
        memmove(name + length, name, strlen(name) + 1);
        memcpy(name, prefix, length);
    }
}

/* --- whether a file fits ----------------------------------------------------------------------------------------- */

const ls_safetensor *ls_state_find(const struct ls_state_source *source, const struct ls_state_tensor *tensor) {
    char name[2 * LS_STATE_NAME_NBYTES];
    snprintf(name, sizeof name, "%s%s", source->prefix, tensor->name);
    return ls_safetensors_find(source->file, name);
}

static bool can_be_taken(ls_safetensor_dtype there, ls_safetensor_dtype needed, bool convert) {
    bool other = there == LS_SAFETENSOR_F16 || there == LS_SAFETENSOR_BF16 || there == LS_SAFETENSOR_F64;
    return there == needed || (convert && needed == LS_SAFETENSOR_F32 && other);
}

/* "[16, 1, 5, 5]" */
static void print_shape(char *text, size_t capacity, const size_t *shape, int ndim) {
    size_t used = (size_t)snprintf(text, capacity, "[");
    for (int d = 0; d < ndim && used < capacity; d++) {
        used += (size_t)snprintf(text + used, capacity - used, "%s%zu", d > 0 ? ", " : "", shape[d]);
    }
    if (used < capacity) snprintf(text + used, capacity - used, "]");
}

static ls_status check_tensor(const struct ls_state_source *source, const struct ls_state_tensor *tensor) {
    const ls_safetensor *stored = ls_state_find(source, tensor);
    if (!stored && tensor->optional) return LS_OK;
    if (!stored) {
        return ls_fail(LS_ERR_INVALID, "%s has no tensor %s%s, which %s needs", source->path, source->prefix,
                       tensor->name, source->reader);
    }
    if (!can_be_taken(stored->dtype, tensor->dtype, source->convert)) {
        return ls_fail(LS_ERR_INVALID, "%s: %s has type %s; %s needs %s", source->path, stored->name,
                       ls_safetensor_dtype_name(stored->dtype), source->reader,
                       ls_safetensor_dtype_name(tensor->dtype));
    }
    bool same = stored->ndim == tensor->ndim;
    for (int d = 0; same && d < tensor->ndim; d++) same = stored->shape[d] == tensor->shape[d];
    if (same) return LS_OK;
    char there[200], needed[120];
    print_shape(there, sizeof there, stored->shape, stored->ndim);
    print_shape(needed, sizeof needed, tensor->shape, tensor->ndim);
    return ls_fail(LS_ERR_INVALID, "%s: %s has shape %s; %s needs %s", source->path, stored->name, there,
                   source->reader, needed);
}

static bool is_ignored(const struct ls_state_source *source, const char *name) {
    for (const char *const *begin = source->ignored; begin && *begin; begin++) {
        if (strncmp(name, *begin, strlen(*begin)) == 0) return true;
    }
    return false;
}

static bool belongs(const ls_state_dict *dict, const struct ls_state_source *source, const char *name) {
    size_t length = strlen(source->prefix);
    if (strncmp(name, source->prefix, length) != 0) return false;
    for (size_t t = 0; t < dict->count; t++) {
        if (strcmp(dict->tensors[t].name, name + length) == 0) return true;
    }
    return false;
}

/* Checks a tensor of the file that the dict does not have. */
static ls_status check_further(const struct ls_state_source *source, const ls_safetensor *further) {
    size_t length = strlen(source->prefix);
    const char *same, *name = further->name;
    bool known = source->network && strncmp(name, source->prefix, length) == 0 &&
                 ls_network_may_name(source->network, name + length, &same);
    if (!known)
        return ls_fail(LS_ERR_INVALID, "%s has a tensor %s, which %s does not have", source->path, name,
                       source->reader);
    if (!same) return LS_OK;
    struct ls_state_tensor tensor = {.ndim = 0};
    snprintf(tensor.name, sizeof tensor.name, "%s", same);
    const ls_safetensor *stored = ls_state_find(source, &tensor);
    if (stored->dtype == further->dtype && stored->nbytes == further->nbytes &&
        memcmp(stored->data, further->data, stored->nbytes) == 0)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s: %s differs from %s, but in %s both are the same tensor", source->path, name,
                   stored->name, source->reader);
}

ls_status ls_state_dict_check(const ls_state_dict *dict, const struct ls_state_source *source) {
    ls_status status = LS_OK;
    for (size_t t = 0; status == LS_OK && t < dict->count; t++) status = check_tensor(source, &dict->tensors[t]);
    for (size_t t = 0; status == LS_OK && t < ls_safetensors_count(source->file); t++) {
        const ls_safetensor *stored = ls_safetensors_at(source->file, t);
        if (is_ignored(source, stored->name) || belongs(dict, source, stored->name)) continue;
        status = check_further(source, stored);
    }
    return status;
}

/* As F32. */
static float float_of(const ls_safetensor *stored, size_t index) {
    const char *at = (const char *)stored->data + index * ls_safetensor_dtype_nbytes(stored->dtype);
    uint16_t half;
    float single;
    double wide;
    memcpy(&half, at, sizeof half);
    if (stored->dtype == LS_SAFETENSOR_F16) return ls_fp16_to_float(half);
    if (stored->dtype == LS_SAFETENSOR_BF16) return ls_bf16_to_float(half);
    memcpy(&single, at, sizeof single);
    if (stored->dtype == LS_SAFETENSOR_F32) return single;
    memcpy(&wide, at, sizeof wide);
    return (float)wide;
}

ls_status ls_state_dict_check_finite(const ls_state_dict *dict, const struct ls_state_source *source) {
    for (size_t t = 0; t < dict->count; t++) {
        const struct ls_state_tensor *tensor = &dict->tensors[t];
        const ls_safetensor *stored = ls_state_find(source, tensor);
        size_t count = stored && tensor->dtype == LS_SAFETENSOR_F32 ? tensor->nbytes / sizeof(float) : 0;
        for (size_t i = 0; i < count; i++) {
            float value = float_of(stored, i);
            if (isfinite(value)) continue;
            return ls_fail(LS_ERR_INVALID, "%s: %s holds %s at element %zu of %zu; expected finite numbers",
                           source->path, stored->name, isnan(value) ? "NaN" : "an infinity", i, count);
        }
    }
    return LS_OK;
}

/* --- from the file ----------------------------------------------------------------------------------------------- */

/* The staging buffers on the host: for a converted tensor, and for a part of one. */
struct rooms {
    float *whole, *part;
};

static void free_rooms(struct rooms *rooms) {
    free(rooms->whole);
    free(rooms->part);
}

static ls_status alloc_rooms(struct rooms *rooms, const ls_state_dict *dict, const struct ls_state_source *source,
                             size_t begin, size_t end) {
    size_t whole = 0, part = 0;
    for (size_t t = begin; t < end; t++) {
        const struct ls_state_tensor *tensor = &dict->tensors[t];
        const ls_safetensor *stored = ls_state_find(source, tensor);
        bool converts = stored && stored->dtype != tensor->dtype;
        if (converts && tensor->nbytes > whole) whole = tensor->nbytes;
        if (tensor->cut && tensor->part_count > part) part = tensor->part_count;
    }
    *rooms = (struct rooms){malloc(whole + sizeof *rooms->whole), malloc((part + 1) * sizeof *rooms->part)};
    if (rooms->whole && rooms->part) return LS_OK;
    free_rooms(rooms);
    return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to convert the tensors of %s", source->path);
}

/* The tensor's data in the memory's form: as in the file, converted, or only this rank's part. */
static const void *convert(const ls_state_dict *dict, const struct ls_state_tensor *tensor, const ls_safetensor *stored,
                           const struct rooms *rooms) {
    const void *from = stored->data;
    size_t count = tensor->nbytes / sizeof(float);
    if (stored->dtype != tensor->dtype) {
        for (size_t i = 0; i < count; i++) rooms->whole[i] = float_of(stored, i);
        from = rooms->whole;
    }
    if (!tensor->cut) return from;
    ls_cut_take(tensor->cut, dict->cut_rank, rooms->part, from);
    return rooms->part;
}

/* Sets one tensor, or this rank's part of it. */
static ls_status read_tensor(const ls_state_dict *dict, ls_stream *stream, const struct ls_state_tensor *tensor,
                             const ls_safetensor *stored, const struct rooms *rooms) {
    if (!tensor->on_device) {
        if (tensor->nbytes > 0) memcpy(tensor->memory, stored->data, tensor->nbytes);
        return LS_OK;
    }
    size_t nbytes = tensor->cut ? tensor->part_count * sizeof(float) : tensor->nbytes;
    if (tensor->is_shared_out) nbytes = tensor->held * sizeof(float);
    const char *from = convert(dict, tensor, stored, rooms);
    bool in_file = from == (const char *)stored->data;
    from += tensor->first * sizeof(float);
    if (!in_file) return ls_copy_now(stream, tensor->memory, from, nbytes); /* the buffer is reused */
    ls_copy(stream, tensor->memory, from, nbytes);
    return LS_OK;
}

ls_status ls_state_dict_read(const ls_state_dict *dict, const struct ls_state_source *source, size_t begin,
                             size_t end) {
    ls_stream *stream = ls_device_stream(dict->device, LS_STREAM_COMPUTE);
    struct rooms rooms;
    ls_status status = alloc_rooms(&rooms, dict, source, begin, end);
    if (status != LS_OK) return status;
    for (size_t t = begin; status == LS_OK && t < end; t++) {
        const ls_safetensor *stored = ls_state_find(source, &dict->tensors[t]);
        if (stored) status = read_tensor(dict, stream, &dict->tensors[t], stored, &rooms);
    }
    ls_status done = ls_stream_synchronize(stream);
    free_rooms(&rooms);
    return status != LS_OK ? status : done;
}

/* --- to a file --------------------------------------------------------------------------------------------------- */

/* Gathers the parts of a sharded tensor on the host; `own` is this rank's, on the device. */
static ls_status gather_cut(const ls_state_dict *dict, ls_stream *stream, const struct ls_state_tensor *tensor,
                            const float *own, char *room) {
    float *part = malloc((tensor->part_count + 1) * sizeof *part), *all = malloc(tensor->nbytes + sizeof *all);
    ls_status status =
        part && all ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to gather %s", tensor->name);
    if (status == LS_OK) status = ls_copy_now(stream, part, own, tensor->part_count * sizeof *part);
    if (status == LS_OK) status = ls_cut_gather(tensor->cut, dict->cut_group, stream, part, all);
    if (status == LS_OK && room) memcpy(room, all, tensor->nbytes);
    free(part);
    free(all);
    return status;
}

static ls_status copy_tensor(const ls_state_dict *dict, ls_stream *stream, const struct ls_state_tensor *tensor,
                             float *whole, char *room) {
    const struct ls_part part = {tensor->memory, tensor->first, tensor->is_copy ? 0 : tensor->held};
    size_t count = tensor->cut ? tensor->part_count : tensor->nbytes / sizeof *whole;
    ls_status status = tensor->is_shared_out ? ls_part_gather(dict->group, stream, &part, whole, count) : LS_OK;
    const float *own = tensor->is_shared_out ? whole : tensor->memory;
    if (status == LS_OK && tensor->cut) return gather_cut(dict, stream, tensor, own, room);
    if (status == LS_OK && room) ls_copy(stream, room, own, tensor->nbytes);
    return status;
}

/* Describes all tensors for the writer; tensors on the device are copied to `room` (NULL: another rank writes). */
static ls_status copy_out(const ls_state_dict *dict, ls_safetensor *tensors, float *whole, char *room) {
    ls_stream *stream = ls_device_stream(dict->device, LS_STREAM_COMPUTE);
    ls_status status = LS_OK;
    for (size_t t = 0; status == LS_OK && t < dict->count; t++) {
        const struct ls_state_tensor *tensor = &dict->tensors[t];
        tensors[t] = (ls_safetensor){.name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim};
        memcpy(tensors[t].shape, tensor->shape, sizeof tensor->shape);
        tensors[t].nbytes = tensor->nbytes;
        tensors[t].data = tensor->on_device ? room : tensor->memory;
        if (!tensor->on_device) continue;
        status = copy_tensor(dict, stream, tensor, whole, room);
        if (room) room += tensor->nbytes;
    }
    ls_status done = ls_stream_synchronize(stream);
    return status != LS_OK ? status : done;
}

/* Memory for the largest sharded tensor; *whole is NULL if there is none. */
static ls_status alloc_whole(const ls_state_dict *dict, float **whole) {
    size_t largest = 0;
    *whole = NULL;
    for (size_t t = 0; t < dict->count; t++) {
        size_t floats = dict->tensors[t].is_shared_out ? dict->tensors[t].nbytes / sizeof **whole : 0;
        if (floats > largest) largest = floats;
    }
    if (largest == 0) return LS_OK;
    return ls_device_alloc(dict->device, LS_MEMORY_WORKSPACE, ls_aligned_floats(largest) * sizeof **whole,
                           "a sharded tensor", (void **)whole);
}

/* In a mesh, the job's rank 0 writes. */
static bool is_first(const ls_comm *group) { return !group || ls_comm_job_rank(group, ls_comm_rank(group)) == 0; }

/* `fd` -1: the file is `path`. */
static ls_status write_dict(const ls_state_dict *dict, int fd, const char *path, const ls_safetensors_text *metadata,
                            size_t metadata_count) {
    bool writes = is_first(dict->group) && is_first(dict->cut_group);
    size_t nbytes = 0;
    for (size_t t = 0; t < dict->count; t++) nbytes += dict->tensors[t].on_device ? dict->tensors[t].nbytes : 0;
    ls_safetensor *tensors = calloc(dict->count + 1, sizeof *tensors);
    char *room = writes ? malloc(nbytes + 1) : NULL;
    float *whole = NULL;
    bool fits = tensors && (room || !writes);
    ls_status status =
        fits ? alloc_whole(dict, &whole) : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to save %s", path);
    if (status == LS_OK) status = copy_out(dict, tensors, whole, room);
    if (status == LS_OK && writes && fd < 0)
        status = ls_safetensors_write(path, tensors, dict->count, metadata, metadata_count);
    else if (status == LS_OK && writes)
        status = ls_safetensors_write_fd(fd, path, tensors, dict->count, metadata, metadata_count);
    ls_device_free(dict->device, whole);
    free(tensors);
    free(room);
    return status;
}

ls_status ls_state_dict_write(const ls_state_dict *dict, const char *path, const ls_safetensors_text *metadata,
                              size_t metadata_count) {
    return write_dict(dict, -1, path, metadata, metadata_count);
}

ls_status ls_state_dict_write_fd(const ls_state_dict *dict, int fd, const char *path,
                                 const ls_safetensors_text *metadata, size_t metadata_count) {
    return write_dict(dict, fd, path, metadata, metadata_count);
}
