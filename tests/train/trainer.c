#include "tests/train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint/weights.h"
#include "common/seam/step.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

const struct repetition recorded_mlp = {"train_mlp_adam_w1", "mlp", 64, 40, LS_ADAM, 1e-3, 0};
const struct repetition recorded_convnet = {"train_convnet_sgd_w1", "convnet", 100, 15, LS_SGD, 0.01, 0.9};

struct trainer trainer_open(const struct repetition *r, ls_device *device) {
    struct trainer t = {.options = ls_train_defaults()};
    t.options.model = r->model;
    t.options.batch_size = r->batch;
    t.options.steps = r->steps;
    t.options.shuffle = false;
    t.options.drop_last = true;
    t.options.optimizer = r->optimizer;
    t.options.learning_rate = r->learning_rate;
    t.options.momentum = r->momentum;
    t.options.quiet = true;
    assert_int_equal(ls_model_create(&t.model, device, r->model, (size_t)r->batch, LS_FP32), LS_OK);
    assert_int_equal(ls_train_open_data(&t.options, t.model, &t.train, &t.test), LS_OK);
    ls_optimizer_options optimizer = ls_train_optimizer(&t.options);
    assert_int_equal(ls_single_create(&t.parallel, device, t.model, &optimizer, (size_t)r->batch), LS_OK);
    return t;
}

void trainer_close(struct trainer *t) {
    t->parallel->ops->destroy(t->parallel);
    ls_dataset_close(t->train);
    ls_dataset_close(t->test);
    ls_model_destroy(t->model);
}

void trainer_begin(struct trainer *t, const struct repetition *r) {
    if (r->run[0] == '\0') {
        assert_int_equal(ls_model_init(t->model, 0), LS_OK);
        return;
    }
    char init[600];
    snprintf(init, sizeof init, "%s", scratch_path("init.safetensors"));
    assert_true(stored_write_weights(r->run, "before.", init));
    assert_int_equal(ls_weights_load(t->model, init, false), LS_OK);
}

ls_status trainer_train(struct trainer *t, ls_train_result *result) {
    fflush(stdout);
    FILE *real = stdout;
    stdout = fopen("/dev/null", "w");
    assert_non_null(stdout);
    ls_status status =
        ls_train(t->parallel, &t->options, (ls_sharing){.shard = LS_SHARD_CONTIGUOUS}, t->train, t->test, result);
    fclose(stdout);
    stdout = real;
    return status;
}

int read_losses(const char *path, double *losses, int capacity) {
    size_t nbytes;
    char *text = scratch_read(path, &nbytes);
    int count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), count++) {
        if (count < capacity) losses[count] = atof(line);
    }
    free(text);
    return count;
}

/* --- comparison with the recorded run ---------------------------------------------------------------------------- */

void expect_recorded_gradients(const struct repetition *r, ls_device *device, int64_t step, const char *state,
                               const char *gradients) {
    struct trainer t = trainer_open(r, device);
    size_t batch = (size_t)r->batch, inputs = ls_shape_count(ls_model_input(t.model));
    float *x = calloc(batch * inputs, sizeof *x), loss;
    int64_t *labels = calloc(batch, sizeof *labels), *indices = calloc(batch, sizeof *indices);
    assert_true(x && labels && indices);
    for (int64_t i = 0; i < r->batch; i++) indices[i] = step * r->batch + i;
    ls_dataset_read(t.train, indices, batch, x, labels, NULL);
    ls_batch host = {.inputs = x, .labels = labels, .count = batch, .global_count = batch};
    assert_true(stored_load(r->run, state, t.model));
    assert_int_equal(ls_step_gradients(t.parallel, &host), LS_OK);
    ls_stream *compute = ls_device_stream(device, LS_STREAM_COMPUTE);
    assert_int_equal(ls_copy_now(compute, &loss, t.parallel->losses, sizeof loss), LS_OK);
    assert_int_equal(ls_device_synchronize(device), LS_OK);
    double error = stored_gradient_error(r->run, gradients, t.model), losses[STORED_MAX_STEPS];
    if (!(error <= 1e-4)) fail_msg("%s %s is off by %g", r->run, gradients, error);
    assert_true(stored_losses(r->run, losses, STORED_MAX_STEPS) > step);
    assert_true(fabs((double)loss - losses[step]) <= 1e-4 * losses[step]);
    free(x);
    free(labels);
    free(indices);
    trainer_close(&t);
}

void expect_recorded_run(const struct repetition *r, ls_device *device) {
    struct trainer t = trainer_open(r, device);
    ls_train_result result;
    double losses[STORED_MAX_STEPS];
    trainer_begin(&t, r);
    t.options.dump_losses = scratch_path("losses");
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    int count = read_losses(t.options.dump_losses, losses, STORED_MAX_STEPS);
    double last = count > 0 ? losses[count - 1] : NAN;
    assert_true(stored_losses_follow(r->run, losses, count));
    assert_int_equal(result.steps, r->steps);
    assert_true(fabs(result.final_loss - last) <= 1e-8);
    assert_true(result.accuracy > 0.7 && result.accuracy <= 1);
    assert_true(stored_weights_follow(r->run, t.model));
    assert_true(stored_state_error(r->run, "after.", t.model, true) <= 5e-3);
    trainer_close(&t);
}
