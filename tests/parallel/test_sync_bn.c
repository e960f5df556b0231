/* Batch norm over the whole batch (--sync-bn): DataParallel and DistributedDataParallel then train as one device does,
 * running statistics included, for any split of the batch. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/checkpoint/stored.h"
#include "tests/parallel/seeds.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 3, RED_SEEDS = 3, STEPS = 2, DEVICES = 3 };
#else
enum { SEEDS = 10, RED_SEEDS = 10, STEPS = 3, DEVICES = 3 };
#endif
/* SEEDS: orders of the streams that are tried; RED_SEEDS: orders within which a missing wait must be visible. STEPS and
 * DEVICES: for the comparison of large batches with one device. */

static const char golden[] = "train_convnet_sgd_w4_syncbn";

static struct plan make(enum mode mode, int devices, size_t batch, size_t steps) {
    struct plan plan = {.mode = mode, .devices = devices, .model = "convnet", .batch = batch, .steps = steps};
    plan.sync_bn = mode != MODE_SINGLE;
    plan.allreduce = "direct";
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.learning_rate = 0.01;
    plan.optimizer.momentum = 0.9;
    return plan;
}

/* --- runs -------------------------------------------------------------------------------------------------------- */

enum { BUFFER_FLOATS = 2 * (16 + 32) };

/* The results of a run, in memory that it shares with the parent; the buffers are those of the last step, which the
 * update does not change. */
struct run {
    struct outcome outcomes[MAX_RANKS];
    float buffers[BUFFER_FLOATS];
};

static struct run *looked_at;

/* Keeps rank 0's buffers; parts of them may be on other ranks. */
static void look_at_buffers(struct session *s, struct outcome *o) {
    const ls_parameters *all = ls_model_tensors(s->model);
    float own[BUFFER_FLOATS], *at = o == looked_at->outcomes ? looked_at->buffers : own;
    bool good = session_share_buffers(s) == LS_OK;
    for (size_t t = all->count; good && t < all->count + all->buffer_count; t++) {
        good = ls_parameters_read(all, t, at) == LS_OK;
        at += ls_parameters_whole(all, t)->count;
    }
}

static void look_at_gradients_0(struct session *s, struct outcome *o) {
    o->gradient_error = stored_gradient_error(golden, "step0.grad.", s->model);
}

static void look_at_gradients_5(struct session *s, struct outcome *o) {
    o->gradient_error = stored_gradient_error(golden, "step5.grad.", s->model);
}

/* Makes the last step's update itself; the update that follows is not checked. */
static void look_at_final_state(struct session *s, struct outcome *o) {
    o->buffer_error = o->gradient_error = INFINITY;
    if (session_share_buffers(s) != LS_OK) return;
    o->buffer_error = stored_state_error(golden, "after.", s->model, true);
    if (ls_step_update(s->parallel) != LS_OK || session_synchronize(s) != LS_OK) return;
    o->gradient_error = stored_state_error(golden, "after.", s->model, false);
}

/* All ranks must finish, and be bitwise equal after every step, buffers included. */
static struct run *run(const struct plan *plan, void (*look)(struct session *s, struct outcome *o)) {
    struct run *run = looked_at = shared_alloc(sizeof *run);
    assert_non_null(run);
    run_plan(plan, run->outcomes, look);
    for (int r = 0; r < plan_ranks(plan); r++) {
        const struct outcome *o = &run->outcomes[r];
        if (o->status != LS_OK) {
            fail_msg("mode %d on %d: rank %d: %s (%s)", (int)plan->mode, plan->devices, r, ls_status_text(o->status),
                     o->message);
        }
        for (size_t k = 0; k < plan->steps; k++) assert_true(o->state[k] == run->outcomes[0].state[k]);
        assert_int_equal(o->batches_tracked, plan->steps);
    }
    return run;
}

static void release(struct run *run) { shared_free(run, sizeof *run); }

/* --- PyTorch's run ----------------------------------------------------------------------------------------------- */

static struct plan golden_plan(enum mode mode, size_t steps, const char *state) {
    struct plan plan = make(mode, 4, 100, steps);
    plan.stored = golden;
    plan.state = state;
    plan.strided = mode == MODE_DDP;
    return plan;
}

static void expect_golden_gradients(enum mode mode, size_t step, const char *state,
                                    void (*look)(struct session *s, struct outcome *o)) {
    struct plan plan = golden_plan(mode, 1, state);
    plan.first_step = step;
    struct run *one = run(&plan, look);
    for (int r = 0; r < plan_ranks(&plan); r++) {
        double error = one->outcomes[r].gradient_error;
        if (!(error <= 1e-4)) fail_msg("mode %d, step %zu, rank %d: off by %g", (int)mode, step, r, error);
    }
    release(one);
}

TEST(gradients_are_pytorchs) {
    for (int mode = MODE_DP; mode <= MODE_DDP; mode++) {
        expect_golden_gradients((enum mode)mode, 0, "before.", look_at_gradients_0);
        expect_golden_gradients((enum mode)mode, 5, "step5.state.", look_at_gradients_5);
    }
}

TEST(runs_follow_pytorch) {
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct plan plan = golden_plan((enum mode)mode, 15, "before.");
        struct run *whole = run(&plan, look_at_final_state);
        double losses[MAX_STEPS];
        for (size_t k = 0; k < plan.steps; k++) losses[k] = global_loss(&plan, whole->outcomes, k);
        assert_true(stored_losses_follow(golden, losses, (int)plan.steps));
        for (int r = 0; r < plan_ranks(&plan); r++) {
            const struct outcome *o = &whole->outcomes[r];
            if (!(o->buffer_error <= 5e-3 && o->gradient_error <= 1e-2)) {
                fail_msg("mode %d, rank %d: parameters off by %g, buffers by %g", mode, r, o->gradient_error,
                         o->buffer_error);
            }
        }
        release(whole);
    }
}

/* --- one device on the whole batch ------------------------------------------------------------------------------- */

static void expect_buffers(const struct plan *plan, const struct run *single, const struct run *shared,
                           double tolerance) {
    double largest = 0;
    for (int i = 0; i < BUFFER_FLOATS; i++) largest = fmax(largest, fabs((double)single->buffers[i]));
    for (int i = 0; i < BUFFER_FLOATS; i++) {
        double difference = fabs((double)shared->buffers[i] - (double)single->buffers[i]);
        if (!(difference <= tolerance * largest)) {
            fail_msg("mode %d, %d devices, batch %zu: running statistic %d is %.9g, one device's %.9g", (int)plan->mode,
                     plan->devices, plan->batch, i, (double)shared->buffers[i], (double)single->buffers[i]);
        }
    }
}

/* Over the first steps nothing but rounding may differ; later, rounding has grown (tests/golden/README.md). */
static void expect_one_device(struct plan plan, const struct run *single, double early_tolerance,
                              double late_tolerance) {
    struct run *shared = run(&plan, look_at_buffers);
    for (size_t k = 0; k < plan.steps; k++) {
        double expected = single->outcomes[0].losses[k], loss = global_loss(&plan, shared->outcomes, k);
        if (!(fabs(loss - expected) <= (k < 5 ? early_tolerance : late_tolerance) * expected)) {
            fail_msg("mode %d, %d devices, batch %zu, step %zu: the loss is %.9g, one device's %.9g", (int)plan.mode,
                     plan.devices, plan.batch, k + 1, loss, expected);
        }
    }
    expect_buffers(&plan, single, shared, late_tolerance);
    release(shared);
}

/* 100 samples: 34 34 32 on three devices; nine: 3 3 3 on four, 2 2 2 2 1 on five; three at the end of an epoch: 1 1 1
 * on four and five, the other devices without any. */
TEST(pieces_follow_one_device) {
    static const struct {
        size_t batch, steps, samples;
        int devices;
    } cases[] = {{100, STEPS, 0, DEVICES}, {9, STEPS + 3, 30, 5}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct plan plan = make(MODE_SINGLE, 1, cases[c].batch, cases[c].steps);
        plan.samples = cases[c].samples;
        struct run *single = run(&plan, look_at_buffers);
        plan.sync_bn = true;
        for (plan.devices = 2; plan.devices <= cases[c].devices; plan.devices++) {
            for (int mode = MODE_DP; mode < MODES; mode++) {
                plan.mode = (enum mode)mode;
                expect_one_device(plan, single, 1e-5, 1e-3);
            }
        }
        release(single);
    }
}

/* One sample a step on each of two devices: with its own sample only, each device's second batch norm would have few
 * values and a very different result. Without sync_bn the same comparison fails, so the test can fail. */
TEST(without_it_pieces_do_not_follow) {
    struct plan plan = make(MODE_SINGLE, 1, 2, 3);
    plan.samples = 20;
    struct run *single = run(&plan, look_at_buffers);
    plan.mode = MODE_DDP;
    plan.devices = 2;
    plan.sync_bn = true;
    expect_one_device(plan, single, 1e-5, 1e-3);
    plan.sync_bn = false;
    struct run *apart = looked_at = shared_alloc(sizeof *apart);
    run_plan(&plan, apart->outcomes, look_at_buffers);
    double expected = single->outcomes[0].losses[0];
    assert_true(fabs(global_loss(&plan, apart->outcomes, 0) - expected) > 1e-3 * expected);
    release(single);
    release(apart);
}

/* --- the same bits ----------------------------------------------------------------------------------------------- */

static void expect_same(const struct plan *plan, const struct run *left, const struct run *right, const char *what) {
    for (size_t k = 0; k < plan->steps; k++) {
        if (left->outcomes[0].state[k] == right->outcomes[0].state[k]) continue;
        fail_msg("mode %d, %d devices, batch %zu: %s differ after step %zu", (int)plan->mode, plan->devices,
                 plan->batch, what, k + 1);
    }
}

/* Powers of two, so that DDP's weights and its mean cancel exactly. */
TEST(dp_and_ddp_agree) {
    for (int devices = 2; devices <= 8; devices *= 2) {
        for (size_t batch = 9; batch <= 32; batch += 23) {
            struct plan plan = make(MODE_DP, devices, batch, 4);
            plan.samples = 30;
            struct run *dp = run(&plan, look_at_buffers);
            plan.mode = MODE_DDP;
            struct run *ddp = run(&plan, look_at_buffers);
            expect_same(&plan, dp, ddp, "DP and DDP");
            assert_memory_equal(dp->buffers, ddp->buffers, sizeof dp->buffers);
            release(dp);
            release(ddp);
        }
    }
}

TEST(every_stream_mode_gives_the_same_bits_again) {
    static const char *const modes[] = {"inline", "inline", "threads", "shuffle:1"};
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct run *first = NULL;
        for (size_t m = 0; m < 4; m++) {
            struct plan plan = make((enum mode)mode, 3, 4, 3); /* 2 2 0 */
            plan.samples = 20;
            plan.streams = modes[m];
            struct run *again = run(&plan, look_at_buffers);
            if (first) expect_same(&plan, first, again, modes[m]);
            if (first) release(again);
            if (!first) first = again;
        }
        release(first);
    }
}

/* --- shuffled streams -------------------------------------------------------------------------------------------- */

static struct plan shuffled_plan(enum mode mode) {
    struct plan plan = make(mode, 3, 4, 3);
    plan.samples = 20;
    plan.bucket_cap_mb = 0.01; /* buckets are reduced during batch norm's collectives */
    return plan;
}

TEST(every_order_gives_the_right_bits) {
    for (int mode = MODE_DP; mode < MODES; mode++) {
        struct plan plan = shuffled_plan((enum mode)mode);
        struct run *expected = run(&plan, look_at_buffers);
        int seed = red_seed(&plan, SEEDS, NULL, expected->outcomes, true);
        if (seed > 0) fail_msg("mode %d is wrong with the seed %d", mode, seed);
        release(expected);
    }
}

/* Batch norm's collectives need no events: they run on the compute stream, in order. The waits that bring that stream
 * its inputs must still suffice. */
TEST(a_missing_wait_shows) {
    static const struct {
        enum mode mode;
        const char *wait;
    } cases[] = {{MODE_DP, "batch copied"},  {MODE_DP, "replica updated"}, {MODE_DP, "loss gradient arrived"},
                 {MODE_DDP, "bucket ready"}, {MODE_DDP, "bucket reduced"}, {MODE_DDP, "batch used"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct plan plan = shuffled_plan(cases[c].mode);
        plan.steps = 5; /* the loader has memory for two batches, so each is used again only after some steps */
        struct run *expected = run(&plan, look_at_buffers);
        int seed = red_seed(&plan, RED_SEEDS, cases[c].wait, expected->outcomes, true);
        if (seed == 0) fail_msg("mode %d without \"%s\" is never wrong", (int)plan.mode, cases[c].wait);
        print_message("without the wait for \"%s\": wrong with the seed %d\n", cases[c].wait, seed);
        release(expected);
    }
}
