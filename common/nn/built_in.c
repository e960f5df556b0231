/* built_in — the built-in models, as text and as networks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/nn/gpt.h"
#include "common/nn/network_internal.h"

/* --- multi-layer perceptrons: "mlp:784,256,10" --------------------------------------------------------------------- */

enum { MOST_LAYERS = 160 };

static ls_status add_linear(ls_network *network, int number, int units, bool relu, enum ls_layer_cut cut) {
    if (number > MOST_LAYERS) return ls_fail(LS_ERR_USAGE, "a model has at most %d layers", MOST_LAYERS);
    ls_layer layer = {.kind = &ls_linear, .units = units, .relu = relu, .begins_block = true, .cut = cut};
    snprintf(layer.name, sizeof layer.name, "fc%d", number);
    return ls_network_add(network, layer);
}

/* By pairs; a last layer without a partner stays whole. */
static enum ls_layer_cut cut_of(int number, bool is_last) {
    if (number % 2 == 0) return LS_CUT_INPUTS;
    return is_last ? LS_CUT_NONE : LS_CUT_OUTPUTS;
}

static ls_status describe_mlp(ls_network *network, const char *model, const char *sizes) {
    int number = 0;
    ls_status status = LS_OK;
    for (const char *at = sizes; status == LS_OK; number++) {
        char *end = NULL;
        long size = strtol(at, &end, 10);
        if (end == at || size < 1 || size > 1 << 24 || (*end != ',' && *end != '\0')) {
            return ls_fail(LS_ERR_USAGE, "model \"%s\": sizes are numbers from 1 to 16777216, as in mlp:784,256,10",
                           model);
        }
        if (number == 0) network->input = ls_features((int)size);
        bool is_last = *end != ',';
        if (number > 0) status = add_linear(network, number, (int)size, !is_last, cut_of(number, is_last));
        if (*end == '\0') break;
        at = end + 1;
    }
    if (status == LS_OK && number == 0) {
        return ls_fail(LS_ERR_USAGE, "model \"%s\" has one size; it needs an input and an output", model);
    }
    return status;
}

/* --- mlp with a head that takes no part --------------------------------------------------------------------------- */

static ls_status describe_branched(ls_network *network) {
    network->input = ls_features(784);
    ls_status status = add_linear(network, 1, 256, true, LS_CUT_NONE);
    const ls_layer head = {.kind = &ls_linear, .name = "aux", .units = 10};
    const ls_layer next = {.kind = &ls_linear, .name = "fc2", .units = 10, .reads = {"fc1"}};
    if (status == LS_OK) status = ls_network_add(network, head);
    return status == LS_OK ? ls_network_add(network, next) : status;
}

/* --- the convolutional network ----------------------------------------------------------------------------------- */

static ls_status describe_convnet(ls_network *network) {
    network->input = (struct ls_shape){.channels = 1, .height = 28, .width = 28};
    const ls_layer layers[] = {
        {.kind = &ls_conv2d,
         .name = "conv1",
         .units = 16,
         .kernel = 5,
         .stride = 1,
         .padding = 2,
         .cut = LS_CUT_OUTPUTS},
        {.kind = &ls_batchnorm2d, .name = "bn1", .relu = true},
        {.kind = &ls_maxpool2d, .name = "pool1", .kernel = 2},
        {.kind = &ls_conv2d,
         .name = "conv2",
         .units = 32,
         .kernel = 5,
         .stride = 1,
         .padding = 2,
         .begins_block = true,
         .cut = LS_CUT_INPUTS},
        {.kind = &ls_batchnorm2d, .name = "bn2", .relu = true},
        {.kind = &ls_maxpool2d, .name = "pool2", .kernel = 2},
        {.kind = &ls_flatten, .name = "flatten", .begins_block = true},
        {.kind = &ls_linear, .name = "fc", .units = 10},
    };
    ls_status status = LS_OK;
    for (size_t l = 0; status == LS_OK && l < sizeof layers / sizeof *layers; l++)
        status = ls_network_add(network, layers[l]);
    return status;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

/* Multi-layer perceptrons; other sizes follow a name's colon, if its last field allows them. */
static const struct perceptron {
    const char *name, *sizes;
    ls_loss_kind loss;
    bool takes_sizes;
} perceptrons[] = {
    {"mlp", "784,256,10", LS_LOSS_CROSS_ENTROPY, true},
    {"wide", "4096,8192,4096", LS_LOSS_SQUARED_ERROR, true},
    {"deep", "784,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,10",
     LS_LOSS_CROSS_ENTROPY, false},
};

static ls_status describe(ls_network *network, const char *text) {
    if (strcmp(text, "convnet") == 0) return describe_convnet(network);
    if (strcmp(text, "branched") == 0) return describe_branched(network);
    if (ls_gpt_is_named(text)) return ls_gpt_add_layers(network, text);
    size_t name = strcspn(text, ":");
    for (size_t i = 0; i < sizeof perceptrons / sizeof *perceptrons; i++) {
        const struct perceptron *p = &perceptrons[i];
        if (strlen(p->name) != name || memcmp(text, p->name, name) != 0) continue;
        if (text[name] == ':' && !p->takes_sizes) break;
        network->loss = p->loss;
        return describe_mlp(network, text, text[name] == ':' ? text + name + 1 : p->sizes);
    }
    return ls_fail(LS_ERR_USAGE,
                   "there is no model \"%s\"; there are mlp, mlp:SIZES, convnet, wide, wide:SIZES, deep, branched, gpt "
                   "and gpt:SIZES",
                   text);
}

ls_status ls_network_create(ls_network **out, const char *description) {
    *out = NULL;
    ls_network *network = ls_network_begin((struct ls_shape){0}, LS_LOSS_CROSS_ENTROPY);
    if (!network) return LS_ERR_NO_MEMORY;
    ls_status status = describe(network, description);
    if (status == LS_OK) status = ls_network_finish(network);
    if (status != LS_OK) {
        ls_network_destroy(network);
        return status;
    }
    *out = network;
    return LS_OK;
}
