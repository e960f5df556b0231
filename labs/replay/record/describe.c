#include "labs/replay/record/describe.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

_Static_assert((int)LS_WORK_SUMS == (int)LS_DESCRIBED_SUMS && (int)LS_WORK_GATHERS == (int)LS_DESCRIBED_GATHERS &&
                   (int)LS_WORK_SCATTERS == (int)LS_DESCRIBED_SCATTERS,
               "a description's meetings are in another order than a workload's");

static ls_described_part part_of(const char *phase) {
    static const char *const phases[] = {[LS_DESCRIBED_FORWARD] = "forward",
                                         [LS_DESCRIBED_LOSS] = "loss",
                                         [LS_DESCRIBED_BACKWARD] = "backward",
                                         [LS_DESCRIBED_UPDATE] = "optimizer"};
    int part = LS_DESCRIBED_FORWARD;
    while (part < LS_DESCRIBED_UPDATE && strcmp(phases[part], phase) != 0) part++;
    return (ls_described_part)part;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

/* Bytes of a sample that are not activations of a layer: the network's output in fp32, and the 16-bit copy of its
 * input, if that is fp32. */
static double cast_bytes(const ls_workload *w, ls_dtype precision) {
    if (precision == LS_FP32) return 0;
    return (double)ls_workload_whole(w->output_bytes / sizeof(float)) * sizeof(float) +
           (w->element_bytes == sizeof(float) ? w->input_bytes / 2 : 0);
}

/* Bytes kept by the layers so far, rounded so that each layer's part and the sum are integers. The workload's bytes are
 * of its own element type. */
static size_t kept_so_far(const ls_workload *w, ls_dtype precision, double elements) {
    return ls_workload_whole(elements * (double)ls_dtype_nbytes(precision) + cast_bytes(w, precision));
}

static void add_layers(struct ls_described *d, struct ls_described_node *nodes, const ls_workload *w) {
    double elements = 0;
    size_t before = 0;
    for (int l = 0; l < w->layer_count; l++) {
        const struct ls_workload_layer *layer = &w->layers[l];
        elements += layer->kept;
        size_t kept_nbytes = kept_so_far(w, d->precision, elements);
        nodes[l] = (struct ls_described_node){.network = d,
                                              .first_forward = (size_t)layer->first_forward,
                                              .end_forward = (size_t)layer->end_forward,
                                              .first_backward = (size_t)layer->first_backward,
                                              .end_backward = (size_t)layer->end_backward,
                                              .parameter_count = (size_t)layer->parameter_count,
                                              .inputs = ls_workload_whole(layer->input),
                                              .outputs = ls_workload_whole(layer->output),
                                              .kept_nbytes = kept_nbytes - before,
                                              .begins_block = layer->begins_block};
        before = kept_nbytes;
    }
}

/* Adds all operations as one layer; other memory that backward needs counts as kept. */
static void add_whole(struct ls_described *d, struct ls_described_node *node, const ls_workload *w) {
    double elements = (w->activation_bytes + w->exchange_bytes) / w->element_bytes;
    *node = (struct ls_described_node){.network = d,
                                       .end_forward = d->op_count,
                                       .end_backward = d->op_count,
                                       .parameter_count = d->parameter_count,
                                       .kept_nbytes = kept_so_far(w, d->precision, elements)};
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static void add_operations(struct ls_described_op *ops, const ls_workload *w) {
    for (int i = 0; i < w->work_count; i++) {
        const struct ls_work *work = &w->work[i];
        ops[i] = (struct ls_described_op){.name = work->name,
                                          .part = part_of(work->phase),
                                          .flops = ls_workload_whole(work->flops),
                                          .bytes = ls_workload_whole(work->bytes),
                                          .first_ready = work->first_ready,
                                          .ready_count = work->ready_count,
                                          .channels = work->channels,
                                          .meeting = (enum ls_described_meeting)work->meeting.kind,
                                          .elements = ls_workload_whole(work->meeting.elements),
                                          .elements_fixed = work->meeting.fixed,
                                          .elements_fp32 = work->meeting.fp32};
    }
}

ls_status record_describe(struct ls_described *d, const ls_workload *w, const struct ls_plan *o) {
    size_t node_count = w->layer_count > 0 ? (size_t)w->layer_count : 1;
    struct ls_described_op *ops = calloc((size_t)w->work_count + 1, sizeof *ops);
    struct ls_described_node *nodes = calloc(node_count, sizeof *nodes);
    *d = (struct ls_described){.precision = o->precision,
                               .input_nbytes = ls_workload_whole(w->input_bytes),
                               .answer_nbytes = ls_workload_whole(w->answer_bytes),
                               .nodes = nodes,
                               .node_count = node_count,
                               .parameter_names = w->parameter_names,
                               .parameter_counts = w->parameter_counts,
                               .parameter_count = (size_t)w->parameter_count,
                               .buffer_count = ls_workload_whole(w->buffer_bytes / sizeof(float)),
                               .ops = ops,
                               .op_count = (size_t)w->work_count,
                               .ready = w->ready,
                               .hooks = o->mode == LS_PLAN_DDP && o->tensor_us > 0};
    if (!ops || !nodes) {
        record_describe_free(d);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to describe %s", w->name);
    }
    add_operations(ops, w);
    if (w->layer_count > 0)
        add_layers(d, nodes, w);
    else
        add_whole(d, nodes, w);
    nodes[node_count - 1].outputs = ls_workload_whole(w->output_bytes / sizeof(float));
    return LS_OK;
}

void record_describe_free(struct ls_described *d) {
    free((void *)d->nodes);
    free((void *)d->ops);
    d->nodes = NULL;
    d->ops = NULL;
}
