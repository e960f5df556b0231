/* An epoch that begins at a later batch than its first, as in a resumed run. */

#include "common/data/loader.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/numbers.h"

enum { SAMPLES = 53, BATCH = 4, MAX_STEPS = 30, MAX_SAMPLES = 64 };

static const struct { int workers, prefetch; } pools[] = {{0, 0}, {1, 3}, {3, 2}};

static numbers data;

/* The samples of an epoch's batches: the first input of each. */
struct epoch {
    float inputs[MAX_SAMPLES];
    size_t counts[MAX_STEPS];
    int steps;
};

/* Takes the rest of the epoch that has begun, which starts at step `first`. */
static struct epoch take(ls_loader *loader, int64_t epoch, int64_t first) {
    struct epoch e = {.steps = 0};
    const ls_batch *batch;
    size_t taken = 0;
    for (;;) {
        assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
        if (!batch) return e;
        assert_int_equal(batch->epoch, epoch);
        assert_int_equal(batch->step, first + e.steps);
        for (size_t i = 0; i < batch->count; i++)
            e.inputs[taken++] = ((const float *)batch->inputs)[i * NUMBERS_INPUT_COUNT];
        e.counts[e.steps++] = batch->count;
    }
}

/* Begins at each step, and also after the last batch, and expects the same batches as in a whole epoch from there
 * on. */
static void expect_ends(ls_loader *loader, bool reads_from_there_on) {
    assert_int_equal(ls_loader_begin_epoch(loader, 2, 0), LS_OK);
    struct epoch all = take(loader, 2, 0);
    assert_in_range(all.steps, 5, MAX_STEPS - 2);
    size_t skipped = 0;
    for (int first = 0; first <= all.steps + 2; first++) {
        int64_t before = data.reads;
        assert_int_equal(ls_loader_begin_epoch(loader, 2, first), LS_OK);
        struct epoch some = take(loader, 2, first);
        assert_int_equal(some.steps, first < all.steps ? all.steps - first : 0);
        size_t count = 0;
        for (int s = 0; s < some.steps; s++) {
            assert_int_equal(some.counts[s], all.counts[first + s]);
            count += some.counts[s];
        }
        if (count > 0) assert_memory_equal(some.inputs, all.inputs + skipped, count * sizeof *some.inputs);
        if (reads_from_there_on) assert_int_equal(data.reads - before, count);
        if (first < all.steps) skipped += all.counts[first];
    }
    assert_int_equal(ls_loader_begin_epoch(loader, 2, INT64_MAX), LS_OK);
    assert_int_equal(take(loader, 2, 0).steps, 0);
    assert_int_equal(ls_loader_begin_epoch(loader, 2, 0), LS_OK);
    assert_int_equal(take(loader, 2, 0).steps, all.steps); /* and no state of it remains */
}

/* Earlier samples are not read. */
TEST(data_with_indices) {
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        ls_batches *batches;
        ls_loader *loader;
        ls_batches_options options = {
            .dataset_count = SAMPLES, .global_batch = BATCH, .world_size = 1, .shuffle = true};
        ls_loader_options loading = {.workers = pools[i].workers, .prefetch = pools[i].prefetch};
        numbers_init(&data, SAMPLES);
        assert_int_equal(ls_batches_create(&batches, &options), LS_OK);
        assert_int_equal(ls_loader_create(&loader, &data.base, batches, &loading), LS_OK);
        expect_ends(loader, true);
        ls_loader_destroy(loader);
        ls_batches_destroy(batches);
    }
}

/* The workers take the same turns as in an epoch from its start. */
TEST(streams) {
    for (size_t i = 0; i < 2 * sizeof pools / sizeof *pools; i++) {
        ls_loader *loader;
        ls_loader_options loading = {.workers = pools[i / 2].workers,
                                     .prefetch = pools[i / 2].prefetch,
                                     .stream = {.local_batch = BATCH, .world_size = 1, .drop_last = i % 2 == 1}};
        numbers_init_stream(&data, SAMPLES);
        assert_int_equal(ls_loader_create(&loader, &data.base, NULL, &loading), LS_OK);
        expect_ends(loader, false);
        ls_loader_destroy(loader);
    }
}

TEST_IN(scratch, what_cannot_be_read_on_the_way_is_an_error) {
    ls_loader *loader;
    ls_loader_options loading = {.stream = {.local_batch = BATCH, .world_size = 1}};
    numbers_init_stream(&data, SAMPLES);
    assert_int_equal(ls_loader_create(&loader, &data.base, NULL, &loading), LS_OK);
    data.bad_from = 9;
    assert_int_not_equal(ls_loader_begin_epoch(loader, 3, 5), LS_OK);
    scratch_expect_error("loader, epoch 3, batch 2: ", NULL);
    const ls_batch *batch;
    assert_int_not_equal(ls_loader_next(loader, &batch), LS_OK);
    data.bad_from = NUMBERS_NONE;
    assert_int_equal(ls_loader_begin_epoch(loader, 3, 5), LS_OK);
    assert_int_equal(take(loader, 3, 5).steps, 9);
    ls_loader_destroy(loader);
}
