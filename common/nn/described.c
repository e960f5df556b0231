/* described — networks that enqueue the operations of a description (described.h).
 *   idea  : parameters belong to the network, and memory is accounted for as for any layer; an operation is only a
 *           launch that probes record, with its number. Gradients become ready where the description says so, possibly
 *           in the middle of a layer's backward
 *   not   : casts (a description has its own operations for them, if any) */
#include "common/nn/described.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/probe.h"
#include "common/nn/model_internal.h"

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

/* A rank's statistics, in doubles; its sums, in floats. */
static size_t statistics_of(const struct ls_described_op *op) { return 2 * (size_t)op->channels + 1; }

static bool is_batchnorm(const struct ls_described_op *op) {
    return op->part == LS_DESCRIBED_FORWARD && op->channels > 0;
}

/* The operations of a layer share this memory, one at a time. */
static size_t described_shared_nbytes(const ls_layer *layer, int world_size) {
    const struct ls_described_node *node = layer->described;
    size_t nbytes = 0;
    for (size_t i = node->first_forward; i < node->end_forward; i++) {
        const struct ls_described_op *op = &node->network->ops[i];
        if (is_batchnorm(op))
            nbytes += ((size_t)world_size * statistics_of(op) + 1) * sizeof(double) +
                      2 * (size_t)op->channels * sizeof(float);
    }
    return nbytes;
}

/* A part of an operation whose time the layer measures as a whole: it has no time of its own. */
static void enqueue_part(ls_stream *stream, const char *name) {
    const struct ls_described_op part = {.name = name};
    enqueue(stream, &part, SIZE_MAX);
}

static void enqueue_together(const struct ls_pass *pass, const struct ls_described_op *op, size_t number) {
    size_t statistics = statistics_of(op);
    double *everybodys = pass->shared, *mine = everybodys + (size_t)ls_comm_rank(pass->group) * statistics;
    ls_device *device = ls_stream_device(pass->stream);
    if (op->part == LS_DESCRIBED_FORWARD) {
        enqueue_part(pass->stream, "batchnorm_statistics");
        ls_device_fail(device, ls_comm_all_gather(pass->group, pass->stream, mine, everybodys, statistics, LS_INT64));
        enqueue_part(pass->stream, "batchnorm_merge");
        enqueue(pass->stream, op, number);
    } else {
        enqueue(pass->stream, op, number);
        ls_device_fail(device, ls_comm_all_reduce(pass->group, pass->stream, pass->shared, 2 * (size_t)op->channels,
                                                  LS_FP32, LS_REDUCE_SUM));
        enqueue_part(pass->stream, "batchnorm_input_gradient");
    }
}

/* --- with the other ranks that share the network ------------------------------------------------------------------------ */

/* `memory` is any memory of the device: it is neither read nor written. */
static void enqueue_meeting(ls_stream *stream, const struct ls_described *d, const struct ls_described_op *op,
                            size_t samples, void *memory) {
    size_t count = op->elements * (op->elements_fixed ? 1 : samples);
    ls_dtype dtype = op->elements_fp32 ? LS_FP32 : d->precision;
    ls_status status = LS_OK;
    if (count == 0) return;
    if (op->meeting == LS_DESCRIBED_SUMS)
        status = ls_comm_all_reduce(d->group, stream, memory, count, dtype, LS_REDUCE_SUM);
    if (op->meeting == LS_DESCRIBED_GATHERS)
        status = ls_comm_all_gather(d->group, stream, memory, memory, count, dtype);
    if (op->meeting == LS_DESCRIBED_SCATTERS)
        status = ls_comm_reduce_scatter(d->group, stream, memory, memory, count, dtype, LS_REDUCE_SUM);
    ls_device_fail(ls_stream_device(stream), status);
}

/* --- a layer ------------------------------------------------------------------------------------------------------ */

static ls_status described_plan(ls_layer *layer) {
    const struct ls_described_node *node = layer->described;
    if (node->inputs > INT_MAX || node->outputs > INT_MAX)
        return ls_fail(LS_ERR_INVALID, "layer %s has more than %d elements per sample", layer->name, INT_MAX);
    layer->in = ls_features((int)node->inputs);
    layer->out = ls_features((int)node->outputs);
    layer->saved_nbytes_per_sample = node->kept_nbytes;
    for (size_t i = node->first_forward; i < node->end_forward; i++)
        layer->batchnorm_count += is_batchnorm(&node->network->ops[i]);
    return LS_OK;
}

static void report_ready(const struct ls_pass *pass, const struct ls_described *d, const struct ls_described_op *op) {
    static const struct ls_described_op hook = {.name = "hook"};
    for (int i = 0; i < op->ready_count; i++) {
        if (d->hooks) enqueue(pass->stream, &hook, d->op_count);
        ls_pass_ready(pass, (size_t)d->ready[op->first_ready + i]);
    }
}

static void enqueue_range(const struct ls_pass *pass, const struct ls_described *d, size_t first, size_t end,
                          ls_described_part part) {
    ls_device *device = ls_stream_device(pass->stream);
    if (ls_device_computes(device))
        ls_device_fail(device,
                       ls_fail(LS_ERR_INVALID, "device %d computes, but a described network has nothing to compute",
                               ls_device_index(device)));
    for (size_t i = first; i < end; i++) {
        if (d->ops[i].part != part) continue;
        if (d->ops[i].meeting != LS_DESCRIBED_ALONE)
            enqueue_meeting(pass->stream, d, &d->ops[i], pass->batch, pass->y);
        else if (pass->group && d->ops[i].channels > 0)
            enqueue_together(pass, &d->ops[i], i);
        else
            enqueue(pass->stream, &d->ops[i], i);
        if (part == LS_DESCRIBED_BACKWARD) report_ready(pass, d, &d->ops[i]);
    }
}

static void described_forward(const ls_layer *layer, const struct ls_pass *pass) {
    const struct ls_described_node *node = layer->described;
    enqueue_range(pass, node->network, node->first_forward, node->end_forward, LS_DESCRIBED_FORWARD);
}

static void described_backward(const ls_layer *layer, const struct ls_pass *pass) {
    const struct ls_described_node *node = layer->described;
    enqueue_range(pass, node->network, node->first_backward, node->end_backward, LS_DESCRIBED_BACKWARD);
}

static const struct ls_layer_kind described_layer = {
    .name = "described",
    .in_place = true,
    .leaves_input = true,
    .reports = true,
    .plan = described_plan,
    .forward = described_forward,
    .backward = described_backward,
    .shared_nbytes = described_shared_nbytes,
};

/* --- a network ---------------------------------------------------------------------------------------------------- */

static struct ls_tensor named(const char *name, size_t count) {
    struct ls_tensor tensor = {.ndim = 1, .shape = {count}, .count = count};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    return tensor;
}

static ls_status add_node(ls_network *network, const struct ls_described_node *node) {
    const struct ls_described *d = node->network;
    ls_layer layer = {.kind = &described_layer, .described = node, .begins_block = node->begins_block};
    snprintf(layer.name, sizeof layer.name, "%zu", network->layer_count); /* described names may repeat */
    ls_status status = ls_network_add(network, layer);
    for (size_t p = 0; status == LS_OK && p < node->parameter_count; p++) {
        size_t number = network->parameter_count;
        struct ls_tensor tensor = named(d->parameter_names[number], d->parameter_counts[number]);
        status = ls_network_declare_parameter(network, &tensor);
    }
    return status;
}

ls_status ls_network_create_described(ls_network **out, const struct ls_described *described) {
    *out = NULL;
    ls_network *network = ls_network_begin(ls_features(0), LS_LOSS_CROSS_ENTROPY);
    if (!network) return LS_ERR_NO_MEMORY;
    network->input_nbytes = described->input_nbytes;
    network->casts_itself = true;
    ls_status status = LS_OK;
    for (size_t n = 0; status == LS_OK && n < described->node_count; n++)
        status = add_node(network, &described->nodes[n]);
    struct ls_tensor buffers = named("buffers", described->buffer_count);
    if (status == LS_OK && described->buffer_count > 0) status = ls_network_declare_buffer(network, &buffers);
    if (status == LS_OK) status = ls_network_finish(network);
    if (status != LS_OK) {
        ls_network_destroy(network);
        return status;
    }
    network->described = described;
    network->answer_nbytes = described->answer_nbytes;
    *out = network;
    return LS_OK;
}

bool ls_model_enqueue_described(ls_model *model, ls_stream *stream, ls_described_part part, size_t samples) {
    const struct ls_described *d = model->network->described;
    for (size_t i = 0; d && i < d->op_count; i++) {
        if (d->ops[i].part != part) continue;
        if (d->ops[i].meeting != LS_DESCRIBED_ALONE)
            enqueue_meeting(stream, d, &d->ops[i], samples, ls_model_parameter(model, 0)->data);
        else
            enqueue(stream, &d->ops[i], i);
    }
    return d != NULL;
}
