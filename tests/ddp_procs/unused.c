#include "tests/ddp_procs/unused.h"

#include "common/nn/model_internal.h"

/* The layer computes all of its gradients; those of unused parameters are written here, and not read. */
static float nowhere[128];

/* completes_gradient is false for an unused parameter, so passes.c does not report it. It is true for the others, as
 * none is shared. */
static void backward(const ls_layer *layer, const struct ls_pass *pass) {
    struct ls_pass redirected = *pass;
    for (size_t p = 0; p < layer->parameter_count; p++)
        if (!layer->completes_gradient[p]) redirected.parameters[p].gradient = nowhere;
    ls_linear.backward(layer, &redirected);
    for (size_t p = 0; p < layer->parameter_count; p++) {
        const struct ls_pass_parameter *parameter = &pass->parameters[p];
        if (!layer->completes_gradient[p] && !parameter->adds)
            ls_fill(pass->stream, parameter->gradient, 0, layer->parameters[p].count);
    }
}

static struct ls_layer_kind linear_in_part;

void set_unused(const struct rank *rank, ls_model *model, size_t parameter, bool unused) {
    size_t uses = 0;
    CHECK(ls_device_kind_of(model->device) == LS_DEVICE_CPU && model->owned);
    CHECK(ls_model_parameter(model, parameter)->count <= sizeof nowhere / sizeof *nowhere);
    linear_in_part = ls_linear;
    linear_in_part.backward = backward;
    for (size_t l = 0; l < model->owned->layer_count; l++) {
        ls_layer *layer = &model->owned->layers[l];
        for (size_t p = 0; p < layer->parameter_count; p++) {
            if (layer->parameter_numbers[p] != parameter) continue;
            CHECK((layer->kind == &ls_linear || layer->kind == &linear_in_part) && uses++ == 0);
            layer->kind = &linear_in_part;
            layer->completes_gradient[p] = !unused;
        }
    }
    CHECK(uses == 1);
}
