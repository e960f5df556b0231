/* bench_dp_vs_ddp: its command line, and the summaries of its runs. */
#include <math.h>
#include <unistd.h>

#include "labs/bench/dp_vs_ddp/bench.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"

static bench_settings settings;

/* --- the command line -------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_defaults) {
    assert_int_equal(bench_parse_words(&settings, NULL, NULL, NULL, NULL), LS_OK);
    assert_int_equal(settings.plan_count, 2);
    assert_string_equal(settings.plans[0].model, "mlp");
    assert_int_equal(settings.plans[0].batch, 64);
    assert_string_equal(settings.plans[1].model, "convnet");
    assert_int_equal(settings.plans[1].batch, 100);
    assert_string_equal(settings.plans[1].recipe[2], "--momentum=0.9");
    assert_int_equal(settings.n.count, 3);
    assert_string_equal(settings.device, "cpu");
}

TEST_IN(scratch, test_models_with_sizes) {
    char models[] = "--models=mlp:784,32,10,convnet,deep", n[] = "--n=4,1,4,2", batch[] = "--batch=8",
         steps[] = "--steps=11";
    assert_int_equal(bench_parse_words(&settings, models, n, batch, steps), LS_OK);
    assert_int_equal(settings.plan_count, 3);
    assert_string_equal(settings.plans[0].model, "mlp:784,32,10");
    assert_string_equal(settings.plans[0].recipe[0], "--optimizer=adam");
    assert_string_equal(settings.plans[1].model, "convnet");
    assert_string_equal(settings.plans[1].recipe[0], "--optimizer=sgd");
    assert_string_equal(settings.plans[2].model, "deep");
    for (int p = 0; p < 3; p++) {
        assert_int_equal(settings.plans[p].batch, 8);
        assert_int_equal(settings.plans[p].steps, 11);
    }
    assert_int_equal(settings.n.count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(settings.n.values[i], 1 << i);
}

/* Any N is valid if each device has a batch of its own. */
TEST_IN(scratch, test_weak_plans) {
    char weak[] = "--per-device-batch=7", n[] = "--n=1,3";
    assert_int_equal(bench_parse_words(&settings, weak, n, NULL, NULL), LS_OK);
    assert_true(settings.plans[0].weak && settings.plans[1].weak);
    assert_int_equal(bench_device_batch(&settings.plans[0], 3), 7);
    assert_int_equal(bench_global_batch(&settings.plans[0], 3), 21);
    assert_int_equal(bench_parse_words(&settings, NULL, NULL, NULL, NULL), LS_OK);
    assert_false(settings.plans[0].weak);
    assert_int_equal(bench_device_batch(&settings.plans[0], 2), 32);
    assert_int_equal(bench_global_batch(&settings.plans[0], 2), 64);
}

TEST_IN(scratch, test_wrong_usage) {
    char three[] = "--n=1,3", batch[] = "--batch=4", eight[] = "--n=8", empty[] = "--models=mlp,,deep",
         twice[] = "--models=mlp,mlp", tpu[] = "--device=tpu", few[] = "--steps=10", nought[] = "--n=0",
         weak[] = "--per-device-batch=4", many[] = "--per-device-batch=400";
    assert_int_equal(bench_parse_words(&settings, three, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("mlp: 3 devices cannot share a batch of 64 equally", "--batch");
    assert_int_equal(bench_parse_words(&settings, batch, eight, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("8 devices cannot share a batch of 4", NULL);
    assert_int_equal(bench_parse_words(&settings, empty, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("--models", "empty");
    assert_int_equal(bench_parse_words(&settings, twice, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("mlp is named twice", NULL);
    assert_int_equal(bench_parse_words(&settings, batch, weak, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("--batch is for strong scaling", "--per-device-batch");
    assert_int_equal(bench_parse_words(&settings, many, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("mlp on 4 devices: a step takes 1600 samples", "data/digits has only 1500");
    assert_int_equal(bench_parse_words(&settings, tpu, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("--device", "tpu");
    assert_int_equal(bench_parse_words(&settings, few, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("--steps", NULL);
    assert_int_equal(bench_parse_words(&settings, nought, NULL, NULL, NULL), LS_ERR_USAGE);
    scratch_expect_error("--n", NULL);
}

/* --- summaries --------------------------------------------------------------------------------------------------- */

#define SUMMARY(mode, devices, shares)                                                                                 \
    "{\"summary\":{\"mode\":\"" mode "\",\"devices\":" devices ",\"batch_size\":64,\"median_step_ms\":8,"              \
    "\"final_loss\":0.5,\"parameter_hash\":\"00ff\",\"device_table\":[" shares "]}}"
#define SHARE(share) "{\"communication_share\":" share "}"

TEST_IN(scratch, test_exposed_communication) {
    bench_run dp = {.mode = BENCH_DP, .n = 3, .batch = 64}, ddp = {.mode = BENCH_DDP, .n = 2, .batch = 64};
    /* the time of device 0 and of the busiest other device */
    assert_int_equal(
        bench_read_summary(&dp, SUMMARY("DataParallel", "3", SHARE("0.125") "," SHARE("0.25") "," SHARE("0.0"))),
        LS_OK);
    expect_near(dp.step_ms, 8);
    expect_near(dp.exposed_ms, 3);
    expect_near(dp.final_loss, 0.5);
    assert_string_equal(dp.weights, "00ff");
    assert_int_equal(bench_read_summary(&ddp, SUMMARY("DistributedDataParallel", "2", SHARE("0.125"))), LS_OK);
    expect_near(ddp.exposed_ms, 1);
}

TEST_IN(scratch, test_summaries_that_are_not_the_runs) {
    const char *const wrong[] = {
        "",
        "{",
        "{\"summary\":{}}",
        SUMMARY("DataParallel", "4", SHARE("0") "," SHARE("0")),
        SUMMARY("DistributedDataParallel", "2", SHARE("0")),
        SUMMARY("DataParallel", "2", ""),
        SUMMARY("DataParallel", "2", SHARE("null")),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bench_run run = {.mode = BENCH_DP, .n = 2, .batch = 64};
        assert_int_equal(bench_read_summary(&run, wrong[i]), LS_ERR_FORMAT);
        scratch_expect_error("the summary of DP on 2 devices cannot be read", NULL);
    }
}

/* Threads that only enqueue do not show the waits of a step. */
TEST_IN(scratch, test_a_gpus_summary) {
    bench_run run = {.mode = BENCH_DDP, .n = 1, .batch = 64};
    assert_int_equal(bench_read_summary(&run, "{\"summary\":{\"mode\":\"DistributedDataParallel\",\"devices\":1,"
                                              "\"batch_size\":64,\"median_step_ms\":8,\"final_loss\":0.5,"
                                              "\"parameter_hash\":\"00ff\",\"phase_times\":\"enqueueing\","
                                              "\"backend\":\"nccl\",\"device_names\":[\"NVIDIA H200\"],"
                                              "\"device_table\":[" SHARE("0.125") "]}}"),
                     LS_OK);
    expect_near(run.step_ms, 8);
    assert_true(isnan(run.exposed_ms));
    assert_string_equal(run.backend, "nccl");
    assert_string_equal(run.device_name, "NVIDIA H200");
}

int main(void) {
    alarm(60);
    return run_added_tests();
}
