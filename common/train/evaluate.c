/* evaluate — the accuracy on the test set, for texts also the loss, and the hash of the weights.
 *   order : a chunk's loss is added up on the device; chunks and then ranks are added in order */
#include "common/train/evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/nn/loss.h"
#include "common/train/generate.h"
#include "kernels/kernels.h"

enum { EVALUATION_CHUNK_MAX = 256 };

struct evaluation {
    struct ls_device_batch batch;
    int64_t *correct; /* device */
    float *loss;      /* device: a chunk's; NULL: not measured */
    void *inputs;     /* host: in the data set's type ... */
    void *rounded;    /* ... and in the model's precision; the same array for fp32 and tokens */
    int64_t *labels, *indices;
    double loss_sum;
};

static ls_status evaluation_alloc(struct evaluation *e, ls_model *model, const ls_sample_spec *spec, size_t chunk) {
    ls_device *device = ls_model_device(model);
    bool rounds = ls_model_precision(model) != LS_FP32 && !spec->tokens;
    e->inputs = calloc(chunk * ls_sample_input_count(spec), sizeof(float));
    e->labels = calloc(chunk * ls_sample_label_count(spec), sizeof *e->labels);
    e->indices = calloc(chunk, sizeof *e->indices);
    e->rounded = rounds ? calloc(chunk, ls_model_input_nbytes(model)) : e->inputs;
    if (!e->inputs || !e->rounded || !e->labels || !e->indices)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for an evaluation");
    ls_status status = ls_device_batch_alloc(&e->batch, device, device, model, chunk);
    if (status == LS_OK && spec->tokens)
        status = ls_device_alloc(device, LS_MEMORY_WORKSPACE, sizeof *e->loss, "test loss", (void **)&e->loss);
    if (status != LS_OK) return status;
    return ls_device_alloc(device, LS_MEMORY_WORKSPACE, sizeof *e->correct, "right answers", (void **)&e->correct);
}

static void evaluation_free(struct evaluation *e, ls_model *model) {
    ls_device *device = ls_model_device(model);
    ls_device_batch_free(&e->batch, device, device);
    ls_device_free(device, e->correct);
    ls_device_free(device, e->loss);
    if (e->rounded != e->inputs) free(e->rounded);
    free(e->inputs);
    free(e->labels);
    free(e->indices);
}

/* Overwrites the outputs, which are not read later. */
static ls_status take_loss(struct evaluation *e, ls_model *model, ls_stream *compute, const float *y, size_t rows) {
    float loss = 0, *dy = (float *)(uintptr_t)y;
    const struct ls_answers answers = {.labels = e->batch.labels};
    ls_loss(ls_model_loss(model), compute, e->loss, dy, y, answers, rows, ls_shape_row_count(ls_model_output(model)),
            1);
    ls_status status = ls_copy_now(compute, &loss, e->loss, sizeof loss);
    e->loss_sum += (double)loss;
    return status;
}

static ls_status evaluate_chunk(struct evaluation *e, ls_model *model, const ls_dataset *dataset, size_t begin,
                                size_t count) {
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    struct ls_shape output = ls_model_output(model);
    if (count == 0) { /* other ranks may have samples, and their pass needs this rank */
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
    size_t rows = count * ls_shape_rows(output);
    ls_count_correct(compute, e->correct, y, e->batch.labels, rows, ls_shape_row_count(output));
    if (e->loss) return take_loss(e, model, compute, y, rows);
    return ls_stream_synchronize(compute); /* the host's arrays are reused */
}

ls_status ls_evaluate(ls_model *model, const ls_dataset *dataset, size_t begin, size_t end, size_t chunk, size_t passes,
                      struct ls_test_sums *sums) {
    *sums = (struct ls_test_sums){0};
    ls_stream *compute = ls_device_stream(ls_model_device(model), LS_STREAM_COMPUTE);
    struct evaluation e = {0};
    ls_status status = evaluation_alloc(&e, model, ls_dataset_spec(dataset), chunk);
    for (size_t pass = 0, at = begin; status == LS_OK && (pass < passes || at < end); pass++) {
        size_t count = end - at < chunk ? end - at : chunk;
        status = evaluate_chunk(&e, model, dataset, at, count);
        at += count;
    }
    if (status == LS_OK) status = ls_copy_now(compute, &sums->right, e.correct, sizeof sums->right);
    sums->loss = e.loss_sum;
    evaluation_free(&e, model);
    return status;
}

/* --- all ranks together ------------------------------------------------------------------------------------------- */

/* A rank's share of `count` items, in chunks. The tensor axis is innermost, and its ranks have the same share. */
struct share {
    size_t begin, end, chunk, passes; /* passes: those of the largest share */
};

static struct share share_of(const ls_parallel *p, const ls_train_options *o, size_t count) {
    size_t world = (size_t)(p->world_size / p->tensor_size), rank = (size_t)(p->rank / p->tensor_size);
    size_t chunk = (size_t)(o->batch_size / ls_parallel_replicas(p) / o->accumulate);
    if (chunk > EVALUATION_CHUNK_MAX) chunk = EVALUATION_CHUNK_MAX;
    if (chunk == 0) chunk = 1;
    return (struct share){.begin = count * rank / world,
                          .end = count * (rank + 1) / world,
                          .chunk = chunk,
                          .passes = ((count + world - 1) / world + chunk - 1) / chunk};
}

/* Indices of the sums over ranks. */
enum { RIGHT, LOSS, ANSWERS_RIGHT, SUMS };

ls_status ls_measure(ls_parallel *p, const ls_train_options *o, const ls_dataset *test, ls_train_result *result) {
    struct share share = share_of(p, o, ls_dataset_count(test));
    struct ls_test_sums own = {0};
    int64_t answers_right = 0;
    ls_status status = p->process ? p->process->before_evaluation(p) : LS_OK;
    if (status == LS_OK) status = ls_evaluate(p->model, test, share.begin, share.end, share.chunk, share.passes, &own);
    if (status == LS_OK && ls_train_is_sums(o)) {
        share = share_of(p, o, LS_SUMS_HELD_OUT);
        result->answers = LS_SUMS_HELD_OUT;
        status = ls_count_answers(p->model, test, share.begin, share.end, share.chunk, share.passes, &answers_right);
    }
    double sums[SUMS] = {(double)own.right, own.loss, (double)answers_right};
    for (int i = 0; i < SUMS && p->tensor_rank > 0; i++) sums[i] = 0; /* the first tensor rank has the same sums */
    if (status == LS_OK) status = ls_sum_over_ranks(p, sums, SUMS);
    if (status != LS_OK) return status;
    double labels = (double)(ls_dataset_count(test) * ls_sample_label_count(ls_dataset_spec(test)));
    result->accuracy = sums[RIGHT] / labels;
    result->test_loss = sums[LOSS] / labels;
    result->answers_right = (int64_t)sums[ANSWERS_RIGHT];
    return LS_OK;
}

ls_status ls_model_hash(const ls_model *model, uint64_t *hash) {
    ls_status status = LS_OK;
    *hash = LS_HASH_SEED;
    for (size_t p = 0; status == LS_OK && p < ls_model_parameter_count(model); p++) {
        const struct ls_tensor *tensor = ls_parameters_whole(ls_model_tensors(model), p);
        size_t nbytes = tensor->count * sizeof(float);
        float *host = malloc(nbytes);
        if (!host) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the weights of %s", tensor->name);
        status = ls_parameters_read(ls_model_tensors(model), p, host);
        *hash = ls_hash(*hash, host, nbytes);
        free(host);
    }
    return status;
}
