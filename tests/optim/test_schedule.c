/* The learning rate over time, against PyTorch's schedulers as their documentation defines them: step by step, from the
 * previous rate. */
#include <math.h>

#include "common/optim/schedule.h"
#include "common/seam/options.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define PI 3.14159265358979323846

static const ls_schedule plain = {.rate = 0.5, .decay_epochs = 30, .decay_factor = 0.1};

static void expect_rate(const ls_schedule *s, int64_t step, int64_t epoch, double expected) {
    double rate = ls_schedule_rate(s, step, epoch);
    if (!(fabs(rate - expected) <= 1e-14)) fail_msg("step %d: %.17g, not %.17g", (int)step, rate, expected);
}

/* LinearLR(start_factor = 1/4, total_iters = 3): from step to step the rate grows by a quarter of the full one. */
TEST(warm_up_ends_exactly_at_the_rate) {
    ls_schedule s = plain;
    s.warmup_steps = 4;
    static const double expected[] = {0.125, 0.25, 0.375, 0.5, 0.5, 0.5};
    for (int step = 0; step < 6; step++) assert_true(ls_schedule_rate(&s, step, 0) == expected[step]);
    s.warmup_steps = 3; /* thirds, which no double represents exactly */
    s.rate = 0.1;
    assert_true(ls_schedule_rate(&s, 2, 0) == 0.1 && ls_schedule_rate(&s, 3, 0) == 0.1);
    s.warmup_steps = 1;
    assert_true(ls_schedule_rate(&s, 0, 0) == 0.1);
    s.warmup_steps = 0;
    assert_true(ls_schedule_rate(&s, 0, 0) == 0.1 && ls_schedule_rate(&s, 1000000, 99) == 0.1);
}

/* CosineAnnealingLR's recursion: (rate - min) is multiplied by (1 + cos(pi t / T)) / (1 + cos(pi (t - 1) / T)). */
TEST(the_cosine_falls_as_pytorchs) {
    ls_schedule s = plain;
    s.kind = LS_SCHEDULE_COSINE;
    s.warmup_steps = 5;
    s.total_steps = 25;
    s.min_rate = 0.02;
    double rate = 0.5;
    expect_rate(&s, 4, 0, 0.5);
    for (int t = 0; t < 20; t++) {
        if (t > 0) rate = 0.02 + (rate - 0.02) * (1 + cos(PI * t / 20)) / (1 + cos(PI * (t - 1) / 20));
        expect_rate(&s, 5 + t, t, rate);
    }
    expect_rate(&s, 15, 0, 0.26);                                      /* half way, half of it */
    expect_rate(&s, 24, 0, 0.02 + 0.48 * (1 + cos(PI * 19 / 20)) / 2); /* the last step is one short of the end */
    assert_true(ls_schedule_rate(&s, 24, 0) > 0.02 && ls_schedule_rate(&s, 24, 0) < 0.024);
    expect_rate(&s, 25, 0, 0.02);
    s.min_rate = 0;
    expect_rate(&s, 25, 0, 0);
}

/* StepLR: multiplied by the factor at each multiple of decay_epochs, whatever the step. */
TEST(steps_go_by_epochs) {
    ls_schedule s = plain;
    s.kind = LS_SCHEDULE_STEP;
    s.decay_epochs = 3;
    s.decay_factor = 0.5;
    double rate = 0.5;
    for (int epoch = 0; epoch < 12; epoch++) {
        if (epoch > 0 && epoch % 3 == 0) rate *= 0.5;
        expect_rate(&s, epoch * 7, epoch, rate);
        expect_rate(&s, epoch * 7 + 6, epoch, rate);
    }
    s.warmup_steps = 30; /* the decay begins after it */
    expect_rate(&s, 28, 4, 0.5 * 29 / 30);
    expect_rate(&s, 29, 4, 0.5);
    expect_rate(&s, 30, 4, 0.25);
}

TEST(devices_scale_the_rate) {
    static const int devices[] = {1, 2, 8};
    static const double linear[] = {0.001, 0.002, 0.008};
    for (int i = 0; i < 3; i++) {
        assert_true(ls_scaled_rate(0.001, LS_RATE_NONE, devices[i]) == 0.001);
        assert_true(ls_scaled_rate(0.001, LS_RATE_LINEAR, devices[i]) == linear[i]);
        assert_true(fabs(ls_scaled_rate(0.001, LS_RATE_SQRT, devices[i]) / 0.001 - sqrt(devices[i])) <= 1e-15);
    }
    assert_true(ls_scaled_rate(0.001, LS_RATE_SQRT, 1) == 0.001);
}

/* --- invalid schedules -------------------------------------------------------------------------------------------- */

static void expect_refused(ls_schedule s, const char *option, const char *another) {
    assert_int_equal(ls_schedule_check(&s), LS_ERR_USAGE);
    scratch_expect_error(option, another);
}

TEST_IN(scratch, bad_numbers_are_refused) {
    static const double bad[] = {-1e-9, NAN, INFINITY};
    assert_int_equal(ls_schedule_check(&plain), LS_OK);
    for (int i = 0; i < 3; i++) {
        ls_schedule s = plain;
        s.rate = bad[i];
        expect_refused(s, "learning rate", "--lr");
        s = plain;
        s.min_rate = bad[i];
        expect_refused(s, "--lr-min", NULL);
        s = plain;
        s.decay_factor = bad[i];
        expect_refused(s, "--lr-decay is ", NULL);
    }
    ls_schedule s = plain;
    s.decay_epochs = 0;
    expect_refused(s, "--lr-decay-epochs is 0", NULL);
    s = plain;
    s.warmup_steps = -1;
    expect_refused(s, "--warmup-steps is -1", NULL);
    s = plain;
    s.min_rate = 2 * s.rate; /* only a cosine uses the minimum */
    assert_int_equal(ls_schedule_check(&s), LS_OK);
    s.kind = LS_SCHEDULE_COSINE;
    s.total_steps = 100;
    expect_refused(s, "--lr-min 1 ", "exceeds the learning rate, 0.5");
}

TEST_IN(scratch, a_run_must_have_room_for_its_schedule) {
    ls_schedule s = plain;
    s.warmup_steps = 100;
    assert_int_equal(ls_schedule_check(&s), LS_OK); /* the length of the run is unknown */
    s.total_steps = 100;
    assert_int_equal(ls_schedule_check(&s), LS_OK); /* the last step has the full rate */
    s.total_steps = 99;
    expect_refused(s, "--warmup-steps 100 exceeds the run's 99 steps", NULL);
    s.kind = LS_SCHEDULE_COSINE;
    expect_refused(s, "--warmup-steps 100 exceeds the run's 99 steps", NULL);
    s.total_steps = 100;
    expect_refused(s, "--warmup-steps 100", "cosine none of the run's 100 steps");
    s.total_steps = 101;
    assert_int_equal(ls_schedule_check(&s), LS_OK);
    s.total_steps = 0;
    expect_refused(s, "--lr-schedule cosine", "give --steps");
}

/* --- from the command line's settings ----------------------------------------------------------------------------- */

TEST(settings_become_a_schedule) {
    ls_train_options o = ls_train_defaults();
    ls_schedule s = ls_train_schedule(&o, 8, 0);
    assert_true(s.kind == LS_SCHEDULE_CONSTANT && s.rate == 1e-3 && s.warmup_steps == 0);
    assert_int_equal(ls_schedule_check(&s), LS_OK);
    o.lr_scale = LS_RATE_LINEAR;
    o.lr_schedule = LS_SCHEDULE_COSINE;
    o.warmup_steps = 3;
    o.min_rate = 1e-4;
    s = ls_train_schedule(&o, 8, 20);
    assert_true(s.kind == LS_SCHEDULE_COSINE && s.rate == 8e-3 && s.warmup_steps == 3 && s.total_steps == 20);
    assert_true(s.min_rate == 1e-4);
    o.lr_schedule = LS_SCHEDULE_STEP;
    o.decay_epochs = 7;
    o.decay_factor = 0.3;
    s = ls_train_schedule(&o, 1, 20);
    assert_true(s.kind == LS_SCHEDULE_STEP && s.rate == 1e-3 && s.decay_epochs == 7 && s.decay_factor == 0.3);
}
