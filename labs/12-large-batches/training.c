/* training — the probe is linked with --wrap, so that this file intercepts the loop's calls of
 * ls_optimizer_set_rate. */
#define _GNU_SOURCE
#include "labs/12-large-batches/training.h"

#include <stdlib.h>

#include "common/train/loop.h"
#include "dp_threads/data_parallel.h"

enum { BATCH = 12, SAMPLES = STEPS_OF_EPOCH * BATCH };
#define MODEL "mlp:20,8,5"

static struct training *noted;

void __real_ls_optimizer_set_rate(ls_optimizer *optimizer, double rate);
void __wrap_ls_optimizer_set_rate(ls_optimizer *optimizer, double rate);

void __wrap_ls_optimizer_set_rate(ls_optimizer *optimizer, double rate) {
    if (noted && noted->rate_count < MOST_RATES) noted->rates[noted->rate_count++] = rate;
    __real_ls_optimizer_set_rate(optimizer, rate);
}

struct opened {
    ls_device *devices[MOST_DEVICES];
    ls_model *model;
    ls_parallel *parallel;
    ls_dataset *samples;
};

static ls_status open_all(struct opened *o, const struct training *t) {
    ls_status status = LS_OK;
    for (int d = 0; status == LS_OK && d < t->devices; d++) {
        ls_device_options device = {.kind = LS_DEVICE_CPU, .index = d, .devices_on_node = 1000, .place = d};
        status = ls_device_open(&o->devices[d], &device);
    }
    ls_optimizer_options optimizer = ls_train_optimizer(&t->options);
    dp_options options = {
        .devices = o->devices, .device_count = t->devices, .max_batch = BATCH, .optimizer = optimizer};
    if (status == LS_OK) status = ls_model_create(&o->model, o->devices[0], MODEL, BATCH, LS_FP32);
    if (status == LS_OK) status = ls_model_init(o->model, (uint64_t)t->options.seed);
    if (status == LS_OK) status = dp_create(&o->parallel, o->model, &options);
    if (status != LS_OK) return status;
    ls_sample_spec spec = ls_train_sample_spec(o->model);
    return ls_dataset_random(&o->samples, (uint64_t)t->options.seed, SAMPLES, &spec);
}

static void close_all(struct opened *o) {
    if (o->parallel) o->parallel->ops->destroy(o->parallel);
    ls_model_destroy(o->model);
    ls_dataset_close(o->samples);
    for (int d = 0; d < MOST_DEVICES; d++)
        if (o->devices[d]) ls_device_close(o->devices[d]);
}

void training_run(probe *p, struct training *t) {
    struct opened o = {0};
    ls_train_result result;
    setenv("LS_CPU_STREAMS", "inline", 1);
    t->options.optimizer = LS_SGD;
    t->options.asked_batch_size = BATCH;
    t->options.epochs = EPOCHS;
    t->options.evaluate = false;
    t->options.quiet = true;
    ls_status status = ls_train_options_check(&t->options, t->devices);
    if (status == LS_OK) status = open_all(&o, t);
    probe_must(p, "what a run needs", status);
    noted = t;
    status = ls_train(o.parallel, &t->options, (ls_sharing){.shard = LS_SHARD_CONTIGUOUS}, o.samples, NULL, &result);
    noted = NULL;
    probe_must(p, "the run", status);
    close_all(&o);
}
