/* bench_dp_vs_ddp: its arithmetic on synthetic numbers; test_results.c tests its output. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"
#include "labs/replay/fit_tn/fit_tn.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"

static bench_settings settings;
static bench_model model;

/* --- rows -------------------------------------------------------------------------------------------------------- */

static bench_row *row_of(bench_mode mode, int n) { return (bench_row *)(void *)bench_find(&model, mode, n); }

static void add_runs(bench_mode mode, int n, const double ms[3], double exposed_ms, const char *weights) {
    bench_run run = {.mode = mode, .n = n, .exposed_ms = exposed_ms, .final_loss = 0.25};
    snprintf(run.weights, sizeof run.weights, "%s", weights);
    for (int i = 0; i < 3; i++) {
        run.step_ms = ms[i];
        bench_add_run(row_of(mode, n), &run);
    }
}

static void add_virtual(bench_mode mode, int n, const double ms[3], double exposed_ms, double busy) {
    for (int r = 0; r < model.virtual_count; r++) {
        bench_row *row = &model.virtual_rows[r];
        if (row->mode != mode || row->n != n) continue;
        for (int i = 0; i < 3; i++)
            bench_add_run(row, &(bench_run){.step_ms = ms[i], .exposed_ms = exposed_ms * i, .busy = busy * i});
        return;
    }
    fail_msg("no virtual row of %s on %d", bench_mode_name(mode), n);
}

/* T1 = 9 ms, T1(b/2) = 5 ms; on one core. Virtual: T1 = 10 ms, on two cores 6 and 5 ms. */
static void make_model(void) {
    char models[] = "--models=mlp", n[] = "--n=1,2", rounds[] = "--rounds=3";
    assert_int_equal(bench_parse_words(&settings, models, n, rounds, NULL), LS_OK);
    settings.processors = 1;
    bench_plan_rows(&model, &settings.plans[0], &settings);
    assert_int_equal(model.row_count, 6);
    add_runs(BENCH_SINGLE, 1, (double[]){10, 8, 9}, 0, "aa");
    add_runs(BENCH_SINGLE, 2, (double[]){5, 5, 5}, 0, "bb");
    add_runs(BENCH_DP, 1, (double[]){9, 9, 9}, 0, "aa");
    add_runs(BENCH_DP, 2, (double[]){7.5, 6, 4.5}, 0.25, "cc");
    add_runs(BENCH_DDP, 1, (double[]){9, 9, 9}, 0, "aa");
    add_runs(BENCH_DDP, 2, (double[]){5, 5, 5}, 1, "cc");
    bench_plan_virtual(&model, &settings);
    assert_int_equal(model.virtual_count, 3);
    add_virtual(BENCH_SINGLE, 1, (double[]){11, 9.9, 10}, 0.125, 0.5);
    add_virtual(BENCH_DP, 2, (double[]){6, 8, 5}, 0.25, 0.375);
    add_virtual(BENCH_DDP, 2, (double[]){5, 5, 5}, 0.5, 0.25);
    bench_assemble(&model);
}

TEST_IN(scratch, test_what_a_row_says) {
    make_model();
    const bench_row *t1 = row_of(BENCH_SINGLE, 1), *part = row_of(BENCH_SINGLE, 2), *dp = row_of(BENCH_DP, 2),
                    *ddp = row_of(BENCH_DDP, 2);
    expect_near(t1->step_ms, 9);
    expect_near(t1->speedup, 1);
    assert_int_equal(part->per_device_batch, 32);
    assert_true(isnan(part->speedup) && isnan(part->efficiency) && isnan(part->over_ms) && isnan(part->fixed_ms));
    assert_false(part->oversubscribed || t1->oversubscribed);
    assert_true(dp->oversubscribed && ddp->oversubscribed);
    expect_near(dp->step_ms, 6);
    expect_near(dp->step_ms_min, 4.5);
    expect_near(dp->step_ms_max, 7.5);
    expect_near(dp->speedup, 1.5);
    expect_near(dp->speedup_min, 1.2);
    expect_near(dp->speedup_max, 2);
    expect_near(dp->efficiency, 0.75);
    expect_near(dp->ideal_ms, 4.5);
    expect_near(dp->over_ms, 1.5);
    expect_near(dp->smaller_batch_ms, 0.5);
    expect_near(dp->exposed_ms, 0.25);
    expect_near(dp->fixed_ms, 0.75);
    expect_near(ddp->over_ms, 0.5);
    expect_near(ddp->fixed_ms, -1); /* as it is */
}

TEST_IN(scratch, test_virtual_rows) {
    make_model();
    const bench_row *t1 = &model.virtual_rows[0], *dp = t1 + 1, *ddp = t1 + 2;
    expect_near(t1->step_ms, 10);
    expect_near(t1->speedup, 1); /* relative to itself, not to the measured 9 ms */
    expect_near(t1->busy, 0.5);
    expect_near(dp->step_ms, 6);
    expect_near(dp->step_ms_min, 5);
    expect_near(dp->step_ms_max, 8);
    expect_near(dp->speedup, 10.0 / 6);
    expect_near(dp->speedup_min, 1.25);
    expect_near(dp->speedup_max, 2);
    expect_near(dp->efficiency, 5.0 / 6);
    expect_near(dp->busy, 0.375);
    expect_near(dp->exposed_ms, 0.25);
    expect_near(ddp->efficiency, 1);
    expect_near(ddp->exposed_ms, 0.5);
    assert_true(isnan(dp->smaller_batch_ms) && isnan(dp->fixed_ms));
    expect_near(row_of(BENCH_DP, 2)->speedup, 1.5); /* measured rows stay relative to the measured T1 */
}

static void expect_comparison(const char *expected) {
    char text[200] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    bench_put_comparison(file, &model);
    fclose(file);
    assert_string_equal(text, expected);
}

TEST_IN(scratch, test_virtual_beside_measured) {
    make_model();
    expect_comparison("single +11.1 %"); /* on one core, two devices have no core each */
    model.virtual_rows[1].oversubscribed = model.virtual_rows[2].oversubscribed = false;
    row_of(BENCH_DDP, 2)->step_ms = 6.25;
    expect_comparison("single +11.1 %; N = 2: DP +0.0 %, DDP -20.0 %");
}

/* The N of a mode's virtual rows as decimal digits: 2, 4, 8 is 248. */
static int virtual_n(bench_mode mode) {
    int digits = 0;
    for (int i = 0; i < model.virtual_count; i++)
        if (model.virtual_rows[i].mode == mode) digits = 10 * digits + model.virtual_rows[i].n;
    return digits;
}

static void plan_virtual(const bench_plan *plan) {
    settings.processors = 2;
    bench_plan_rows(&model, plan, &settings);
    bench_plan_virtual(&model, &settings);
}

TEST_IN(scratch, test_which_n_are_virtual) {
    char one[] = "--n=1,2", four[] = "--n=1,4", steps[] = "--steps=11";
    assert_int_equal(bench_parse_words(&settings, NULL, NULL, NULL, NULL), LS_OK);
    plan_virtual(&settings.plans[0]);
    for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++) assert_int_equal(virtual_n(mode), 248);
    assert_int_equal(virtual_n(BENCH_SINGLE), 1);
    assert_int_equal(model.virtual_rows[3].per_device_batch, 8);
    assert_int_equal(model.virtual_plan.steps, LS_WARMUP_STEPS + 20);
    plan_virtual(&settings.plans[1]);
    assert_int_equal(virtual_n(BENCH_DDP), 245); /* 8 do not share a batch of 100 equally */
    assert_int_equal(model.virtual_plan.steps, LS_WARMUP_STEPS + 10);
    settings.plans[0].weak = true;
    settings.plans[0].batch = 250; /* per device: 8 would need 2000 samples, and there are 1500 */
    plan_virtual(&settings.plans[0]);
    assert_int_equal(virtual_n(BENCH_DP), 246);
    settings.gpus = true;
    plan_virtual(&settings.plans[0]);
    assert_int_equal(model.virtual_count, 0);
    assert_int_equal(bench_parse_words(&settings, one, NULL, NULL, NULL), LS_OK); /* each N has its cores */
    plan_virtual(&settings.plans[0]);
    assert_int_equal(model.virtual_count, 0);
    assert_int_equal(bench_parse_words(&settings, four, steps, NULL, NULL), LS_OK);
    plan_virtual(&settings.plans[0]);
    assert_int_equal(virtual_n(BENCH_DP), 4);
    assert_int_equal(model.virtual_plan.steps, LS_WARMUP_STEPS + 2);
}

TEST_IN(scratch, test_rows_of_gpus) {
    make_model();
    bench_plan_rows(&model, &settings.plans[0], &settings);
    add_runs(BENCH_SINGLE, 1, (double[]){10, 8, 9}, NAN, "aa");
    add_runs(BENCH_SINGLE, 2, (double[]){5, 5, 5}, NAN, "bb");
    for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++) {
        add_runs(mode, 1, (double[]){9, 9, 9}, NAN, "aa");
        add_runs(mode, 2, (double[]){6, 6, 6}, NAN, "cc");
    }
    bench_assemble(&model);
    const bench_row *dp = row_of(BENCH_DP, 2);
    expect_near(dp->over_ms, 1.5);
    expect_near(dp->smaller_batch_ms, 0.5);
    assert_true(isnan(dp->exposed_ms) && isnan(dp->fixed_ms));
}

TEST_IN(scratch, test_weights_are_compared) {
    make_model();
    assert_true(bench_same_weights(&model, 1) && bench_same_weights(&model, 2));
    strcpy(row_of(BENCH_DDP, 2)->weights, "cd");
    assert_false(bench_same_weights(&model, 2));
    make_model();
    bench_add_run(row_of(BENCH_DP, 1), &(bench_run){.step_ms = 1, .weights = "ab"}); /* not the same in each run */
    assert_false(bench_same_weights(&model, 1));
    assert_false(bench_same_weights(&model, 4)); /* was not run */
    assert_true(bench_must_agree(&model, 1) && bench_must_agree(&model, 64));
    assert_false(bench_must_agree(&model, 3) || bench_must_agree(&model, 128));
    strcpy(row_of(BENCH_DDP, 2)->backend, "nccl"); /* has its own order of summation */
    assert_false(bench_must_agree(&model, 2));
    assert_true(bench_must_agree(&model, 1));
    settings.plans[0].batch = 96;
    assert_false(bench_must_agree(&model, 3) || bench_must_agree(&model, 96));
    assert_true(bench_must_agree(&model, 32));
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static void write_results(const char *folder) {
    make_model();
    bench_results results = {
        .machine = &example_machine, .settings = &settings, .device_name = "", .model_count = 1, .models = &model};
    assert_int_equal(bench_prepare_files(folder), LS_OK);
    assert_int_equal(bench_write_files(&results, folder), LS_OK);
}

TEST_IN(scratch, test_virtual_rows_are_fitted) {
    write_results(scratch_folder());
    fit_tn_data data;
    const fit_tn_settings fit = {.csv = scratch_path("dp_vs_ddp_virtual.csv"), .mode = "dp"};
    assert_int_equal(fit_tn_take_points(&data, &fit), LS_OK);
    assert_int_equal(data.count, 2);
    expect_near(data.points[0].ms, 10);
    expect_near(data.points[1].ms, 6);
    assert_non_null(strstr(data.how, "virtual"));
}

TEST_IN(scratch, test_folders) {
    char deep[300];
    snprintf(deep, sizeof deep, "%s/a/b//c/", scratch_folder());
    assert_int_equal(bench_prepare_files(deep), LS_OK);
    assert_int_equal(access(deep, W_OK), 0);
    for (int slash = 0; slash < 3; slash++) {
        const char *const made[] = {"a/b/c", "a/b", "a"};
        assert_int_equal(rmdir(scratch_path(made[slash])), 0);
    }
    scratch_write("file", "", 0);
    assert_int_equal(bench_prepare_files(scratch_path("file")), LS_ERR_IO);
    scratch_expect_error("file", NULL);
    assert_int_equal(bench_prepare_files(scratch_path("file/below")), LS_ERR_IO);
    scratch_expect_error("cannot make the folder", "file/below");
}

/* --- under the emulated interpreter's lock ---------------------------------------------------------------------- */

static void plan_on(int processors) {
    settings.processors = processors;
    bench_plan_rows(&model, &settings.plans[0], &settings);
    bench_plan_locked(&model, &settings);
}

TEST_IN(scratch, test_which_n_is_locked) {
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
    assert_int_equal(model.locked_plan.steps, LS_WARMUP_STEPS + 1); /* at least one is timed */
}

/* T1 = 9 ms without, 10 ms with the lock. */
static void make_locked_model(void) {
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

TEST_IN(scratch, test_locked_rows) {
    make_locked_model();
    const bench_row *t1 = &model.locked_rows[0], *dp = t1 + 1, *ddp = t1 + 2;
    expect_near(t1->speedup, 1); /* relative to itself, not to the 9 ms */
    expect_near(t1->step_ms, 10);
    expect_near(dp->step_ms, 12.5);
    expect_near(dp->speedup, 0.8);
    expect_near(dp->speedup_min, 10.0 / 16);
    expect_near(dp->speedup_max, 1);
    expect_near(ddp->speedup, 2);
    expect_near(ddp->efficiency, 1);
    expect_near(bench_find(&model, BENCH_DP, 2)->speedup, 1);
}

/* A run counts as one with the lock only if its output says so. */
TEST_IN(scratch, test_locked_runs) {
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
    scratch_expect_error("the summary of single on 1 devices cannot be read", NULL);
}

int main(void) {
    alarm(120);
    return run_added_tests();
}
