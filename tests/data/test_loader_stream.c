/* The loader on a stream: the order of the workers' batches. */
#include <stdio.h>

#include "common/data/loader.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/numbers.h"

enum { MAX_SAMPLES = 40, MAX_BATCHES = MAX_SAMPLES };

struct expected {
    int64_t samples[MAX_SAMPLES];
    int counts[MAX_BATCHES], batches;
};

static numbers data;

/* Each worker's samples are cut into batches; the workers that have batches left deliver them in turn. */
static struct expected expect(int count, const ls_loader_options *loading) {
    const ls_stream_share *share = &loading->stream;
    struct expected e = {.batches = 0};
    int workers = loading->workers > 0 ? loading->workers : 1, shares = share->world_size * workers, taken = 0;
    int batch = (int)share->local_batch;
    for (int round = 0; round * batch < count; round++) {
        for (int k = 0; k < workers; k++) {
            int first = share->rank * workers + k + round * batch * shares, n = 0;
            while (n < batch && first + n * shares < count) n++;
            if (n == 0 || (n < batch && share->drop_last)) continue;
            for (int i = 0; i < n; i++) e.samples[taken++] = first + i * shares;
            e.counts[e.batches++] = n;
        }
    }
    return e;
}

static void expect_batch(ls_loader *loader, int64_t epoch, int step, const int64_t *samples, int count,
                         int world_size) {
    const ls_batch *batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    assert_non_null(batch);
    assert_int_equal(batch->epoch, epoch);
    assert_int_equal(batch->step, step);
    assert_int_equal(batch->count, count);
    assert_int_equal(batch->global_count, world_size == 1 ? count : 0);
    for (int i = 0; i < count; i++) {
        assert_true(numbers_is(samples[i], (const float *)batch->inputs + i * NUMBERS_INPUT_COUNT, batch->labels[i]));
    }
}

/* Takes the first `batches` batches of an epoch; -1: all, and the end. */
static void expect_epoch(ls_loader *loader, int64_t epoch, const struct expected *e, int batches, int world_size) {
    assert_int_equal(ls_loader_begin_epoch(loader, epoch, 0), LS_OK);
    const int64_t *samples = e->samples;
    for (int step = 0; step < (batches < 0 ? e->batches : batches); step++) {
        expect_batch(loader, epoch, step, samples, e->counts[step], world_size);
        samples += e->counts[step];
    }
    double wait_us = 0;
    for (int again = 0; again < 3 && batches < 0; again++) {
        const ls_batch *batch = (const ls_batch *)&batch;
        assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
        assert_null(batch);
        if (again > 0) assert_true(ls_loader_wait_us(loader) == wait_us); /* nothing is read any more */
        wait_us = ls_loader_wait_us(loader);
    }
}

static ls_loader *create(int count, const ls_loader_options *loading) {
    ls_loader *loader;
    numbers_init_stream(&data, (size_t)count);
    assert_int_equal(ls_loader_create(&loader, &data.base, NULL, loading), LS_OK);
    return loader;
}

/* PyTorch's batches of 12 items on 2 ranks with 2 workers each, in batches of 2. */
TEST_IN(scratch, the_recorded_order) {
    static const struct {
        int rank, count, world_size, drop_last;
        struct expected e;
    } rows[] = {
        {0, 12, 2, false, {.samples = {0, 4, 1, 5, 8, 9}, .counts = {2, 2, 1, 1}, .batches = 4}},
        {1, 12, 2, false, {.samples = {2, 6, 3, 7, 10, 11}, .counts = {2, 2, 1, 1}, .batches = 4}},
        {0, 12, 2, true, {.samples = {0, 4, 1, 5}, .counts = {2, 2}, .batches = 2}},
        {1, 12, 2, true, {.samples = {2, 6, 3, 7}, .counts = {2, 2}, .batches = 2}},
        {0, 5, 1, false, {.samples = {0, 2, 1, 3, 4}, .counts = {2, 2, 1}, .batches = 3}},
        {0, 5, 1, true, {.samples = {0, 2, 1, 3}, .counts = {2, 2}, .batches = 2}},
        {0, 1, 2, false, {.samples = {0}, .counts = {1}, .batches = 1}},
        {1, 1, 2, false, {.batches = 0}},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_loader_options loading = {.workers = 2,
                                     .prefetch = 2,
                                     .stream = {.local_batch = 2,
                                                .rank = rows[i].rank,
                                                .world_size = rows[i].world_size,
                                                .drop_last = rows[i].drop_last}};
        ls_loader *loader = create(rows[i].count, &loading);
        const ls_batch *batch = (const ls_batch *)&batch;
        assert_int_equal(ls_loader_next(loader, &batch), LS_OK); /* reading has not begun */
        assert_null(batch);
        for (int64_t epoch = 0; epoch < 3; epoch++) expect_epoch(loader, epoch, &rows[i].e, -1, rows[i].world_size);
        ls_loader_destroy(loader);
    }
}

static void expect_order(int count, const ls_loader_options *loading) {
    struct expected e = expect(count, loading);
    int world_size = loading->stream.world_size;
    ls_loader *loader = create(count, loading);
    data.delay_us = count % 3 == 0 ? 100 : 0;
    expect_epoch(loader, 0, &e, -1, world_size);
    if (loading->stream.drop_last == false) {
        for (int i = 0; i < count; i++) assert_true(data.times_read_of[i] <= 1);
        for (int b = 0, i = 0; b < e.batches; i += e.counts[b++]) assert_int_equal(data.times_read_of[e.samples[i]], 1);
    }
    expect_epoch(loader, 1, &e, e.batches / 2, world_size);
    expect_epoch(loader, 1, &e, -1, world_size);
    expect_epoch(loader, 2, &e, 0, world_size);
    expect_epoch(loader, 0, &e, e.batches, world_size); /* and destroyed before the end is reached */
    ls_loader_destroy(loader);
}

/* Each sample occurs once over all ranks (without drop_last), in an order that prefetch and delays do not change. */
TEST_IN(scratch, every_sample_once_in_a_fixed_order) {
    static const int workers[] = {0, 1, 2, 3, 7}, prefetches[] = {1, 2, 5}, counts[] = {1, 2, 9, 13, 24, 31};
    for (size_t w = 0; w < COUNT_OF(workers); w++) {
        for (size_t p = 0; p < COUNT_OF(prefetches); p++) {
            for (size_t c = 0; c < COUNT_OF(counts); c++) {
                int world_size = 1 + (int)(w + p + c) % 3, total = 0;
                for (int rank = 0; rank < world_size; rank++) {
                    ls_loader_options loading = {
                        .workers = workers[w],
                        .prefetch = prefetches[p],
                        .stream = {.local_batch = 1 + c % 3, .rank = rank, .world_size = world_size}};
                    struct expected e = expect(counts[c], &loading);
                    for (int b = 0; b < e.batches; b++) total += e.counts[b];
                    expect_order(counts[c], &loading);
                    loading.stream.drop_last = true;
                    expect_order(counts[c], &loading);
                }
                assert_int_equal(total, counts[c]);
            }
        }
    }
}

/* Samples from 9 on are bad. One rank, batches of 2: worker 1 of 2 has 1 3, 5 7, 9 ..., and 9 belongs to batch 5. */
TEST_IN(scratch, a_failure_shows_at_its_batch) {
    for (int workers = 0; workers <= 2; workers += 2) {
        ls_loader_options loading = {
            .workers = workers, .prefetch = 2, .stream = {.local_batch = 2, .rank = 0, .world_size = 1}};
        struct expected e = expect(12, &loading);
        ls_loader *loader = create(12, &loading);
        const ls_batch *batch;
        for (int64_t epoch = 0; epoch < 2; epoch++) {
            data.bad_from = 9;
            expect_epoch(loader, epoch, &e, 4, 1);
            if (workers > 0) {
                assert_int_equal(ls_loader_next(loader, &batch), LS_ERR_FORMAT); /* batch 4 is [8 10] */
                scratch_expect_error("loader worker 0, epoch", "batch 4: sample 10 is bad");
            } else {
                assert_int_equal(ls_loader_next(loader, &batch), LS_ERR_FORMAT); /* batch 4 is [8 9] */
                scratch_expect_error("loader, epoch", "batch 4: sample 9 is bad");
            }
            assert_int_equal(ls_loader_next(loader, &batch), LS_ERR_FORMAT);
            data.bad_from = NUMBERS_NONE;
            expect_epoch(loader, epoch, &e, -1, 1);
        }
        ls_loader_destroy(loader);
    }
}

TEST_IN(scratch, shares_that_cannot_be) {
    static const ls_stream_share rows[] = {
        {.local_batch = 0, .rank = 0, .world_size = 1},
        {.local_batch = 1, .rank = 0, .world_size = 0},
        {.local_batch = 1, .rank = 2, .world_size = 2},
        {.local_batch = 1, .rank = -1, .world_size = 2},
    };
    numbers_init_stream(&data, 10);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_loader *loader = (ls_loader *)&loader;
        ls_loader_options loading = {.stream = rows[i]};
        assert_int_equal(ls_loader_create(&loader, &data.base, NULL, &loading), LS_ERR_INVALID);
        assert_null(loader);
        scratch_expect_error("a stream's loader cannot have", NULL);
    }
    ls_batches *batches;
    ls_batches_options options = {.dataset_count = 4, .global_batch = 2, .world_size = 1};
    assert_int_equal(ls_batches_create(&batches, &options), LS_OK);
    ls_loader *loader = (ls_loader *)&loader;
    ls_loader_options loading = {.stream = {.local_batch = 1, .world_size = 1}};
    assert_int_equal(ls_loader_create(&loader, &data.base, batches, &loading), LS_ERR_INVALID);
    assert_null(loader);
    scratch_expect_error("either a stream or", NULL);
    ls_batches_destroy(batches);
}
