/* Networks that ranks share: losses and weights are those of one device, the parts that are not cut stay equal on all
 * ranks, and payload and memory match their formulas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/checkpoint/safetensors.h"
#include "common/data/text.h"
#include "common/nn/network_internal.h"
#include "common/nn/tensor_parallel.h"
#include "tests/base/golden.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/team.h"
#include "tests/parallel/gpt_tiny.h"

#define TINY "gpt:2,2,32,16,27"

static ls_dataset *digits(void) {
    ls_dataset *data;
    assert_int_equal(ls_dataset_open_idx(&data, "data/digits", LS_SPLIT_TRAIN, 10, LS_NORMALIZE_MNIST), LS_OK);
    return data;
}

static ls_dataset *random_images(int side) {
    ls_dataset *data;
    ls_sample_spec spec = {.channels = 1, .height = side, .width = side, .classes = 10};
    assert_int_equal(ls_dataset_random(&data, 3, 512, &spec), LS_OK);
    return data;
}

static ls_dataset *random_targets(int inputs, size_t targets) {
    ls_dataset *data;
    ls_sample_spec spec = {.channels = inputs, .height = 1, .width = 1, .target_count = targets};
    assert_int_equal(ls_dataset_random(&data, 3, 512, &spec), LS_OK);
    return data;
}

static ls_optimizer_options rule(ls_optimizer_kind kind, double rate) {
    ls_optimizer_options options = ls_optimizer_defaults(kind);
    options.learning_rate = rate;
    return options;
}

/* --- PyTorch's ---------------------------------------------------------------------------------------------------------- */

static void expect_losses(const struct team_plan *plan, const struct team_run *run, const double *losses,
                          double tolerance) {
    for (int r = 0; r < plan->ranks || r == 0; r++)
        for (size_t k = 0; k < plan->steps; k++)
            if (!(fabs(run->losses[r][k] - losses[k]) <= tolerance))
                fail_msg("%s, rank %d of %d%s: loss %zu is %.9g, not %.9g", plan->model, r, plan->ranks,
                         plan->sequence ? " with rows of its own" : "", k + 1, run->losses[r][k], losses[k]);
    assert_true(run->alike);
}

static void read_losses(const cJSON *list, double *losses) {
    const cJSON *loss;
    cJSON_ArrayForEach(loss, list) *losses++ = loss->valuedouble;
}

/* tests/golden/tensor_parallel_mlp.json. Weights are within 1e-6 (SGD) and 1e-4 (Adam) of one device's. */
TEST(mlps_runs_are_pytorchs) {
    static const struct {
        const char *name;
        ls_optimizer_kind kind;
        double rate, tolerance;
    } runs[] = {{"sgd_lr0.1", LS_SGD, 0.1, 1e-6}, {"adam_lr1e-3", LS_ADAM, 1e-3, 1e-4}};
    cJSON *golden = golden_json("tensor_parallel_mlp.json");
    ls_dataset *data = digits();
    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        struct team_plan plan = {.model = "mlp", .batch = 64, .steps = 12, .seed = 7, .data = data};
        plan.optimizer = rule(runs[i].kind, runs[i].rate);
        double losses[12];
        const cJSON *run = cJSON_GetObjectItem(golden, runs[i].name);
        read_losses(cJSON_GetObjectItem(run, "one_device_loss"), losses);
        struct team_run *one = team_train(&plan);
        expect_losses(&plan, one, losses, 1e-5);
        for (plan.ranks = 1; plan.ranks <= 4; plan.ranks *= 2) {
            struct team_run *team = team_train(&plan);
            expect_losses(&plan, team, losses, 1e-5);
            double difference = team_difference(team, one);
            if (!(difference <= runs[i].tolerance)) fail_msg("%d ranks: a weight is off by %g", plan.ranks, difference);
            team_free(team);
        }
        team_free(one);
    }
    ls_dataset_close(data);
    cJSON_Delete(golden);
}

static const struct tiny_run {
    const char *name;
    ls_optimizer_kind kind;
    double rate, momentum, clip_norm;
    int micro_batches;
} tiny_runs[] = {{"adamw", LS_ADAMW, 3e-3, 0, 0, 1},
                 {"adam_clip", LS_ADAM, 3e-3, 0, 0.5, 1},
                 {"sgd", LS_SGD, 0.1, 0.9, 0, 1},
                 {"adamw_micro4", LS_ADAMW, 3e-3, 0, 0, 4}};

static void expect_norms(const struct team_run *run) {
    cJSON *json = golden_json("gpt_tiny.json");
    const cJSON *norms = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "adam_clip"), "grad_norms");
    assert_int_equal(cJSON_GetArraySize(norms), GPT_TINY_STEPS);
    for (int k = 0; k < GPT_TINY_STEPS; k++) {
        double wanted = cJSON_GetArrayItem(norms, k)->valuedouble;
        if (!(fabs((double)run->norms[k] - wanted) <= 1e-4 * wanted))
            fail_msg("the norm of step %d is %g, PyTorch's %g", k + 1, (double)run->norms[k], wanted);
    }
    cJSON_Delete(json);
}

/* V = 27 is padded to 28; heads, columns, classes, and with sequence parallelism rows. */
TEST_IN(scratch, a_gpts_runs_are_pytorchs) {
    ls_dataset *data, *test;
    assert_int_equal(ls_dataset_open_text(&data, &test, gpt_tiny_text(), 16), LS_OK);
    for (size_t i = 0; i < COUNT_OF(tiny_runs); i++) {
        const struct tiny_run *run = &tiny_runs[i];
        struct team_plan plan = {.model = TINY, .batch = 8, .steps = GPT_TINY_STEPS, .seed = 3, .data = data};
        double losses[GPT_TINY_STEPS];
        gpt_tiny_losses(run->name, losses);
        plan.optimizer = rule(run->kind, run->rate);
        plan.optimizer.momentum = run->momentum;
        plan.optimizer.clip_norm = run->clip_norm;
        plan.micro_batches = run->micro_batches;
        for (plan.ranks = 0; plan.ranks <= 2; plan.ranks++)
            for (int sequence = 0; sequence <= (plan.ranks > 0); sequence++) {
                plan.sequence = sequence;
                struct team_run *team = team_train(&plan);
                expect_losses(&plan, team, losses, 1e-5);
                if (run->clip_norm > 0) expect_norms(team);
                team_free(team);
            }
    }
    ls_dataset_close(data);
    ls_dataset_close(test);
}

/* --- one device ----------------------------------------------------------------------------------------------------------- */

/* Over a hundred steps losses stay within 1e-4. */
static void expect_as_one(struct team_plan plan, int most) {
    plan.ranks = 0;
    struct team_run *one = team_train(&plan);
    for (plan.ranks = 2; plan.ranks <= most; plan.ranks *= 2) {
        struct team_run *team = team_train(&plan);
        expect_losses(&plan, team, one->losses[0], 1e-4);
        team_free(team);
    }
    team_free(one);
}

TEST(losses_are_one_devices) {
    ls_dataset *images = digits(), *small = random_images(13), *targets = random_targets(24, 12);
    struct team_plan plan = {.batch = 16, .steps = 100, .seed = 5, .data = small, .optimizer = rule(LS_SGD, 0.002)};
    plan.model = "convnet:1x13x13,10"; /* rounding errors in it grow faster with the rate */
    expect_as_one(plan, 4);
    plan.optimizer.learning_rate = 0.02;
    plan.data = images;
    plan.model = "mlp:784,64,32,48,10"; /* two pairs */
    expect_as_one(plan, 4);
    plan.model = "mlp:784,64,32,10"; /* a pair, and a layer that stays whole */
    plan.every = 1;                  /* blocks begin and end in the middle of pairs */
    plan.micro_batches = 2;
    expect_as_one(plan, 2);
    plan.model = "wide:24,64,12";
    plan.data = targets;
    plan.every = plan.micro_batches = 0;
    expect_as_one(plan, 4);
    ls_dataset_close(images);
    ls_dataset_close(small);
    ls_dataset_close(targets);
}

/* Running statistics show an error that normalising hides: a bias that each rank adds. */
TEST(a_steps_statistics_are_one_devices) {
    ls_dataset *data = digits();
    struct team_plan plan = {.model = "convnet", .batch = 16, .steps = 1, .seed = 5, .data = data};
    plan.optimizer = rule(LS_SGD, 0.01);
    struct team_run *one = team_train(&plan);
    for (plan.ranks = 2; plan.ranks <= 4; plan.ranks *= 2) {
        struct team_run *team = team_train(&plan);
        double difference = team_difference(team, one);
        if (!(difference <= 1e-5)) fail_msg("%d ranks: a value is off by %g", plan.ranks, difference);
        team_free(team);
    }
    team_free(one);
    ls_dataset_close(data);
}

/* As many layers as deep, and an eighth of the width. */
#define FOUR_WIDE "128,128,128,128,"

TEST(deep_is_cut_by_pairs) {
    ls_dataset *data = digits();
    struct team_plan plan = {.model = "mlp:784," FOUR_WIDE FOUR_WIDE FOUR_WIDE FOUR_WIDE "10",
                             .batch = 8,
                             .steps = 3,
                             .seed = 7,
                             .data = data};
    plan.optimizer = rule(LS_ADAM, 1e-3);
    plan.ranks = 2;
    struct team_run *team = team_train(&plan);
    plan.ranks = 0;
    struct team_run *one = team_train(&plan);
    for (size_t k = 0; k < plan.steps; k++) assert_true(fabs(team->losses[1][k] - one->losses[0][k]) <= 1e-5);
    assert_true(team->alike);
    /* 8 pairs: an all-reduce for each in forward, and for all but the first in backward */
    assert_int_equal(team->operations, 8 + 7);
    assert_int_equal(team->step_nbytes, (8 + 7) * 8 * 128 * sizeof(float));
    assert_true(team->parameter_bytes < one->parameter_bytes * 51 / 100);
    team_free(team);
    team_free(one);
    ls_dataset_close(data);
}

/* --- texts ------------------------------------------------------------------------------------------------------------------ */

static ls_dataset *random_text(int context, int vocabulary) {
    ls_dataset *data;
    ls_sample_spec spec = {
        .channels = 1, .height = 1, .width = 1, .rows = context, .classes = vocabulary, .tokens = true};
    assert_int_equal(ls_dataset_random(&data, 3, 512, &spec), LS_OK);
    return data;
}

/* 21 tokens on 4 ranks: 6, 6, 6 and 3, with three of padding. In half precision losses are close to those of fp32. */
TEST(a_vocabulary_is_padded) {
    ls_dataset *data = random_text(8, 21);
    struct team_plan plan = {.model = "gpt:2,4,32,8,21", .batch = 6, .steps = 100, .seed = 3, .data = data};
    plan.optimizer = rule(LS_ADAMW, 1e-3);
    expect_as_one(plan, 4);
    plan.sequence = true;
    expect_as_one(plan, 4);
    plan.every = 1;
    plan.micro_batches = 3;
    plan.model = "gpt:2,4,32,8,21,scores";
    expect_as_one(plan, 2);
    plan.ranks = 2;
    plan.precision = LS_BF16;
    plan.steps = 5;
    struct team_run *half = team_train(&plan);
    for (size_t k = 0; k < plan.steps; k++) assert_true(fabs(half->losses[0][k] - log(21)) < 0.1);
    assert_true(half->alike);
    team_free(half);
    ls_dataset_close(data);
}

/* An evaluation has all classes, and the bits of one device for the same weights: before the first step. */
TEST(an_evaluation_has_all_classes) {
    ls_dataset *data = random_text(8, 21);
    struct team_plan plan = {.model = "gpt:1,4,32,8,21", .batch = 3, .seed = 3, .data = data};
    plan.optimizer = rule(LS_ADAMW, 1e-3);
    struct team_run *one = team_train(&plan);
    plan.ranks = 4;
    struct team_run *team = team_train(&plan);
    assert_int_equal(team->logit_count, 3 * 8 * 21);
    assert_int_equal(one->logit_count, team->logit_count);
    for (size_t i = 0; i < one->logit_count; i++) assert_true(fabsf(one->logits[i] - team->logits[i]) <= 1e-6f);
    assert_memory_equal(one->values, team->values, one->value_count * sizeof(float)); /* drawn, cut, gathered */
    team_free(one);
    team_free(team);
    ls_dataset_close(data);
}

/* Two all-reduces a pair and direction, of B T C floats; in addition the embedding's and the head's, and sums over
 * classes. */
TEST(what_travels_is_the_formula) {
    enum { LAYERS = 3, CHANNELS = 32, CONTEXT = 8, BATCH = 5, ROWS = BATCH * CONTEXT };
    ls_dataset *data = random_text(CONTEXT, 21);
    struct team_plan plan = {.model = "gpt:3,4,32,8,21", .batch = BATCH, .steps = 2, .seed = 3, .data = data};
    plan.optimizer = rule(LS_SGD, 0.1);
    plan.ranks = 4;
    struct team_run *whole = team_train(&plan);
    plan.sequence = true;
    struct team_run *rows = team_train(&plan);
    size_t activations = (4 * LAYERS + 2) * (size_t)ROWS * CHANNELS * sizeof(float),
           classes = 3 * (size_t)ROWS * sizeof(float), norms = (2 * LAYERS + 1) * 2 * (size_t)CHANNELS * sizeof(float);
    assert_int_equal(whole->operations, 4 * LAYERS + 2 + 2);
    assert_int_equal(whole->step_nbytes, activations + classes);
    assert_int_equal(rows->step_nbytes, activations + classes + norms);
    /* a rank sends 2 (W-1)/W of the gathered data, in all-reduces as in scatters and gathers; short data are sent whole
     * to each rank (common/comm/exchange.h), W-1 times */
    assert_int_equal(whole->sent_bytes, activations * 2 * 3 / 4 + classes * 3);
    assert_int_equal(rows->sent_bytes, activations * 2 * 3 / 4 + (classes + norms) * 3);
    assert_true(rows->activation_bytes < whole->activation_bytes);
    team_free(whole);
    team_free(rows);
    ls_dataset_close(data);
}

/* Floats that a layer keeps for each position: 12 C / T + 6 C; if ranks have their own rows, 14 C / T + 2 C, the latter
 * gathered. */
TEST(activations_shrink) {
    ls_dataset *data = random_text(32, 21);
    struct team_plan few = {.model = "gpt:2,4,64,32,21", .batch = 8, .steps = 1, .seed = 3, .data = data};
    few.optimizer = rule(LS_SGD, 0.1);
    struct team_plan more = few;
    more.model = "gpt:6,4,64,32,21";
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (int sequence = 0; sequence <= 1; sequence++) {
            few.ranks = more.ranks = ranks;
            few.sequence = more.sequence = sequence;
            struct team_run *a = team_train(&few), *b = team_train(&more);
            double layer = (double)(b->activation_bytes - a->activation_bytes) / (4.0 * 8 * 32 * 64 * sizeof(float));
            double formula = sequence ? 14.0 / ranks + 2 : 12.0 / ranks + 6;
            /* in addition a float for each head, two for each norm's row, and the norms' gradients */
            if (!(layer >= formula && layer <= formula + 0.2))
                fail_msg("%d ranks, sequence %d: %g C floats a layer and position, not %g", ranks, sequence, layer,
                         formula);
            team_free(a);
            team_free(b);
        }
    ls_dataset_close(data);
}

/* --- impossible settings ------------------------------------------------------------------------------------------ */

static void expect_refused(const char *model, int ranks, bool sequence, const char *why) {
    ls_network *network;
    assert_int_equal(ls_network_create(&network, model), LS_OK);
    assert_int_equal(ls_tensor_check(network, ranks, sequence), LS_ERR_USAGE);
    scratch_expect_error(why, "rank");
    ls_network_destroy(network);
}

TEST_IN(scratch, what_ranks_cannot_share_is_refused) {
    expect_refused("gpt:2,6,24,16,27", 4, false, "transformer.h.0.attn has 6 heads, which 4 ranks cannot share");
    expect_refused("mlp:784,250,10", 4, false, "layer fc1 has 250 outputs, which 4 ranks cannot share");
    expect_refused("gpt:2,4,24,18,27", 4, true, "a context of 18 positions cannot be shared equally by 4 ranks");
}
