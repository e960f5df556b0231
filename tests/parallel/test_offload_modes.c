/* --offload optimizer in all modes: the bits, losses and scales of the run without it, in every order of the streams;
 * and without any of its waits some order gives different bits. */
#include <string.h>

#include "tests/base/test.h"
#include "tests/parallel/outcomes.h"
#include "tests/parallel/seeds.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 4, SHARED_SEEDS = 4 };
#else
enum { SEEDS = 25, SHARED_SEEDS = 8 };
#endif
/* SEEDS: orders of one device's streams, enough to detect any missing wait below; SHARED_SEEDS: of several devices,
 * which have the same waits and more. */

/* Orders within which a missing wait must be visible. */
enum { RED_SEEDS = 25 };

static struct plan plan_of(enum mode mode, int devices, ls_optimizer_kind kind, ls_dtype precision) {
    struct plan plan = {.mode = mode,
                        .devices = devices,
                        .model = "mlp:64,32,32,10",
                        .batch = 6 * (size_t)devices,
                        .samples = 24 * (size_t)devices,
                        .steps = 4,
                        .precision = precision,
                        .bucket_cap_mb = 0.002,
                        .compare_each_step = true};
    plan.optimizer = ls_optimizer_defaults(kind);
    if (kind == LS_SGD) plan.optimizer.momentum = 0.9;
    return plan;
}

static void expect_same(struct plan plan) {
    struct outcome *kept = outcomes_run(&plan);
    plan.optimizer.offload = true;
    struct outcome *offloaded = outcomes_run(&plan);
    outcomes_expect_equal(&plan, kept, offloaded);
    for (int r = 0; r < plan_ranks(&plan); r++) {
        const struct outcome *o = &offloaded[r], *k = &kept[r];
        assert_int_equal(k->bytes[LS_PHASE_OPTIMIZER], 0);
        assert_true(o->bytes[LS_PHASE_OPTIMIZER] > 0);
        for (int phase = 0; phase < LS_PHASE_COUNT; phase++)
            if (phase != LS_PHASE_OPTIMIZER) assert_int_equal(o->bytes[phase], k->bytes[phase]);
    }
    outcomes_free(kept);
    outcomes_free(offloaded);
}

static void expect_same_in_every_mode(int devices, ls_optimizer_kind kind, ls_dtype precision) {
    for (int mode = devices > 1 ? MODE_DP : MODE_SINGLE; mode < MODES; mode++) {
        struct plan plan = plan_of((enum mode)mode, devices, kind, precision);
        expect_same(plan);
        if (devices != 2) continue;
        plan.accumulate = 2;
        plan.optimizer.clip_norm = 0.1;
        expect_same(plan);
    }
}

TEST(offload_changes_no_bit) {
    for (int devices = 1; devices <= 3; devices++)
        for (int kind = LS_SGD; kind <= LS_ADAMW; kind++)
            expect_same_in_every_mode(devices, (ls_optimizer_kind)kind, LS_FP32);
}

/* The first scale is too large for fp16: updates are skipped until it fits. */
TEST(nor_does_it_in_half_precision) {
    for (int precision = LS_FP16; precision <= LS_BF16; precision++)
        for (int devices = 1; devices <= 2; devices++) expect_same_in_every_mode(devices, LS_ADAM, (ls_dtype)precision);
    struct plan plan = plan_of(MODE_DDP, 2, LS_ADAM, LS_FP16);
    plan.optimizer.scaler.init_scale = 1e9;
    plan.steps = 24;
    struct outcome *outcomes = outcomes_run(&plan);
    assert_true(outcomes->skipped > 1 && outcomes->skipped < 24);
    outcomes_free(outcomes);
    expect_same(plan);
}

/* --- orders ------------------------------------------------------------------------------------------------------------- */

/* Five tiles, more than are in flight at a time; several devices share three. */
static const struct plan tiles = {.model = "mlp:600,500,10", .batch = 4, .steps = 2, .samples = 8};

static int red_seed_of(struct plan plan, int seeds, const char *drop_wait) {
    struct outcome *expected = outcomes_run(&plan);
    plan.optimizer.offload = true;
    int seed = red_seed(&plan, seeds, drop_wait, expected, true);
    outcomes_free(expected);
    return seed;
}

static struct plan some_tiles(int mode) {
    struct plan plan = tiles;
    plan.mode = (enum mode)mode;
    plan.devices = mode == MODE_SINGLE ? 1 : 2;
    if (plan.devices > 1) plan.model = "mlp:400,350,10";
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

TEST(every_order_gives_the_right_bits) {
    for (int mode = MODE_SINGLE; mode < MODES; mode++) {
        int seed = red_seed_of(some_tiles(mode), mode == MODE_SINGLE ? SEEDS : SHARED_SEEDS, NULL);
        if (seed > 0) fail_msg("mode %d is wrong with the seed %d", mode, seed);
    }
    struct plan plan = some_tiles(MODE_DDP);
    plan.streams = "threads";
    expect_same(plan);
}

TEST(and_needs_each_wait) {
    static const char *const names[] = {"gradients weighed", "values returned"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int seed = red_seed_of(some_tiles(MODE_SINGLE), RED_SEEDS, names[i]);
        if (seed == 0) fail_msg("without the wait for \"%s\" no order was wrong", names[i]);
        print_message("without the wait for \"%s\": wrong with the seed %d\n", names[i], seed);
    }
}
