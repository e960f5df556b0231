#include "common/train/optimizer.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

struct ls_optimizer {
    ls_model *model;
    ls_stream *compute;
    ls_optimizer_options options;
    struct ls_update_state *state; /* device */
    float *moments[2];             /* device: SGD uses none or one, Adam two; laid out like the parameters */
};

ls_optimizer_options ls_optimizer_defaults(ls_optimizer_kind kind) {
    return (ls_optimizer_options){
        .kind = kind,
        .learning_rate = 1e-3,
        .weight_decay = kind == LS_ADAMW ? 0.01 : 0,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
    };
}

ls_status ls_optimizer_check(const ls_optimizer_options *o) {
    if (!(o->learning_rate >= 0))
        return ls_fail(LS_ERR_USAGE, "the learning rate is %g; it must be >= 0", o->learning_rate);
    if (!(o->weight_decay >= 0))
        return ls_fail(LS_ERR_USAGE, "the weight decay is %g; it must be >= 0", o->weight_decay);
    if (!(o->momentum >= 0)) return ls_fail(LS_ERR_USAGE, "the momentum is %g; it must be >= 0", o->momentum);
    if (o->nesterov && !(o->momentum > 0)) return ls_fail(LS_ERR_USAGE, "nesterov needs a momentum above 0");
    if (o->kind != LS_SGD && (o->momentum > 0 || o->nesterov)) {
        return ls_fail(LS_ERR_USAGE, "momentum and nesterov belong to sgd; adam and adamw have their betas");
    }
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1)) {
        return ls_fail(LS_ERR_USAGE, "the betas are %g and %g; they must be in [0, 1)", o->beta1, o->beta2);
    }
    return LS_OK;
}

static int moments_needed(const ls_optimizer_options *options) {
    if (options->kind != LS_SGD) return 2;
    return options->momentum > 0 ? 1 : 0;
}

ls_status ls_optimizer_create(ls_optimizer **out, ls_model *model, const ls_optimizer_options *options) {
    *out = NULL;
    ls_status status = ls_optimizer_check(options);
    if (status != LS_OK) return status;
    ls_optimizer *optimizer = calloc(1, sizeof *optimizer);
    if (!optimizer) return ls_fail(LS_ERR_NO_MEMORY, "no memory for an optimizer");
    ls_device *device = ls_model_device(model);
    optimizer->model = model;
    optimizer->compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    optimizer->options = *options;
    float *parameters;
    size_t count;
    ls_model_parameters(model, &parameters, &count);
    status = ls_device_alloc(device, LS_MEMORY_OPTIMIZER, sizeof *optimizer->state, "update state",
                             (void **)&optimizer->state);
    for (int m = 0; status == LS_OK && m < moments_needed(options); m++) {
        status = ls_device_alloc(device, LS_MEMORY_OPTIMIZER, count * sizeof(float), "optimizer state",
                                 (void **)&optimizer->moments[m]);
    }
    if (status == LS_OK) {
        status = ls_copy(optimizer->compute, &optimizer->state->learning_rate, &optimizer->options.learning_rate,
                         sizeof(double));
    }
    if (status != LS_OK) {
        ls_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return LS_OK;
}

/* Where the state of a parameter lies in moments[m]. */
static float *moment_of(const ls_optimizer *optimizer, int m, const struct ls_tensor *parameter) {
    float *parameters;
    size_t count;
    ls_model_parameters(optimizer->model, &parameters, &count);
    return optimizer->moments[m] ? optimizer->moments[m] + (parameter->data - parameters) : NULL;
}

static ls_status update(ls_optimizer *optimizer, const struct ls_tensor *p) {
    const ls_optimizer_options *o = &optimizer->options;
    float *first = moment_of(optimizer, 0, p), *second = moment_of(optimizer, 1, p);
    if (o->kind == LS_SGD) {
        struct ls_sgd_rule rule = {(float)o->momentum, 0, (float)o->weight_decay, o->nesterov};
        return ls_sgd(optimizer->compute, rule, optimizer->state, p->data, p->gradient, first, p->count);
    }
    struct ls_adam_rule rule = {o->beta1, o->beta2, o->epsilon, o->weight_decay, o->kind == LS_ADAMW};
    return ls_adam(optimizer->compute, rule, optimizer->state, p->data, p->gradient, first, second, p->count);
}

ls_status ls_optimizer_step(ls_optimizer *optimizer) {
    ls_status status =
        ls_begin_update(optimizer->compute, optimizer->state, optimizer->options.beta1, optimizer->options.beta2);
    size_t count = ls_model_parameter_count(optimizer->model);
    for (size_t p = 0; status == LS_OK && p < count; p++) {
        status = update(optimizer, ls_model_parameter(optimizer->model, p));
    }
    return status;
}

void ls_optimizer_destroy(ls_optimizer *optimizer) {
    if (!optimizer) return;
    ls_device *device = ls_model_device(optimizer->model);
    ls_device_free(device, optimizer->moments[0]);
    ls_device_free(device, optimizer->moments[1]);
    ls_device_free(device, optimizer->state);
    free(optimizer);
}
