/* A GPT in every mode: PyTorch's recorded runs, and the same bits in modes that must have them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/parallel/gpt_tiny.h"
#include "tests/parallel/outcomes.h"
#include "tests/parallel/seeds.h"

enum { STEPS = GPT_TINY_STEPS, SOME = 10, FEW = 4 };

static struct plan plan_of(enum mode mode, int devices, const char *text) {
    struct plan plan = gpt_tiny_plan(text);
    plan.mode = mode;
    plan.devices = devices;
    plan.steps = FEW;
    plan.bucket_cap_mb = 0.02;
    return plan;
}

/* --- PyTorch's runs -------------------------------------------------------------------------------------------------- */

static const struct run {
    const char *name, *after;
    double learning_rate, momentum, clip_norm, tolerance; /* of the weights after all steps */
    ls_optimizer_kind kind;
    int accumulate;
} runs[] = {
    {"adamw", "gpt_tiny_adamw_final", 3e-3, 0, 0, 1e-4, LS_ADAMW, 1},
    {"adam_clip", "gpt_tiny_adam_clip_final", 3e-3, 0, 0.5, 1e-4, LS_ADAM, 1},
    {"sgd", "gpt_tiny_sgd_final", 0.1, 0.9, 0, 5e-6, LS_SGD, 1},
    {"adamw_micro4", "gpt_tiny_adamw_micro4_final", 3e-3, 0, 0, 1e-4, LS_ADAMW, 4},
};

/* The whole run on one device, and on two in each mode that has its own bits; the others have DataParallel's (below). */
static bool takes_all_steps(const struct plan *plan) {
    return plan->mode == MODE_SINGLE || (plan->devices == 2 && (plan->mode == MODE_DP || plan->mode >= MODE_SPLIT));
}

static struct plan plan_of_run(const struct run *run, enum mode mode, int devices, const char *text) {
    struct plan plan = plan_of(mode, devices, text);
    /* the last step's gradients are read with the weights after all steps before it */
    plan.steps = takes_all_steps(&plan) ? STEPS + 1 : SOME;
    plan.losses_only = true;
    plan.accumulate = run->accumulate;
    plan.optimizer = ls_optimizer_defaults(run->kind);
    plan.optimizer.learning_rate = run->learning_rate;
    plan.optimizer.momentum = run->momentum;
    plan.optimizer.clip_norm = run->clip_norm;
    return plan;
}

static const struct run *look_run;

static void look_at_weights(struct session *s, struct outcome *o) {
    o->buffer_error = stored_weights_difference(look_run->after, s->model);
}

static void expect_losses(const struct plan *plan, const struct outcome *outcomes) {
    double losses[STEPS];
    gpt_tiny_losses(look_run->name, losses);
    for (size_t k = 0; k < STEPS && k < plan->steps; k++) {
        double got = global_loss(plan, outcomes, k);
        if (!(fabs(got - losses[k]) <= 1e-5))
            fail_msg("%s, mode %d, %d devices: loss %zu is %.9g, in PyTorch %.9g", look_run->name, (int)plan->mode,
                     plan->devices, k + 1, got, losses[k]);
    }
}

static void expect_run(const struct plan *plan) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(plan, outcomes, takes_all_steps(plan) ? look_at_weights : NULL);
    for (int r = 0; r < plan_ranks(plan); r++) {
        assert_string_equal(outcomes[r].message, "");
        assert_int_equal(outcomes[r].status, LS_OK);
        double error = outcomes[r].buffer_error;
        if (!(error <= look_run->tolerance))
            fail_msg("%s, mode %d, %d devices: a weight is off by %g", look_run->name, (int)plan->mode, plan->devices,
                     error);
    }
    expect_losses(plan, outcomes);
    shared_free(outcomes, MAX_RANKS * sizeof *outcomes);
}

TEST_IN(scratch, runs_follow_pytorchs) {
    const char *text = gpt_tiny_text();
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        look_run = &runs[i];
        for (int devices = 1; devices <= 4; devices *= 2)
            for (int mode = devices > 1 ? MODE_DP : MODE_SINGLE; mode < MODES; mode++) {
                struct plan plan = plan_of_run(look_run, (enum mode)mode, devices, text);
                expect_run(&plan);
            }
    }
}

static void look_at_gradients(struct session *s, struct outcome *o) {
    o->gradient_error = stored_gradient_error("gpt_tiny_first_gradients", "", s->model);
}

TEST_IN(scratch, first_gradients_are_pytorchs) {
    const char *text = gpt_tiny_text();
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    for (int devices = 1; devices <= 4; devices *= 2)
        for (int mode = MODE_DP; mode <= MODE_DDP; mode++) {
            struct plan plan = plan_of((enum mode)mode, devices, text);
            plan.steps = 1;
            run_plan(&plan, outcomes, look_at_gradients);
            for (int r = 0; r < plan_ranks(&plan); r++)
                if (!(outcomes[r].gradient_error <= 1e-6))
                    fail_msg("mode %d, %d devices: off by %g", mode, devices, outcomes[r].gradient_error);
        }
    shared_free(outcomes, MAX_RANKS * sizeof *outcomes);
}

/* --- bits ------------------------------------------------------------------------------------------------------------ */

/* Asserts that both runs have these bits, after each step. */
static void expect_same_weights(const struct plan *plan, const struct outcome *wanted) {
    struct outcome *got = outcomes_run(plan);
    int step = first_difference(wanted, got, plan->steps);
    if (step >= 0)
        fail_msg("mode %d, %d devices, precision %d, segments of %d: other weights after step %d", (int)plan->mode,
                 plan->devices, (int)plan->precision, plan->every, step + 1);
    outcomes_free(got);
}

/* DataParallel, DDP and ZeRO, with and without options that change no bit. */
static void expect_modes_agree(int devices, ls_dtype precision, const char *text) {
    struct plan plan = plan_of(MODE_DP, devices, text);
    plan.precision = precision;
    struct outcome *wanted = outcomes_run(&plan);
    for (int mode = MODE_DP; mode < MODE_SPLIT; mode++) {
        plan.mode = (enum mode)mode;
        if (mode != MODE_DP) expect_same_weights(&plan, wanted);
        plan.optimizer.offload = true;
        for (plan.every = 1; plan.every <= 2; plan.every++) expect_same_weights(&plan, wanted);
        plan.optimizer.offload = false;
        plan.every = 0;
    }
    outcomes_free(wanted);
}

TEST_IN(scratch, modes_have_the_same_bits) {
    const char *text = gpt_tiny_text();
    expect_modes_agree(1, LS_FP32, text);
    expect_modes_agree(2, LS_FP32, text);
    expect_modes_agree(2, LS_BF16, text);
    expect_modes_agree(4, LS_BF16, text);
}

/* Recomputing activations changes no bit, also if micro-batches add up and the loss is scaled. */
TEST_IN(scratch, recomputing_changes_no_bit) {
    const char *text = gpt_tiny_text();
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct plan plan = plan_of((enum mode)mode, 2, text);
        plan.accumulate = 2;
        plan.precision = LS_FP16;
        plan.optimizer.clip_norm = 0.5;
        struct outcome *wanted = outcomes_run(&plan);
        plan.every = 1;
        expect_same_weights(&plan, wanted);
        outcomes_free(wanted);
    }
}

TEST_IN(scratch, the_order_of_the_streams_changes_no_bit) {
    enum { SEEDS = 10 };
    const char *text = gpt_tiny_text();
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct plan plan = plan_of((enum mode)mode, 2, text);
        plan.every = 2;
        struct outcome *expected = outcomes_run(&plan);
        assert_int_equal(red_seed(&plan, SEEDS, NULL, expected, true), 0);
        outcomes_free(expected);
    }
}
