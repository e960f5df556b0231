/* workload_step — from a network's layers to the operations of a training step.
 *   idea  : forward, the loss, the layers once more in reverse order for backward, and the optimizer. The backward
 *           operations of a kind of layer, and the bytes that it reads and writes, follow from one of four rules
 *           (below)
 *   ready : parameters become ready layer by layer in reverse order, within a layer the last one first
 *           (common/nn/passes.c)
 *   shared: a layer shared with other ranks (workload_cut.c) has a collective operation before or after it, in forward
 *           and backward, as common/nn/tensor_layers.c has between real layers
 *   cost  : linear in layers */
#include <math.h>
#include <string.h>

#include "labs/replay/engine/workload_parts.h"

/* --- the operations of a step ------------------------------------------------------------------------------------- */

/* e: bytes of an element; x, y: elements of input and output; w: of the parameters that it reads.
 *
 *              forward         backward, kernel by kernel
 *     WEIGHTS  e (x + y + w)   gradient of the input e (x + y + w), unless it is the first layer;
 *                              gradient of the parameters e (x + y) + 4 w. As many flops as forward, each
 *     FACTORS  e (x + y)       the gradients of both factors: e (x + y) and as many flops as forward, each
 *     TABLE    2 e y           2 e y + 4 w: the rows' gradients are added to a table of zeros
 *     PASS     e (x + y + w)   e (2 x + y + w): reads x and the gradient of y, writes that of x. Flops as forward
 *
 * Terms with w do not grow with the number of samples. */

/* `kernels` operations that share the flops; each moves all of the bytes. */
static struct ls_work *add_work(struct ls_workload_parts *parts, const char *name, const char *phase, int kernels,
                                double flops, double bytes, double fixed_bytes) {
    struct ls_work work = {.name = name,
                           .phase = phase,
                           .flops = flops / kernels,
                           .bytes = bytes + fixed_bytes,
                           .fixed_bytes = fixed_bytes,
                           .us = -1,
                           .host_us = -1};
    ls_workload *w = &parts->workload;
    for (int k = 0; k < kernels; k++) ls_workload_add_work(parts, &work);
    return parts->failed ? NULL : &w->work[w->work_count - kernels];
}

/* A collective operation of the ranks that share the network. */
static struct ls_work *add_meeting(struct ls_workload_parts *parts, const char *phase, enum ls_work_meeting_kind kind,
                                   double elements) {
    static const char *const names[] = {
        [LS_WORK_SUMS] = "all_reduce", [LS_WORK_GATHERS] = "all_gather", [LS_WORK_SCATTERS] = "reduce_scatter"};
    struct ls_work *work = add_work(parts, names[kind], phase, 1, 0, 0, 0);
    if (!work) return NULL;
    work->meeting = (struct ls_work_meeting){.kind = kind, .elements = elements};
    return work;
}

/* Between layers: `elements` are the same on all ranks, or each rank has some of their rows. */
static void add_crossing(struct ls_workload_parts *parts, const char *phase, bool gathers, double elements) {
    const ls_workload *w = &parts->workload;
    if (w->sequence)
        (void)add_meeting(parts, phase, gathers ? LS_WORK_GATHERS : LS_WORK_SCATTERS, elements / w->ranks);
    else if (!gathers)
        (void)add_meeting(parts, phase, LS_WORK_SUMS, elements);
}

static bool is_product(const struct ls_workload_layer *layer) {
    return layer->rule == LS_RULE_WEIGHTS || layer->rule == LS_RULE_FACTORS;
}

static void add_forward(struct ls_workload_parts *parts, struct ls_workload_layer *layer) {
    double e = parts->workload.element_bytes, x = layer->input, y = layer->output, w = layer->weights;
    bool table = layer->rule == LS_RULE_TABLE;
    layer->first_forward = parts->workload.work_count;
    if (layer->enters) add_crossing(parts, "forward", true, x);
    struct ls_work *work = add_work(parts, layer->name, "forward", layer->kernels, layer->flops,
                                    e * (table ? 2 * y : x + y), table ? 0 : e * w);
    for (int k = 0; work && k < layer->kernels; k++) work[k].is_product = is_product(layer);
    if (work) work[0].channels = layer->channels;
    if (layer->leaves) add_crossing(parts, "forward", false, y);
    layer->end_forward = parts->workload.work_count;
}

/* Returns the last of its operations. */
static struct ls_work *add_backward(struct ls_workload_parts *parts, const struct ls_workload_layer *layer,
                                    bool is_first) {
    double e = parts->workload.element_bytes, x = layer->input, y = layer->output, w = layer->weights;
    double flops = layer->flops;
    struct ls_work *work = NULL;
    int k = layer->kernels;
    switch (layer->rule) {
    case LS_RULE_WEIGHTS:
        work = is_first ? NULL : add_work(parts, layer->name, "backward", k, flops, e * (x + y), e * w);
        for (int i = 0; work && i < k; i++) work[i].is_product = true;
        work = add_work(parts, layer->name, "backward", k, flops, e * (x + y), sizeof(float) * w);
        break;
    case LS_RULE_FACTORS:
        k *= 2;
        work = add_work(parts, layer->name, "backward", k, 2 * flops, e * (x + y), 0);
        break;
    case LS_RULE_TABLE: work = add_work(parts, layer->name, "backward", k, flops, 2 * e * y, sizeof(float) * w); break;
    case LS_RULE_PASS: work = add_work(parts, layer->name, "backward", k, flops, e * (2 * x + y), e * w); break;
    }
    for (int i = 0; work && i < k; i++) work[i].is_product = is_product(layer);
    if (work) work[k - 1].channels = layer->channels;
    return work ? work + k - 1 : NULL;
}

/* Gradients that are summed only over a rank's own rows. */
static struct ls_work *add_gradient_sum(struct ls_workload_parts *parts, const struct ls_workload_layer *layer) {
    struct ls_work *work = add_meeting(parts, "backward", LS_WORK_SUMS, layer->weights);
    if (work) work->meeting.fixed = work->meeting.fp32 = true;
    return work;
}

/* For each row the largest logit, then the sum of exponentials and the label's logit (common/nn/class_loss.c). */
static void add_loss_sums(struct ls_workload_parts *parts) {
    for (int floats = 1; parts->workload.loss_rows > 0 && floats <= 2; floats++) {
        struct ls_work *work = add_meeting(parts, "loss", LS_WORK_SUMS, floats * parts->workload.loss_rows);
        if (work) work->meeting.fp32 = true;
    }
}

static void add_ready(struct ls_workload_parts *parts, const struct ls_workload_layer *layer, struct ls_work *last) {
    last->first_ready = parts->workload.ready_count;
    last->ready_count = layer->parameter_count;
    for (int p = layer->parameter_count; p > 0; p--) ls_workload_add_ready(parts, layer->first_parameter + p - 1);
}

void ls_workload_add_step(struct ls_workload_parts *parts) {
    ls_workload *w = &parts->workload;
    double largest = 0, outputs = w->output_bytes / w->element_bytes;
    for (int l = 0; l < w->layer_count; l++) {
        struct ls_workload_layer *layer = &w->layers[l];
        add_forward(parts, layer);
        w->activation_bytes += w->element_bytes * layer->kept;
        if (l > 0) largest = fmax(largest, layer->input);
    }
    w->exchange_bytes = 2 * w->element_bytes * largest;
    add_loss_sums(parts);
    (void)add_work(parts, "loss", "loss", 1, 5 * outputs, 3 * w->output_bytes + w->answer_bytes, 0);
    for (int l = w->layer_count; l > 0; l--) {
        struct ls_workload_layer *layer = &w->layers[l - 1];
        layer->first_backward = w->work_count;
        if (layer->leaves) add_crossing(parts, "backward", true, layer->output);
        struct ls_work *last = add_backward(parts, layer, l == 1);
        if (layer->sums_gradients) last = add_gradient_sum(parts, layer);
        if (last) add_ready(parts, layer, last);
        if (layer->enters) add_crossing(parts, "backward", false, layer->input);
        layer->end_backward = w->work_count;
    }
    /* reads parameter, gradient and states, writes parameter and states, all in fp32 */
    double parameters = (double)ls_workload_parameters(w);
    (void)add_work(parts, "optimizer", "optimizer", 1, (2 + 4 * w->optimizer_states) * parameters, 0,
                   (12 + 8 * w->optimizer_states) * parameters);
}
