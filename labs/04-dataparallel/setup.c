#define _GNU_SOURCE
#include "labs/04-dataparallel/setup.h"

#include <stdlib.h>

#include "common/base/dtype.h"
#include "dp_threads/data_parallel.h"
#include "kernels/kernels.h"

/* A device that waits longer than this waits for an event that is never recorded. */
#define TIMEOUT_S 1.5

/* More devices than there are cores: none is bound to a core, and none spins. */
enum { ON_NODE = 1000 };

static ls_status open_devices(setup *s) {
    ls_status status = LS_OK;
    setenv("LS_CPU_STREAMS", s->streams, 1);
    for (int d = 0; status == LS_OK && d < s->devices; d++) {
        ls_device_options options = {.kind = LS_DEVICE_CPU, .index = d, .devices_on_node = ON_NODE, .place = d};
        status = ls_device_open(&s->device[d], &options);
    }
    return status;
}

static ls_status alloc_batch(setup *s) {
    s->values = calloc(s->most_rows * INPUTS, sizeof *s->values);
    s->inputs = calloc(s->most_rows * INPUTS, sizeof *s->values);
    s->labels = calloc(s->most_rows, sizeof *s->labels);
    return s->values && s->inputs && s->labels ? LS_OK : LS_ERR_NO_MEMORY;
}

void setup_open(probe *p, setup *s) {
    if (!s->model) s->model = MODEL;
    if (!s->most_rows) s->most_rows = MOST_ROWS;
    if (!s->seed) s->seed = 1 + probe_draw(p, 1000000);
    ls_generator_seed(&s->generator, s->seed);
    ls_set_wait_timeout_s(TIMEOUT_S);
    ls_status status = alloc_batch(s);
    if (status == LS_OK) status = open_devices(s);
    if (status == LS_OK) status = ls_model_create(&s->module, s->device[0], s->model, s->most_rows, s->precision);
    if (status == LS_OK) status = ls_model_init(s->module, s->seed);
    dp_options options = {.devices = s->device,
                          .device_count = s->devices,
                          .output_device = s->output_device,
                          .max_batch = s->most_rows,
                          .optimizer = ls_optimizer_defaults(LS_SGD)};
    options.optimizer.learning_rate = 0.1;
    if (status == LS_OK) status = dp_create(&s->parallel, s->module, &options);
    if (status == LS_OK) s->dp = dp_of(s->parallel);
    probe_must(p, "DataParallel", status);
}

void setup_close(setup *s) {
    s->parallel->ops->destroy(s->parallel);
    ls_model_destroy(s->module);
    for (int d = 0; d < s->devices; d++) ls_device_close(s->device[d]);
    free(s->values);
    free(s->inputs);
    free(s->labels);
}

void setup_draw(setup *s, size_t rows) {
    ls_fill_uniform(&s->generator, s->values, rows * INPUTS, -1, 1);
    for (size_t i = 0; i < rows; i++) s->labels[i] = (int64_t)(ls_random32(&s->generator) % OUTPUTS);
    void *inputs = s->values;
    if (s->precision != LS_FP32) ls_cast_now(s->precision, inputs = s->inputs, s->values, rows * INPUTS);
    s->batch = (ls_batch){.inputs = inputs, .labels = s->labels, .count = rows, .global_count = rows};
}

void setup_rest(probe *p, const setup *s) {
    ls_status status = LS_OK;
    for (int d = 0; d < s->devices; d++) {
        ls_status done = ls_device_synchronize(s->device[d]);
        if (status == LS_OK) status = done;
    }
    probe_must(p, "the devices", status);
}
