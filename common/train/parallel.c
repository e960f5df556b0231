/* parallel — what the three ways to train share. */
#include "common/train/parallel.h"

ls_status ls_device_batch_alloc(struct ls_device_batch *batch, ls_device *inputs_device, ls_device *answers_device,
                                const ls_model *model, size_t max_count) {
    *batch = (struct ls_device_batch){0};
    size_t input_nbytes = max_count * ls_image_count(ls_model_input(model)) * sizeof(float);
    ls_status status = ls_device_alloc(inputs_device, LS_MEMORY_INPUT, input_nbytes, "inputs", (void **)&batch->inputs);
    if (status != LS_OK) return status;
    if (ls_model_loss(model) == LS_LOSS_CROSS_ENTROPY) {
        return ls_device_alloc(answers_device, LS_MEMORY_INPUT, max_count * sizeof(int64_t), "labels",
                               (void **)&batch->labels);
    }
    size_t target_nbytes = max_count * ls_model_outputs(model) * sizeof(float);
    return ls_device_alloc(answers_device, LS_MEMORY_INPUT, target_nbytes, "targets", (void **)&batch->targets);
}

void ls_device_batch_free(struct ls_device_batch *batch, ls_device *inputs_device, ls_device *answers_device) {
    ls_device_free(inputs_device, batch->inputs);
    ls_device_free(answers_device, batch->labels);
    ls_device_free(answers_device, batch->targets);
    *batch = (struct ls_device_batch){0};
}

ls_status ls_device_batch_upload(struct ls_device_batch *batch, ls_stream *stream, const ls_model *model,
                                 const ls_batch *host) {
    batch->count = host->count;
    batch->global_count = host->global_count;
    size_t input_nbytes = host->count * ls_image_count(ls_model_input(model)) * sizeof(float);
    ls_status status = ls_copy(stream, batch->inputs, host->inputs, input_nbytes);
    if (status == LS_OK && batch->labels) {
        status = ls_copy(stream, batch->labels, host->labels, host->count * sizeof(int64_t));
    }
    if (status == LS_OK && batch->targets) {
        size_t target_nbytes = host->count * ls_model_outputs(model) * sizeof(float);
        status = ls_copy(stream, batch->targets, host->targets, target_nbytes);
    }
    return status;
}

struct ls_answers ls_device_batch_answers(const struct ls_device_batch *batch) {
    return (struct ls_answers){.labels = batch->labels, .targets = batch->targets};
}

float *ls_parallel_loss_slot(ls_parallel *p) { return p->losses + p->step % LS_LOSS_RING; }

ls_status ls_parallel_init(ls_parallel *p) {
    for (int d = 0; d < p->local_device_count; d++) ls_phase_reset(&p->clocks[d]);
    ls_status status = ls_event_create(&p->batch_copied, "batch copied");
    if (status != LS_OK) return status;
    return ls_device_alloc(p->loss_device, LS_MEMORY_WORKSPACE, LS_LOSS_RING * sizeof(float), "losses",
                           (void **)&p->losses);
}

void ls_parallel_release(ls_parallel *p) {
    if (p->losses) ls_device_free(p->loss_device, p->losses);
    ls_event_destroy(p->batch_copied);
    p->losses = NULL;
    p->batch_copied = NULL;
}
