/* The loader's workers: their order when they are slow, their lifetime, and their failures. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/data/loader.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/numbers.h"

static numbers data;

struct fixture {
    ls_batches *batches, *oracle;
    ls_loader *loader;
};

static struct fixture create(int64_t count, int64_t batch, bool shuffle, const ls_loader_options *loading) {
    struct fixture f;
    ls_batches_options options = {.dataset_count = count, .global_batch = batch, .world_size = 1, .shuffle = shuffle};
    numbers_init(&data, (size_t)count);
    assert_int_equal(ls_batches_create(&f.batches, &options), LS_OK);
    assert_int_equal(ls_batches_create(&f.oracle, &options), LS_OK);
    assert_int_equal(ls_loader_create(&f.loader, &data.base, f.batches, loading), LS_OK);
    return f;
}

static void destroy(struct fixture *f) {
    ls_loader_destroy(f->loader);
    ls_batches_destroy(f->batches);
    ls_batches_destroy(f->oracle);
}

static void expect_next(const struct fixture *f, int64_t epoch, int64_t step) {
    const ls_batch *batch;
    struct ls_batch_indices share;
    assert_int_equal(ls_loader_next(f->loader, &batch), LS_OK);
    assert_non_null(batch);
    ls_batches_get(f->oracle, step, &share);
    assert_int_equal(batch->epoch, epoch);
    assert_int_equal(batch->step, step);
    assert_int_equal(batch->count, share.local_count);
    for (size_t i = 0; i < batch->count; i++) {
        assert_true(
            numbers_is(share.indices[i], (const float *)batch->inputs + i * NUMBERS_INPUT_COUNT, batch->labels[i]));
    }
}

static void expect_epoch(const struct fixture *f, int64_t epoch, int64_t steps) {
    const ls_batch *batch = (const ls_batch *)&batch;
    ls_batches_set_epoch(f->oracle, epoch);
    assert_int_equal(ls_loader_begin_epoch(f->loader, epoch, 0), LS_OK);
    for (int64_t step = 0; step < steps; step++) expect_next(f, epoch, step);
    if (steps < ls_batches_per_epoch(f->oracle)) return;
    assert_int_equal(ls_loader_next(f->loader, &batch), LS_OK);
    assert_null(batch);
}

/* Each worker sleeps randomly before its samples; whole epochs and some that are abandoned in the middle. */
TEST_IN(scratch, the_order_does_not_depend_on_who_is_slow) {
    static const int workers[] = {0, 1, 2, 3, 7}, prefetches[] = {1, 2, 5};
    for (size_t w = 0; w < COUNT_OF(workers); w++) {
        for (size_t p = 0; p < COUNT_OF(prefetches); p++) {
            ls_loader_options loading = {.workers = workers[w], .prefetch = prefetches[p]};
            struct fixture f = create(100 * (workers[w] + 1), 2, true, &loading);
            data.delay_us = 60;
            int64_t steps = ls_batches_per_epoch(f.oracle);
            expect_epoch(&f, 0, steps);
            expect_epoch(&f, 1, 7 * workers[w] / 2);
            expect_epoch(&f, 1, 1);
            expect_epoch(&f, 2, 0);
            expect_epoch(&f, 3, steps);
            expect_epoch(&f, 4, steps - 1);
            destroy(&f);
        }
    }
}

/* Batch i is from worker i mod K, counted anew in each epoch, and the K threads stay the same. */
TEST_IN(scratch, workers_take_turns_and_outlive_epochs) {
    enum { COUNT = 50, BATCH = 2, STEPS = 25 };
    for (int workers = 1; workers <= 4; workers++) {
        ls_loader_options loading = {.workers = workers, .prefetch = 2};
        struct fixture f = create(COUNT, BATCH, false, &loading);
        int of_first[STEPS];
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            expect_epoch(&f, epoch, STEPS);
            for (int step = 0; step < STEPS; step++) {
                int thread = data.reader_of[BATCH * step];
                assert_int_equal(thread, data.reader_of[BATCH * step + 1]);
                if (step >= workers) assert_int_equal(thread, data.reader_of[BATCH * (step - workers)]);
                if (epoch == 0) of_first[step] = thread;
                assert_int_equal(thread, of_first[step]);
            }
            expect_epoch(&f, epoch, 3); /* abandoned when another worker is next */
        }
        assert_int_equal(data.threads, workers);
        destroy(&f);
    }
    ls_loader_options none = {.workers = 0};
    struct fixture f = create(COUNT, BATCH, false, &none);
    expect_epoch(&f, 0, STEPS);
    expect_epoch(&f, 1, STEPS);
    assert_int_equal(data.threads, 1);
    assert_int_equal(data.reads, 2 * COUNT); /* nothing is read ahead, and nothing twice */
    destroy(&f);
}

/* --- failures ---------------------------------------------------------------------------------------------------- */

enum { BAD_COUNT = 40, BAD_BATCH = 4, BAD_SAMPLE = 30, BAD_STEP = 7 };

static void expect_failure(const struct fixture *f, int workers, int64_t epoch, const char *cause) {
    char line[200];
    const ls_batch *batch;
    ls_batches_set_epoch(f->oracle, epoch);
    assert_int_equal(ls_loader_begin_epoch(f->loader, epoch, 0), LS_OK);
    for (int64_t step = 0; step < BAD_STEP; step++) expect_next(f, epoch, step);
    if (workers > 0) {
        snprintf(line, sizeof line, "loader worker %d, epoch %d, batch 7: %s", BAD_STEP % workers, (int)epoch, cause);
    } else {
        snprintf(line, sizeof line, "loader, epoch %d, batch 7: %s", (int)epoch, cause);
    }
    for (int again = 0; again < 3; again++) {
        batch = (const ls_batch *)&batch;
        assert_int_equal(ls_loader_next(f->loader, &batch), LS_ERR_FORMAT);
        assert_null(batch);
        if (again == 0) scratch_expect_error(line, NULL); /* and no further line later: the teardown checks */
    }
}

/* All samples from one on are bad, so that later batches fail too, and often earlier in time. */
TEST_IN(scratch, a_failure_shows_at_its_batch_and_only_there) {
    static const int workers[] = {0, 1, 3, 7};
    for (size_t w = 0; w < COUNT_OF(workers); w++) {
        for (int slow = 0; slow < 2; slow++) {
            ls_loader_options loading = {.workers = workers[w], .prefetch = 2};
            struct fixture f = create(BAD_COUNT, BAD_BATCH, false, &loading);
            data.delay_us = slow ? 300 : 0;
            expect_epoch(&f, 0, BAD_COUNT / BAD_BATCH);
            data.bad_from = BAD_SAMPLE;
            expect_failure(&f, workers[w], 1, "sample 30 is bad");
            expect_failure(&f, workers[w], 2, "sample 30 is bad");
            data.speechless = true;
            expect_failure(&f, workers[w], 3, "malformed file");
            data.bad_from = NUMBERS_NONE;
            expect_epoch(&f, 4, BAD_COUNT / BAD_BATCH);
            data.bad_from = 0;
            assert_int_equal(ls_loader_begin_epoch(f.loader, 5, 0), LS_OK); /* and destroyed before a batch is taken */
            destroy(&f);
        }
    }
}

static void wait_until(_Atomic int64_t *value, int64_t reached) {
    while (atomic_load(value) < reached) usleep(200);
}

/* Begins that epoch once the worker is no longer stuck, which on a busy machine may take longer than another timeout of
 * the loader. */
static void begin_after_release(ls_loader *loader, int64_t epoch) {
    char line[600];
    ls_log_sink before = ls_log_capture(line, sizeof line);
    ls_status status = LS_ERR_TIMEOUT;
    for (int i = 0; i < 600 && status == LS_ERR_TIMEOUT; i++) status = ls_loader_begin_epoch(loader, epoch, 0);
    ls_log_restore(before);
    assert_int_equal(status, LS_OK);
}

/* While a worker hangs an epoch cannot begin; it then has no batches, and in particular not those of the previous
 * one. */
static void expect_no_epoch(ls_loader *loader, int64_t epoch, const char *text) {
    const ls_batch *batch = (const ls_batch *)&batch;
    assert_int_equal(ls_loader_begin_epoch(loader, epoch, 0), LS_ERR_TIMEOUT);
    scratch_expect_error(text, NULL);
    assert_int_equal(ls_loader_next(loader, &batch), LS_ERR_TIMEOUT);
    assert_null(batch);
}

/* The first sample of batch 1 hangs. The timeout is a second, so that a busy machine does not make batch 0 late. */
TEST_IN(scratch, a_worker_that_hangs_is_named) {
    const ls_batch *batch = (const ls_batch *)&batch;
    ls_loader_options loading = {.workers = 2, .prefetch = 1, .timeout_s = 1};
    struct fixture f = create(40, 4, false, &loading);
    data.stuck = 4;
    ls_batches_set_epoch(f.oracle, 0);
    assert_int_equal(ls_loader_begin_epoch(f.loader, 0, 0), LS_OK);
    wait_until(&data.reads, 5);
    expect_next(&f, 0, 0);
    assert_int_equal(ls_loader_next(f.loader, &batch), LS_ERR_TIMEOUT);
    assert_null(batch);
    scratch_expect_error("loader worker 1, epoch 0, batch 1: not finished within 1 s", NULL);
    assert_int_equal(ls_loader_next(f.loader, &batch), LS_ERR_TIMEOUT);
    expect_no_epoch(f.loader, 1, "loader worker 1 hangs: its batch was not finished within 1 s");
    data.stuck = NUMBERS_NONE;
    begin_after_release(f.loader, 2);
    ls_batches_set_epoch(f.oracle, 2);
    for (int64_t step = 0; step < 10; step++) expect_next(&f, 2, step);
    destroy(&f);
}

/* Also if no call has waited for its batch yet. */
TEST_IN(scratch, an_epoch_cannot_begin_while_a_worker_hangs) {
    ls_loader_options loading = {.workers = 1, .prefetch = 2, .timeout_s = 1};
    struct fixture f = create(40, 4, false, &loading);
    data.stuck = 0;
    assert_int_equal(ls_loader_begin_epoch(f.loader, 0, 0), LS_OK);
    wait_until(&data.reads, 1);
    expect_no_epoch(f.loader, 1, "loader worker 0 hangs: its batch was not finished within 1 s");
    data.stuck = NUMBERS_NONE;
    begin_after_release(f.loader, 2);
    destroy(&f);
}

/* Releases the stuck sample once the thread that waits for it sleeps, as in begin_epoch. */
static void *release_when_waited_for(void *argument) {
    long thread = *(const long *)argument;
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
    for (int asleep = 0; asleep < 5;) {
        usleep(2000);
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[length] = '\0';
        const char *behind_name = strrchr(text, ')');
        asleep = behind_name && strncmp(behind_name, ") S", 3) == 0 ? asleep + 1 : 0;
    }
    data.stuck = NUMBERS_NONE;
    return NULL;
}

/* One worker hangs at its first batch with more batches queued: abandoning the epoch drops those. */
TEST_IN(scratch, an_epoch_left_is_dropped_not_worked_off) {
    ls_loader_options loading = {.workers = 1, .prefetch = 5};
    struct fixture f = create(40, 4, false, &loading);
    data.stuck = 0;
    assert_int_equal(ls_loader_begin_epoch(f.loader, 0, 0), LS_OK);
    wait_until(&data.reads, 1);
    pthread_t helper;
    long thread = syscall(SYS_gettid);
    assert_int_equal(pthread_create(&helper, NULL, release_when_waited_for, &thread), 0);
    expect_epoch(&f, 1, 10);
    assert_int_equal(pthread_join(helper, NULL), 0);
    assert_int_equal(data.reads, 4 + 40); /* batch 0 of the abandoned epoch, and the next epoch */
    destroy(&f);
}
