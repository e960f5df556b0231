#include "common/train/optimizer.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/kernels.h"

struct ls_optimizer {
    ls_model *model;
    ls_stream *compute;
    ls_optimizer_options options;
    struct ls_update_state *states; /* device: one for all parameters, or one for each */
    bool own_states;                /* one for each: some parameters have been updated more often than others */
    float *moments[2];              /* device: SGD uses none or one, Adam two; laid out like the parameters */
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
    status = ls_device_alloc(device, LS_MEMORY_OPTIMIZER, sizeof *optimizer->states, "update state",
                             (void **)&optimizer->states);
    for (int m = 0; status == LS_OK && m < moments_needed(options); m++) {
        status = ls_device_alloc(device, LS_MEMORY_OPTIMIZER, count * sizeof(float), "optimizer state",
                                 (void **)&optimizer->moments[m]);
    }
    if (status == LS_OK) {
        status = ls_copy(optimizer->compute, &optimizer->states->learning_rate, &optimizer->options.learning_rate,
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

static ls_status update(ls_optimizer *optimizer, size_t index) {
    const struct ls_tensor *p = ls_model_parameter(optimizer->model, index);
    const ls_optimizer_options *o = &optimizer->options;
    const struct ls_update_state *state = optimizer->states + (optimizer->own_states ? index : 0);
    float *first = moment_of(optimizer, 0, p), *second = moment_of(optimizer, 1, p);
    if (o->kind == LS_SGD) {
        struct ls_sgd_rule rule = {(float)o->momentum, 0, (float)o->weight_decay, o->nesterov};
        return ls_sgd(optimizer->compute, rule, state, p->data, p->gradient, first, p->count);
    }
    struct ls_adam_rule rule = {o->beta1, o->beta2, o->epsilon, o->weight_decay, o->kind == LS_ADAMW};
    return ls_adam(optimizer->compute, rule, state, p->data, p->gradient, first, second, p->count);
}

/* Gives each parameter a copy of the state that they have shared. Once in a run. */
static ls_status separate_states(ls_optimizer *optimizer) {
    ls_device *device = ls_model_device(optimizer->model);
    size_t count = ls_model_parameter_count(optimizer->model);
    struct ls_update_state *states;
    ls_status status = ls_device_alloc(device, LS_MEMORY_OPTIMIZER, count * sizeof *states,
                                       "update state of each parameter", (void **)&states);
    if (status != LS_OK) return status;
    for (size_t p = 0; status == LS_OK && p < count; p++) {
        status = ls_copy(optimizer->compute, &states[p], optimizer->states, sizeof *states);
    }
    ls_status done = ls_stream_synchronize(optimizer->compute); /* nothing reads the old state any more */
    ls_device_free(device, optimizer->states);
    optimizer->states = states;
    optimizer->own_states = true;
    return status != LS_OK ? status : done;
}

static ls_status begin(ls_optimizer *optimizer, size_t state) {
    const ls_optimizer_options *o = &optimizer->options;
    return ls_begin_update(optimizer->compute, &optimizer->states[state], o->beta1, o->beta2);
}

ls_status ls_optimizer_step_without(ls_optimizer *optimizer, const bool *skip) {
    ls_status status = LS_OK;
    if (skip && !optimizer->own_states) status = separate_states(optimizer);
    if (status == LS_OK && !optimizer->own_states) status = begin(optimizer, 0);
    size_t count = ls_model_parameter_count(optimizer->model);
    for (size_t p = 0; status == LS_OK && p < count; p++) {
        if (skip && skip[p]) continue;
        if (optimizer->own_states) status = begin(optimizer, p);
        if (status == LS_OK) status = update(optimizer, p);
    }
    return status;
}

ls_status ls_optimizer_step(ls_optimizer *optimizer) { return ls_optimizer_step_without(optimizer, NULL); }

size_t ls_optimizer_moment_count(const ls_optimizer *optimizer) { return (size_t)moments_needed(&optimizer->options); }

const char *ls_optimizer_moment_name(const ls_optimizer *optimizer, size_t moment) {
    if (optimizer->options.kind == LS_SGD) return "momentum";
    return moment == 0 ? "first moment" : "second moment";
}

const float *ls_optimizer_moment(const ls_optimizer *optimizer, size_t moment, size_t parameter) {
    return moment_of(optimizer, (int)moment, ls_model_parameter(optimizer->model, parameter));
}

void ls_optimizer_destroy(ls_optimizer *optimizer) {
    if (!optimizer) return;
    ls_device *device = ls_model_device(optimizer->model);
    ls_device_free(device, optimizer->moments[0]);
    ls_device_free(device, optimizer->moments[1]);
    ls_device_free(device, optimizer->states);
    free(optimizer);
}
