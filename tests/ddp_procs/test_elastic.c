/* --elastic: ranks that die at each moment of a step, and while the others form a new group. The remaining ranks train
 * to the end: every sample is trained on once an epoch, and the weights have the bits of runs that resume, with those
 * ranks, from checkpoints of the steps in which the groups changed. (Real launchers and kills:
 * tests/programs/test_elastic_runs.c.) */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "labs/25-missing/visits/counted.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/elastic_job.h"

enum { SAMPLES = 600, EPOCHS = 2, STEPS = EPOCHS * SAMPLES / COUNTED_BATCH };

#define NOBODY ((fate){.moment = NEVER})

static char options[1200], zeros[300];

/* Samples that count how often they are used. `more`: options. */
static const char *counted(const char *more) {
    static char folder[300];
    snprintf(folder, sizeof folder, "%s", scratch_path("data"));
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(zeros, sizeof zeros, "%s", scratch_path("zeros"));
    assert_true(counted_write(folder, SAMPLES, zeros));
    snprintf(options, sizeof options, COUNTED_OPTIONS "--data %s --epochs %d --save-weights %s %s", folder, EPOCHS,
             scratch_path("weights"), more);
    return options;
}

static void expect_each_sample_once_an_epoch(void) {
    int counts[SAMPLES];
    assert_true(counted_read(scratch_path("weights"), SAMPLES, counts));
    for (int i = 0; i < SAMPLES; i++)
        if (counts[i] != EPOCHS) fail_msg("sample %d was trained on %d times in %d epochs", i, counts[i], EPOCHS);
}

static void print_legs(const elastic_job *job) {
    for (int i = 0; i < job->legs; i++)
        printf("    %d ranks from step %lld\n", job->leg_ranks[i], (long long)job->leg_steps[i]);
    printf("    %d done, %d failed\n", job->done, job->failed);
}

/* The same weights, and statistics of batch norm, as in runs that resume from checkpoints. */
static void expect_reference(const elastic_job *job, int64_t steps) {
    size_t nbytes, there_nbytes;
    char *weights = scratch_read(scratch_path("weights"), &nbytes);
    bool same = job->hash == elastic_job_reference(job, steps);
    char *there = scratch_read(scratch_path("weights"), &there_nbytes);
    same = same && nbytes == there_nbytes && memcmp(weights, there, nbytes) == 0;
    free(weights);
    free(there);
    if (!same) print_legs(job);
    assert_true(same);
}

/* A job that ends with `ranks` ranks, and whose last group began at a step from `first` to `last`. */
static void expect_run_from(elastic_job job, int ranks, int64_t first, int64_t last) {
    elastic_job_run(&job);
    for (int tries = 0; job.missed && tries < 4; tries++) elastic_job_run(&job);
    int64_t step = job.leg_steps[job.legs - 1];
    if (job.done != ranks || job.leg_ranks[job.legs - 1] != ranks || step < first || step > last) {
        print_legs(&job);
        fail_msg("not %d ranks from step %lld", ranks, (long long)first);
    }
    expect_reference(&job, STEPS);
}

static void expect_run(elastic_job job, int ranks, int64_t step) { expect_run_from(job, ranks, step, step); }

static elastic_job job_of(const char *more, fate first, fate second) {
    return (elastic_job){
        .ranks = 4, .limits = "1:4", .options = counted(more), .init = zeros, .fates = {first, second}};
}

/* The basis of elastic training: --resume in the middle of an epoch, with other ranks, trains on the rest of it. */
static void resume_with_other_ranks(const char *more) {
    elastic_job job = job_of(more, NOBODY, NOBODY);
    job.legs = 4;
    memcpy(job.leg_ranks, (int[]){4, 3, 1, 2}, 4 * sizeof(int));
    memcpy(job.leg_steps, (int64_t[]){0, 4, 7, 13}, 4 * sizeof(int64_t));
    (void)elastic_job_reference(&job, STEPS);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_resuming_strided_shards_with_other_ranks) { resume_with_other_ranks(""); }

TEST_IN(scratch, test_resuming_contiguous_shards_with_other_ranks) { resume_with_other_ranks("--shard contiguous "); }

/* --- one dies ---------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_in_forward) {
    expect_run(job_of("", (fate){2, IN_FORWARD, 7}, NOBODY), 3, 7);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_in_the_first_step) {
    expect_run(job_of("", (fate){1, IN_FORWARD, 0}, NOBODY), 3, 0);
    expect_each_sample_once_an_epoch();
}

/* Some buckets are being reduced, and others may be complete. */
TEST_IN(scratch, test_in_the_reduction) {
    setenv("LS_CPU_STREAMS", "threads", 1);
    expect_run_from(job_of("--allreduce ring --bucket-cap-mb 0.001 ", (fate){1, BEHIND_BACKWARD, 9}, NOBODY), 3, 9, 10);
    unsetenv("LS_CPU_STREAMS");
    expect_each_sample_once_an_epoch();
}

/* The others have the sums, and use them: the step counts. */
TEST_IN(scratch, test_between_reduction_and_update) {
    expect_run(job_of("", (fate){3, BEFORE_UPDATE, 5}, NOBODY), 3, 6);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_behind_the_update) {
    expect_run(job_of("--shard contiguous ", (fate){3, AFTER_UPDATE, 12}, NOBODY), 3, 13);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_rank_0) {
    expect_run(job_of("", (fate){0, IN_FORWARD, 7}, NOBODY), 3, 7);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_a_rank_that_fails_by_itself) {
    elastic_job job = job_of("", (fate){2, FAILS, 7}, NOBODY);
    expect_run(job, 3, 7);
    expect_each_sample_once_an_epoch();
}

/* --- one is behind ------------------------------------------------------------------------------------------------ */

TEST_IN(scratch, test_a_rank_without_the_last_update_gets_it) {
    expect_run(job_of("", (fate){2, LOSES_UPDATE, 7}, NOBODY), 4, 8);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_rank_0_gets_it) {
    expect_run(job_of("--optimizer adam ", (fate){0, LOSES_UPDATE, 7}, NOBODY), 4, 8);
}

/* One rank dies between reduction and update, and another finds the group broken in the reduction. */
TEST_IN(scratch, test_one_dies_and_one_is_behind) {
    expect_run(job_of("", (fate){3, AFTER_UPDATE, 7}, (fate){1, LOSES_UPDATE, 7}), 3, 8);
    expect_each_sample_once_an_epoch();
}

/* --- several die --------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, test_two_at_once) {
    expect_run(job_of("", (fate){0, IN_FORWARD, 7}, (fate){3, IN_FORWARD, 7}), 2, 7);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_all_but_one) {
    elastic_job job = job_of("", (fate){0, IN_FORWARD, 7}, (fate){3, IN_FORWARD, 11});
    job.fates[2] = (fate){1, BEFORE_UPDATE, 14};
    expect_run(job, 1, 15);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_before_the_meeting) {
    expect_run(job_of("", (fate){3, IN_FORWARD, 7}, (fate){0, BEFORE_MEETING, 0}), 2, 7);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_in_the_meeting) {
    elastic_job job = job_of("", (fate){3, IN_FORWARD, 7}, (fate){0, IN_MEETING, 0});
    job.fates[2] = (fate){1, LATE, 0};
    expect_run(job, 2, 7);
    expect_each_sample_once_an_epoch();
}

TEST_IN(scratch, test_while_a_group_forms) {
    expect_run(job_of("", (fate){3, IN_FORWARD, 7}, (fate){1, IN_FORMING, 0}), 2, 7);
    expect_each_sample_once_an_epoch();
}

/* Rank 0 is sending its state to rank 1, which keeps its own until the whole state has arrived. */
TEST_IN(scratch, test_while_a_state_travels) {
    elastic_job job = job_of("", (fate){1, LOSES_UPDATE, 7}, (fate){0, IN_FORMING, 0});
    expect_run(job, 3, 8);
    expect_each_sample_once_an_epoch();
}

/* The only rank with the last update dies while it sends its state: the other continues with its own. */
TEST_IN(scratch, test_while_the_only_state_travels) {
    elastic_job job = job_of("", (fate){1, LOSES_UPDATE, 7}, (fate){0, IN_SENDING, 0});
    job.ranks = 2;
    expect_run(job, 1, 7);
    expect_each_sample_once_an_epoch();
}

/* A forward pass has changed running statistics, and its step is repeated. */
TEST_IN(scratch, test_batch_norm) {
    static const char *const recipes[] = {"--sync-bn", ""};
    for (size_t i = 0; i < COUNT_OF(recipes); i++) {
        char line[600];
        snprintf(line, sizeof line, "--model convnet --batch-size 12 --steps 12 --save-weights %s %s",
                 scratch_path("weights"), recipes[i]);
        elastic_job job = {.ranks = 3, .limits = "2:3", .options = line, .fates = {{2, IN_FORWARD, 5}}};
        elastic_job_run(&job);
        assert_int_equal(job.done, 2);
        expect_reference(&job, 12);
    }
}

/* --- one stops, or is restarted ----------------------------------------------------------------------------------- */

/* The stopped rank is excluded at the deadline. When it continues, it joins, and receives the others' current state. */
TEST_IN(scratch, test_a_rank_that_stops) {
    elastic_job job = job_of("", (fate){2, STOPS, 7}, NOBODY);
    job.timeout_s = STOPPED_S / 3.0;
    elastic_job_run(&job);
    if (job.legs < 2 || job.leg_ranks[1] != 3 || job.leg_steps[1] != 7) print_legs(&job);
    assert_int_equal(job.leg_ranks[1], 3);
    assert_int_equal(job.leg_steps[1], 7);
    expect_reference(&job, STEPS);
    expect_each_sample_once_an_epoch();
}

/* A restarted rank has no state; it receives all that a checkpoint holds: moments, scaler, the order of the buckets. */
TEST_IN(scratch, test_a_rank_that_is_started_again) {
    static const char *const recipes[] = {
        "--steps 160 --optimizer adam --precision fp16 --growth-interval 3 ",
        "--steps 160 --allreduce ring --bucket-cap-mb 0.001 --clip-norm 1 --optimizer sgd --momentum 0.9 "};
    for (size_t i = 0; i < COUNT_OF(recipes); i++) {
        elastic_job job = {.ranks = 4, .limits = "2:4", .restarts = 1, .fates = {{1, IN_FORWARD, 20}}};
        char line[600];
        snprintf(line, sizeof line, "--model mlp:784,16,10 --batch-size 60 --save-weights %s %s",
                 scratch_path("weights"), recipes[i]);
        job.options = line;
        elastic_job_run(&job);
        if (job.done != 4) print_legs(&job);
        assert_int_equal(job.done, 4);
        assert_int_equal(job.leg_ranks[job.legs - 1], 4);
        assert_true(job.legs >= 2 && job.leg_steps[1] == 20);
        expect_reference(&job, 160);
    }
}

/* --- the end ------------------------------------------------------------------------------------------------------- */

static void expect_output(const char *name, const char *words) {
    char *text = scratch_read_text(name);
    if (!strstr(text, words)) fail_msg("%s: %s", name, text);
    free(text);
}

/* No other rank has written rank 0's files. */
TEST_IN(scratch, test_rank_0_dies_when_all_is_done) {
    expect_run(job_of("", (fate){0, WHEN_DONE, 0}, NOBODY), 3, STEPS);
    expect_each_sample_once_an_epoch();
}

/* The results of any other rank are not needed. */
TEST_IN(scratch, test_another_rank_dies_when_all_is_done) {
    elastic_job job = job_of("", (fate){2, WHEN_DONE, 0}, NOBODY);
    elastic_job_run(&job);
    assert_int_equal(job.done, 3);
    assert_int_equal(job.legs, 1);
}

/* Two ranks are too few; they do not wait for ever. */
TEST_IN(scratch, test_too_few_are_left) {
    elastic_job job = job_of("", (fate){0, IN_FORWARD, 7}, (fate){3, IN_FORWARD, 9});
    job.limits = "3:4";
    job.timeout_s = 2;
    elastic_job_run(&job);
    assert_int_equal(job.done, 0);
    assert_int_equal(job.failed, 2);
    expect_output("rank1.txt", "too few ranks met at the store");
}

/* Restarted ranks cannot continue if no rank with the state is left. */
TEST_IN(scratch, test_nobody_with_the_state_is_left) {
    elastic_job job = job_of("", (fate){0, IN_FORWARD, 7}, (fate){1, IN_FORWARD, 7});
    job.ranks = 2;
    job.limits = "1:2";
    job.restarts = 2;
    elastic_job_run(&job);
    assert_int_equal(job.done, 0);
    assert_int_equal(job.failed, 2);
    expect_output("rank1.txt", "every rank that had the training's state has died");
}

/* An error in the training itself would occur on all ranks. */
TEST_IN(scratch, test_a_loss_that_is_not_finite_ends_all) {
    elastic_job job = {
        .ranks = 3, .limits = "1:3", .options = "--model mlp:784,16,10 --batch-size 60 --steps 50 --lr 1e30"};
    elastic_job_run(&job);
    assert_int_equal(job.done, 0);
    assert_int_equal(job.failed, 3);
    assert_int_equal(job.legs, 1);
}
