/* Training on one device against PyTorch's recorded runs. */
#include <math.h>
#include <stdio.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/train/trainer.h"

/* A trainer with its own CPU device. */
static struct trainer open_here(const struct repetition *r) { return trainer_open(r, open_device(0)); }

static void close_here(struct trainer *t) {
    ls_device *device = t->parallel->devices[0];
    trainer_close(t);
    close_empty_device(device);
}

/* --- PyTorch's runs ---------------------------------------------------------------------------------------------- */

TEST(gradients_are_pytorchs) {
    ls_device *device = open_device(0);
    expect_recorded_gradients(&recorded_mlp, device, 0, "before.", "step0.grad.");
    expect_recorded_gradients(&recorded_mlp, device, 5, "step5.state.", "step5.grad.");
    expect_recorded_gradients(&recorded_convnet, device, 0, "before.", "step0.grad.");
    expect_recorded_gradients(&recorded_convnet, device, 5, "step5.state.", "step5.grad.");
    close_empty_device(device);
}

static void expect_run(const struct repetition *r) {
    ls_device *device = open_device(0);
    expect_recorded_run(r, device);
    close_empty_device(device);
}

TEST_IN(scratch, the_mlp_follows_pytorch) { expect_run(&recorded_mlp); }

TEST_IN(scratch, the_convnet_follows_pytorch) { expect_run(&recorded_convnet); }

/* 64 samples in micro-batches of 22 22 20. With batch norm, which the MLP does not have, the results would differ. */
TEST_IN(scratch, micro_batches_follow_pytorch) {
    struct trainer t = open_here(&recorded_mlp);
    ls_train_result result;
    double losses[STORED_MAX_STEPS];
    trainer_begin(&t, &recorded_mlp);
    t.options.accumulate = 3;
    t.options.dump_losses = scratch_path("losses");
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_true(
        stored_losses_follow(recorded_mlp.run, losses, read_losses(t.options.dump_losses, losses, STORED_MAX_STEPS)));
    assert_true(stored_weights_follow(recorded_mlp.run, t.model));
    close_here(&t);
}

/* The comparison itself must fail for a NaN or a small difference. */
TEST(a_departure_is_seen) {
    double losses[STORED_MAX_STEPS];
    int count = stored_losses(recorded_mlp.run, losses, STORED_MAX_STEPS);
    assert_int_equal(count, 40);
    assert_true(stored_losses_follow(recorded_mlp.run, losses, count));
    FILE *real = stderr;
    stderr = fopen("/dev/null", "w");
    assert_non_null(stderr);
    bool passed = stored_losses_follow(recorded_mlp.run, losses, count - 1);
    static const struct {
        int step;
        double factor;
    } departures[] = {{0, 1.0002}, {4, 0.9998}, {5, 1.021}, {39, 0.979}, {20, NAN}};
    for (size_t d = 0; d < sizeof departures / sizeof *departures; d++) {
        double right = losses[departures[d].step];
        losses[departures[d].step] *= departures[d].factor;
        passed = stored_losses_follow(recorded_mlp.run, losses, count) || passed;
        losses[departures[d].step] = right;
    }
    fclose(stderr);
    stderr = real;
    assert_false(passed);
}

/* --- the loop ---------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, steps_go_on_over_epochs) {
    const struct repetition r = {"", "mlp:784,10", 600, 5, LS_SGD, 0.1, 0};
    struct trainer t = open_here(&r);
    ls_train_result result;
    double losses[STORED_MAX_STEPS];
    t.options.dump_losses = scratch_path("losses");
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    assert_int_equal(trainer_train(&t, &result), LS_OK); /* 1500 samples: 2 whole batches an epoch */
    assert_int_equal(result.steps, 5);
    assert_int_equal(result.epochs, 3);
    assert_int_equal(read_losses(t.options.dump_losses, losses, STORED_MAX_STEPS), 5);
    close_here(&t);
}

/* More steps than the ring of losses holds: none is lost or reported twice. */
TEST_IN(scratch, every_step_has_its_loss) {
    const struct repetition r = {"", "mlp:784,10", 16, 2 * LS_LOSS_RING + 7, LS_SGD, 0.01, 0};
    struct trainer t = open_here(&r);
    ls_train_result result;
    static double losses[3 * LS_LOSS_RING];
    t.options.dump_losses = scratch_path("losses");
    t.options.evaluate = false;
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    assert_int_equal(trainer_train(&t, &result), LS_OK);
    assert_int_equal(read_losses(t.options.dump_losses, losses, 3 * LS_LOSS_RING), r.steps);
    for (int64_t i = 1; i < r.steps; i++) assert_true(losses[i] > 0 && losses[i] != losses[i - 1]);
    assert_true(isnan(result.accuracy));
    close_here(&t);
}

/* A second run with the same parallel object counts its steps and losses from the beginning. */
TEST_IN(scratch, a_second_run_begins_anew) {
    const struct repetition r = {"", "mlp:784,10", 16, 2 * LS_LOSS_RING + 7, LS_SGD, 0.01, 0};
    struct trainer t = open_here(&r);
    ls_train_result result;
    static double losses[3 * LS_LOSS_RING];
    t.options.dump_losses = scratch_path("losses");
    t.options.evaluate = false;
    assert_int_equal(ls_model_init(t.model, 0), LS_OK);
    for (int run = 0; run < 2; run++) {
        assert_int_equal(trainer_train(&t, &result), LS_OK);
        assert_int_equal(result.steps, r.steps);
        assert_int_equal(read_losses(t.options.dump_losses, losses, 3 * LS_LOSS_RING), r.steps);
        assert_true(isfinite(result.final_loss));
    }
    close_here(&t);
}

TEST_IN(scratch, too_few_samples_are_an_error) {
    const struct repetition r = {"", "mlp:784,10", 2000, 1, LS_SGD, 0.1, 0};
    struct trainer t = open_here(&r);
    ls_train_result result;
    assert_int_equal(trainer_train(&t, &result), LS_ERR_INVALID);
    scratch_expect_error("1500 training samples", "--drop-last");
    t.options.dump_losses = scratch_path("missing/folder/losses");
    t.options.drop_last = false;
    assert_int_equal(trainer_train(&t, &result), LS_ERR_IO);
    scratch_expect_error("missing/folder/losses", NULL);
    close_here(&t);
}
