/* Invariants between the modes and between ranks: bitwise equal weights after every step, however the work is split,
 * and in every repetition. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/comm/allreduce.h"
#include "tests/base/test.h"
#include "tests/parallel/plan.h"

enum { STEPS = 4 };

/* Small pictures, whose pools lose a row and a column. */
static const struct plan mlp = {.model = "mlp:100,64,10", .batch = 32, .steps = STEPS, .samples = STEPS * 32};
static const struct plan convnet = {.model = "convnet:1x13x13,10", .batch = 24, .steps = STEPS, .samples = STEPS * 24};

static struct plan make(struct plan plan, enum mode mode, int devices) {
    plan.mode = mode;
    plan.devices = devices;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

static struct outcome *run(const struct plan *plan) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(plan, outcomes, NULL);
    int ranks = plan_ranks(plan);
    for (int r = 0; r < ranks; r++) {
        if (outcomes[r].status != LS_OK) {
            fail_msg("%s on %d: rank %d: %s (%s)", plan->model, plan->devices, r, ls_status_text(outcomes[r].status),
                     outcomes[r].message);
        }
    }
    return outcomes;
}

static void release(struct outcome *outcomes) { shared_free(outcomes, MAX_RANKS * sizeof *outcomes); }

static void expect_same_bits(const struct plan *plan, const struct outcome *left, const struct outcome *right,
                             const char *what) {
    int step = first_difference(left, right, plan->steps);
    if (step >= 0)
        fail_msg("%s on %d devices: %s: the weights differ after step %d", plan->model, plan->devices, what, step + 1);
}

/* Invariant 3. Buffers may differ: a rank keeps its own statistics until the next broadcast. */
static void expect_same_on_all_ranks(const struct plan *plan, const struct outcome *outcomes) {
    for (int r = 1; r < plan->devices; r++) expect_same_bits(plan, &outcomes[0], &outcomes[r], "rank 0 and another");
}

/* Training must change the weights at each step, or the comparisons would prove nothing. */
static void expect_progress(const struct plan *plan, const struct outcome *o) {
    for (size_t k = 1; k < plan->steps; k++) assert_true(o->weights[k] != o->weights[k - 1]);
}

/* --- invariants 2 and 3 ------------------------------------------------------------------------------------------ */

/* The algorithms that sum in the order of the ranks, as DataParallel does in the order of its replicas. Other
 * algorithms are as accurate, but round differently. */
static bool sums_in_order(const ls_allreduce_algorithm *a) {
    return strcmp(a->name, "naive") == 0 || strcmp(a->name, "direct") == 0;
}

/* DDP runs with each algorithm that must give the same bits, or with `all` algorithms; shards, lists and stages with
 * one. */
static bool takes(enum mode mode, const ls_allreduce_algorithm *a, bool all) {
    return mode == MODE_DDP ? all || sums_in_order(a) : strcmp(a->name, "direct") == 0;
}

/* Compares a plan with several processes with the run whose weights it must have. */
static void expect_equal(struct plan plan, bool all, const struct plan *other, const struct outcome *wanted) {
    for (const ls_allreduce_algorithm *a = ls_allreduce_algorithms; a->name; a++) {
        if (!takes(plan.mode, a, all)) continue;
        plan.allreduce = a->name;
        struct outcome *o = run(&plan);
        expect_same_on_all_ranks(&plan, o);
        if (sums_in_order(a)) expect_same_bits(&plan, wanted, o, a->name);
        assert_true(o->buckets > 1 || !plan_has_buckets(&plan));
        double tolerance = sums_in_order(a) ? 1e-6 : 1e-4;
        for (size_t k = 0; k < plan.steps; k++) {
            double expected = global_loss(other, wanted, k), loss = global_loss(&plan, o, k);
            if (!(fabs(loss - expected) <= tolerance * expected))
                fail_msg("%s: loss %zu is %.9g, not %.9g", a->name, k + 1, loss, expected);
        }
        release(o);
    }
}

static void expect_equal_modes(struct plan model, int devices, bool all) {
    struct plan run_before = {0};
    struct outcome *wanted = NULL;
    int compared = 0;
    for (int mode = 0; mode < MODES; mode++) {
        if (!plan_modes[mode].mode->equals || mode == MODE_TENSOR) continue; /* its sums have other numbers of terms */
        struct plan plan = make(model, (enum mode)mode, devices);
        plan.bucket_cap_mb = 0.002; /* the smaller weights fill one */
        const struct plan other = plan_equal(&plan);
        if (!wanted || other.mode != run_before.mode || other.devices != run_before.devices) {
            if (wanted) release(wanted);
            wanted = run(&other);
            run_before = other;
            expect_progress(&other, wanted);
        }
        expect_equal(plan, all, &other, wanted);
        compared++;
    }
    assert_true(compared > 0);
    release(wanted);
}

TEST(modes_equal_what_they_must_on_the_mlp) {
    for (int devices = 2; devices <= 8; devices *= 2) expect_equal_modes(mlp, devices, true);
}

TEST(modes_equal_what_they_must_on_the_convnet) {
    for (int devices = 2; devices <= 8; devices *= 2) expect_equal_modes(convnet, devices, false);
}

/* Data sharded as by PyTorch's sampler, with the other optimizer: the ranks stay equal. */
TEST(ranks_agree_on_strided_shards) {
    for (const ls_allreduce_algorithm *a = ls_allreduce_algorithms; a->name; a++) {
        struct plan plan = make(convnet, MODE_DDP, 5);
        plan.batch = 15; /* strided shards are equal */
        plan.samples = STEPS * 15;
        plan.strided = true;
        plan.allreduce = a->name;
        plan.optimizer = ls_optimizer_defaults(LS_SGD);
        plan.optimizer.learning_rate = 0.01;
        plan.optimizer.momentum = 0.9;
        struct outcome *outcomes = run(&plan);
        expect_progress(&plan, outcomes);
        expect_same_on_all_ranks(&plan, outcomes);
        release(outcomes);
    }
}

TEST(overlap_does_not_change_the_bits) {
    struct plan plan = make(convnet, MODE_DDP, 2);
    plan.bucket_cap_mb = 0.02;
    struct outcome *with = run(&plan);
    plan.no_overlap = true;
    struct outcome *without = run(&plan);
    assert_int_equal(with->buckets, without->buckets);
    assert_true(with->buckets > 1);
    expect_same_bits(&plan, with, without, "with and without overlap");
    release(with);
    release(without);
}

/* --- one device -------------------------------------------------------------------------------------------------- */

TEST(one_device_and_one_rank_are_the_plain_path) {
    const struct plan models[] = {mlp, convnet};
    for (size_t m = 0; m < 2; m++) {
        struct plan plan = make(models[m], MODE_SINGLE, 1);
        struct outcome *single = run(&plan);
        expect_progress(&plan, single);
        for (int mode = MODE_DP; mode < MODES; mode++) {
            plan.mode = (enum mode)mode;
            struct outcome *other = run(&plan);
            expect_same_bits(&plan, single, other, plan_modes[mode].mode->name);
            for (size_t k = 0; k < plan.steps; k++) assert_true(single->state[k] == other->state[k]);
            release(other);
        }
        release(single);
    }
}

/* --- invariant 4 ------------------------------------------------------------------------------------------------- */

static void expect_same_in_every_mode(struct plan plan) {
    static const char *const modes[] = {"inline", "threads", "shuffle:1"};
    struct outcome *first = NULL;
    for (size_t m = 0; m < 3; m++) {
        for (int again = 0; again < 2; again++) {
            plan.streams = modes[m];
            struct outcome *outcomes = run(&plan);
            if (first) {
                expect_same_bits(&plan, first, outcomes, modes[m]);
                for (size_t k = 0; k < plan.steps; k++) {
                    assert_true(first->state[k] == outcomes->state[k]);
                    assert_true(first->losses[k] == outcomes->losses[k]);
                }
                release(outcomes);
            } else {
                first = outcomes;
            }
        }
    }
    release(first);
}

TEST(every_stream_mode_gives_the_same_bits) {
    const struct plan models[] = {mlp, convnet};
    for (size_t m = 0; m < 2; m++) {
        struct plan plan = make(models[m], MODE_SINGLE, 1);
        plan.steps = 2;
        expect_same_in_every_mode(plan);
        plan.devices = 2;
        plan.mode = MODE_DP;
        expect_same_in_every_mode(plan);
        plan.bucket_cap_mb = 0.05;
        for (int mode = MODE_DDP; mode < MODES; mode++) {
            plan.mode = (enum mode)mode;
            expect_same_in_every_mode(plan);
        }
    }
}

/* --- batches that do not divide evenly --------------------------------------------------------------------------- */

/* The weights' bits differ from one device's, whose sums have another order; the losses must agree. */
static void expect_losses_of_one_device(struct plan model, enum mode mode, int devices, double tolerance) {
    struct plan plan = make(model, MODE_SINGLE, 1);
    struct outcome *single = run(&plan);
    plan.mode = mode;
    plan.devices = devices;
    struct outcome *shared = run(&plan);
    if (plan_has_group(&plan)) expect_same_on_all_ranks(&plan, shared);
    for (size_t k = 0; k < plan.steps; k++) {
        double expected = single->losses[k], loss = global_loss(&plan, shared, k);
        if (!(fabs(loss - expected) <= tolerance * expected)) {
            fail_msg("%d devices, step %zu: the loss is %.9g, one device's %.9g", devices, k + 1, loss, expected);
        }
    }
    release(single);
    release(shared);
}

/* 64 samples, then 28 on 8 devices (4 4 4 4 4 4 4: seven of them), then 64 again; and 9 samples on 4 devices: 3 3 3. */
TEST(uneven_batches_follow_one_device) {
    struct plan plan = mlp;
    plan.samples = 64 + 28;
    for (int mode = MODE_DP; mode < MODES; mode++) {
        plan.batch = 64;
        plan.samples = 64 + 28;
        expect_losses_of_one_device(plan, (enum mode)mode, 8, 1e-5);
        plan.batch = 9;
        plan.samples = 30; /* 9 9 9 3 */
        expect_losses_of_one_device(plan, (enum mode)mode, 4, 1e-5);
    }
}
