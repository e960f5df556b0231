/* parallel — code that the three modes of training share. */
#include "common/seam/parallel.h"

#include "common/base/log.h"
#include "common/comm/values.h"
#include "common/nn/described.h"
#include "kernels/kernels.h"

/* --- the batch --------------------------------------------------------------------------------------------------- */

ls_status ls_device_batch_alloc(struct ls_device_batch *batch, ls_device *inputs_device, ls_device *answers_device,
                                const ls_model *model, size_t max_count) {
    size_t input_nbytes = max_count * ls_model_input_nbytes(model);
    ls_status status = ls_event_create(&batch->used, "batch used");
    if (status == LS_OK) {
        status = ls_device_alloc(inputs_device, LS_MEMORY_INPUT, input_nbytes, "inputs", &batch->inputs);
    }
    if (status != LS_OK) return status;
    size_t nbytes = max_count * ls_model_answer_nbytes(model);
    if (ls_model_loss(model) == LS_LOSS_CROSS_ENTROPY) {
        return ls_device_alloc(answers_device, LS_MEMORY_INPUT, nbytes, "labels", (void **)&batch->labels);
    }
    return ls_device_alloc(answers_device, LS_MEMORY_INPUT, nbytes, "targets", (void **)&batch->targets);
}

void ls_device_batch_free(struct ls_device_batch *batch, ls_device *inputs_device, ls_device *answers_device) {
    ls_device_free(inputs_device, batch->inputs);
    ls_device_free(answers_device, batch->labels);
    ls_device_free(answers_device, batch->targets);
    ls_event_destroy(batch->used);
    *batch = (struct ls_device_batch){0};
}

void ls_device_batch_upload(struct ls_device_batch *batch, ls_stream *stream, const ls_model *model,
                            const ls_batch *host) {
    batch->count = host->count;
    batch->global_count = host->global_count;
    ls_stream_wait_event(stream, batch->used);
    if (!host->inputs) return;
    ls_copy(stream, batch->inputs, host->inputs, host->count * ls_model_input_nbytes(model));
    size_t answer_nbytes = host->count * ls_model_answer_nbytes(model);
    if (batch->labels) ls_copy(stream, batch->labels, host->labels, answer_nbytes);
    if (batch->targets) ls_copy(stream, batch->targets, host->targets, answer_nbytes);
}

ls_status ls_parallel_alloc_places(ls_parallel *p, size_t max_count) {
    p->places.max_count = max_count;
    p->batch = p->places.place;
    return ls_parallel_add_places(p, ls_device_runs_behind(p->devices[0]) ? 2 : 1);
}

ls_status ls_parallel_add_places(ls_parallel *p, int count) {
    struct ls_batch_places *places = &p->places;
    ls_status status = LS_OK;
    while (status == LS_OK && places->count < count) {
        status = ls_device_batch_alloc(&places->place[places->count++], p->devices[0], p->loss_device, p->model,
                                       places->max_count);
    }
    return status;
}

void ls_parallel_next_place(ls_parallel *p, int index) {
    p->places.newest = (p->places.newest + 1) % p->places.count;
    p->batch = &p->places.place[p->places.newest];
    p->batch->index = index;
}

void ls_parallel_upload(ls_parallel *p, ls_stream *copy, const ls_batch *batch) {
    ls_phase_enter(p->clocks, LS_PHASE_INPUT);
    ls_device_batch_upload(p->batch, copy, p->model, batch);
    ls_event_record(p->batch_copied, copy);
    if (ls_values_on() && batch->inputs)
        ls_values_set(p->batch->inputs, batch->count * ls_model_input_nbytes(p->model),
                      ls_labels_of(LS_REPLICATED, LS_VARYING), true, "the inputs of micro-batch %d", p->batch->index);
}

void ls_parallel_await_batch(ls_parallel *p, ls_stream *compute) {
    if (!p->is_capturing) ls_stream_wait_event(compute, p->batch_copied);
}

/* --- losses and clocks ------------------------------------------------------------------------------------------- */

float *ls_parallel_ring_slot(ls_parallel *p) { return p->losses + p->step % LS_LOSS_RING; }

float *ls_parallel_step_loss(ls_parallel *p) {
    return p->is_capturing ? p->losses + LS_LOSS_RING : ls_parallel_ring_slot(p);
}

/* The slot of a micro-batch's loss; the losses of the others are added to that of the first one. */
static float *loss_slot(ls_parallel *p) {
    return ls_parallel_is_first(p) ? ls_parallel_step_loss(p) : p->losses + LS_LOSS_RING + 1;
}

void ls_parallel_take_loss(ls_parallel *p, ls_stream *compute, float *dy, const float *y, int gradient_weight) {
    const struct ls_device_batch *batch = p->batch;
    struct ls_shape output = ls_model_output(p->model);
    size_t rows = batch->count * ls_shape_rows(output);
    const struct ls_answers answers = {.labels = batch->labels, .targets = batch->targets};
    float *loss = loss_slot(p);
    if (!ls_model_enqueue_described(p->model, compute, LS_DESCRIBED_LOSS, batch->count)) {
        ls_model_take_loss(p->model, compute, loss, dy, y, answers, rows,
                           ls_loss_weight(gradient_weight, batch->global_count, output));
    }
    if (gradient_weight != p->data_size) ls_scale(compute, loss, (float)p->data_size / (float)gradient_weight, 1);
    if (!ls_parallel_is_first(p)) ls_reduce_add(compute, ls_parallel_step_loss(p), &p->micro_loss, 1, 1);
    if (p->loss_scale && rows > 0) ls_scale_by(compute, dy, p->loss_scale, batch->count * ls_model_outputs(p->model));
}

ls_status ls_parallel_update(ls_parallel *p, const bool *skip) {
    p->accumulates = false; /* zero_grad: the next backward overwrites */
    ls_stream *compute = ls_device_stream(ls_model_device(p->model), LS_STREAM_COMPUTE);
    bool is_described = ls_model_enqueue_described(p->model, compute, LS_DESCRIBED_UPDATE, 0);
    ls_status status = is_described ? LS_OK : ls_optimizer_step(p->optimizer, skip);
    const ls_offload_report *offload = ls_optimizer_offload_report(p->optimizer);
    if (offload) p->clocks->bytes[LS_PHASE_OPTIMIZER] += offload->moved_nbytes;
    ls_model_parameters_changed(p->model);
    return status;
}

/* --- failures ---------------------------------------------------------------------------------------------------- */

ls_status ls_parallel_status(const ls_parallel *p, ls_status status) {
    if (status == LS_OK) status = ls_device_status(p->devices[0]);
    return status == LS_OK ? ls_device_status(p->loss_device) : status;
}

ls_status ls_sum_over_ranks(ls_parallel *p, double *values, size_t count) {
    return p->process ? p->process->sum_over_ranks(p, values, count) : LS_OK;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

void ls_parallel_set_mode(ls_parallel *p, const struct ls_mode *mode) {
    p->mode = mode;
    p->ops = mode->step;
    p->process = mode->process;
}

ls_status ls_parallel_init(ls_parallel *p) {
    for (int d = 0; d < p->local_device_count; d++) ls_phase_begin(&p->clocks[d], p->devices[d]);
    p->micro_batches = 1;
    if (p->data_size == 0) { /* no mesh */
        p->data_rank = p->rank;
        p->data_size = p->world_size;
        p->tensor_size = 1;
    }
    ls_status status = ls_event_create(&p->batch_copied, "batch copied");
    if (status == LS_OK) {
        status = ls_device_alloc(p->loss_device, LS_MEMORY_WORKSPACE, (LS_LOSS_RING + 2) * sizeof(float), "losses",
                                 (void **)&p->losses);
    }
    if (status == LS_OK) p->micro_loss = p->losses + LS_LOSS_RING + 1;
    return status;
}

void ls_parallel_release(ls_parallel *p) {
    while (p->places.count > 0)
        ls_device_batch_free(&p->places.place[--p->places.count], p->devices[0], p->loss_device);
    if (p->losses) ls_device_free(p->loss_device, p->losses);
    ls_event_destroy(p->batch_copied);
    p->losses = NULL;
    p->batch_copied = NULL;
}

/* --- the end of a run --------------------------------------------------------------------------------------------- */

ls_status ls_parallel_synchronize(ls_parallel *p, ls_status status) {
    char consequence[200];
    bool failed = status != LS_OK;
    ls_log_sink sink = {0};
    if (failed) sink = ls_log_capture(consequence, sizeof consequence);
    if (failed && p->ops->abandon) p->ops->abandon(p);
    for (int d = 0; d < p->local_device_count && !p->stuck; d++) {
        ls_status done = ls_device_synchronize(p->devices[d]);
        if (status == LS_OK) status = done;
    }
    if (failed) ls_log_restore(sink);
    return status;
}

struct ls_rank_state ls_parallel_rank_state(const ls_parallel *p, size_t parameter) {
    return p->mode->rank_state ? p->mode->rank_state(p, parameter) : (struct ls_rank_state){NULL, NULL};
}
