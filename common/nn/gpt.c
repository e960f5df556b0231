/* gpt — parses the GPT's sizes, and builds its network: tokens become rows of C channels; each layer normalises them
 * and adds the output of attention, then that of a perceptron; the head multiplies the last rows by each token's
 * embedding.
 *   names : those of nanoGPT's state dict, in its order
 *   blocks: the embedding, each layer, and the last norm with the head: between two blocks is one activation, [B, T, C]
 *   tied  : the head's weight is the token embedding. Backward reaches the head first, which writes the gradient, and
 *           the embedding last, which adds to it
 *   cost  : V C + T C + L (12 C^2 + 13 C) + 2 C parameters; each layer keeps 18 C floats a position, and those of
 *           attention: one float a head, or with `scores` T of them */
#include "common/nn/gpt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/network_internal.h"

enum { MOST_LAYERS = 256, MOST_CHANNELS = 65536, MOST_POSITIONS = 65536, MOST_TOKENS = 1 << 20 };

bool ls_gpt_is_named(const char *description) {
    return strncmp(description, "gpt", 3) == 0 && strchr(":,", description[3]); /* strchr finds '\0', too */
}

/* Reads the digits at *at as a number from 1 to `most`, and moves *at past them. Returns 0 if it is none. */
static int read_number(const char **at, int most) {
    int number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        number = number * 10 + (**at - '0');
        if (number > most) return 0;
    }
    return number;
}

/* "LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]"; the comma before the vocabulary may also begin an option. */
static bool read_sizes(struct ls_gpt_sizes *sizes, const char **at) {
    const struct field {
        int *number, most;
    } fields[] = {{&sizes->layers, MOST_LAYERS},
                  {&sizes->heads, MOST_CHANNELS},
                  {&sizes->channels, MOST_CHANNELS},
                  {&sizes->context, MOST_POSITIONS}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (i > 0 && *(*at)++ != ',') return false;
        *fields[i].number = read_number(at, fields[i].most);
        if (*fields[i].number == 0) return false;
    }
    if (**at != ',' || (*at)[1] < '0' || (*at)[1] > '9') return true;
    ++*at;
    sizes->vocabulary = read_number(at, MOST_TOKENS);
    return sizes->vocabulary > 0;
}

ls_status ls_gpt_parse(struct ls_gpt_sizes *out, const char *description) {
    *out = (struct ls_gpt_sizes){.layers = 4, .heads = 4, .channels = 128, .context = 64};
    bool valid = ls_gpt_is_named(description);
    const char *at = valid ? description + 3 : ""; /* after "gpt" */
    if (valid && *at == ':') {
        at++;
        valid = read_sizes(out, &at);
    }
    out->scores = valid && strcmp(at, ",scores") == 0;
    if (!valid || (*at != '\0' && !out->scores))
        return ls_fail(LS_ERR_USAGE,
                       "model \"%s\": expected gpt[:LAYERS,HEADS,CHANNELS,CONTEXT[,VOCABULARY]][,scores], as in "
                       "gpt:4,4,128,64, with at most %d layers, %d channels, %d positions and %d tokens",
                       description, MOST_LAYERS, MOST_CHANNELS, MOST_POSITIONS, MOST_TOKENS);
    if (out->channels % out->heads != 0)
        return ls_fail(LS_ERR_USAGE, "model \"%s\": %d heads do not divide %d channels", description, out->heads,
                       out->channels);
    if (out->channels / out->heads > LS_ATTENTION_MAX_HEAD)
        return ls_fail(LS_ERR_USAGE, "model \"%s\": a head would have %d channels; at most %d are supported",
                       description, out->channels / out->heads, LS_ATTENTION_MAX_HEAD);
    return LS_OK;
}

void ls_gpt_describe(const struct ls_gpt_sizes *sizes, char *text, size_t capacity) {
    char vocabulary[16] = "";
    if (sizes->vocabulary > 0) snprintf(vocabulary, sizeof vocabulary, ",%d", sizes->vocabulary);
    snprintf(text, capacity, "gpt:%d,%d,%d,%d%s%s", sizes->layers, sizes->heads, sizes->channels, sizes->context,
             vocabulary, sizes->scores ? ",scores" : "");
}

/* --- the network --------------------------------------------------------------------------------------------------- */

#define DEVIATION 0.02 /* of initial weights, as GPT-2's */

static ls_status add(ls_network *network, const char *prefix, const char *name, ls_layer layer) {
    snprintf(layer.name, sizeof layer.name, "%s%s", prefix, name);
    return ls_network_add(network, layer);
}

/* A chain of layers, whose output is added to the input of the first. */
struct branch {
    const char *sum;
    struct {
        const char *name;
        ls_layer layer;
    } chain[4];
    int count;
};

static ls_status add_branch(ls_network *network, const char *prefix, const struct branch *branch) {
    size_t input = network->layer_count - 1;
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < branch->count; i++)
        status = add(network, prefix, branch->chain[i].name, branch->chain[i].layer);
    if (status != LS_OK) return status;
    const ls_layer *layers = network->layers;
    const ls_layer sum = {.kind = &ls_addition, .reads = {layers[input].name, layers[network->layer_count - 1].name}};
    return add(network, prefix, branch->sum, sum);
}

/* The projections that end a branch have smaller initial weights, since 2 L of them are summed. */
static ls_status add_block(ls_network *network, const struct ls_gpt_sizes *sizes, int number) {
    const int channels = sizes->channels;
    const double deviation = DEVIATION / sqrt(2.0 * sizes->layers);
    const struct branch attention = {
        .sum = "attn_sum",
        .chain = {{"ln_1", {.kind = &ls_layernorm, .begins_block = true}},
                  {"attn.c_attn",
                   {.kind = &ls_linear, .units = 3 * channels, .deviation = DEVIATION, .cut = LS_CUT_QKV}},
                  {"attn",
                   {.kind = &ls_attention, .heads = sizes->heads, .keeps_scores = sizes->scores, .cut = LS_CUT_HEADS}},
                  {"attn.c_proj",
                   {.kind = &ls_linear, .units = channels, .deviation = deviation, .cut = LS_CUT_INPUTS}}},
        .count = 4};
    const struct branch perceptron = {
        .sum = "mlp_sum",
        .chain =
            {{"ln_2", {.kind = &ls_layernorm}},
             {"mlp.c_fc",
              {.kind = &ls_linear, .units = 4 * channels, .gelu = true, .deviation = DEVIATION, .cut = LS_CUT_OUTPUTS}},
             {"mlp.c_proj", {.kind = &ls_linear, .units = channels, .deviation = deviation, .cut = LS_CUT_INPUTS}}},
        .count = 3};
    char prefix[32];
    snprintf(prefix, sizeof prefix, "transformer.h.%d.", number);
    ls_status status = add_branch(network, prefix, &attention);
    return status == LS_OK ? add_branch(network, prefix, &perceptron) : status;
}

ls_status ls_gpt_add_layers(ls_network *network, const char *description) {
    struct ls_gpt_sizes sizes;
    ls_status status = ls_gpt_parse(&sizes, description);
    if (status != LS_OK) return status;
    if (sizes.vocabulary == 0)
        return ls_fail(LS_ERR_USAGE, "model \"%s\" has no vocabulary without a text; give one: gpt:%d,%d,%d,%d,65",
                       description, sizes.layers, sizes.heads, sizes.channels, sizes.context);
    network->input = ls_features(1);
    network->input.rows = sizes.context;
    network->input_nbytes = (size_t)sizes.context * sizeof(int32_t);
    const ls_layer embedding = {.kind = &ls_embedding,
                                .units = sizes.channels,
                                .vocabulary = sizes.vocabulary,
                                .deviation = DEVIATION,
                                .cut = LS_CUT_CLASSES};
    const ls_layer norm = {.kind = &ls_layernorm, .begins_block = true};
    const ls_layer head = {
        .kind = &ls_head, .units = sizes.vocabulary, .shares = {"transformer.wte.weight"}, .cut = LS_CUT_CLASSES};
    status = add(network, "", "transformer", embedding);
    for (int l = 0; status == LS_OK && l < sizes.layers; l++) status = add_block(network, &sizes, l);
    if (status == LS_OK) status = add(network, "", "transformer.ln_f", norm);
    return status == LS_OK ? add(network, "", "lm_head", head) : status;
}
