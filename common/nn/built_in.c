/* built_in — the built-in models, as text and as lists of layers. */
#include "common/nn/built_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static ls_status add_layer(struct ls_description *d, ls_layer layer) {
    if (d->layer_count == LS_MODEL_MAX_LAYERS) {
        return ls_fail(LS_ERR_USAGE, "a model has at most %d layers", LS_MODEL_MAX_LAYERS);
    }
    layer.in = d->layer_count ? d->layers[d->layer_count - 1].out : d->input;
    d->layers[d->layer_count] = layer;
    return layer.kind->plan(&d->layers[d->layer_count++]);
}

/* --- multi-layer perceptrons: "mlp:784,256,10" --------------------------------------------------------------------- */

static ls_status add_linear(struct ls_description *d, int number, int units, bool relu) {
    ls_layer layer = {.kind = &ls_linear, .units = units, .relu = relu};
    snprintf(layer.name, sizeof layer.name, "fc%d", number);
    return add_layer(d, layer);
}

static ls_status describe_mlp(struct ls_description *d, const char *model, const char *sizes) {
    int number = 0;
    ls_status status = LS_OK;
    for (const char *at = sizes; status == LS_OK; number++) {
        char *end = NULL;
        long size = strtol(at, &end, 10);
        if (end == at || size < 1 || size > 1 << 24 || (*end != ',' && *end != '\0')) {
            return ls_fail(LS_ERR_USAGE, "model \"%s\": sizes are numbers from 1 to 16777216, as in mlp:784,256,10",
                           model);
        }
        if (number == 0) d->input = (struct ls_image){(int)size, 1, 1};
        if (number > 0) status = add_linear(d, number, (int)size, *end == ',');
        if (*end == '\0') break;
        at = end + 1;
    }
    if (status == LS_OK && number == 0) {
        return ls_fail(LS_ERR_USAGE, "model \"%s\" has one size; it needs an input and an output", model);
    }
    return status;
}

/* --- mlp with a head that takes no part --------------------------------------------------------------------------- */

static ls_status describe_branched(struct ls_description *d) {
    d->input = (struct ls_image){784, 1, 1};
    ls_status status = add_linear(d, 1, 256, true);
    if (status == LS_OK) status = add_layer(d, (ls_layer){.kind = &ls_untaken, .name = "aux", .units = 10});
    return status == LS_OK ? add_linear(d, 2, 10, false) : status;
}

/* --- the convolutional network ----------------------------------------------------------------------------------- */

static ls_status describe_convnet(struct ls_description *d) {
    d->input = (struct ls_image){1, 28, 28};
    const ls_layer layers[] = {
        {.kind = &ls_conv2d, .name = "conv1", .units = 16, .kernel = 5, .stride = 1, .padding = 2},
        {.kind = &ls_batchnorm2d, .name = "bn1", .relu = true},
        {.kind = &ls_maxpool2d, .name = "pool1", .kernel = 2},
        {.kind = &ls_conv2d, .name = "conv2", .units = 32, .kernel = 5, .stride = 1, .padding = 2},
        {.kind = &ls_batchnorm2d, .name = "bn2", .relu = true},
        {.kind = &ls_maxpool2d, .name = "pool2", .kernel = 2},
        {.kind = &ls_flatten, .name = "flatten"},
        {.kind = &ls_linear, .name = "fc", .units = 10},
    };
    ls_status status = LS_OK;
    for (size_t l = 0; status == LS_OK && l < sizeof layers / sizeof *layers; l++) status = add_layer(d, layers[l]);
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

ls_status ls_describe_model(struct ls_description *d, const char *text) {
    memset(d, 0, sizeof *d);
    d->loss = LS_LOSS_CROSS_ENTROPY;
    if (strcmp(text, "convnet") == 0) return describe_convnet(d);
    if (strcmp(text, "branched") == 0) return describe_branched(d);
    size_t name = strcspn(text, ":");
    for (size_t i = 0; i < sizeof perceptrons / sizeof *perceptrons; i++) {
        const struct perceptron *p = &perceptrons[i];
        if (strlen(p->name) != name || memcmp(text, p->name, name) != 0) continue;
        if (text[name] == ':' && !p->takes_sizes) break;
        d->loss = p->loss;
        return describe_mlp(d, text, text[name] == ':' ? text + name + 1 : p->sizes);
    }
    return ls_fail(LS_ERR_USAGE,
                   "there is no model \"%s\"; there are mlp, mlp:SIZES, convnet, wide, wide:SIZES, deep and branched",
                   text);
}
