/* ZeRO-3 (--shard-state 3): after every step the bits of DistributedDataParallel, in combination with other options.
 * Memory and bytes of a rank: test_units_state.c; every order of the streams: tests/parallel/test_shuffle.c. */
#include <math.h>

#include "ddp_procs/units.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/parallel/outcomes.h"
#include "tests/parallel/seeds.h"

/* More blocks than buffers; parameter counts that no number of ranks divides. */
static const struct plan small = {.model = "mlp:20,33,13,9,13,13,7", .batch = 24, .steps = 5, .samples = 3 * 24 + 5};

static struct plan make(struct plan plan, enum mode mode, int ranks) {
    plan.mode = mode;
    plan.devices = ranks;
    plan.compare_each_step = true;
    if (plan.optimizer.learning_rate == 0) plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

static void expect_ddps(struct plan model, int ranks, int first_prefetch, int end_prefetch) {
    struct plan plan = make(model, MODE_DDP, ranks);
    struct outcome *ddp = outcomes_run(&plan);
    plan.mode = MODE_ZERO3;
    for (plan.prefetch = first_prefetch; plan.prefetch < end_prefetch; plan.prefetch++) {
        struct outcome *units = outcomes_run(&plan);
        outcomes_expect_equal(&plan, ddp, units);
        outcomes_free(units);
    }
    outcomes_free(ddp);
}

static void expect_ddps_bits(struct plan plan, int ranks) { expect_ddps(plan, ranks, 0, DDP_MOST_PREFETCHED + 1); }

static ls_optimizer_options momentum(void) {
    ls_optimizer_options o = ls_optimizer_defaults(LS_SGD);
    o.learning_rate = 0.05;
    o.momentum = 0.9;
    o.weight_decay = 0.01;
    return o;
}

TEST(every_rule_has_the_bits_of_distributed_data_parallel) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (size_t n = 0; n < COUNT_OF(ranks); n++) {
        struct plan plan = small;
        plan.optimizer = momentum();
        expect_ddps_bits(plan, ranks[n]);
        plan.allreduce = "direct";
        plan.optimizer = ls_optimizer_defaults(LS_ADAM);
        expect_ddps(plan, ranks[n], 1, 2);
        plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
        expect_ddps(plan, ranks[n], 1, 2);
    }
}

/* A unit's copy in half precision is made in backward as well as in forward. */
TEST(so_has_every_precision) {
    for (int precision = LS_FP16; precision <= LS_BF16; precision++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            struct plan plan = small;
            plan.precision = (ls_dtype)precision;
            plan.optimizer = momentum();
            expect_ddps_bits(plan, ranks);
            plan.optimizer.scaler.init_scale = 0x1p20; /* some steps are skipped */
            plan.optimizer.scaler.growth_interval = 2;
            expect_ddps(plan, ranks, 1, 2);
        }
}

TEST(activations_may_be_dropped_and_made_again) {
    for (int every = 1; every <= 5; every++) {
        struct plan plan = small;
        plan.every = every;
        expect_ddps_bits(plan, 2);
        plan.precision = LS_BF16;
        expect_ddps(plan, 3, 1, 2);
    }
}

TEST(batch_norm_keeps_its_statistics) {
    struct plan plan = small;
    plan.model = "convnet:1x13x13,10";
    plan.batch = 9; /* 3 3 3; and 5 of the last batch */
    plan.steps = 3;
    plan.samples = 9 + 9 + 5;
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int synced = 0; synced < 2; synced++) {
            plan.sync_bn = synced;
            plan.every = synced;
            expect_ddps(plan, ranks, 0, 2);
        }
}

TEST(one_block_is_one_unit) {
    struct plan plan = small;
    plan.model = "mlp:20,7";
    expect_ddps_bits(plan, 2);
}

/* Layers of one block. */
TEST(layers_may_share_a_parameter) {
    ls_network *network = residual_network();
    struct plan plan = small;
    plan.network = network;
    assert_false(ls_network_block_is_shared(network, 0));
    for (int ranks = 2; ranks <= 3; ranks++) expect_ddps_bits(plan, ranks);
    ls_network_destroy(network);
}

/* Pairs of blocks that share a weight, as embedding and head do: the first block and the last; two pairs; one weight in
 * three blocks. */
static const int pairs[][2] = {{1, 0}, {1, 1}, {0, 0}, {0, 3}};

TEST(blocks_may_share_a_parameter) {
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        ls_network *network = tied_blocks(pairs[i][0], pairs[i][1]);
        for (int b = 0; b < 5; b++)
            assert_int_equal(ls_network_block_is_shared(network, b), b == pairs[i][0] || b == pairs[i][1]);
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct plan plan = small;
            plan.network = network;
            plan.every = ((int)i + ranks) % 4;
            expect_ddps_bits(plan, ranks);
            plan.precision = ranks % 2 == 0 ? LS_FP16 : LS_BF16;
            plan.optimizer = momentum();
            plan.optimizer.scaler.init_scale = 0x1p20;
            plan.optimizer.scaler.growth_interval = 2;
            expect_ddps_bits(plan, ranks);
        }
        ls_network_destroy(network);
    }
}

static void expect_ddps_losses(const struct plan *plan, double tolerance) {
    struct plan ddp = *plan;
    ddp.mode = MODE_DDP;
    outcomes_expect_losses(plan, &ddp, tolerance);
}

static void expect_near_losses(const ls_network *network) {
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int prefetch = 0; prefetch <= DDP_MOST_PREFETCHED; prefetch++) {
            struct plan plan = make(small, MODE_ZERO3, ranks);
            plan.network = network;
            plan.optimizer = momentum();
            plan.prefetch = prefetch;
            plan.accumulate = 2 + prefetch;
            expect_ddps_losses(&plan, 1e-5);
            plan.accumulate = 0;
            plan.optimizer.clip_norm = 0.05;
            expect_ddps_losses(&plan, 1e-6);
        }
}

/* Ranks are added before micro-batches; the norm is summed rank by rank. */
TEST(losses_are_near_where_the_order_is_another) {
    ls_network *tied = tied_blocks(1, 0);
    expect_near_losses(NULL);
    expect_near_losses(tied);
    ls_network_destroy(tied);
}

/* Several steps in flight, with several micro-batches each, in these orders of the streams. */
TEST(every_order_of_the_streams_is_right) {
    enum { SEEDS = 20 };
    ls_network *tied = tied_blocks(1, 0);
    for (int every = 0; every <= 2; every++) {
        struct plan plan = make(small, MODE_ZERO3, 2);
        if (every == 1) plan.network = tied;
        plan.compare_each_step = false;
        plan.accumulate = 2;
        plan.every = every;
        plan.prefetch = every;
        plan.precision = LS_FP16;
        struct outcome *expected = outcomes_run(&plan);
        assert_int_equal(red_seed(&plan, SEEDS, NULL, expected, true), 0);
        outcomes_free(expected);
    }
    ls_network_destroy(tied);
}
