/* text_network — builds a network from a text's lines.
 *   idea  : a line is a layer; but a ReLU after a linear layer, batch norm or addition whose value has no other reader
 *           is fused into that layer (.relu), with the same bits. This file derives from the graph: blocks, and the
 *           layers that tensor parallelism cuts
 *   blocks: a block begins where only one value is needed from before, at a convolution, at flatten or a linear layer,
 *           or where a branch begins, if the block before it has weights: so a residual block is a block, and so is a
 *           layer of a perceptron
 *   pairs : two convolutions, or two linear layers, of a chain with only batch norm, their ReLUs, and pools between
 *           them: the first is cut by its outputs, the second by its inputs
 *   cost  : linear in the lines, except for names
 *   fails : sizes that do not match are named with source, line, layer, and both sizes */
#include <string.h>

#include "common/base/log.h"
#include "common/nn/text_internal.h"

/* --- readers ------------------------------------------------------------------------------------------------------ */

static bool is_weighted(const struct ls_text_line *line) {
    return line->word == LS_WORD_CONV || line->word == LS_WORD_LINEAR;
}

static void note_reader(struct ls_text *t, int reader, int value) {
    if (value < 0) return;
    t->lines[value].readers++;
    t->lines[value].last_reader = reader;
}

/* Whether line i continues a chain: it is the only reader of the line before it. */
static bool continues(const struct ls_text *t, int i) {
    return i > 0 && t->lines[i].reads == i - 1 && t->lines[i].adds == LS_TEXT_NOTHING && t->lines[i - 1].readers == 1;
}

static void find_readers(struct ls_text *t) {
    for (int i = 0; i < t->count; i++) {
        note_reader(t, i, t->lines[i].reads);
        note_reader(t, i, t->lines[i].adds);
    }
    for (int i = 1; i < t->count; i++) {
        const struct ls_text_line *before = &t->lines[i - 1];
        bool takes = before->word == LS_WORD_BATCHNORM || before->word == LS_WORD_ADD ||
                     (before->word == LS_WORD_LINEAR && !before->no_bias);
        t->lines[i].is_taken_along = t->lines[i].word == LS_WORD_RELU && takes && continues(t, i);
    }
}

/* --- blocks and cuts --------------------------------------------------------------------------------------------------- */

static void find_blocks(struct ls_text *t) {
    bool has_weights = false;
    int furthest = LS_TEXT_NOTHING; /* the last line that reads the input, or a value older than the line before */
    for (int i = 0; i < t->count; i++)
        if (t->lines[i].reads == LS_TEXT_INPUT || t->lines[i].adds == LS_TEXT_INPUT) furthest = i;
    for (int i = 0; i < t->count; i++) {
        struct ls_text_line *line = &t->lines[i];
        if (i > 1 && t->lines[i - 2].last_reader > furthest) furthest = t->lines[i - 2].last_reader;
        bool alone = i > 0 && furthest < i && line->reads == i - 1 && line->adds == LS_TEXT_NOTHING;
        bool is_read = line->readers > 0 || i + 1 == t->count;
        bool starts = is_weighted(line) || line->word == LS_WORD_FLATTEN || (i > 0 && t->lines[i - 1].readers > 1);
        line->begins_block = alone && is_read && starts && has_weights;
        if (line->begins_block) has_weights = false;
        has_weights = has_weights || is_weighted(line);
    }
}

/* The line that line i can be paired with; 0 if there is none. */
static int find_partner(const struct ls_text *t, int i) {
    const struct ls_text_line *first = &t->lines[i];
    for (int j = i + 1; j < t->count && continues(t, j); j++) {
        const struct ls_text_line *line = &t->lines[j];
        if (is_weighted(line)) return line->word == first->word && !line->no_bias ? j : 0;
        bool goes_along = line->word == LS_WORD_BATCHNORM || line->word == LS_WORD_MAXPOOL || line->is_taken_along;
        if (!goes_along) return 0;
    }
    return 0;
}

static void find_pairs(struct ls_text *t) {
    for (int i = 0; i < t->count; i++) {
        int partner = is_weighted(&t->lines[i]) && !t->lines[i].no_bias ? find_partner(t, i) : 0;
        if (partner == 0) continue;
        t->lines[i].cut = LS_CUT_OUTPUTS;
        t->lines[partner].cut = LS_CUT_INPUTS;
        i = partner;
    }
}

/* --- sizes ------------------------------------------------------------------------------------------------------------ */

#define MOST_WEIGHTS ((uint64_t)1 << 48) /* of a layer */

static struct ls_text_value value_at(const struct ls_text *t, int line) {
    return line == LS_TEXT_INPUT ? t->input : t->lines[line].value;
}

static ls_status check_conv(const struct ls_text *t, const struct ls_text_line *line, struct ls_shape in) {
    char shape[LS_TEXT_SHAPE_NBYTES];
    int height = in.height + 2 * line->padding, width = in.width + 2 * line->padding;
    if (height < line->kernel || width < line->kernel)
        return ls_text_fail(t, line->number, "conv %d: a kernel of %dx%d does not fit %s with padding %d", line->units,
                            line->kernel, line->kernel, ls_text_shape((struct ls_text_value){in, false}, shape),
                            line->padding);
    uint64_t units = (uint64_t)line->units, area = (uint64_t)(line->kernel * line->kernel);
    uint64_t pixels =
        (uint64_t)((height - line->kernel) / line->stride + 1) * (uint64_t)((width - line->kernel) / line->stride + 1);
    if (units * pixels > INT32_MAX || units * area > INT32_MAX / (uint64_t)in.channels)
        return ls_text_fail(t, line->number, "conv %d has more than 2^31 values per sample, or weights", line->units);
    return LS_OK;
}

/* Checks that the layer accepts its input's shape. */
static ls_status check_sizes(const struct ls_text *t, const struct ls_text_line *line, struct ls_text_value in) {
    char a[LS_TEXT_SHAPE_NBYTES], b[LS_TEXT_SHAPE_NBYTES];
    const char *word = ls_text_words[line->word], *shape = ls_text_shape(in, a);
    bool image = line->word == LS_WORD_CONV || line->word == LS_WORD_MAXPOOL || line->word == LS_WORD_AVGPOOL;
    if (image && in.is_flat)
        return ls_text_fail(t, line->number, "%s needs an image, but gets %s features", word, shape);
    if (line->word == LS_WORD_LINEAR && !in.is_flat)
        return ls_text_fail(t, line->number, "linear needs features, but gets %s: put flatten before it", shape);
    if (line->word == LS_WORD_LINEAR && (uint64_t)line->units * (uint64_t)in.shape.channels > MOST_WEIGHTS)
        return ls_text_fail(t, line->number, "linear has more than 2^48 weights from %s to %d", shape, line->units);
    if (line->word == LS_WORD_CONV) return check_conv(t, line, in.shape);
    int smallest = in.shape.height < in.shape.width ? in.shape.height : in.shape.width;
    if (line->word == LS_WORD_MAXPOOL && line->kernel > smallest)
        return ls_text_fail(t, line->number, "maxpool %d: a window of %dx%d does not fit %s", line->kernel,
                            line->kernel, line->kernel, shape);
    if (line->word != LS_WORD_ADD) return LS_OK;
    struct ls_text_value other = value_at(t, line->adds);
    bool same = other.is_flat == in.is_flat && other.shape.channels == in.shape.channels &&
                other.shape.height == in.shape.height && other.shape.width == in.shape.width;
    const char *name = line->adds == LS_TEXT_INPUT ? "input" : t->lines[line->adds].name;
    return same ? LS_OK
                : ls_text_fail(t, line->number, "add %s: %s does not fit %s", name, ls_text_shape(other, b), shape);
}

/* --- layers ----------------------------------------------------------------------------------------------------------- */

static const char *layer_name(const struct ls_text *t, const ls_network *network, int line) {
    return line < 0 ? NULL : network->layers[t->lines[line].layer].name;
}

static ls_status add_layer(struct ls_text *t, ls_network *network, int i) {
    static const struct ls_layer_kind *const kinds[LS_WORD_COUNT] = {
        [LS_WORD_CONV] = &ls_conv2d,       [LS_WORD_BATCHNORM] = &ls_batchnorm2d, [LS_WORD_RELU] = &ls_relu,
        [LS_WORD_MAXPOOL] = &ls_maxpool2d, [LS_WORD_AVGPOOL] = &ls_avgpool2d,     [LS_WORD_FLATTEN] = &ls_flatten,
        [LS_WORD_LINEAR] = &ls_linear,     [LS_WORD_ADD] = &ls_addition};
    struct ls_text_line *line = &t->lines[i];
    ls_layer layer = {.kind = kinds[line->word],
                      .units = line->units,
                      .kernel = line->kernel,
                      .stride = line->stride,
                      .padding = line->padding,
                      .no_bias = line->no_bias,
                      .relu = i + 1 < t->count && t->lines[i + 1].is_taken_along,
                      .begins_block = line->begins_block,
                      .cut = line->cut};
    memcpy(layer.name, line->name, sizeof layer.name);
    int other =
        line->adds == LS_TEXT_INPUT ? line->reads : line->adds; /* the network's input comes first, without a name */
    if (line->adds != LS_TEXT_NOTHING) layer.reads[1] = layer_name(t, network, other);
    if (line->adds != LS_TEXT_INPUT) layer.reads[0] = layer_name(t, network, line->reads);
    layer.reads_input = line->reads == LS_TEXT_INPUT;
    line->layer = network->layer_count;
    return ls_network_add(network, layer);
}

static ls_status add_line(struct ls_text *t, ls_network *network, int i) {
    struct ls_text_line *line = &t->lines[i];
    struct ls_text_value in = value_at(t, line->reads);
    if (line->takes_classes) line->units = t->classes;
    if (line->takes_classes && t->classes == 0)
        return ls_fail(LS_ERR_USAGE, "%s:%d: the number of classes is not known without data: give %s:%s,10", t->source,
                       line->number, t->source, "3x32x32");
    ls_status status = check_sizes(t, line, in);
    if (status == LS_OK && !line->is_taken_along) status = add_layer(t, network, i);
    if (status != LS_OK) return status;
    if (line->is_taken_along) line->layer = t->lines[i - 1].layer;
    line->value.shape = network->layers[line->layer].out;
    line->value.is_flat = in.is_flat || line->word == LS_WORD_FLATTEN;
    return LS_OK;
}

ls_status ls_text_build(struct ls_text *t, ls_network *network) {
    if (t->takes_input && t->input.shape.channels == 0)
        return ls_fail(LS_ERR_USAGE, "%s takes its input's shape from the data, which has none: give %s:3x32x32,10",
                       t->source, t->source);
    network->input = t->input.shape;
    network->loss = t->loss;
    find_readers(t);
    find_blocks(t);
    find_pairs(t);
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < t->count; i++) status = add_line(t, network, i);
    const struct ls_text_line *last = &t->lines[t->count - 1];
    char shape[LS_TEXT_SHAPE_NBYTES];
    if (status == LS_OK && !last->value.is_flat)
        status = ls_text_fail(t, last->number, "the last layer makes %s, but the loss needs features: end with flatten",
                              ls_text_shape(last->value, shape));
    return status;
}
