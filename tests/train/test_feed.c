/* The data of a run: options that are rejected beforehand, the number of steps, and training on a stream. */
#include <stdio.h>
#include <string.h>

#include "common/base/cores.h"
#include "common/train/feed.h"
#include "common/train/loop.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/data/numbers.h"
#include "tests/nn/models.h"
#include "tests/train/small_run.h"

static numbers data;
static ls_sharing sharing; /* the sharding of the runs that are checked; each test begins with strided, even shards */

static ls_train_options options_of(int64_t batch_size) {
    sharing = (ls_sharing){0};
    ls_train_options options = ls_train_defaults();
    options.batch_size = batch_size;
    options.shuffle = false;
    options.quiet = true;
    options.evaluate = false;
    options.pin_memory = false; /* there is no device */
    return options;
}

static void expect_refusal(const ls_train_options *options, int world_size, ls_status expected, const char *text) {
    assert_int_equal(ls_train_check(options, world_size, sharing, &data.base, NULL), expected);
    if (expected != LS_OK) scratch_expect_error(text, NULL);
    for (int rank = 0; rank < world_size; rank++) { /* each rank computes the same */
        ls_feed feed;
        ls_parallel parallel = {.rank = rank, .data_rank = rank, .data_size = world_size};
        assert_int_equal(ls_feed_open(&feed, options, &parallel, sharing, &data.base), expected);
        if (expected != LS_OK) scratch_expect_error(text, NULL);
        if (expected != LS_OK) assert_null(feed.loader);
        ls_feed_close(&feed);
    }
}

/* 45 samples on 4 ranks: 12, 11, 11 and 11. */
TEST_IN(scratch, ranks_that_would_run_out_at_different_steps) {
    ls_train_options options = options_of(4);
    numbers_init(&data, 45);
    expect_refusal(&options, 4, LS_OK, NULL);
    sharing.uneven = true;
    expect_refusal(
        &options, 4, LS_ERR_INVALID,
        "rank 0 has 12 steps in an epoch, but rank 1 has 11: use --join or --drop-last, or leave out --uneven");
    assert_int_equal(ls_train_check(&options, 4, (ls_sharing){.shard = LS_SHARD_CONTIGUOUS}, &data.base, NULL), LS_OK);
    assert_int_equal(ls_train_check(&options, 1, sharing, &data.base, NULL), LS_OK);
    sharing.join = true;
    expect_refusal(&options, 4, LS_OK, NULL);
    sharing.join = false;
    options.drop_last = true;
    expect_refusal(&options, 4, LS_OK, NULL);
    options.drop_last = false;
    options.batch_size = 8; /* the same six steps for all ranks, the last with fewer samples on some */
    expect_refusal(&options, 4, LS_OK, NULL);
    numbers_init(&data, 47);
    options.batch_size = 4;
    expect_refusal(&options, 4, LS_ERR_INVALID, "rank 0 has 12 steps in an epoch, but rank 3 has 11");
    numbers_init(&data, 3);
    expect_refusal(&options, 4, LS_ERR_INVALID, "rank 0 has 1 step in an epoch, but rank 3 has 0");
    sharing.join = true;
    expect_refusal(&options, 4, LS_OK, NULL);
}

TEST_IN(scratch, streams_need_join_and_equal_batches) {
    ls_train_options options = options_of(6);
    numbers_init_stream(&data, 45);
    expect_refusal(&options, 1, LS_OK, NULL);
    expect_refusal(&options, 2, LS_ERR_INVALID, "the length of a stream is not known, so its 2 ranks may run out");
    expect_refusal(&options, 4, LS_ERR_INVALID, "a stream's batch of 6 samples cannot be shared equally by 4 ranks");
    sharing.join = true;
    expect_refusal(&options, 2, LS_OK, NULL);
    expect_refusal(&options, 4, LS_ERR_INVALID, "choose a multiple of 4");
}

TEST_IN(scratch, runs_that_are_too_short_or_too_long) {
    ls_train_options options = options_of(46);
    numbers_init(&data, 45);
    options.drop_last = true;
    expect_refusal(&options, 1, LS_ERR_INVALID, "45 training samples do not fill a batch of 46; leave out --drop-last");
    options.batch_size = 4;
    options.epochs = INT64_MAX / 16;
    expect_refusal(&options, 1, LS_ERR_USAGE, "epochs are too many");
    options.steps = 1;
    expect_refusal(&options, 1, LS_OK, NULL);
}

static int64_t total_steps(const ls_train_options *options, int rank, int world_size) {
    ls_feed feed;
    ls_parallel parallel = {.rank = rank, .data_rank = rank, .data_size = world_size};
    assert_int_equal(ls_feed_open(&feed, options, &parallel, sharing, &data.base), LS_OK);
    int64_t steps = feed.total_steps;
    ls_feed_close(&feed);
    ls_feed_close(&feed); /* closing twice is allowed */
    return steps;
}

TEST_IN(scratch, the_number_of_steps) {
    ls_train_options options = options_of(4);
    options.epochs = 3;
    numbers_init(&data, 45);
    assert_int_equal(total_steps(&options, 0, 1), 3 * 12);
    options.drop_last = true;
    assert_int_equal(total_steps(&options, 0, 1), 3 * 11);
    options.drop_last = false;
    sharing.uneven = sharing.join = true;
    for (int rank = 0; rank < 4; rank++) assert_int_equal(total_steps(&options, rank, 4), 3 * 12);
    options.steps = 7;
    assert_int_equal(total_steps(&options, 1, 4), 7);
    numbers_init_stream(&data, 45);
    assert_int_equal(total_steps(&options, 1, 4), 7);
    options.steps = 0;
    assert_true(total_steps(&options, 1, 4) == LS_STEPS_UNKNOWN);
}

/* Only the main rank reports that a stream is not shuffled, and only if --shuffle was given. */
TEST_IN(scratch, a_stream_is_not_shuffled) {
    ls_train_options options = options_of(4);
    sharing.join = true;
    numbers_init_stream(&data, 45);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        for (int rank = 0; rank < 2; rank++) {
            options.shuffle = shuffle;
            stderr_begin();
            (void)total_steps(&options, rank, 2);
            const char *text = stderr_end();
            bool said = strstr(text, "a stream keeps its own order: --shuffle has no effect") != NULL;
            assert_true(said == (shuffle && rank == 0));
            if (!said) assert_string_equal(text, "");
        }
    }
}

TEST_IN(scratch, workers_that_outnumber_the_cores) {
    int cores = ls_usable_cores();
    const struct {
        int workers, local_ranks;
        bool warned;
    } rows[] = {
        {0, 64, false},       {1, 1, false},    {1, 64, false},        {cores > 1 ? cores : 0, 1, false},
        {cores + 1, 1, true}, {2, cores, true}, {2, cores / 2, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_train_options options = ls_train_defaults();
        options.workers = rows[i].workers;
        stderr_begin();
        ls_train_warn_workers(&options, rows[i].local_ranks);
        const char *text = stderr_end(), *line_end = strchr(text, '\n');
        assert_true((strstr(text, "loader workers") != NULL) == rows[i].warned);
        assert_true(rows[i].warned ? line_end && line_end[1] == '\0' : text[0] == '\0'); /* one line or none */
    }
}

/* --- batches that stay on the devices ------------------------------------------------------------------------------ */

/* The loader reads without threads, so that nothing is read ahead: three batches of four samples, and no more. */
TEST_IN(scratch, resident_batches_are_loaded_once) {
    enum { KEPT = 3, BATCH = 4, STEPS = 20 };
    ls_train_options options = options_of(BATCH);
    options.workers = 0;
    options.steps = STEPS;
    options.resident_batches = KEPT;
    struct small_run run = small_run_open(&(ls_train_options){
        .model = "mlp:784,2,10", .data = "data/digits", .batch_size = BATCH, .accumulate = 1, .weight_decay = -1});
    ls_parallel *p = run.parallel;
    numbers_init(&data, 45);
    ls_feed feed;
    assert_int_equal(ls_feed_open(&feed, &options, p, sharing, &data.base), LS_OK);
    assert_int_equal(p->places.count, KEPT);
    assert_int_equal(ls_loader_begin_epoch(feed.loader, 0, 0), LS_OK);
    double waited_us = 0;
    for (p->step = 0; p->step < STEPS; p->step++) {
        const ls_batch *batch;
        assert_int_equal(ls_feed_next(&feed, p, &batch), LS_OK);
        assert_non_null(batch);
        assert_true(batch->count == BATCH && batch->global_count == BATCH);
        assert_int_equal(batch->step, p->step % KEPT);
        bool loaded = p->step < KEPT;
        if (loaded) assert_true(numbers_is((int64_t)p->step * BATCH, batch->inputs, batch->labels[0]));
        if (!loaded) assert_true(!batch->inputs && !batch->labels && !batch->targets);
        assert_int_equal(data.reads, (loaded ? (int64_t)p->step + 1 : KEPT) * BATCH);
        if (p->step == KEPT - 1) waited_us = ls_loader_wait_us(feed.loader);
    }
    assert_true(ls_loader_wait_us(feed.loader) == waited_us); /* the loader was not called again */
    ls_feed_close(&feed);
    p->step = 0;
    small_run_close(&run);
}

/* --- training on a stream ---------------------------------------------------------------------------------------- */

static ls_status train(const ls_train_options *options, ls_train_result *result) {
    ls_device *device = open_device(0);
    ls_dataset *train_data = NULL, *test_data = NULL;
    ls_model *model;
    ls_parallel *parallel;
    ls_optimizer_options optimizer = ls_train_optimizer(options);
    assert_int_equal(ls_model_create(&model, device, options->model, (size_t)options->batch_size, LS_FP32), LS_OK);
    assert_int_equal(ls_model_init(model, 0), LS_OK);
    assert_int_equal(ls_train_open_data(options, model, &train_data, &test_data), LS_OK);
    assert_int_equal(ls_single_create(&parallel, device, model, &optimizer, (size_t)options->batch_size), LS_OK);
    stderr_begin();
    ls_status status =
        ls_train(parallel, options, (ls_sharing){.shard = LS_SHARD_CONTIGUOUS}, train_data, test_data, result);
    (void)stderr_end();
    parallel->ops->destroy(parallel);
    ls_dataset_close(train_data);
    ls_dataset_close(test_data);
    ls_model_destroy(model);
    close_empty_device(device);
    return status;
}

/* One rank with one worker or none reads a stream in the files' order: the same weights as without --shuffle. */
TEST_IN(scratch, a_stream_trains_as_the_unshuffled_folder_does) {
    static const struct {
        int64_t epochs, steps, expected_steps, expected_epochs;
        bool drop_last;
    } rows[] = {{2, 0, 30, 2, false}, {2, 0, 30, 2, true}, {1, 20, 20, 2, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_train_options options = options_of(i == 1 ? 100 : 104); /* 104 does not divide the 1500 digits */
        ls_train_result folder, stream;
        options.model = "mlp:784,8,10";
        options.epochs = rows[i].epochs;
        options.steps = rows[i].steps;
        options.drop_last = rows[i].drop_last;
        assert_int_equal(train(&options, &folder), LS_OK);
        options.data = "stream:data/digits";
        for (options.workers = 0; options.workers <= 1; options.workers++) {
            assert_int_equal(train(&options, &stream), LS_OK);
            assert_int_equal(stream.parameter_hash, folder.parameter_hash);
            assert_int_equal(stream.steps, rows[i].expected_steps);
            assert_int_equal(stream.epochs, rows[i].expected_epochs);
            assert_int_equal(stream.timed_steps, folder.timed_steps);
            assert_true(stream.final_loss == folder.final_loss);
        }
        options.workers = 3; /* another order of the same samples */
        assert_int_equal(train(&options, &stream), LS_OK);
        assert_true(stream.parameter_hash != folder.parameter_hash);
    }
}

/* Times of steps are kept for a median at the end: more than the initial capacity. */
TEST_IN(scratch, a_stream_of_many_steps) {
    ls_train_options options = options_of(1);
    ls_train_result result;
    options.model = "mlp:784,2,10";
    options.data = "stream:data/digits";
    options.epochs = 6;
    assert_int_equal(train(&options, &result), LS_OK);
    assert_int_equal(result.steps, 9000);
    assert_int_equal(result.timed_steps, 9000 - LS_WARMUP_STEPS);
}

TEST_IN(scratch, a_stream_without_a_full_batch) {
    ls_train_options options = options_of(1501);
    ls_train_result result;
    options.model = "mlp:784,8,10";
    options.data = "stream:data/digits";
    options.drop_last = true;
    options.steps = 5;
    assert_int_equal(train(&options, &result), LS_ERR_INVALID);
    scratch_expect_error("an epoch of stream:data/digits does not fill a batch of 1501", "--drop-last");
}

TEST_IN(scratch, streams_that_do_not_fit) {
    ls_device *device = open_device(0);
    ls_train_options options = options_of(8);
    ls_dataset *train_data = NULL, *test_data = NULL;
    ls_model *model = make_model(device, "mlp:100,8,10", 8, 0);
    options.data = "stream:data/digits";
    assert_int_equal(ls_train_open_data(&options, model, &train_data, &test_data), LS_ERR_INVALID);
    assert_true(!train_data && !test_data);
    scratch_expect_error("the samples of data/digits", "the model takes 100");
    options.data = "stream:data/none";
    assert_int_equal(ls_train_open_data(&options, model, &train_data, &test_data), LS_ERR_IO);
    scratch_expect_error("data/none", NULL);
    ls_model_destroy(model);
    close_empty_device(device);
}
