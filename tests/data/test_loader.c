#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "common/data/loader.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define INPUT_COUNT 12
#define TARGET_COUNT 5
#define MAX_LOCAL 16

static const ls_sample_spec classification = {.channels = 1, .height = 3, .width = 4, .classes = 10};
static const ls_sample_spec regression = {.channels = 1, .height = 1, .width = 12, .target_count = TARGET_COUNT};
static const struct { int workers, prefetch; } pools[] = {{0, 0}, {1, 1}, {1, 3}, {2, 1}, {3, 2}, {7, 1}, {7, 5}};

struct fixture {
    ls_dataset *dataset;
    ls_batches *batches, *oracle; /* the test sets the oracle's epoch, the loader sets the other's */
    ls_loader *loader;
};

static struct fixture create(const ls_sample_spec *spec, const ls_batches_options *options, size_t pool) {
    struct fixture f;
    assert_int_equal(ls_dataset_random(&f.dataset, 11, (size_t)options->dataset_count, spec), LS_OK);
    assert_int_equal(ls_batches_create(&f.batches, options), LS_OK);
    assert_int_equal(ls_batches_create(&f.oracle, options), LS_OK);
    ls_loader_options loading = {.workers = pools[pool].workers, .prefetch = pools[pool].prefetch};
    assert_int_equal(ls_loader_create(&f.loader, f.dataset, f.batches, &loading), LS_OK);
    return f;
}

static void destroy(struct fixture *f) {
    ls_loader_destroy(f->loader);
    ls_batches_destroy(f->batches);
    ls_batches_destroy(f->oracle);
    ls_dataset_close(f->dataset);
}

/* The batch must equal a direct read of that step's samples. */
static void expect_batch(const struct fixture *f, const ls_batch *batch, int64_t epoch, int64_t step) {
    static float inputs[MAX_LOCAL * INPUT_COUNT], targets[MAX_LOCAL * TARGET_COUNT];
    static int64_t labels[MAX_LOCAL];
    const ls_sample_spec *spec = ls_dataset_spec(f->dataset);
    struct ls_batch_indices share;
    ls_batches_get(f->oracle, step, &share);
    ls_dataset_read(f->dataset, share.indices, share.local_count, inputs, labels, targets);
    assert_non_null(batch);
    assert_int_equal(batch->epoch, epoch);
    assert_int_equal(batch->step, step);
    assert_int_equal(batch->count, share.local_count);
    assert_int_equal(batch->global_count, share.global_count);
    assert_true((batch->labels != NULL) == (spec->classes > 0));
    assert_true((batch->targets != NULL) == (spec->target_count > 0));
    if (batch->count == 0) return;
    assert_memory_equal(batch->inputs, inputs, batch->count * INPUT_COUNT * sizeof *inputs);
    if (batch->labels) assert_memory_equal(batch->labels, labels, batch->count * sizeof *labels);
    if (batch->targets) assert_memory_equal(batch->targets, targets, batch->count * TARGET_COUNT * sizeof *targets);
}

/* Takes `steps` batches of the epoch (all, if steps < 0), each checked at once and again just before it becomes
 * invalid. */
static void take(const struct fixture *f, int64_t epoch, int64_t steps) {
    ls_batches_set_epoch(f->oracle, epoch);
    assert_int_equal(ls_loader_begin_epoch(f->loader, epoch, 0), LS_OK);
    bool whole = steps < 0;
    if (whole) steps = ls_batches_per_epoch(f->oracle);
    const ls_batch *batch;
    for (int64_t step = 0; step < steps; step++) {
        assert_int_equal(ls_loader_next(f->loader, &batch), LS_OK);
        expect_batch(f, batch, epoch, step);
        if (step % 3 == 0) usleep(200); /* lets the workers run ahead, into the slots that they may use */
        expect_batch(f, batch, epoch, step);
    }
    for (int i = 0; whole && i < 2; i++) {
        assert_int_equal(ls_loader_next(f->loader, &batch), LS_OK);
        assert_null(batch);
    }
}

TEST(batches_equal_direct_reads) {
    for (size_t i = 0; i < COUNT_OF(pools); i++) {
        for (int rank = 0; rank < 2; rank++) {
            ls_batches_options options = {
                .dataset_count = 101, .global_batch = 8, .world_size = 2, .rank = rank, .shuffle = true, .seed = 5};
            struct fixture f = create(&classification, &options, i);
            for (int64_t epoch = 0; epoch < 4; epoch++) take(&f, epoch, -1);
            destroy(&f);
        }
    }
}

TEST(targets_and_empty_shares) {
    for (size_t i = 0; i < COUNT_OF(pools); i++) {
        ls_batches_options options = {.dataset_count = 17,
                                      .global_batch = 9,
                                      .world_size = 4,
                                      .rank = 3,
                                      .shard = LS_SHARD_CONTIGUOUS,
                                      .shuffle = true};
        struct fixture f = create(&regression, &options, i);
        for (int64_t epoch = 0; epoch < 3; epoch++) take(&f, epoch, -1);
        destroy(&f);
    }
}

TEST(an_epoch_may_be_left_in_the_middle) {
    for (size_t i = 0; i < COUNT_OF(pools); i++) {
        ls_batches_options options = {.dataset_count = 60, .global_batch = 4, .world_size = 1, .shuffle = true};
        struct fixture f = create(&classification, &options, i);
        for (int64_t steps = 0; steps <= 15; steps++) take(&f, steps % 2, steps);
        take(&f, 7, -1);
        take(&f, 8, 2); /* and destroyed in the middle */
        destroy(&f);
    }
}

TEST(nothing_begun_and_nothing_to_load) {
    for (size_t i = 0; i < COUNT_OF(pools); i++) {
        ls_batches_options options = {.dataset_count = 3, .global_batch = 4, .world_size = 1, .drop_last = true};
        struct fixture f = create(&classification, &options, i);
        const ls_batch *batch = (const ls_batch *)&batch;
        assert_int_equal(ls_loader_next(f.loader, &batch), LS_OK);
        assert_null(batch);
        take(&f, 0, -1);
        destroy(&f);
        options.drop_last = false;
        f = create(&classification, &options, i);
        destroy(&f); /* before any epoch */
    }
    ls_loader_destroy(NULL);
}

/* The ring wraps many times while the caller takes batches as fast as possible. */
TEST(many_small_batches) {
    for (size_t i = 0; i < COUNT_OF(pools); i++) {
        ls_batches_options options = {.dataset_count = 3000, .global_batch = 1, .world_size = 1, .shuffle = true};
        struct fixture f = create(&classification, &options, i);
        ls_batches_set_epoch(f.oracle, 1);
        assert_int_equal(ls_loader_begin_epoch(f.loader, 1, 0), LS_OK);
        for (int64_t step = 0; step < 3000; step++) {
            const ls_batch *batch;
            assert_int_equal(ls_loader_next(f.loader, &batch), LS_OK);
            expect_batch(&f, batch, 1, step);
        }
        destroy(&f);
    }
}

/* Future batches are in other memory than the current one: with the promised number of buffers, each is reused in
 * turn. */
TEST(there_is_a_buffer_for_each_batch_ahead) {
    for (size_t i = 0; i < COUNT_OF(pools); i++) {
        ls_batches_options options = {.dataset_count = 160, .global_batch = 4, .world_size = 1};
        struct fixture f = create(&classification, &options, i);
        const float *buffers[40];
        int count = pools[i].workers * pools[i].prefetch + 1;
        assert_int_equal(ls_loader_begin_epoch(f.loader, 0, 0), LS_OK);
        for (int step = 0; step < 40; step++) {
            const ls_batch *batch;
            assert_int_equal(ls_loader_next(f.loader, &batch), LS_OK);
            buffers[step] = batch->inputs;
            for (int ago = 1; ago <= step && ago <= count; ago++) {
                assert_true((buffers[step] == buffers[step - ago]) == (ago == count));
            }
        }
        destroy(&f);
    }
}

TEST(the_time_spent_waiting_grows) {
    ls_batches_options options = {.dataset_count = 64, .global_batch = 16, .world_size = 1};
    struct fixture f = create(&classification, &options, 0);
    assert_true(ls_loader_wait_us(f.loader) == 0);
    take(&f, 0, -1);
    double first_us = ls_loader_wait_us(f.loader);
    take(&f, 1, -1);
    assert_true(first_us > 0 && ls_loader_wait_us(f.loader) > first_us && ls_loader_wait_us(f.loader) < 60e6);
    destroy(&f);
}

TEST_IN(scratch, invalid_options) {
    static const struct {
        ls_loader_options options;
        const char *text;
    } rows[] = {
        {{.workers = 1, .prefetch = 0}, "prefetch 0"},
        {{.workers = 1, .prefetch = -1}, "prefetch -1"},
        {{.workers = 2, .prefetch = (1 << 20) + 1}, "prefetch 1048577"},
        {{.workers = -1, .prefetch = 2}, "not -1"},
        {{.workers = 65, .prefetch = 2}, "0 to 64 workers, not 65"},
    };
    ls_batches_options options = {.dataset_count = 8, .global_batch = 4, .world_size = 1};
    struct fixture f = create(&classification, &options, 0);
    ls_loader *loader = (ls_loader *)&loader;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        loader = (ls_loader *)&loader;
        assert_int_equal(ls_loader_create(&loader, f.dataset, f.batches, &rows[i].options), LS_ERR_INVALID);
        assert_null(loader);
        scratch_expect_error(rows[i].text, NULL);
    }
    loader = (ls_loader *)&loader;
    assert_int_equal(ls_loader_create(&loader, f.dataset, NULL, &(ls_loader_options){.stream.local_batch = 1}),
                     LS_ERR_INVALID);
    assert_null(loader);
    scratch_expect_error("stream", "indices");
    assert_int_equal(
        ls_loader_create(&loader, f.dataset, f.batches, &(ls_loader_options){.workers = 64, .prefetch = 1}), LS_OK);
    ls_loader_destroy(loader);
    destroy(&f);
}

TEST_IN(scratch, too_much_memory) {
    enum { COUNT = 1 << 22 };
    ls_batches_options options = {.dataset_count = COUNT, .global_batch = COUNT, .world_size = 1};
    static const ls_sample_spec huge = {.channels = 1 << 20, .height = 1 << 10, .width = 1 << 10, .classes = 2};
    ls_dataset *dataset;
    ls_batches *batches;
    assert_int_equal(ls_dataset_random(&dataset, 0, COUNT, &huge), LS_OK);
    assert_int_equal(ls_batches_create(&batches, &options), LS_OK);
    ls_loader *loader = (ls_loader *)&loader;
    ls_loader_options loading = {.workers = 2, .prefetch = 2};
    assert_int_equal(ls_loader_create(&loader, dataset, batches, &loading), LS_ERR_NO_MEMORY); /* 2^64 bytes */
    assert_null(loader);
    scratch_expect_error("5 batches of 4194304 samples", "smaller batches");
    ls_batches_destroy(batches);
    ls_dataset_close(dataset);
}
