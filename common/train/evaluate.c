/* evaluate — what is said of a model from outside of training: its accuracy, and the hash of its weights. */
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/train/loop.h"
#include "kernels/kernels.h"

struct evaluation {
    struct ls_device_batch batch;
    int64_t *correct; /* device */
    float *inputs;    /* host: as the data set has them ... */
    void *rounded;    /* ... and in the model's precision; the same in fp32 */
    int64_t *labels, *indices;
};

static ls_status evaluation_alloc(struct evaluation *e, ls_model *model, size_t chunk) {
    ls_device *device = ls_model_device(model);
    size_t inputs = ls_shape_count(ls_model_input(model));
    e->inputs = calloc(chunk * inputs, sizeof *e->inputs);
    e->labels = calloc(chunk, sizeof *e->labels);
    e->indices = calloc(chunk, sizeof *e->indices);
    e->rounded = ls_model_precision(model) == LS_FP32 ? e->inputs : calloc(chunk, ls_model_input_nbytes(model));
    if (!e->inputs || !e->rounded || !e->labels || !e->indices)
        return ls_fail(LS_ERR_NO_MEMORY, "no memory for an evaluation");
    ls_status status = ls_device_batch_alloc(&e->batch, device, device, model, chunk);
    if (status != LS_OK) return status;
    return ls_device_alloc(device, LS_MEMORY_WORKSPACE, sizeof *e->correct, "right answers", (void **)&e->correct);
}

static void evaluation_free(struct evaluation *e, ls_model *model) {
    ls_device *device = ls_model_device(model);
    ls_device_batch_free(&e->batch, device, device);
    ls_device_free(device, e->correct);
    if (e->rounded != e->inputs) free(e->rounded);
    free(e->inputs);
    free(e->labels);
    free(e->indices);
}

static ls_status evaluate_chunk(struct evaluation *e, ls_model *model, const ls_dataset *dataset, size_t begin,
                                size_t count) {
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    if (count == 0) { /* other ranks may have some, and meet this one in their pass */
        (void)ls_model_forward(model, e->batch.inputs, 0, false);
        return ls_stream_synchronize(compute);
    }
    for (size_t i = 0; i < count; i++) e->indices[i] = (int64_t)(begin + i);
    ls_status status = ls_dataset_read(dataset, e->indices, count, e->inputs, e->labels, NULL);
    ls_batch host = {.inputs = e->rounded, .labels = e->labels, .count = count, .global_count = count};
    if (status != LS_OK) return status;
    if (e->rounded != e->inputs)
        ls_cast_now(ls_model_precision(model), e->rounded, e->inputs, count * ls_shape_count(ls_model_input(model)));
    ls_device_batch_upload(&e->batch, compute, model, &host);
    const float *y = ls_model_forward(model, e->batch.inputs, count, false);
    ls_count_correct(compute, e->correct, y, e->batch.labels, count, ls_model_outputs(model));
    return ls_stream_synchronize(compute); /* the host's arrays are used again */
}

ls_status ls_count_right(ls_model *model, const ls_dataset *dataset, size_t begin, size_t end, size_t chunk,
                         size_t passes, int64_t *right) {
    *right = 0;
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    struct evaluation e = {0};
    ls_status status = evaluation_alloc(&e, model, chunk);
    for (size_t pass = 0, at = begin; status == LS_OK && (pass < passes || at < end); pass++) {
        size_t count = end - at < chunk ? end - at : chunk;
        status = evaluate_chunk(&e, model, dataset, at, count);
        at += count;
    }
    if (status == LS_OK) status = ls_copy_now(compute, right, e.correct, sizeof *right);
    evaluation_free(&e, model);
    return status;
}

ls_status ls_model_hash(const ls_model *model, uint64_t *hash) {
    ls_status status = LS_OK;
    *hash = LS_HASH_SEED;
    for (size_t p = 0; status == LS_OK && p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, p);
        size_t nbytes = tensor->count * sizeof(float);
        float *host = malloc(nbytes);
        if (!host) return ls_fail(LS_ERR_NO_MEMORY, "no memory for the weights of %s", tensor->name);
        status = ls_parameters_read(ls_model_tensors(model), p, host);
        *hash = ls_hash(*hash, host, nbytes);
        free(host);
    }
    return status;
}
