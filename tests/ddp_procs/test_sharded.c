/* ZeRO-1 and 2 (--shard-state): after every step the bits of DistributedDataParallel, in combination with other
 * options, and PyTorch's losses. Memory and bytes of a rank: test_sharded_state.c; every order of the streams:
 * tests/parallel/test_shuffle.c. */
#include <math.h>
#include <string.h>

#include "tests/base/golden.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/parallel/outcomes.h"
#include "tests/parallel/seeds.h"

/* Parameter counts that no number of ranks divides; most ranks own none of the last bias's 7 elements. */
static const struct plan small = {.model = "mlp:20,33,13,7", .batch = 24, .steps = 5, .samples = 3 * 24 + 5};

static struct plan make(struct plan plan, enum mode mode, int ranks) {
    plan.mode = mode;
    plan.devices = ranks;
    plan.compare_each_step = true;
    plan.bucket_cap_mb = 0.001;
    if (plan.optimizer.learning_rate == 0) plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    return plan;
}

static void expect_ddps(struct plan model, enum mode mode, int ranks) {
    struct plan plan = make(model, MODE_DDP, ranks);
    struct outcome *ddp = outcomes_run(&plan);
    plan.mode = mode;
    struct outcome *shards = outcomes_run(&plan);
    outcomes_expect_equal(&plan, ddp, shards);
    outcomes_free(ddp);
    outcomes_free(shards);
}

static void expect_both(struct plan plan, int ranks) {
    expect_ddps(plan, MODE_ZERO1, ranks);
    expect_ddps(plan, MODE_ZERO2, ranks);
}

/* --- bits ---------------------------------------------------------------------------------------------------------- */

static ls_optimizer_options momentum(void) {
    ls_optimizer_options o = ls_optimizer_defaults(LS_SGD);
    o.learning_rate = 0.05;
    o.momentum = 0.9;
    o.nesterov = true;
    o.weight_decay = 0.01;
    return o;
}

TEST(every_rule_has_the_bits_of_distributed_data_parallel) {
    static const int ranks[] = {1, 2, 3, 5, 8};
    for (size_t n = 0; n < COUNT_OF(ranks); n++) {
        struct plan plan = small;
        plan.optimizer = momentum();
        expect_both(plan, ranks[n]);
        plan.optimizer = ls_optimizer_defaults(LS_ADAM);
        expect_both(plan, ranks[n]);
        plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
        plan.allreduce = "direct";
        expect_both(plan, ranks[n]);
    }
}

static void expect_some_left_out(struct plan plan) {
    struct outcome *outcomes = outcomes_run(&plan);
    assert_true(outcomes->skipped > 0 && outcomes->skipped < (int64_t)plan.steps);
    outcomes_free(outcomes);
}

TEST(so_has_every_precision) {
    static const int ranks[] = {2, 3, 8};
    for (size_t n = 0; n < COUNT_OF(ranks); n++)
        for (int precision = LS_FP16; precision <= LS_BF16; precision++) {
            struct plan plan = small;
            plan.precision = (ls_dtype)precision;
            plan.optimizer = momentum();
            expect_both(plan, ranks[n]);
            plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
            plan.optimizer.scaler.growth_interval = 2;
            plan.optimizer.scaler.init_scale = 0x1p21; /* the first gradients are infinite: updates are skipped */
            expect_both(plan, ranks[n]);
            if (precision == LS_FP16) expect_some_left_out(make(plan, MODE_ZERO1, ranks[n]));
        }
}

TEST(batch_norm_and_dropped_activations_change_nothing) {
    struct plan plan = small;
    plan.model = "convnet";
    plan.batch = 9; /* 3 3 3; and 5 5 of the last batch */
    plan.steps = 3;
    plan.samples = 9 + 9 + 5;
    plan.bucket_cap_mb = 0.02;
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int synced = 0; synced < 2; synced++) {
            plan.sync_bn = synced;
            plan.every = synced;
            expect_both(plan, ranks);
        }
}

TEST(gradients_may_travel_as_halves) {
    for (int compress = LS_FP16; compress <= LS_BF16; compress++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct plan plan = small;
            plan.compress = (ls_dtype)compress;
            plan.optimizer = momentum();
            expect_both(plan, ranks);
            plan.accumulate = 2;
            expect_ddps(plan, MODE_ZERO1, ranks);
        }
}

TEST(a_parameter_that_nobody_uses_is_left_alone) {
    struct plan plan = small;
    plan.model = "branched";
    plan.find_unused = true;
    plan.optimizer = ls_optimizer_defaults(LS_ADAMW);
    for (int ranks = 1; ranks <= 3; ranks++) expect_ddps(plan, MODE_ZERO1, ranks);
}

/* The orders of the reducer and of backward differ from that of the parameters. */
TEST(shared_parameters_keep_their_bucket_for_longer) {
    ls_network *network = residual_network();
    struct plan plan = small;
    plan.network = network;
    plan.bucket_cap_mb = 1e-6;
    for (int ranks = 2; ranks <= 4; ranks++) expect_both(plan, ranks);
    ls_network_destroy(network);
}

/* Without waiting between steps, in each of these stream orders. */
TEST(buffers_are_not_written_too_early) {
    enum { SEEDS = 20 };
    ls_network *network = residual_network();
    struct plan models[2] = {small, small};
    models[0].model = "mlp:20,16,16,16,16,16,16,10";
    models[1].network = network;
    for (size_t m = 0; m < 2; m++)
        for (int k = 1; k <= 2; k++) {
            struct plan plan = make(models[m], MODE_ZERO2, 2);
            plan.bucket_cap_mb = 1e-6;
            plan.compare_each_step = false;
            plan.accumulate = k;
            struct outcome *expected = outcomes_run(&plan);
            assert_int_equal(red_seed(&plan, SEEDS, NULL, expected, true), 0);
            outcomes_free(expected);
        }
    ls_network_destroy(network);
}

/* --- results that are equal except for rounding ------------------------------------------------------------------- */

/* Stage 1 adds micro-batches before ranks, as DDP does; stage 2 adds ranks first. */
TEST(micro_batches) {
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int k = 2; k <= 5; k++) {
            struct plan plan = small, ddp;
            plan.accumulate = k;
            expect_ddps(plan, MODE_ZERO1, ranks);
            plan = make(plan, MODE_ZERO2, ranks);
            plan.optimizer = momentum();
            ddp = plan;
            ddp.mode = MODE_DDP;
            outcomes_expect_losses(&plan, &ddp, 1e-5);
        }
}

/* The norm is that of all gradients: with a limit of a tenth of it, all are scaled by a tenth. */
TEST(the_norm_is_clipped_over_all_ranks) {
    for (int mode = MODE_ZERO1; mode < MODE_TENSOR; mode++) /* its layers have 33 units */
        for (int ranks = 1; ranks <= 5; ranks++) {
            struct plan plan = small, ddp;
            plan.optimizer = momentum();
            plan.optimizer.clip_norm = 0.05;
            plan = make(plan, (enum mode)mode, ranks);
            ddp = plan;
            ddp.mode = MODE_DDP;
            outcomes_expect_losses(&plan, &ddp, 1e-6);
        }
}

/* tests/golden/zero1_mlp_adam.json: PyTorch's ZeroRedundancyOptimizer. */
TEST(losses_are_pytorchs) {
    cJSON *golden = golden_json("zero1_mlp_adam.json");
    for (int mode = MODE_DDP; mode < MODES; mode++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            struct plan plan = {.model = "mlp", .batch = 64, .steps = 12, .strided = true, .seed = 7};
            plan = make(plan, (enum mode)mode, ranks);
            struct outcome *outcomes = outcomes_run(&plan);
            const cJSON *losses =
                cJSON_GetObjectItem(cJSON_GetObjectItem(golden, ranks == 2 ? "W2" : "W4"), "loss_per_step");
            assert_int_equal(cJSON_GetArraySize(losses), plan.steps);
            for (size_t k = 0; k < plan.steps; k++) {
                double expected = cJSON_GetArrayItem(losses, (int)k)->valuedouble;
                double loss = global_loss(&plan, outcomes, k);
                if (!(fabs(loss - expected) <= 1e-5))
                    fail_msg("mode %d, %d ranks: loss %zu is %.9g, PyTorch's %.9g", mode, ranks, k + 1, loss, expected);
            }
            outcomes_free(outcomes);
        }
    cJSON_Delete(golden);
}
