/* bench_dp_vs_ddp's first screen: its sentences, for synthetic results; test_results.c tests its tables. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "labs/bench/dp_vs_ddp/bench.h"
#include "tests/base/test.h"
#include "tests/labs/figures.h"

static bench_settings settings;
static bench_model models[2];
static char said[8192];

/* --- synthetic results ------------------------------------------------------------------------------------------- */

/* Lays out the rows of mlp, and of convnet if named, on `processors` cores. */
static void plan(const char *names, const char *n, int processors, const char *more) {
    static char words[3][80]; /* the settings point to some of them */
    snprintf(words[0], sizeof words[0], "--models=%s", names);
    snprintf(words[1], sizeof words[1], "--n=%s", n);
    snprintf(words[2], sizeof words[2], "%s", more ? more : "--quiet");
    assert_int_equal(bench_parse_words(&settings, words[0], words[1], words[2], NULL), LS_OK);
    settings.processors = processors;
    for (int m = 0; m < settings.plan_count; m++) {
        memset(&models[m], 0, sizeof models[m]);
        bench_plan_rows(&models[m], &settings.plans[m], &settings);
        bench_plan_virtual(&models[m], &settings);
    }
}

static bench_row *row_of(int m, bench_mode mode, int n) {
    bench_row *row = (bench_row *)(void *)bench_find(&models[m], mode, n);
    if (!row) fail_msg("no row of %s on %d", bench_mode_name(mode), n);
    return row;
}

static bench_row *virtual_of(int m, bench_mode mode, int n) {
    bench_row *row = (bench_row *)(void *)bench_find_virtual(&models[m], mode, n);
    if (!row) fail_msg("no virtual row of %s on %d", bench_mode_name(mode), n);
    return row;
}

/* Three runs: the median, and one on either side of it. */
static void add_runs(bench_row *row, double ms, double spread_ms, double exposed_ms) {
    const double times[] = {ms - spread_ms / 2, ms, ms + spread_ms / 2};
    row->run_count = 0;
    for (int i = 0; i < 3; i++)
        bench_add_run(row, &(bench_run){.step_ms = times[i], .exposed_ms = exposed_ms, .weights = "aa"});
}

/* Adds runs to every row without: 4 ms for T1, DP 3 and DDP 2 ms, spread 0.1 ms, exposed 0.75 and 0.25 ms. */
static void fill(void) {
    const double ms[] = {4, 3, 2}, exposed_ms[] = {0, 0.75, 0.25};
    for (int m = 0; m < settings.plan_count; m++) {
        for (int i = 0; i < models[m].row_count + models[m].virtual_count; i++) {
            bench_row *row =
                i < models[m].row_count ? &models[m].rows[i] : &models[m].virtual_rows[i - models[m].row_count];
            if (row->run_count == 0 && !row->failed) add_runs(row, ms[row->mode], 0.1, exposed_ms[row->mode]);
        }
        bench_assemble(&models[m]);
    }
}

static void add_replayed(int m, bench_mode mode, int n, int way, double ms, double lock_ms) {
    models[m].replayed[models[m].replayed_count++] =
        (struct bench_replayed){.mode = mode, .n = n, .way = way, .step = {.step_ms = ms, .lock_ms = lock_ms}};
}

static void add_all_replayed(int m, double dp_ms, double ddp_ms) {
    add_replayed(m, BENCH_DP, 8, 0, dp_ms, 0);
    add_replayed(m, BENCH_DDP, 8, 0, ddp_ms, 0);
    add_replayed(m, BENCH_DP, 8, 1, 6, 5);
    add_replayed(m, BENCH_DDP, 8, 1, 1, 0);
}

/* --- sentences --------------------------------------------------------------------------------------------------- */

static void answer(void) {
    const bench_results results = {&example_machine, &settings, "", settings.plan_count, models};
    memset(said, 0, sizeof said);
    FILE *file = fmemopen(said, sizeof said - 1, "w");
    bench_put_answers(file, &results);
    fclose(file);
}

static int line_count(const char *text) {
    int count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

/* Line number `line`, from 0, is exactly that. */
static void expect_line(int line, const char *expected) {
    const char *at = said;
    for (int i = 0; i < line; i++) at = strchr(at, '\n') + 1;
    char text[600];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at, "\n"), at);
    assert_string_equal(text, expected);
}

/* --- which mode is faster ---------------------------------------------------------------------------------------- */

TEST(test_five_lines) {
    plan("mlp,convnet", "1,2", 2, NULL);
    add_runs(row_of(0, BENCH_DP, 2), 0.474, 0.002, 0.05);
    add_runs(row_of(0, BENCH_DDP, 2), 0.384, 0.001, 0.02);
    fill();
    add_all_replayed(0, 3, 1.5);
    add_all_replayed(1, 1, 1.25);
    answer();
    assert_int_equal(line_count(said), 5);
    expect_line(0, "mlp, N = 2, measured: DDP is 1.23x faster than DP (0.384 against 0.474 ms; spread 0.5 %)");
    expect_line(1, "convnet, N = 2, measured: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %)");
    expect_line(2, "Same weights: yes, bit for bit, at N = 1, 2, in every run (both modes get the same chunks: --shard "
                   "contiguous)");
    expect_line(3, "The gap: mlp 0.090 ms = 0.030 exposed communication + 0.060 fixed work; convnet 1.000 ms = 0.500 "
                   "exposed communication + 0.500 fixed work");
    expect_line(4, "Faster on 8 GPUs (replayed, dgx1-v100): mlp DDP 2.00x, in Python at worst DDP 6.00x; convnet DP "
                   "1.25x, in Python at worst DDP 6.00x (one lock for DP's threads)");
}

TEST(test_dp_is_faster) {
    plan("mlp", "2", 2, NULL);
    add_runs(row_of(0, BENCH_DP, 2), 1, 0.1, 0.5);
    add_runs(row_of(0, BENCH_DDP, 2), 1.5, 0.2, 1.25);
    fill();
    answer();
    expect_line(0, "mlp, N = 2, measured: DP is 1.50x faster than DDP (1.000 against 1.500 ms; spread 20.0 %)");
    expect_line(2, "The gap: mlp 0.500 ms = 0.750 exposed communication - 0.250 fixed work");
    expect_line(3, "On GPUs: nothing was replayed");
}

/* The greater of the two spreads counts, and a difference equal to it is a tie. */
TEST(test_a_tie_within_the_spread) {
    plan("mlp", "2", 2, NULL);
    add_runs(row_of(0, BENCH_DP, 2), 1.25, 0.25, 0.5);
    add_runs(row_of(0, BENCH_DDP, 2), 1, 0, 0.25);
    fill();
    answer();
    expect_line(0, "mlp, N = 2, measured: no difference beyond the spread (DDP 1.000, DP 1.250 ms: +25.0 %; spread "
                   "25.0 %)");
    expect_line(2, "The gap: mlp none beyond the spread");
    add_runs(row_of(0, BENCH_DP, 2), 1.25, 0.125, 0.5);
    fill();
    answer();
    expect_line(0, "mlp, N = 2, measured: DDP is 1.25x faster than DP (1.000 against 1.250 ms; spread 12.5 %)");
}

/* If no measured time differs, the virtual gap is reported. */
TEST(test_a_tie_and_a_virtual_gap) {
    plan("mlp", "2,4", 2, NULL);
    add_runs(row_of(0, BENCH_DP, 2), 2, 0.5, 0.5);
    fill();
    answer();
    expect_line(2, "The gap: mlp none beyond the spread, virtual N = 4 1.000 ms = 0.500 exposed communication + 0.500 "
                   "others");
}

TEST(test_one_run_has_no_spread) {
    plan("mlp", "2", 2, NULL);
    bench_add_run(row_of(0, BENCH_DP, 2), &(bench_run){.step_ms = 3, .weights = "aa"});
    bench_add_run(row_of(0, BENCH_DDP, 2), &(bench_run){.step_ms = 2, .weights = "aa"});
    fill();
    answer();
    expect_line(0, "mlp, N = 2, measured: DDP 2.000 ms, DP 3.000 ms (1.50x); one run each, so the spread is not known");
    expect_line(2, "The gap: mlp unknown (one run each)");
}

TEST(test_times_that_are_no_numbers) {
    plan("mlp", "2", 2, NULL);
    fill();
    row_of(0, BENCH_DP, 2)->step_ms = NAN;
    assert_false(bench_compare(row_of(0, BENCH_DP, 2), row_of(0, BENCH_DDP, 2)).is_more_than_spread);
    row_of(0, BENCH_DP, 2)->step_ms = 3;
    row_of(0, BENCH_DP, 2)->step_ms_max = NAN;
    assert_false(bench_compare(row_of(0, BENCH_DP, 2), row_of(0, BENCH_DDP, 2)).is_more_than_spread);
}

/* --- which N ----------------------------------------------------------------------------------------------------- */

TEST(test_the_greatest_measured_n_comes_first) {
    plan("mlp", "1,2,4,8", 4, NULL);
    add_runs(row_of(0, BENCH_DDP, 2), 3.05, 0.1, 0);
    add_runs(virtual_of(0, BENCH_DP, 8), 1, 0.1, 0);
    fill();
    answer();
    expect_line(0, "mlp, N = 4, measured: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %); N = 2 "
                   "within spread; virtual N = 8 DP 2.00x");
}

TEST(test_only_one_device) {
    plan("mlp", "1", 2, NULL);
    fill();
    answer();
    expect_line(0, "mlp, N = 1, measured: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %)");
}

/* Measured times of devices that share a core are not compared. */
TEST(test_only_one_core) {
    plan("mlp", "1,2", 1, NULL);
    add_runs(row_of(0, BENCH_DP, 2), 1, 0.1, 0); /* faster in turns, slower with a core each */
    fill();
    answer();
    expect_line(0, "mlp, N = 2, virtual: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %); with more "
                   "devices than cores, measured times only show time-slicing");
    plan("mlp", "2,4", 1, NULL);
    add_runs(row_of(0, BENCH_DP, 4), 1, 0.1, 0);
    fill();
    answer();
    expect_line(0, "mlp, N = 4, virtual: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %); N = 2 DDP "
                   "1.50x; with more devices than cores, measured times only show time-slicing");
    expect_line(2, "The gap: mlp 1.000 ms = 0.500 exposed communication + 0.500 others");
}

TEST(test_devices_that_share_a_gpu) {
    plan("mlp", "2", 1, NULL);
    settings.gpus = true;
    bench_plan_virtual(&models[0], &settings);
    fill();
    answer();
    expect_line(0, "mlp: nothing can be compared; with more devices than GPUs, measured times only show time-slicing");
    expect_line(2, "The gap: mlp unknown");
}

TEST(test_a_gpus_gap_has_no_parts) {
    plan("mlp", "2", 2, NULL);
    settings.gpus = true;
    for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++)
        add_runs(row_of(0, mode, 2), mode == BENCH_DP ? 3 : 2, 0.1, NAN);
    fill();
    answer();
    expect_line(2, "The gap: mlp 1.000 ms (communication and fixed work are not told apart)");
}

/* --- failures and weights ---------------------------------------------------------------------------------------- */

TEST(test_failed_rows) {
    plan("mlp,convnet", "2,4", 2, NULL);
    row_of(0, BENCH_DDP, 2)->failed = row_of(1, BENCH_DDP, 2)->failed = row_of(1, BENCH_DP, 2)->failed = true;
    virtual_of(1, BENCH_DP, 4)->failed = true;
    fill();
    answer();
    expect_line(0, "mlp, N = 2, measured: DDP failed, so nothing is compared; virtual N = 4 DDP 1.50x");
    expect_line(1, "convnet, N = 2, measured: DP and DDP failed, so nothing is compared; virtual N = 4 DP failed");
    expect_line(2, "Same weights: mlp, N = 2: unknown, a run failed; convnet, N = 2: unknown, a run failed; all "
                   "others: yes, bit for bit");
    expect_line(3, "The gap: mlp unknown; convnet unknown");
    assert_true(isnan(row_of(0, BENCH_DDP, 2)->step_ms) && isnan(row_of(0, BENCH_DDP, 2)->speedup));
    plan("mlp", "2", 2, NULL);
    row_of(0, BENCH_SINGLE, 1)->failed = true; /* then there is no speed-up, but DP and DDP are compared */
    fill();
    answer();
    expect_line(0, "mlp, N = 2, measured: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %)");
    assert_true(isnan(row_of(0, BENCH_DDP, 2)->speedup));
}

TEST(test_weights_that_differ) {
    plan("mlp", "1,2", 2, NULL);
    fill();
    strcpy(row_of(0, BENCH_DP, 2)->weights, "bb");
    answer();
    expect_line(1, "Same weights: mlp, N = 2: NO, but they must agree; all others: yes, bit for bit");
    strcpy(row_of(0, BENCH_DDP, 2)->backend, "nccl");
    answer();
    expect_line(1, "Same weights: mlp, N = 2: no, NCCL adds in its own order; all others: yes, bit for bit");
    row_of(0, BENCH_DDP, 2)->repeats = false;
    row_of(0, BENCH_DP, 1)->repeats = false;
    answer();
    expect_line(1, "Same weights: mlp, N = 1: NO: runs of one mode differ; mlp, N = 2: NO: runs of one mode differ");
    plan("mlp", "3", 4, "--batch=96");
    fill();
    strcpy(row_of(0, BENCH_DP, 3)->weights, "bb");
    answer();
    expect_line(1, "Same weights: mlp, N = 3: no, and need not (N is no power of two)");
}

TEST(test_replays_that_are_alike) {
    plan("mlp", "2", 2, NULL);
    fill();
    add_all_replayed(0, 2, 2);
    models[0].replayed[2].step = (struct bench_replay){.step_ms = 2}; /* no wait for a lock */
    answer();
    expect_line(3, "Faster on 8 GPUs (replayed, dgx1-v100): mlp both alike, in Python at worst DDP 2.00x");
}

/* Weak scaling: each device's batch is constant, so N devices do N times the work of T1. */
TEST(test_weak_scaling) {
    plan("mlp", "1,2", 2, "--per-device-batch=48");
    fill();
    const bench_row *dp = row_of(0, BENCH_DP, 2);
    assert_int_equal(models[0].row_count, 5); /* T1(b/N) equals T1 */
    assert_int_equal(dp->per_device_batch, 48);
    assert_int_equal(bench_global_batch(models[0].plan, 2), 96);
    expect_near(dp->speedup, 2 * 4.0 / 3);
    expect_near(dp->efficiency, 4.0 / 3);
    expect_near(dp->ideal_ms, 4);
    expect_near(dp->over_ms, -1);
    expect_near(dp->smaller_batch_ms, 0);
    expect_near(dp->fixed_ms, -1.75);
    answer();
    expect_line(0, "mlp, N = 2, measured: DDP is 1.50x faster than DP (2.000 against 3.000 ms; spread 5.0 %)");
}

int main(void) {
    alarm(60);
    return run_added_tests();
}
