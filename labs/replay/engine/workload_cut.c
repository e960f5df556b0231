/* workload_cut — a rank's part of a described network.
 *   idea  : iterates over layers in the order of the forward pass, and tracks the last one's output: the same on all
 *           ranks (or a rank's rows of it), or a part. A layer that is split by outputs begins parts, one that is split
 *           by inputs ends them; each has 1/T of its flops and weights, and so have all layers between them. The part's
 *           step then follows by the rules for any network (workload_step.c)
 *   rows  : with `sequence` data that is not a part has 1/T of its rows; all its parameters exist on each rank, and
 *           their gradients are sums over those rows, which are all-reduced. The input of a layer that is split by
 *           outputs is gathered and kept
 *   bias  : whole in a layer that is split by inputs: it is added once, after the sum
 *   text  : a vocabulary's table is split by inputs (each rank looks up its range; the other rows are zeros). If parts
 *           are the network's output, they are classes of logits, which the loss does not gather
 *   not   : the padding of a vocabulary that T does not divide: less than T rows
 *   cost  : linear in layers and parameters */
#include "labs/replay/engine/workload_cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/workload_parts.h"

struct cutting {
    const ls_workload *whole;
    struct ls_workload_parts *parts;
    int ranks;
    bool sequence, is_part; /* of the previous layer's output */
};

static ls_status refuse(const struct cutting *c, const struct ls_workload_layer *layer, const char *why) {
    return ls_fail(LS_ERR_INVALID, "%s cannot be shared by %d ranks: %s %s", c->whole->name, c->ranks, layer->name,
                   why);
}

/* --- parameters --------------------------------------------------------------------------------------------------------- */

static bool is_bias(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".bias") == 0;
}

/* Adds parameters to the part's list, and their elements to the layer's weights. */
static void add_parameters(struct cutting *c, struct ls_workload_layer *layer, bool divides) {
    const ls_workload *w = c->whole;
    double others = layer->weights, ranks = divides ? c->ranks : 1; /* other layers' weights, which this layer reads */
    for (int p = 0; p < layer->parameter_count; p++) others -= (double)w->parameter_counts[layer->first_parameter + p];
    layer->weights = others / ranks;
    for (int p = layer->first_parameter; p < layer->first_parameter + layer->parameter_count; p++) {
        bool is_whole = layer->cut == LS_WORKLOAD_BY_INPUTS && is_bias(w->parameter_names[p]);
        uint64_t count = (uint64_t)ceil((double)w->parameter_counts[p] / (is_whole ? 1 : ranks));
        (void)ls_workload_add_parameter(c->parts, w->parameter_names[p], count);
        layer->weights += (double)count;
    }
}

/* --- layers ------------------------------------------------------------------------------------------------------------- */

static bool divides(const struct cutting *c, double number) { return fmod(number, c->ranks) == 0; }

static ls_status check(const struct cutting *c, const struct ls_workload_layer *layer) {
    const ls_workload *w = c->whole;
    bool is_table = layer->rule == LS_RULE_TABLE;
    if (layer->cut == LS_WORKLOAD_BY_OUTPUTS && c->is_part)
        return refuse(c, layer, "reads parts, but cannot make others");
    if (layer->cut == LS_WORKLOAD_BY_INPUTS && c->is_part == is_table)
        return refuse(c, layer,
                      is_table ? "reads parts, but needs whole samples" : "is cut by inputs that are not parts");
    if (c->is_part && !divides(c, layer->heads)) return refuse(c, layer, "has heads that the ranks do not divide");
    for (int p = 0; layer->cut == LS_WORKLOAD_BY_OUTPUTS && p < layer->parameter_count; p++)
        if (!divides(c, (double)w->parameter_counts[layer->first_parameter + p]))
            return refuse(c, layer, "has units that the ranks do not divide");
    return LS_OK;
}

/* Takes a rank's rows of data that all ranks would share; before the first collective that is the sample itself. */
static void take_rows(const struct cutting *c, struct ls_workload_layer *layer) {
    layer->flops /= c->ranks;
    layer->input /= c->ranks;
    layer->output /= c->ranks;
    layer->kept /= c->ranks;
    layer->sums_gradients = layer->parameter_count > 0;
}

/* The previous layer's kept output is not read any more: the gathered one is kept instead. */
static void keep_gathered(struct ls_workload_layer *layer, struct ls_workload_layer *before) {
    before->kept -= fmin(before->kept, before->output);
    layer->kept += layer->input;
}

static void take_part(const struct cutting *c, struct ls_workload_layer *layer, bool reads_part, bool makes_part) {
    layer->flops /= c->ranks;
    if (reads_part) layer->input /= c->ranks;
    if (makes_part) layer->output /= c->ranks;
    if (makes_part || c->sequence) layer->kept /= c->ranks;
    layer->channels /= makes_part ? c->ranks : 1;
}

static ls_status add_layer(struct cutting *c, int l) {
    ls_workload *w = &c->parts->workload;
    struct ls_workload_layer *layer = &w->layers[w->layer_count++];
    *layer = c->whole->layers[l];
    ls_status status = check(c, layer);
    bool reads_part = c->is_part, is_cut = layer->cut != LS_WORKLOAD_UNCUT;
    if (is_cut) c->is_part = layer->cut == LS_WORKLOAD_BY_OUTPUTS;
    layer->name = ls_workload_text(c->parts, layer->name);
    layer->enters = is_cut && c->is_part && l > 0;
    layer->leaves = is_cut && !c->is_part;
    int first = w->parameter_count;
    add_parameters(c, layer, is_cut || reads_part);
    layer->first_parameter = first;
    if (is_cut || reads_part)
        take_part(c, layer, reads_part, c->is_part);
    else if (c->sequence)
        take_rows(c, layer);
    if (layer->enters && c->sequence) keep_gathered(layer, layer - 1);
    if (layer->leaves && l + 1 == c->whole->layer_count) layer->kept += layer->output; /* terms, besides the sum */
    return status;
}

/* --- a workload --------------------------------------------------------------------------------------------------------- */

static void take_head(struct cutting *c) {
    const ls_workload *whole = c->whole;
    ls_workload *w = &c->parts->workload;
    w->name = ls_workload_text(c->parts, whole->name);
    w->source = ls_workload_text(c->parts, whole->source);
    w->defaults = whole->defaults;
    w->input_bytes = whole->input_bytes;
    w->answer_bytes = whole->answer_bytes;
    w->output_bytes = whole->output_bytes;
    w->element_bytes = whole->element_bytes;
    w->buffer_bytes = whole->buffer_bytes;
    w->optimizer_states = whole->optimizer_states;
    w->ranks = c->ranks;
    w->sequence = c->sequence;
}

/* Sets the network's output. A label has 8 bytes per row. */
static ls_status take_loss(struct cutting *c, bool is_text) {
    ls_workload *w = &c->parts->workload;
    const struct ls_workload_layer *last = &w->layers[w->layer_count - 1];
    if (c->is_part != is_text) return refuse(c, last, c->is_part ? "leaves parts" : "leaves whole logits of a text");
    if (!is_text) return LS_OK;
    w->output_bytes /= c->ranks;
    w->loss_rows = w->answer_bytes / sizeof(int64_t);
    return LS_OK;
}

static ls_status cut(struct cutting *c) {
    const ls_workload *whole = c->whole;
    bool is_text = false, is_cut = false;
    for (int l = 0; l < whole->layer_count; l++) {
        is_text = is_text || (whole->layers[l].cut != LS_WORKLOAD_UNCUT && whole->layers[l].rule == LS_RULE_TABLE);
        is_cut = is_cut || whole->layers[l].cut != LS_WORKLOAD_UNCUT;
    }
    if (!is_cut)
        return ls_fail(LS_ERR_INVALID, "%s does not describe how ranks can share its layers, which --tensor needs",
                       whole->name);
    if (c->sequence && !is_text)
        return ls_fail(LS_ERR_INVALID, "%s is not a text: its samples have no positions for ranks to share",
                       whole->name);
    take_head(c);
    c->parts->workload.layers = calloc((size_t)whole->layer_count, sizeof *c->parts->workload.layers);
    if (!c->parts->workload.layers)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a part of %s", whole->name);
    ls_status status = LS_OK;
    for (int l = 0; status == LS_OK && l < whole->layer_count; l++) status = add_layer(c, l);
    if (status == LS_OK) status = take_loss(c, is_text);
    if (status == LS_OK) ls_workload_add_step(c->parts);
    return status;
}

ls_status ls_workload_cut(ls_workload **out, const ls_workload *whole, int ranks, bool sequence) {
    *out = NULL;
    struct cutting c = {.whole = whole, .parts = ls_workload_begin(), .ranks = ranks, .sequence = sequence};
    if (!c.parts) return LS_ERR_NO_MEMORY;
    return ls_workload_finish(c.parts, cut(&c), out);
}
