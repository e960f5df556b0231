/* How the times of steps are measured: the arithmetic of blocks, pauses and warm-ups. No result depends on a real
 * duration. */
#include <math.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/report/step_times.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/nn/models.h"

static ls_status go_wrong(const void *arguments) {
    (void)arguments;
    return ls_fail(LS_ERR_SYSTEM, "the task of a test has failed");
}

struct timing {
    ls_device *device;
    ls_parallel parallel;
    ls_step_times times;
};

/* `steps` of the run; 0: unknown, so that the length of blocks does not change. */
static void timing_open_for(struct timing *t, ls_time_how how, int64_t steps) {
    t->device = open_device(0);
    t->parallel = (ls_parallel){.local_device_count = 1, .devices = {t->device}};
    ls_step_times_open(&t->times, &t->parallel, how, steps);
}

static void timing_open(struct timing *t, ls_time_how how) { timing_open_for(t, how, 0); }

static ls_train_result timing_close(struct timing *t) {
    ls_train_result result = {0};
    ls_step_times_summarise(&t->times, &result);
    ls_step_times_close(&t->times);
    close_empty_device(t->device);
    return result;
}

static void take_steps(struct timing *t, int count) {
    double step_ms = -1;
    for (int i = 0; i < count; i++) {
        ls_step_times_begin(&t->times);
        assert_int_equal(ls_step_times_end(&t->times, &step_ms), LS_OK);
        assert_true(step_ms >= 0);
    }
}

static void let_time_pass(void) {
    double now_us = ls_now_us();
    while (ls_now_us() == now_us) continue;
}

TEST(each_step_is_a_time) {
    struct timing t;
    timing_open(&t, LS_TIME_STEPS);
    take_steps(&t, LS_WARMUP_STEPS);
    assert_int_equal(t.times.count, LS_WARMUP_STEPS);
    take_steps(&t, 3);
    ls_train_result result = timing_close(&t);
    assert_true(result.timed_steps == 3 && result.steps_per_time == 1);
}

TEST(the_warmup_alone_is_no_time) {
    struct timing t;
    timing_open(&t, LS_TIME_STEPS);
    take_steps(&t, LS_WARMUP_STEPS - 1);
    ls_train_result result = timing_close(&t);
    assert_true(result.timed_steps == 0 && result.median_step_ms == 0);
    timing_open(&t, LS_TIME_BLOCKS);
    take_steps(&t, 2 * LS_TIME_BLOCK - 1);
    result = timing_close(&t);
    assert_true(result.timed_steps == 0 && result.median_step_ms == 0);
}

/* The first block is the warm-up; steps of an incomplete block are not counted. */
TEST(a_block_is_a_time) {
    struct timing t;
    timing_open(&t, LS_TIME_BLOCKS);
    assert_int_equal(t.times.warmup, LS_TIME_BLOCK);
    take_steps(&t, LS_TIME_BLOCK - 1);
    assert_int_equal(t.times.count, 0);
    take_steps(&t, 1);
    assert_int_equal(t.times.count, 1);
    t.times.ms[0] = 1e9; /* the warm-up, however long */
    take_steps(&t, 2 * LS_TIME_BLOCK + 7);
    t.times.ms[1] = 2;
    t.times.ms[2] = 4;
    ls_train_result result = timing_close(&t);
    assert_true(result.timed_steps == 2 * LS_TIME_BLOCK && result.steps_per_time == LS_TIME_BLOCK);
    assert_true(result.median_step_ms == 3);
}

/* A block that is interrupted continues later; the time in between is not counted. */
TEST(pauses_are_left_out) {
    struct timing t;
    timing_open(&t, LS_TIME_BLOCKS);
    take_steps(&t, 1);
    double started_us = t.times.started_us;
    let_time_pass();
    take_steps(&t, 4);
    assert_true(t.times.started_us == started_us); /* a continuous interval, including the time between the steps */
    assert_int_equal(ls_step_times_pause(&t.times), LS_OK);
    double block_us = t.times.block_us;
    assert_true(block_us > 0);
    let_time_pass();
    assert_int_equal(ls_step_times_pause(&t.times), LS_OK); /* paused already */
    take_steps(&t, LS_TIME_BLOCK - 6);
    assert_true(t.times.block_us == block_us);    /* only the next stop adds time ... */
    assert_true(t.times.started_us > started_us); /* ... from the next step on */
    assert_int_equal(t.times.count, 0);
    take_steps(&t, 1);
    assert_int_equal(t.times.count, 1);
    assert_true(t.times.ms[0] >= block_us * 1e-3 / LS_TIME_BLOCK);
    assert_true(t.times.block_us == 0 && t.times.block_steps == 0 && !t.times.runs);
    timing_close(&t);
}

/* Two blocks, the second of which seems to take no time at all, or a second more for each of its steps than it does. */
static void take_warmup(struct timing *t, bool fast) {
    take_steps(t, LS_TIME_BLOCK);
    assert_true(t->times.block == LS_TIME_BLOCK && t->times.warmup == LS_TIME_BLOCK);
    take_steps(t, LS_TIME_BLOCK - 1);
    t->times.started_us += fast ? 1e12 : -1e6 * LS_TIME_BLOCK;
    take_steps(t, 1);
    assert_int_equal(t->times.count, 2);
}

/* Two blocks, the second of which appears to take no time, or an additional second for each step. */
TEST(short_steps_make_long_blocks) {
    static const struct {
        double step_ms;
        int64_t steps, block;
    } rows[] = {
        {0.05, 1000000, 160}, {0.249, 1000000, 160}, {0.25, 1000000, 80}, {0.49, 1000000, 80}, {0.5, 1000000, 40},
        {0.99, 1000000, 40},  {1, 1000000, 20},      {1000, 1000000, 20}, {NAN, 1000000, 20},  {0.05, 0, 20},
        {0.05, -60, 20},      {0.05, 159, 20},       {0.05, 160, 40},     {0.05, 639, 80},     {0.05, 640, 160},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ls_step_times_block(rows[i].step_ms, rows[i].steps), rows[i].block);
    }
}

/* A run of unknown length keeps its blocks, and so does one of long steps. */
TEST(only_short_steps_are_taken_together) {
    static const struct {
        bool fast;
        int64_t steps, block;
    } rows[] = {
        {true, 1000, LS_TIME_LONGEST_BLOCK}, {false, 1000, 20}, {true, 0, 20}, {true, 199, 20}, {true, 200, 40}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct timing t;
        timing_open_for(&t, LS_TIME_BLOCKS, rows[i].steps);
        take_warmup(&t, rows[i].fast);
        assert_int_equal(t.times.block, rows[i].block);
        assert_int_equal(t.times.warmup, rows[i].block > LS_TIME_BLOCK ? 2 * LS_TIME_BLOCK : LS_TIME_BLOCK);
        timing_close(&t);
    }
}

/* Times of both block lengths are not mixed: the short blocks count as the warm-up. */
TEST(long_blocks_leave_out_the_short_ones) {
    struct timing t;
    timing_open_for(&t, LS_TIME_BLOCKS, 1000000);
    take_warmup(&t, true);
    t.times.ms[0] = t.times.ms[1] = 1e9;
    take_steps(&t, 3 * 160 - 1);
    assert_int_equal(t.times.count, 4);
    take_steps(&t, 1);
    assert_int_equal(t.times.count, 5);
    for (int i = 0; i < 3; i++) t.times.ms[2 + i] = 3 - i;
    ls_train_result result = timing_close(&t);
    assert_true(result.timed_steps == 3 * 160 && result.steps_per_time == 160);
    assert_true(result.median_step_ms == 2);
}

TEST(shuffled_steps_are_not_timed) {
    struct timing t;
    timing_open(&t, LS_TIME_NONE);
    take_steps(&t, 100);
    ls_train_result result = timing_close(&t);
    assert_true(result.timed_steps == 0 && result.median_step_ms == 0);
}

/* More times than the initial capacity. */
TEST(a_long_run_is_timed_to_its_end) {
    struct timing t;
    timing_open(&t, LS_TIME_STEPS);
    take_steps(&t, 10000);
    ls_train_result result = timing_close(&t);
    assert_int_equal(result.timed_steps, 10000 - LS_WARMUP_STEPS);
}

/* The end of a block waits for the devices, and returns their errors. */
TEST_IN(scratch, a_device_that_failed_ends_the_block) {
    struct timing t;
    double step_ms;
    timing_open(&t, LS_TIME_BLOCKS);
    take_steps(&t, LS_TIME_BLOCK - 1);
    ls_step_times_begin(&t.times);
    ls_stream_launch(ls_device_stream(t.device, LS_STREAM_COMPUTE), "go wrong", go_wrong, NULL, 0);
    scratch_expect_error("the task of a test has failed", NULL);
    assert_int_equal(ls_step_times_end(&t.times, &step_ms), LS_ERR_SYSTEM);
    timing_close(&t);
}
