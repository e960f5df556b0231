/* described — models that enqueue what a description says (described.h).
 *   idea  : the parameters are tensors of a meta device, which needs no memory for them; an operation is a launch that
 *           probes see, with its number, and nothing else
 *   not   : casts (a description has its own operations for them, if any) and branches that are not taken */
#include "common/nn/described.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/nn/model_internal.h"

/* --- tensors ----------------------------------------------------------------------------------------------------- */

static struct ls_tensor named(const char *name, size_t count) {
    struct ls_tensor tensor = {.ndim = 1, .shape = {count}, .count = count};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    return tensor;
}

ls_status ls_describe_parameters(ls_model *model) {
    const struct ls_described *d = model->described;
    size_t count = d->parameter_count;
    struct ls_tensor *tensors = calloc(count + 1, sizeof *tensors);
    const struct ls_tensor **list = calloc(count + 1, sizeof *list);
    int *blocks = calloc(count + 1, sizeof *blocks);
    ls_status status = tensors && list && blocks ? LS_OK : ls_fail(LS_ERR_NO_MEMORY, "no memory for a model's tensors");
    for (size_t t = 0; status == LS_OK && t <= count; t++) {
        tensors[t] =
            t < count ? named(d->parameter_names[t], d->parameter_counts[t]) : named("buffers", d->buffer_count);
        list[t] = &tensors[t];
    }
    struct ls_declarations declared = {list, list + count, blocks, count, d->buffer_count > 0, 1};
    if (status == LS_OK) status = ls_parameters_create(&model->parameters, model->device, model->precision, &declared);
    free(blocks);
    free(list);
    free(tensors);
    return status;
}

/* --- operations -------------------------------------------------------------------------------------------------- */

static void enqueue(ls_stream *stream, const struct ls_described_op *op, size_t number) {
    if (!ls_stream_takes_work(stream) || !ls_probing()) return;
    struct ls_probe_record record = ls_stream_begin_launch(stream, op->name);
    record.flops = op->flops;
    record.bytes = op->bytes;
    record.elements = number + 1;
    ls_probe_end(&record);
}

/* --- batch norm together with other ranks (batchnorm.c) ------------------------------------------------------------ */

/* Doubles: statistics of a rank; floats: sums. All layers use the same memory, in turn. */
static size_t statistics_of(const struct ls_described_op *op) { return 2 * (size_t)op->channels + 1; }

size_t ls_described_batchnorm_count(const struct ls_described *d) {
    size_t count = 0;
    for (size_t i = 0; i < d->op_count; i++) count += d->ops[i].part == LS_DESCRIBED_FORWARD && d->ops[i].channels > 0;
    return count;
}

ls_status ls_describe_sync_batchnorm(ls_model *model, ls_comm *group) {
    const struct ls_described *d = model->described;
    size_t nbytes = 0, ranks = group ? (size_t)ls_comm_world_size(group) : 1;
    ls_device_free(model->device, model->shared);
    model->shared = NULL;
    model->group = NULL;
    for (size_t i = 0; i < d->op_count; i++)
        if (d->ops[i].part == LS_DESCRIBED_FORWARD && d->ops[i].channels > 0)
            nbytes += (ranks * statistics_of(&d->ops[i]) + 1) * sizeof(double) +
                      2 * (size_t)d->ops[i].channels * sizeof(float);
    if (ranks == 1 || nbytes == 0) return LS_OK;
    ls_status status =
        ls_device_alloc(model->device, LS_MEMORY_WORKSPACE, nbytes, "statistics of all ranks", (void **)&model->shared);
    if (status == LS_OK) model->group = group;
    return status;
}

/* What an operation of the layer's own time is split into has none of its own. */
static void enqueue_part(ls_stream *stream, const char *name) {
    const struct ls_described_op part = {.name = name};
    enqueue(stream, &part, SIZE_MAX);
}

static void enqueue_together(ls_model *model, ls_stream *stream, const struct ls_described_op *op, size_t number) {
    size_t statistics = statistics_of(op);
    double *mine = model->shared + (size_t)ls_comm_rank(model->group) * statistics;
    if (op->part == LS_DESCRIBED_FORWARD) {
        enqueue_part(stream, "batchnorm_statistics");
        ls_device_fail(model->device,
                       ls_comm_all_gather(model->group, stream, mine, model->shared, statistics, LS_INT64));
        enqueue_part(stream, "batchnorm_merge");
        enqueue(stream, op, number);
    } else {
        enqueue(stream, op, number);
        ls_device_fail(model->device, ls_comm_all_reduce(model->group, stream, (float *)model->shared,
                                                         2 * (size_t)op->channels, LS_FP32, LS_REDUCE_SUM));
        enqueue_part(stream, "batchnorm_input_gradient");
    }
}

/* --- a pass ------------------------------------------------------------------------------------------------------ */

static void report_ready(ls_model *model, const struct ls_described_op *op) {
    static const struct ls_described_op hook = {.name = "hook"};
    const struct ls_described *d = model->described;
    for (int i = 0; i < op->ready_count; i++) {
        size_t parameter = (size_t)d->ready[op->first_ready + i];
        if (d->hooks) enqueue(model->compute, &hook, d->op_count);
        ls_report_ready(model->device, model->parameters, &model->hooks, parameter);
    }
}

bool ls_model_enqueue_described(ls_model *model, ls_stream *stream, ls_described_part part) {
    const struct ls_described *d = model->described;
    for (size_t i = 0; d && i < d->op_count; i++) {
        if (d->ops[i].part != part) continue;
        if (model->group && d->ops[i].channels > 0)
            enqueue_together(model, stream, &d->ops[i], i);
        else
            enqueue(stream, &d->ops[i], i);
        if (part == LS_DESCRIBED_BACKWARD) report_ready(model, &d->ops[i]);
    }
    return d != NULL;
}
