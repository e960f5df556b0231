#include "tests/train/small_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

ls_train_options small_run_options(void) {
    ls_train_options options = ls_train_defaults();
    options.model = "mlp:784,16,10";
    options.batch_size = 600;
    options.epochs = 2;
    options.quiet = true;
    options.evaluate = false;
    return options;
}

struct small_run small_run_open(const ls_train_options *options) {
    struct small_run r = {.options = *options, .device = open_device(0)};
    size_t rows = ls_micro_batch_rows((size_t)options->batch_size, options->accumulate);
    ls_optimizer_options optimizer = ls_train_optimizer(options);
    assert_int_equal(ls_model_create(&r.model, r.device, options->model, rows, (ls_dtype)options->precision), LS_OK);
    assert_int_equal(ls_model_init(r.model, 0), LS_OK);
    assert_int_equal(ls_train_open_data(options, r.model, &r.train, &r.test), LS_OK);
    assert_int_equal(ls_single_create(&r.parallel, r.device, r.model, &optimizer, rows), LS_OK);
    r.ops = *r.parallel->ops;
    r.checkpointed = (struct ls_checkpointed){.parallel = r.parallel, .sharing = {.shard = LS_SHARD_CONTIGUOUS}};
    return r;
}

void small_run_close(struct small_run *r) {
    r->parallel->ops->destroy(r->parallel);
    ls_dataset_close(r->train);
    ls_dataset_close(r->test);
    ls_model_destroy(r->model);
    close_empty_device(r->device);
}

ls_status small_run_train(struct small_run *r) {
    ls_train_result result;
    fflush(stdout);
    FILE *real = stdout;
    stdout = fopen("/dev/null", "w");
    assert_non_null(stdout);
    ls_status status =
        ls_train(r->parallel, &r->options, (ls_sharing){.shard = LS_SHARD_CONTIGUOUS}, r->train, r->test, &result);
    fclose(stdout);
    stdout = real;
    return status;
}

static uint64_t last_step;
static void (*prepare)(ls_parallel *p, const ls_batch *batch);

static void prepare_or_die(ls_parallel *p, const ls_batch *batch) {
    ls_device_fail(p->devices[0], p->step < last_step ? LS_OK : LS_ERR_SYSTEM);
    prepare(p, batch);
}

void small_run_die_at(struct small_run *r, uint64_t step) {
    last_step = step;
    prepare = r->ops.prepare;
    r->ops.prepare = prepare_or_die;
    r->parallel->ops = &r->ops;
}

static uint64_t hash_states(const struct small_run *r, uint64_t hash) {
    const ls_optimizer *optimizer = r->parallel->optimizer;
    size_t count = ls_optimizer_state_count(optimizer);
    struct ls_update_state *states = calloc(count, sizeof *states);
    assert_non_null(states);
    assert_int_equal(ls_optimizer_read_states(optimizer, states), LS_OK);
    for (size_t i = 0; i < count; i++) {
        hash = ls_hash(hash, &states[i].step, sizeof states[i].step);
        hash = ls_hash(hash, &states[i].learning_rate, sizeof states[i].learning_rate);
    }
    free(states);
    if (!ls_optimizer_scaler(optimizer)) return hash;
    struct ls_scaler_state scaler;
    assert_int_equal(ls_grad_scaler_read(ls_optimizer_scaler(optimizer), &scaler), LS_OK);
    return ls_hash(hash, &scaler, sizeof scaler);
}

uint64_t small_run_state(const struct small_run *r) {
    const ls_optimizer *optimizer = r->parallel->optimizer;
    float *state;
    size_t count;
    ls_model_state(r->model, &state, &count);
    uint64_t hash = ls_hash(LS_HASH_SEED, state, count * sizeof *state);
    for (size_t i = 0; i < ls_model_batchnorm_count(r->model); i++) {
        hash = ls_hash(hash, ls_model_batches_tracked(r->model, i), sizeof(int64_t));
    }
    for (size_t m = 0; m < ls_optimizer_moment_count(optimizer); m++) {
        for (size_t p = 0; p < ls_model_parameter_count(r->model); p++) {
            size_t floats = ls_model_parameter(r->model, p)->count;
            hash = ls_hash(hash, ls_optimizer_moment(optimizer, m, p), floats * sizeof(float));
        }
    }
    return hash_states(r, hash);
}

bool same_files(const char *left, const char *right) {
    size_t left_nbytes, right_nbytes;
    char *a = scratch_read(left, &left_nbytes), *b = scratch_read(right, &right_nbytes);
    bool same = left_nbytes == right_nbytes && memcmp(a, b, left_nbytes) == 0;
    free(a);
    free(b);
    return same;
}
