/* Training on one device against PyTorch's recorded runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/train/loop.h"
#include "common/train/weights.h"
#include "tests/base/scratch.h"
#include "tests/nn/models.h"
#include "tests/train/stored.h"

/* A recorded run, and the options that repeat it. */
struct repetition {
    const char *run, *model;
    int64_t batch, steps;
    int optimizer;
    double learning_rate, momentum;
};

static const struct repetition mlp = {"train_mlp_adam_w1", "mlp", 64, 40, LS_ADAM, 1e-3, 0};
static const struct repetition convnet = {"train_convnet_sgd_w1", "convnet", 100, 15, LS_SGD, 0.01, 0.9};

struct trainer {
    ls_train_options options;
    ls_device *device;
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
};

static struct trainer trainer_open(const struct repetition *r) {
    struct trainer t = {.options = ls_train_defaults(), .device = open_device(0)};
    t.options.model = r->model;
    t.options.batch_size = r->batch;
    t.options.steps = r->steps;
    t.options.shuffle = false;
    t.options.drop_last = true;
    t.options.optimizer = r->optimizer;
    t.options.learning_rate = r->learning_rate;
    t.options.momentum = r->momentum;
    t.options.quiet = true;
    assert_int_equal(ls_model_create(&t.model, t.device, r->model, (size_t)r->batch), LS_OK);
    assert_int_equal(ls_train_open_data(&t.options, t.model, &t.train, &t.test), LS_OK);
    ls_optimizer_options optimizer = ls_train_optimizer(&t.options);
    assert_int_equal(ls_single_create(&t.parallel, t.device, t.model, &optimizer, (size_t)r->batch), LS_OK);
    return t;
}

static void trainer_close(struct trainer *t) {
    t->parallel->ops->destroy(t->parallel);
    ls_dataset_close(t->train);
    ls_dataset_close(t->test);
    ls_model_destroy(t->model);
    close_empty_device(t->device);
}

/* --- gradients --------------------------------------------------------------------------------------------------- */

static void expect_gradients(const struct repetition *r, int64_t step, const char *state, const char *gradients) {
    struct trainer t = trainer_open(r);
    size_t batch = (size_t)r->batch, inputs = ls_image_count(ls_model_input(t.model));
    float *x = calloc(batch * inputs, sizeof *x);
    int64_t *labels = calloc(batch, sizeof *labels), *indices = calloc(batch, sizeof *indices);
    assert_true(x && labels && indices);
    for (int64_t i = 0; i < r->batch; i++) indices[i] = step * r->batch + i;
    ls_dataset_read(t.train, indices, batch, x, labels, NULL);
    ls_batch host = {.inputs = x, .labels = labels, .count = batch, .global_count = batch};
    assert_true(stored_load(r->run, state, t.model));
    assert_int_equal(t.parallel->ops->prepare(t.parallel, &host), LS_OK);
    assert_int_equal(t.parallel->ops->forward_backward(t.parallel), LS_OK);
    assert_int_equal(t.parallel->ops->reduce(t.parallel), LS_OK);
    assert_int_equal(ls_device_synchronize(t.device), LS_OK);
    double error = stored_gradient_error(r->run, gradients, t.model), losses[STORED_MAX_STEPS];
    if (!(error <= 1e-4)) fail_msg("%s %s is off by %g", r->run, gradients, error);
    assert_true(stored_losses(r->run, losses, STORED_MAX_STEPS) > step);
    double loss = (double)t.parallel->losses[0];
    assert_true(fabs(loss - losses[step]) <= 1e-4 * losses[step]);
    free(x);
    free(labels);
    free(indices);
    trainer_close(&t);
}

static void gradients_are_pytorchs(void **state) {
    (void)state;
    expect_gradients(&mlp, 0, "before.", "step0.grad.");
    expect_gradients(&mlp, 5, "step5.state.", "step5.grad.");
    expect_gradients(&convnet, 0, "before.", "step0.grad.");
    expect_gradients(&convnet, 5, "step5.state.", "step5.grad.");
}

/* --- whole runs -------------------------------------------------------------------------------------------------- */

static int read_losses(const char *path, double *losses, int capacity) {
    size_t nbytes;
    char *text = scratch_read(path, &nbytes);
    int count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), count++) {
        if (count < capacity) losses[count] = atof(line);
    }
    free(text);
    return count;
}

/* The loop prints its results; a test's output is cmocka's. */
static ls_status train_silently(struct trainer *t, ls_train_result *result) {
    fflush(stdout);
    FILE *real = stdout;
    stdout = fopen("/dev/null", "w");
    assert_non_null(stdout);
    ls_status status = ls_train(t->parallel, &t->options, LS_SHARD_CONTIGUOUS, t->train, t->test, result);
    fclose(stdout);
    stdout = real;
    return status;
}

static void expect_run(const struct repetition *r) {
    struct trainer t = trainer_open(r);
    ls_train_result result;
    double losses[STORED_MAX_STEPS];
    char init[600];
    snprintf(init, sizeof init, "%s", scratch_path("init.safetensors"));
    assert_true(stored_write_weights(r->run, "before.", init));
    assert_int_equal(ls_weights_load(t.model, init), LS_OK);
    t.options.dump_losses = scratch_path("losses");
    assert_int_equal(train_silently(&t, &result), LS_OK);
    int count = read_losses(t.options.dump_losses, losses, STORED_MAX_STEPS);
    assert_true(stored_losses_follow(r->run, losses, count));
    assert_int_equal(result.steps, r->steps);
    assert_true(fabs(result.final_loss - losses[count - 1]) <= 1e-8);
    assert_true(result.accuracy > 0.7 && result.accuracy <= 1);
    assert_true(stored_state_error(r->run, "after.", t.model, false) <= 1e-2);
    assert_true(stored_state_error(r->run, "after.", t.model, true) <= 5e-3);
    trainer_close(&t);
}

static void the_mlp_follows_pytorch(void **state) {
    (void)state;
    expect_run(&mlp);
}

static void the_convnet_follows_pytorch(void **state) {
    (void)state;
    expect_run(&convnet);
}

/* The comparison itself must not let a NaN or a small departure through. */
static void a_departure_is_seen(void **state) {
    (void)state;
    double losses[STORED_MAX_STEPS];
    int count = stored_losses(mlp.run, losses, STORED_MAX_STEPS);
    assert_int_equal(count, 40);
    assert_true(stored_losses_follow(mlp.run, losses, count));
    FILE *real = stderr;
    stderr = fopen("/dev/null", "w");
    assert_non_null(stderr);
    bool passed = stored_losses_follow(mlp.run, losses, count - 1);
    static const struct {
        int step;
        double factor;
    } departures[] = {{0, 1.0002}, {4, 0.9998}, {5, 1.021}, {39, 0.979}, {20, NAN}};
    for (size_t d = 0; d < sizeof departures / sizeof *departures; d++) {
        double right = losses[departures[d].step];
        losses[departures[d].step] *= departures[d].factor;
        passed = stored_losses_follow(mlp.run, losses, count) || passed;
        losses[departures[d].step] = right;
    }
    fclose(stderr);
    stderr = real;
    assert_false(passed);
}

/* --- the loop ---------------------------------------------------------------------------------------------------- */

static void steps_go_on_over_epochs(void **state) {
    (void)state;
    const struct repetition r = {"", "mlp:784,10", 600, 5, LS_SGD, 0.1, 0};
    struct trainer t = trainer_open(&r);
    ls_train_result result;
    double losses[STORED_MAX_STEPS];
    t.options.dump_losses = scratch_path("losses");
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    assert_int_equal(train_silently(&t, &result), LS_OK); /* 1500 samples: 2 whole batches an epoch */
    assert_int_equal(result.steps, 5);
    assert_int_equal(result.epochs, 3);
    assert_int_equal(read_losses(t.options.dump_losses, losses, STORED_MAX_STEPS), 5);
    trainer_close(&t);
}

/* More steps than the ring of losses holds: none is lost or told twice. */
static void every_step_has_its_loss(void **state) {
    (void)state;
    const struct repetition r = {"", "mlp:784,10", 16, 2 * LS_LOSS_RING + 7, LS_SGD, 0.01, 0};
    struct trainer t = trainer_open(&r);
    ls_train_result result;
    static double losses[3 * LS_LOSS_RING];
    t.options.dump_losses = scratch_path("losses");
    t.options.evaluate = false;
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    assert_int_equal(train_silently(&t, &result), LS_OK);
    assert_int_equal(read_losses(t.options.dump_losses, losses, 3 * LS_LOSS_RING), r.steps);
    for (int64_t i = 1; i < r.steps; i++) assert_true(losses[i] > 0 && losses[i] != losses[i - 1]);
    assert_true(isnan(result.accuracy));
    trainer_close(&t);
}

/* A second run with the same parallel object counts its steps and losses from the beginning. */
static void a_second_run_begins_anew(void **state) {
    (void)state;
    const struct repetition r = {"", "mlp:784,10", 16, 2 * LS_LOSS_RING + 7, LS_SGD, 0.01, 0};
    struct trainer t = trainer_open(&r);
    ls_train_result result;
    static double losses[3 * LS_LOSS_RING];
    t.options.dump_losses = scratch_path("losses");
    t.options.evaluate = false;
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    for (int run = 0; run < 2; run++) {
        assert_int_equal(train_silently(&t, &result), LS_OK);
        assert_int_equal(result.steps, r.steps);
        assert_int_equal(read_losses(t.options.dump_losses, losses, 3 * LS_LOSS_RING), r.steps);
        assert_true(isfinite(result.final_loss));
    }
    trainer_close(&t);
}

static void too_few_samples_are_an_error(void **state) {
    (void)state;
    const struct repetition r = {"", "mlp:784,10", 2000, 1, LS_SGD, 0.1, 0};
    struct trainer t = trainer_open(&r);
    ls_train_result result;
    assert_int_equal(train_silently(&t, &result), LS_ERR_INVALID);
    scratch_expect_error("1500 training samples", "--drop-last");
    t.options.dump_losses = scratch_path("missing/folder/losses");
    t.options.drop_last = false;
    assert_int_equal(train_silently(&t, &result), LS_ERR_IO);
    scratch_expect_error("missing/folder/losses", NULL);
    trainer_close(&t);
}

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_pytorchs), in_scratch(the_mlp_follows_pytorch),
        in_scratch(the_convnet_follows_pytorch),  cmocka_unit_test(a_departure_is_seen),
        in_scratch(steps_go_on_over_epochs),      in_scratch(every_step_has_its_loss),
        in_scratch(a_second_run_begins_anew),     in_scratch(too_few_samples_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
