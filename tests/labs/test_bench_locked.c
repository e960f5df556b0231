/* bench_dp_vs_ddp under the emulated interpreter's lock: which rows there are, what they say, and that the runs have
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "tests/base/scratch.h"
#include "tests/labs/bench_words.h"
#include "tests/labs/figures.h"

static bench_settings settings;
static bench_model model;

static void plan_on(int processors) {
    settings.processors = processors;
    bench_plan_rows(&model, &settings.plans[0], &settings);
    bench_plan_locked(&model, &settings);
}

static void test_the_most_devices_that_have_cores(void **state) {
    (void)state;
    char steps[] = "--steps=11";
    assert_int_equal(bench_parse_words(&settings, NULL, NULL, NULL, NULL), LS_OK); /* N = 1, 2, 4 */
    plan_on(3);
    assert_int_equal(model.locked_count, 3);
    for (int i = 0; i < 3; i++) {
        const bench_row *row = &model.locked_rows[i];
        assert_int_equal(row->mode, i);
        assert_int_equal(row->n, i == 0 ? 1 : 2);
        assert_int_equal(row->per_device_batch, i == 0 ? 64 : 32);
        assert_false(row->oversubscribed);
    }
    assert_int_equal(model.locked_plan.steps, 10 + 590 / 3);
    plan_on(1);
    assert_int_equal(model.locked_count, 0);
    plan_on(64);
    assert_int_equal(model.locked_rows[2].n, 4);
    assert_int_equal(bench_parse_words(&settings, steps, NULL, NULL, NULL), LS_OK);
    plan_on(2);
    assert_int_equal(model.locked_plan.steps, LS_WARMUP_STEPS + 1); /* one is timed at least */
}

/* T1 = 9 ms without, 10 ms with the lock. */
static void make_model(void) {
    char models[] = "--models=mlp", n[] = "--n=2", rounds[] = "--rounds=3";
    assert_int_equal(bench_parse_words(&settings, models, n, rounds, NULL), LS_OK);
    plan_on(2);
    for (int i = 0; i < model.row_count; i++)
        bench_add_run(&model.rows[i], &(bench_run){.step_ms = 9, .weights = "aa"});
    const double ms[3][3] = {{11, 9, 10}, {12.5, 16, 10}, {5, 5, 5}};
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < 3; r++) bench_add_run(&model.locked_rows[i], &(bench_run){.step_ms = ms[i][r]});
    bench_assemble(&model);
}

static void test_what_the_rows_say(void **state) {
    (void)state;
    make_model();
    const bench_row *t1 = &model.locked_rows[0], *dp = t1 + 1, *ddp = t1 + 2;
    expect_near(t1->speedup, 1); /* over itself, and not over the 9 ms */
    expect_near(t1->step_ms, 10);
    expect_near(dp->step_ms, 12.5);
    expect_near(dp->speedup, 0.8);
    expect_near(dp->speedup_min, 10.0 / 16);
    expect_near(dp->speedup_max, 1);
    expect_near(ddp->speedup, 2);
    expect_near(ddp->efficiency, 1);
    expect_near(bench_find(&model, BENCH_DP, 2)->speedup, 1);
}

/* A run that was asked for the lock is one only if it says so. */
static void test_runs_have_it(void **state) {
    (void)state;
    char models[] = "--models=mlp:784,16,10", n[] = "--n=2", steps[] = "--steps=12";
    assert_int_equal(bench_parse_words(&settings, models, n, steps, NULL), LS_OK);
    plan_on(2);
    for (int i = 0; i < 3; i++) {
        bench_run run = {.mode = (bench_mode)i, .n = i == 0 ? 1 : 2, .batch = 64};
        assert_int_equal(bench_train_locked(&run, &model.locked_plan, &settings), LS_OK);
        expect_near(run.host_lock_us, BENCH_LOCK_US);
        assert_true(run.step_ms > 0);
    }
    bench_run run = {.mode = BENCH_SINGLE, .n = 1, .batch = 64, .host_lock_us = 10};
    assert_int_equal(bench_read_summary(&run,
                                        "{\"summary\":{\"mode\":\"single device\",\"devices\":1,\"batch_size\":64,"
                                        "\"median_step_ms\":8,\"final_loss\":0.5,\"parameter_hash\":\"00ff\","
                                        "\"host_lock_us\":0,\"device_table\":[{\"communication_share\":0}]}}"),
                     LS_ERR_FORMAT);
    scratch_expect_error("the summary of single on 1 devices is not what was expected", NULL);
}

int main(void) {
    alarm(60);
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_the_most_devices_that_have_cores),
        TEST(test_what_the_rows_say),
        TEST(test_runs_have_it),
    };
    return cmocka_run_group_tests_name("bench_dp_vs_ddp under the lock", tests, NULL, NULL);
}
