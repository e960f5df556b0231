/* The loader in half precision: the samples of the fp32 loader, each value rounded once; labels and tokens
 * unchanged. */
#include <string.h>

#include "common/base/dtype.h"
#include "common/data/loader.h"
#include "tests/base/test.h"
#include "tests/data/numbers.h"

enum { WORKERS = 2, BATCH = 9, SAMPLES = 40 };

static uint16_t rounded(ls_dtype dtype, float value) {
    return dtype == LS_FP16 ? ls_fp16_from_float(value) : ls_bf16_from_float(value);
}

static void expect_inputs(const ls_batch *half, const ls_batch *full, const ls_sample_spec *spec, ls_dtype dtype) {
    size_t count = full->count * ls_sample_input_count(spec);
    const float *values = full->inputs;
    const uint16_t *halves = half->inputs;
    if (spec->tokens)
        assert_memory_equal(half->inputs, full->inputs, count * sizeof(int32_t));
    else
        for (size_t i = 0; i < count; i++) assert_int_equal(halves[i], rounded(dtype, values[i]));
}

static void expect_rounded(const ls_batch *half, const ls_batch *full, const ls_sample_spec *spec, ls_dtype dtype) {
    assert_int_equal(half->count, full->count);
    expect_inputs(half, full, spec, dtype);
    size_t labels = full->count * ls_sample_label_count(spec);
    assert_true(!half->labels == !full->labels);
    if (half->labels) assert_memory_equal(half->labels, full->labels, labels * sizeof *full->labels);
    for (size_t i = 0; half->targets && i < full->count * spec->target_count; i++)
        assert_true(half->targets[i] == full->targets[i]);
}

/* Compares both loaders over one epoch; returns the number of samples. `batches` has one for each; NULL: a stream. */
static size_t compare(const ls_dataset *dataset, ls_batches **batches, ls_dtype dtype) {
    ls_loader_options options = {.workers = WORKERS, .prefetch = 1, .stream = {.local_batch = BATCH, .world_size = 1}};
    ls_loader *full, *half;
    assert_int_equal(ls_loader_create(&full, dataset, batches ? batches[0] : NULL, &options), LS_OK);
    options.precision = dtype;
    assert_int_equal(ls_loader_create(&half, dataset, batches ? batches[1] : NULL, &options), LS_OK);
    assert_int_equal(ls_loader_begin_epoch(full, 0, 0), LS_OK);
    assert_int_equal(ls_loader_begin_epoch(half, 0, 0), LS_OK);
    size_t samples = 0;
    for (const ls_batch *a, *b;; samples += a->count) {
        assert_int_equal(ls_loader_next(full, &a), LS_OK);
        assert_int_equal(ls_loader_next(half, &b), LS_OK);
        assert_int_equal(a == NULL, b == NULL);
        if (!a) break;
        expect_rounded(b, a, ls_dataset_spec(dataset), dtype);
    }
    ls_loader_destroy(full);
    ls_loader_destroy(half);
    return samples;
}

/* Widths on both sides of the block that is rounded at once (2048 values). */
TEST(every_value_is_rounded_once) {
    static const int widths[] = {1, 5, 500, 683, 2047, 2048, 2049};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        bool labels = w % 2 == 0;
        ls_sample_spec spec = {
            .channels = 1, .height = 1, .width = widths[w], .classes = labels ? 10 : 0, .target_count = labels ? 0 : 3};
        ls_batches_options options = {.dataset_count = SAMPLES, .global_batch = BATCH, .world_size = 1};
        ls_dataset *dataset;
        ls_batches *batches[2];
        assert_int_equal(ls_dataset_random(&dataset, 7, SAMPLES, &spec), LS_OK);
        for (int b = 0; b < 2; b++) assert_int_equal(ls_batches_create(&batches[b], &options), LS_OK);
        for (ls_dtype dtype = LS_FP16; dtype <= LS_BF16; dtype++)
            assert_int_equal(compare(dataset, batches, dtype), SAMPLES);
        for (int b = 0; b < 2; b++) ls_batches_destroy(batches[b]);
        ls_dataset_close(dataset);
    }
}

/* The tokens equal those of the data set, each with the label of its row. */
TEST(tokens_stay_as_they_are) {
    enum { ROWS = 30, VOCABULARY = 11 };
    static const ls_sample_spec spec = {
        .channels = 1, .height = 1, .width = 1, .classes = VOCABULARY, .rows = ROWS, .tokens = true};
    ls_batches_options options = {.dataset_count = SAMPLES, .global_batch = BATCH, .world_size = 1};
    int32_t tokens[BATCH][ROWS];
    int64_t labels[BATCH][ROWS], indices[BATCH];
    ls_dataset *dataset;
    ls_batches *batches[2];
    ls_loader *loader;
    const ls_batch *batch;
    assert_int_equal(ls_dataset_random(&dataset, 7, SAMPLES, &spec), LS_OK);
    for (int b = 0; b < 2; b++) assert_int_equal(ls_batches_create(&batches[b], &options), LS_OK);
    for (ls_dtype dtype = LS_FP16; dtype <= LS_BF16; dtype++)
        assert_int_equal(compare(dataset, batches, dtype), SAMPLES);
    ls_loader_options loading = {.precision = LS_FP16};
    assert_int_equal(ls_loader_create(&loader, dataset, batches[0], &loading), LS_OK);
    assert_int_equal(ls_loader_begin_epoch(loader, 0, 1), LS_OK);
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    for (int64_t i = 0; i < BATCH; i++) indices[i] = BATCH + i;
    assert_int_equal(ls_dataset_read(dataset, indices, BATCH, tokens, *labels, NULL), LS_OK);
    assert_memory_equal(batch->inputs, tokens, sizeof tokens);
    assert_memory_equal(batch->labels, labels, sizeof labels);
    ls_loader_destroy(loader);
    for (int b = 0; b < 2; b++) ls_batches_destroy(batches[b]);
    ls_dataset_close(dataset);
}

/* A stream that ends within a block. */
TEST(streams_too) {
    static numbers data;
    for (ls_dtype dtype = LS_FP16; dtype <= LS_BF16; dtype++) {
        numbers_init_stream(&data, SAMPLES + 1);
        assert_int_equal(compare(&data.base, NULL, dtype), SAMPLES + 1);
    }
}
