/* Activation checkpointing: in every mode the bits and buffers of the run that keeps all activations, and less memory. */
#include <string.h>

#include "tests/base/test.h"
#include "tests/nn/models.h"
#include "tests/parallel/plan.h"

static struct plan plan_of(const char *model, int devices, ls_dtype precision) {
    struct plan plan = {.model = model,
                        .devices = devices,
                        .batch = 6 * (size_t)devices,
                        .samples = 18 * (size_t)devices,
                        .steps = 3,
                        .precision = precision,
                        .allreduce = "direct"};
    plan.optimizer = ls_optimizer_defaults(LS_SGD);
    plan.optimizer.momentum = 0.9;
    return plan;
}

/* State: parameters, running statistics and their count. */
static void expect_same(struct plan plan, int every, const struct outcome *kept) {
    struct outcome *dropped = shared_alloc(MAX_RANKS * sizeof *dropped);
    plan.every = every;
    run_plan(&plan, dropped, NULL);
    for (int r = 0; r < plan_ranks(&plan); r++) {
        assert_string_equal(dropped[r].message, "");
        assert_int_equal(first_difference(&dropped[r], &kept[r], plan.steps), -1);
        assert_memory_equal(dropped[r].state, kept[r].state, plan.steps * sizeof *kept[r].state);
        assert_memory_equal(dropped[r].losses, kept[r].losses, plan.steps * sizeof *kept[r].losses);
        assert_int_equal(dropped[r].batches_tracked, kept[r].batches_tracked);
    }
    shared_free(dropped, MAX_RANKS * sizeof *dropped);
}

static void expect_same_in_every_mode(struct plan plan) {
    static const int everies[] = {1, 2, LS_EVERY_SQRT};
    struct outcome *kept = shared_alloc(MAX_RANKS * sizeof *kept);
    for (int mode = plan.devices > 1 ? MODE_DP : MODE_SINGLE; mode < MODES; mode++) {
        plan.mode = (enum mode)mode;
        if (mode == MODE_PIPELINE) continue; /* its frames keep all activations */
        memset(kept, 0, MAX_RANKS * sizeof *kept);
        run_plan(&plan, kept, NULL);
        for (size_t i = 0; i < sizeof everies / sizeof *everies; i++) expect_same(plan, everies[i], kept);
    }
    shared_free(kept, MAX_RANKS * sizeof *kept);
}

TEST(dropped_activations_change_no_bit) {
    static const char *const models[] = {"convnet", "mlp:784,24,24,24,24,10"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int precision = LS_FP32; precision <= LS_BF16; precision++)
            for (int devices = 1; devices <= 3; devices++)
                if (precision == LS_FP32 || devices == 2) /* halves count per model, for any number of models */
                    expect_same_in_every_mode(plan_of(models[m], devices, (ls_dtype)precision));
}

TEST(nor_do_micro_batches_and_batch_norm_of_all_devices) {
    struct plan plan = plan_of("convnet", 2, LS_FP32);
    plan.accumulate = 2;
    expect_same_in_every_mode(plan);
    plan.sync_bn = true;
    expect_same_in_every_mode(plan);
}

TEST(nor_does_the_order_of_the_streams) {
    static const char *const orders[] = {"threads", "shuffle:1", "shuffle:2", "shuffle:3"};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct plan plan = plan_of("convnet", 2, LS_FP32);
        plan.streams = orders[i];
        expect_same_in_every_mode(plan);
    }
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

static void measure(const char *description, int every, ls_memory_report *memory) {
    ls_device *device = open_device(0);
    ls_model *model;
    assert_int_equal(ls_model_create_segments(&model, device, description, 16, LS_FP32, every, false), LS_OK);
    ls_device_memory(device, memory);
    ls_model_destroy(model);
    close_empty_device(device);
}

static void expect_activations_fall_alone(const char *description, int every) {
    ls_memory_report kept, dropped;
    measure(description, 0, &kept);
    measure(description, every, &dropped);
    for (int c = 0; c < LS_MEMORY_COUNT; c++) {
        if (c == LS_MEMORY_ACTIVATION)
            assert_true(dropped.peak_bytes[c] < kept.peak_bytes[c]);
        else
            assert_int_equal(dropped.peak_bytes[c], kept.peak_bytes[c]);
    }
}

/* Seventeen equal layers: the least memory is near the square root, and much less than all. */
TEST(activations_fall_and_nothing_else) {
    ls_memory_report all, some, least;
    expect_activations_fall_alone("convnet", 1);
    expect_activations_fall_alone("deep", LS_EVERY_SQRT);
    measure("deep", 0, &all);
    measure("deep", LS_EVERY_SQRT, &least);
    for (int every = 1; every <= 17; every++) {
        measure("deep", every, &some);
        assert_true(some.peak_bytes[LS_MEMORY_ACTIVATION] * 10 >= least.peak_bytes[LS_MEMORY_ACTIVATION] * 9);
    }
    assert_true(least.peak_bytes[LS_MEMORY_ACTIVATION] < all.peak_bytes[LS_MEMORY_ACTIVATION] * 6 / 10);
}
