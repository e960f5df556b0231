/* A missing wait between streams gives wrong bits in some order of theirs. Here every order that is tried gives the
 * right bits; and without any single one of the waits, some order gives wrong ones. */
#include <stdio.h>

#include "ddp_procs/units.h"
#include "tests/base/test.h"
#include "tests/parallel/seeds.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 20, MANY_DEVICES_SEEDS = 4, CONVNET_SEEDS = 1 };
#else
enum { SEEDS = 40, MANY_DEVICES_SEEDS = 12, CONVNET_SEEDS = 5 };
#endif

/* Orders within which a missing wait must be visible. */
enum { RED_SEEDS = 10 };

/* Small, so that many orders can be tried; a few buckets after the first step. */
static const struct plan mlp = {.devices = 2, .model = "mlp:64,32,32,10", .batch = 16, .steps = 4, .samples = 100};
static const struct plan convnet = {.devices = 4, .model = "convnet:1x8x8,10", .batch = 16, .steps = 3, .samples = 100};
/* one device each, for errors that only batch norm's buffers show */
static const struct plan small_convnet = {
    .devices = 2, .model = "convnet:1x8x8,10", .batch = 4, .steps = 3, .samples = 100};

static struct plan make(struct plan plan, enum mode mode) {
    plan.mode = mode;
    plan.optimizer = ls_optimizer_defaults(LS_ADAM);
    plan.bucket_cap_mb = 0.001;
    return plan;
}

/* The expected bits: those of the plan with inline streams. */
static struct outcome *expected_of(struct plan plan) {
    struct outcome *outcomes = shared_alloc(MAX_RANKS * sizeof *outcomes);
    assert_non_null(outcomes);
    run_plan(&plan, outcomes, NULL);
    assert_int_equal(outcomes->status, LS_OK);
    if (plan_has_buckets(&plan)) assert_true(outcomes->buckets > 1);
    return outcomes;
}

static void release(struct outcome *outcomes) { shared_free(outcomes, MAX_RANKS * sizeof *outcomes); }

/* --- all waits in place ------------------------------------------------------------------------------------------ */

static void expect_right_in_every_order(struct plan plan, int seeds, const struct outcome *expected) {
    int seed = red_seed(&plan, seeds, NULL, expected, false); /* may be of another mode */
    if (seed > 0) fail_msg("%s in mode %d is wrong with the seed %d", plan.model, (int)plan.mode, seed);
}

/* DataParallel, DistributedDataParallel and its shards also agree with each other (same chunks, sums in rank order). */
static void expect_modes_agree(const struct plan *model, int seeds) {
    struct plan plan = make(*model, MODE_DP);
    struct outcome *expected = expected_of(plan);
    expect_right_in_every_order(plan, seeds, expected);
    plan.output_device = plan.devices - 1;
    expect_right_in_every_order(plan, seeds, expected);
    plan = make(*model, MODE_DDP);
    expect_right_in_every_order(plan, seeds, expected);
    plan.allreduce = "direct";
    plan.no_overlap = true;
    expect_right_in_every_order(plan, seeds, expected);
    for (int mode = MODE_TOPK; mode < MODE_SPLIT; mode++) {
        plan = make(*model, (enum mode)mode);
        plan.prefetch = 1;
        expect_right_in_every_order(plan, mode == MODE_ZERO3 ? (seeds + 4) / 5 : seeds, expected);
    }
    release(expected);
}

TEST(every_order_gives_the_right_bits) {
    print_message("%d orders of the streams\n", SEEDS);
    expect_modes_agree(&mlp, SEEDS);
}

TEST(every_order_gives_the_right_bits_on_many_devices) {
    for (int devices = 4; devices <= 8; devices *= 2) {
        struct plan plan = mlp;
        plan.devices = devices;
        plan.steps = 3;
        expect_modes_agree(&plan, MANY_DEVICES_SEEDS);
    }
}

TEST(every_order_gives_the_right_bits_with_batch_norm) { expect_modes_agree(&convnet, CONVNET_SEEDS); }

TEST(every_order_gives_the_right_bits_on_one_device) {
    struct plan plan = make(mlp, MODE_SINGLE);
    plan.devices = 1;
    struct outcome *expected = expected_of(plan);
    expect_right_in_every_order(plan, SEEDS, expected);
    release(expected);
}

/* Parts of a network, which have different bits. Three stages, five micro-batches; and a part of each layer, with
 * replicas. */
TEST(every_order_gives_the_right_bits_of_parts) {
    struct plan plan = make(mlp, MODE_PIPELINE);
    plan.devices = plan.parts = 3;
    plan.accumulate = 5;
    struct outcome *expected = expected_of(plan);
    for (plan.schedule = DDP_GPIPE; plan.schedule <= DDP_1F1B; plan.schedule++)
        expect_right_in_every_order(plan, SEEDS, expected);
    release(expected);
    for (int mode = MODE_SPLIT; mode < MODES; mode++) {
        plan = make(mlp, (enum mode)mode);
        plan.devices = 4;
        for (int sharded = 0; sharded < 2; sharded++) {
            plan.sharded = sharded;
            expected = expected_of(plan);
            expect_right_in_every_order(plan, MANY_DEVICES_SEEDS / 4, expected);
            release(expected);
        }
    }
}

/* --- one wait missing -------------------------------------------------------------------------------------------- */

static void expect_red_without(const struct plan *model, enum mode mode, const char *const *names) {
    struct plan plan = make(*model, mode);
    struct outcome *expected = expected_of(plan);
    int green = 0;
    for (; *names; names++) {
        int seed = red_seed(&plan, RED_SEEDS, *names, expected, true);
        if (seed == 0) green++;
        if (seed == 0) print_error("without the wait for \"%s\" no order of %d was wrong\n", *names, RED_SEEDS);
        if (seed > 0) print_message("without the wait for \"%s\": wrong with the seed %d\n", *names, seed);
    }
    release(expected);
    assert_int_equal(green, 0);
}

TEST(data_parallel_needs_each_wait) {
    static const char *const names[] = {
        "batch copied",  "replica updated", "outputs ready", "outputs gathered",   "loss gradient arrived",
        "backward done", "gradients sent",  "loss taken",    "parameters updated", NULL};
    expect_red_without(&mlp, MODE_DP, names);
}

TEST(distributed_needs_each_wait) {
    static const char *const names[] = {"batch copied", "batch used", "bucket ready", "bucket reduced", NULL};
    expect_red_without(&mlp, MODE_DDP, names);
    /* "buffers idle" may be dropped: the comm stream has passed the last step's buckets, so that step's forward is
     * done */
    static const char *const of_buffers[] = {"buffers arrived", NULL};
    expect_red_without(&small_convnet, MODE_DDP, of_buffers);
}

/* The next step uses errors and lists again, so every bit of them counts. */
TEST(top_k_needs_each_wait) {
    static const char *const names[] = {"bucket ready", "bucket reduced", NULL};
    struct plan plan = mlp;
    plan.fraction = 0.05;
    expect_red_without(&plan, MODE_TOPK, names);
    plan = make(plan, MODE_TOPK);
    struct outcome *expected = expected_of(plan);
    expect_right_in_every_order(plan, SEEDS, expected);
    plan.no_overlap = true;
    expect_right_in_every_order(plan, SEEDS, expected);
    release(expected);
}

TEST(shards_need_each_wait) {
    static const char *const names[] = {"bucket ready", "bucket reduced", "parameters updated", "parameters gathered",
                                        NULL};
    for (int mode = MODE_ZERO1; mode <= MODE_ZERO2; mode++) expect_red_without(&mlp, (enum mode)mode, names);
}

TEST(units_need_each_wait) {
    static const char *const names[] = {"bucket ready",  "bucket reduced", "parameters updated",
                                        "unit gathered", "unit left",      NULL};
    struct plan plan = mlp;
    plan.model = "mlp:64,32,32,32,32,10"; /* more blocks than buffers */
    for (plan.prefetch = 0; plan.prefetch <= DDP_MOST_PREFETCHED; plan.prefetch++)
        expect_red_without(&plan, MODE_ZERO3, names);
}

TEST(stages_need_each_wait) {
    static const char *const names[] = {"batch copied", "batch used", "stage's passes", "received from a stage", NULL};
    struct plan plan = mlp;
    plan.accumulate = 4;
    for (plan.schedule = DDP_GPIPE; plan.schedule <= DDP_1F1B; plan.schedule++)
        expect_red_without(&plan, MODE_PIPELINE, names);
}

TEST(one_device_needs_each_wait) {
    static const char *const names[] = {"batch copied", "batch used", NULL};
    struct plan plan = mlp;
    plan.devices = 1;
    expect_red_without(&plan, MODE_SINGLE, names);
}
