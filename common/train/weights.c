#include "common/train/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/data/safetensors.h"

static size_t tensor_count(const ls_model *model) {
    return ls_model_parameter_count(model) + ls_model_buffer_count(model);
}

static const struct ls_tensor *tensor_at(const ls_model *model, size_t index) {
    size_t parameters = ls_model_parameter_count(model);
    return index < parameters ? ls_model_parameter(model, index) : ls_model_buffer(model, index - parameters);
}

static void tracked_name(const ls_model *model, size_t index, char *name, size_t capacity) {
    snprintf(name, capacity, "%s.num_batches_tracked", ls_model_batchnorm_name(model, index));
}

/* --- loading ----------------------------------------------------------------------------------------------------- */

static ls_status check_tensor(const ls_safetensors *file, const struct ls_tensor *tensor, const char *path) {
    const ls_safetensor *stored = ls_safetensors_find(file, tensor->name);
    if (!stored) return ls_fail(LS_ERR_INVALID, "%s has no tensor %s, which the model needs", path, tensor->name);
    if (stored->dtype != LS_SAFETENSOR_F32) {
        return ls_fail(LS_ERR_INVALID, "%s: %s is of type %s, the model needs F32", path, tensor->name,
                       ls_safetensor_dtype_name(stored->dtype));
    }
    bool same = stored->ndim == tensor->ndim;
    for (int d = 0; same && d < tensor->ndim; d++) same = stored->shape[d] == tensor->shape[d];
    if (same) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "%s: %s has %zu values in %d dimensions, the model needs %zu in %d (or another order of them)", path,
                   tensor->name, stored->nbytes / sizeof(float), stored->ndim, tensor->count, tensor->ndim);
}

static bool belongs(const ls_model *model, const char *name) {
    for (size_t t = 0; t < tensor_count(model); t++) {
        if (strcmp(tensor_at(model, t)->name, name) == 0) return true;
    }
    for (size_t i = 0; i < ls_model_batchnorm_count(model); i++) {
        char tracked[LS_TENSOR_NAME_NBYTES];
        tracked_name(model, i, tracked, sizeof tracked);
        if (strcmp(tracked, name) == 0) return true;
    }
    return false;
}

static ls_status check_file(const ls_safetensors *file, const ls_model *model, const char *path) {
    ls_status status = LS_OK;
    for (size_t t = 0; status == LS_OK && t < tensor_count(model); t++) {
        status = check_tensor(file, tensor_at(model, t), path);
    }
    for (size_t i = 0; status == LS_OK && i < ls_model_batchnorm_count(model); i++) {
        char name[LS_TENSOR_NAME_NBYTES];
        tracked_name(model, i, name, sizeof name);
        const ls_safetensor *stored = ls_safetensors_find(file, name);
        if (!stored || (stored->dtype == LS_SAFETENSOR_I64 && stored->nbytes == sizeof(int64_t))) continue;
        status = ls_fail(LS_ERR_INVALID, "%s: %s is of type %s and has %zu bytes, the model needs one I64", path, name,
                         ls_safetensor_dtype_name(stored->dtype), stored->nbytes);
    }
    for (size_t t = 0; status == LS_OK && t < ls_safetensors_count(file); t++) {
        const char *name = ls_safetensors_at(file, t)->name;
        if (!belongs(model, name)) {
            status = ls_fail(LS_ERR_INVALID, "%s has a tensor %s, which the model does not have", path, name);
        }
    }
    return status;
}

ls_status ls_weights_load(ls_model *model, const char *path) {
    ls_safetensors *file;
    ls_status status = ls_safetensors_open(&file, path);
    if (status != LS_OK) return status;
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    status = check_file(file, model, path);
    for (size_t t = 0; status == LS_OK && t < tensor_count(model); t++) {
        const struct ls_tensor *tensor = tensor_at(model, t);
        status = ls_copy(compute, tensor->data, ls_safetensors_find(file, tensor->name)->data,
                         tensor->count * sizeof(float));
    }
    for (size_t i = 0; status == LS_OK && i < ls_model_batchnorm_count(model); i++) {
        char name[LS_TENSOR_NAME_NBYTES];
        tracked_name(model, i, name, sizeof name);
        const ls_safetensor *stored = ls_safetensors_find(file, name);
        if (stored) memcpy(ls_model_batches_tracked(model, i), stored->data, sizeof(int64_t));
    }
    ls_status done = ls_stream_synchronize(compute);
    ls_model_parameters_changed(model);
    ls_safetensors_close(file);
    return status != LS_OK ? status : done;
}

/* --- saving ------------------------------------------------------------------------------------------------------ */

static ls_status copy_out(const ls_model *model, ls_safetensor *tensors, float *host) {
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    ls_status status = LS_OK;
    for (size_t t = 0; status == LS_OK && t < tensor_count(model); t++) {
        const struct ls_tensor *tensor = tensor_at(model, t);
        size_t nbytes = tensor->count * sizeof(float);
        tensors[t] = (ls_safetensor){.name = tensor->name, .dtype = LS_SAFETENSOR_F32, .ndim = tensor->ndim};
        memcpy(tensors[t].shape, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
        tensors[t].data = host;
        tensors[t].nbytes = nbytes;
        status = ls_copy(compute, host, tensor->data, nbytes);
        host += tensor->count;
    }
    ls_status done = ls_stream_synchronize(compute);
    return status != LS_OK ? status : done;
}

ls_status ls_weights_save(const ls_model *model, const char *path) {
    size_t count = tensor_count(model), tracked = ls_model_batchnorm_count(model), floats = 0;
    for (size_t t = 0; t < count; t++) floats += tensor_at(model, t)->count;
    ls_safetensor *tensors = calloc(count + tracked, sizeof *tensors);
    char(*names)[LS_TENSOR_NAME_NBYTES] = calloc(tracked + 1, sizeof *names);
    float *host = calloc(floats + 1, sizeof *host);
    ls_status status = LS_OK;
    if (!tensors || !names || !host) status = ls_fail(LS_ERR_NO_MEMORY, "no memory to save %s", path);
    if (status == LS_OK) status = copy_out(model, tensors, host);
    for (size_t i = 0; status == LS_OK && i < tracked; i++) {
        tracked_name(model, i, names[i], sizeof names[i]);
        tensors[count + i] = (ls_safetensor){
            .name = names[i],
            .dtype = LS_SAFETENSOR_I64,
            .data = ls_model_batches_tracked((ls_model *)model, i),
            .nbytes = sizeof(int64_t),
        };
    }
    const ls_safetensors_text metadata[] = {{"format", "pt"}}; /* what PyTorch's loaders expect to find */
    if (status == LS_OK) status = ls_safetensors_write(path, tensors, count + tracked, metadata, 1);
    free(tensors);
    free(names);
    free(host);
    return status;
}
