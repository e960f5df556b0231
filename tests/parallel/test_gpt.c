/* A GPT in every mode: PyTorch's recorded runs, and the same bits where modes must have them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/parallel/outcomes.h"
#include "tests/parallel/seeds.h"

#define TINY "gpt:2,2,32,16,27"
enum { BATCH = 8, STEPS = 40, TOKENS = 27, FEW = 6 };

/* PyTorch's tokens as a text: a byte each, and behind them a test set, a tenth of the whole, so that they are the training
 * set. */
static const char *write_text(void) {
    char text[2048];
    cJSON *json = golden_json("gpt_tiny.json");
    const cJSON *token;
    size_t count = 0, trained;
    cJSON_ArrayForEach(token, cJSON_GetObjectItem(json, "tokens")) text[count++] = (char)('A' + token->valueint);
    for (trained = count; count - count / 10 < trained || count == trained; count++) text[count] = 'A';
    assert_int_equal(count - count / 10, trained);
    cJSON_Delete(json);
    scratch_write("tokens", text, count);
    return scratch_path("tokens");
}

static struct plan plan_of(enum mode mode, int devices, const char *text) {
    struct plan plan = {.mode = mode,
                        .devices = devices,
                        .model = TINY,
                        .text = text,
                        .batch = BATCH,
                        .steps = FEW,
                        .seed = 3,
                        .bucket_cap_mb = 0.02,
                        .allreduce = "direct"};
    plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
    plan.optimizer.learning_rate = 3e-3;
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

static struct plan plan_of_run(const struct run *run, enum mode mode, int devices, const char *text) {
    struct plan plan = plan_of(mode, devices, text);
    plan.steps = STEPS + 1; /* whoever looks at the last one's gradients finds the weights after all before */
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

static void expect_losses(const struct plan *plan, const struct outcome *outcomes, const cJSON *json) {
    const cJSON *loss, *losses = cJSON_GetObjectItem(cJSON_GetObjectItem(json, look_run->name), "losses");
    size_t k = 0;
    assert_int_equal(cJSON_GetArraySize(losses), STEPS);
    cJSON_ArrayForEach(loss, losses) {
        double got = global_loss(plan, outcomes, k++);
        if (!(fabs(got - loss->valuedouble) <= 1e-5))
            fail_msg("%s, mode %d, %d devices: loss %zu is %.9g, in PyTorch %.9g", look_run->name, (int)plan->mode,
                     plan->devices, k, got, loss->valuedouble);
    }
}

static void expect_run(const struct plan *plan, const cJSON *json) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(plan, outcomes, look_at_weights);
    for (int r = 0; r < plan_ranks(plan); r++) {
        assert_string_equal(outcomes[r].message, "");
        assert_int_equal(outcomes[r].status, LS_OK);
        double error = outcomes[r].buffer_error;
        if (!(error <= look_run->tolerance))
            fail_msg("%s, mode %d, %d devices: a weight is off by %g", look_run->name, (int)plan->mode, plan->devices,
                     error);
    }
    expect_losses(plan, outcomes, json);
    shared_free(outcomes, MAX_RANKS * sizeof *outcomes);
}

TEST_IN(scratch, runs_follow_pytorchs) {
    const char *text = write_text();
    cJSON *json = golden_json("gpt_tiny.json");
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        look_run = &runs[i];
        for (int devices = 1; devices <= 4; devices *= 2)
            for (int mode = devices > 1 ? MODE_DP : MODE_SINGLE; mode < MODES; mode++) {
                struct plan plan = plan_of_run(look_run, (enum mode)mode, devices, text);
                expect_run(&plan, json);
            }
    }
    cJSON_Delete(json);
}

static void look_at_gradients(struct session *s, struct outcome *o) {
    o->gradient_error = stored_gradient_error("gpt_tiny_first_gradients", "", s->model);
}

TEST_IN(scratch, first_gradients_are_pytorchs) {
    const char *text = write_text();
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

/* Both runs have these bits, after each step. */
static void expect_same_weights(const struct plan *plan, const struct outcome *wanted) {
    struct outcome *got = outcomes_run(plan);
    int step = first_difference(wanted, got, plan->steps);
    if (step >= 0)
        fail_msg("mode %d, %d devices, precision %d, segments of %d: other weights after step %d", (int)plan->mode,
                 plan->devices, (int)plan->precision, plan->every, step + 1);
    outcomes_free(got);
}

/* DataParallel, DDP and ZeRO, with and without what changes no bit. */
static void expect_modes_agree(int devices, ls_dtype precision, const char *text) {
    struct plan plan = plan_of(MODE_DP, devices, text);
    plan.precision = precision;
    struct outcome *wanted = outcomes_run(&plan);
    for (int mode = MODE_DP; mode < MODES; mode++) {
        plan.mode = (enum mode)mode;
        expect_same_weights(&plan, wanted);
        plan.optimizer.offload = true;
        for (plan.every = 1; plan.every <= 2; plan.every++) expect_same_weights(&plan, wanted);
        plan.optimizer.offload = false;
        plan.every = 0;
    }
    outcomes_free(wanted);
}

TEST_IN(scratch, modes_have_the_same_bits) {
    const char *text = write_text();
    for (int devices = 1; devices <= 4; devices *= 2)
        for (int precision = LS_FP32; precision <= LS_BF16; precision++)
            if (precision != LS_FP16) expect_modes_agree(devices, (ls_dtype)precision, text);
}

/* Recomputed activations change no bit where micro-batches add up and the loss is scaled, either. */
TEST_IN(scratch, recomputing_changes_no_bit) {
    const char *text = write_text();
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
    const char *text = write_text();
    struct seed_outcomes *shuffled = shared_alloc(MAX_RANKS * sizeof *shuffled);
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct plan plan = plan_of((enum mode)mode, 2, text);
        plan.every = 2;
        struct outcome *expected = outcomes_run(&plan);
        run_seeds(&plan, SEEDS, NULL, shuffled);
        assert_int_equal(first_red_seed(&plan, SEEDS, shuffled, expected, true), 0);
        outcomes_free(expected);
    }
    shared_free(shuffled, MAX_RANKS * sizeof *shuffled);
}
