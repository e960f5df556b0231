#include "tests/replay/model_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nn/network_internal.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

static ls_status note_ready(void *context, size_t parameter) {
    struct model_work *m = context;
    struct ls_work *work = &m->work[m->workload.work_count++];
    *work = (struct ls_work){.name = "layer", .phase = "backward", .us = 1, .host_us = -1};
    work->first_ready = m->workload.ready_count;
    work->ready_count = 1;
    m->ready[m->workload.ready_count++] = (int)parameter;
    return LS_OK;
}

static void add_work(struct model_work *m, const char *phase) {
    m->work[m->workload.work_count++] = (struct ls_work){.name = phase, .phase = phase, .us = 1, .host_us = -1};
}

/* The bytes that layers keep per sample, and the largest gradient that they pass on. */
static void measure_layers(struct model_work *m, const ls_network *network) {
    ls_workload *w = &m->workload;
    size_t largest = 0;
    for (size_t l = 0; l < network->layer_count; l++) {
        const ls_layer *layer = &network->layers[l];
        if (!layer->kind->in_place) w->activation_bytes += (double)(ls_shape_count(layer->out) * sizeof(float));
        w->activation_bytes += (double)layer->saved_nbytes_per_sample;
        if (l > 0 && ls_shape_count(layer->in) > largest) largest = ls_shape_count(layer->in);
        for (size_t b = 0; b < layer->buffer_count; b++)
            w->buffer_bytes += sizeof(float) * (double)layer->buffers[b].count;
    }
    w->exchange_bytes = 2.0 * sizeof(float) * (double)largest;
}

void model_work_make(struct model_work *m, const char *description, int states) {
    enum { ROWS = 2 };
    ls_device *device = open_device(0);
    ls_model *model = make_model(device, description, ROWS, 0);
    size_t inputs = ls_shape_count(ls_model_input(model)), outputs = ls_model_outputs(model);
    float *x = make_values(device, ROWS * inputs, 1), *dy = make_values(device, ROWS * outputs, 2);
    *m = (struct model_work){.workload = {.name = description, .source = "a model", .samples = 1, .element_bytes = 4}};
    ls_workload *w = &m->workload;
    w->work = m->work;
    w->parameter_names = m->names;
    w->parameter_counts = m->counts;
    w->ready = m->ready;
    w->optimizer_states = states;
    w->input_bytes = (double)(inputs * sizeof(float));
    w->output_bytes = (double)(outputs * sizeof(float));
    w->answer_bytes = ls_model_loss(model) == LS_LOSS_CROSS_ENTROPY ? sizeof(int64_t) : w->output_bytes;
    w->parameter_count = (int)ls_model_parameter_count(model);
    assert_true(w->parameter_count <= MODEL_WORK_MAX);
    for (int p = 0; p < w->parameter_count; p++) {
        const struct ls_tensor *tensor = ls_model_parameter(model, (size_t)p);
        snprintf(m->texts[p], sizeof m->texts[p], "%s", tensor->name);
        m->names[p] = m->texts[p];
        m->counts[p] = tensor->count;
    }
    measure_layers(m, ls_model_network(model));
    add_work(m, "forward");
    add_work(m, "loss");
    ls_model_on_grad_ready(model, note_ready, m);
    (void)ls_model_forward(model, x, ROWS, true);
    ls_model_backward(model, dy, false);
    add_work(m, "optimizer");
    ls_model_destroy(model);
    ls_device_free(device, x);
    ls_device_free(device, dy);
    close_empty_device(device);
}
