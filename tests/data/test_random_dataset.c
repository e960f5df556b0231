/* Random data: what it depends on, how it is distributed, and which sets are impossible. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "common/data/dataset.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static const ls_sample_spec classification = {.channels = 3, .height = 5, .width = 7, .classes = 4};
static const ls_sample_spec regression = {.channels = 1, .height = 1, .width = 9, .target_count = 6};

static ls_dataset *open_random(uint64_t seed, size_t count, const ls_sample_spec *spec) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_random(&dataset, seed, count, spec), LS_OK);
    assert_int_equal(ls_dataset_count(dataset), count);
    return dataset;
}

TEST_IN(scratch, random_samples_depend_on_seed_and_index_alone) {
    static const int64_t forward[] = {0, 1, 999999999999}, backward[] = {999999999999, 1, 0};
    float a[3][105], b[3][105], other[3][105];
    int64_t labels_a[3], labels_b[3];
    ls_dataset *first = open_random(5, (size_t)1000000000000, &classification);
    ls_dataset *again = open_random(5, (size_t)1000000000000, &classification);
    ls_dataset *another_seed = open_random(6, (size_t)1000000000000, &classification);
    ls_dataset_read(first, forward, 3, a[0], labels_a, NULL);
    ls_dataset_read(again, backward, 3, b[0], labels_b, NULL);
    ls_dataset_read(another_seed, forward, 3, other[0], NULL, NULL);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(a[i], b[2 - i], sizeof a[i]);
        assert_int_equal(labels_a[i], labels_b[2 - i]);
        assert_memory_not_equal(a[i], other[i], sizeof a[i]);
        assert_memory_not_equal(a[i], a[(i + 1) % 3], sizeof a[i]);
    }
    ls_dataset_close(first);
    ls_dataset_close(again);
    ls_dataset_close(another_seed);
}

/* However few values a sample has, the same command always gives the same bits. */
TEST_IN(scratch, small_random_samples_do_not_depend_on_how_many_there_are) {
    static const ls_sample_spec small = {.channels = 1, .height = 1, .width = 2, .classes = 3};
    static const int64_t indices[] = {0, 1, 2, 9999};
    static const size_t counts[] = {10000, 60000, 1000000};
    float inputs[3][8];
    for (int i = 0; i < 3; i++) {
        ls_dataset *dataset = open_random(7, counts[i], &small);
        ls_dataset_read(dataset, indices, 4, inputs[i], NULL, NULL);
        ls_dataset_close(dataset);
        assert_memory_equal(inputs[i], inputs[0], sizeof inputs[0]);
    }
}

static void expect_moments(const float *values, size_t count) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    double mean = sum / (double)count, square = squares / (double)count;
    if (!(fabs(mean) < 0.03) || !(fabs(square - 1) < 0.05)) fail_msg("mean %g, mean square %g", mean, square);
}

TEST_IN(scratch, random_labels_are_uniform_and_inputs_normal) {
    enum { COUNT = 4000 };
    static int64_t indices[COUNT], labels[COUNT];
    static float inputs[COUNT * 105];
    for (int i = 0; i < COUNT; i++) indices[i] = i;
    ls_dataset *dataset = open_random(0, COUNT, &classification);
    ls_dataset_read(dataset, indices, COUNT, inputs, labels, NULL);
    expect_moments(inputs, COUNT_OF(inputs));
    int of_class[4] = {0};
    for (int i = 0; i < COUNT; i++) {
        assert_in_range(labels[i], 0, 3);
        of_class[labels[i]]++;
    }
    ls_dataset *another_seed = open_random(1, COUNT, &classification);
    static int64_t other_labels[COUNT];
    ls_dataset_read(another_seed, indices, COUNT, inputs, other_labels, NULL);
    assert_memory_not_equal(labels, other_labels, sizeof labels);
    ls_dataset_close(another_seed);
    for (int i = 0; i < 4; i++) assert_in_range(of_class[i], COUNT / 4 - 150, COUNT / 4 + 150);
    ls_dataset_close(dataset);
}

TEST_IN(scratch, random_regression_has_targets_and_no_labels) {
    enum { COUNT = 3000 };
    static int64_t indices[COUNT];
    static float inputs[COUNT * 9], targets[COUNT * 6];
    int64_t untouched = -7;
    for (int i = 0; i < COUNT; i++) indices[i] = i;
    ls_dataset *dataset = open_random(3, COUNT, &regression);
    assert_int_equal(ls_dataset_spec(dataset)->target_count, 6);
    ls_dataset_read(dataset, indices, COUNT, inputs, &untouched, targets);
    assert_int_equal(untouched, -7);
    expect_moments(inputs, COUNT_OF(inputs));
    expect_moments(targets, COUNT_OF(targets));
    assert_memory_not_equal(inputs, targets, 6 * sizeof(float));
    ls_dataset_close(dataset);
}

/* The values, one by one, as random_dataset.c defines them. */
static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static void expect_sums_of_the_pool(size_t count, const ls_sample_spec *spec, size_t pool_count) {
    enum { SEED = 11 };
    size_t value_count = ls_sample_input_count(spec);
    float *pool = malloc(pool_count * sizeof *pool), *samples = malloc((3 * value_count + 1) * sizeof *samples);
    assert_true(pool && samples);
    samples[3 * value_count] = NAN;
    ls_generator generator;
    ls_generator_seed(&generator, SEED);
    ls_fill_normal(&generator, pool, pool_count);
    ls_dataset *dataset = open_random(SEED, count, spec);
    static const int64_t indices[3] = {0, 1, 2};
    ls_dataset_read(dataset, indices, 3, samples, NULL, NULL);
    assert_true(isnan(samples[3 * value_count])); /* nothing is written after them */
    for (int64_t index = 0; index < 3; index++) {
        const float *values = samples + (size_t)index * value_count;
        uint64_t key = mix(mix(SEED + 0x9e3779b97f4a7c15u) + (uint64_t)index);
        size_t first = key % pool_count, second = first + 1 + (key >> 32) % (pool_count - 1);
        for (size_t i = 0; i < value_count; i++) {
            float sum = pool[(first + i) % pool_count] + pool[(second + i) % pool_count];
            assert_true(values[i] == sum * 0.70710678f);
        }
    }
    ls_dataset_close(dataset);
    free(pool);
    free(samples);
}

TEST_IN(scratch, random_values_are_sums_of_two_of_the_pool) {
    /* More values than the largest pool has, so that both of its runs reach its end, and not a multiple of the vector
     * width; the smallest pool; and a pool between that is just large enough, and one that is slightly too small. */
    expect_sums_of_the_pool(100, &(ls_sample_spec){.channels = 1, .height = 515, .width = 511, .classes = 2}, 1 << 18);
    expect_sums_of_the_pool(3, &(ls_sample_spec){.channels = 1, .height = 5, .width = 7, .classes = 2}, 1 << 10);
    expect_sums_of_the_pool(512, &(ls_sample_spec){.channels = 1, .height = 2, .width = 4, .classes = 2}, 1 << 12);
    /* large samples, which begin and end within vectors: after others in a batch, and cut by the pool's end */
    for (int width = 2047; width <= 2053; width += 3)
        expect_sums_of_the_pool(100, &(ls_sample_spec){.channels = 1, .height = 1, .width = width, .classes = 2},
                                1 << 18);
    expect_sums_of_the_pool(513, &(ls_sample_spec){.channels = 1, .height = 2, .width = 4, .classes = 2}, 1 << 13);
}

/* Each row's label is the next row's token; all tokens occur, whatever else the set contains. */
TEST(random_tokens_follow_from_seed_and_index) {
    enum { ROWS = 50, VOCABULARY = 7, MANY = 20 };
    static const ls_sample_spec spec = {
        .channels = 1, .height = 1, .width = 1, .classes = VOCABULARY, .rows = ROWS, .tokens = true};
    static int32_t tokens[MANY][ROWS], again[ROWS];
    static int64_t labels[MANY][ROWS], indices[MANY];
    int seen[VOCABULARY] = {0};
    ls_dataset *few = open_random(3, MANY, &spec), *many = open_random(3, 50000, &spec);
    for (int64_t i = 0; i < MANY; i++) indices[i] = i;
    ls_dataset_read(few, indices, MANY, tokens, *labels, NULL);
    for (int64_t i = 0; i < MANY; i++) {
        ls_dataset_read(many, &i, 1, again, NULL, NULL);
        assert_memory_equal(again, tokens[i], sizeof again);
        if (i > 0) assert_memory_not_equal(again, tokens[i - 1], sizeof again);
        for (int t = 0; t < ROWS; t++) {
            assert_in_range(tokens[i][t], 0, VOCABULARY - 1);
            assert_in_range(labels[i][t], 0, VOCABULARY - 1);
            if (t > 0) assert_int_equal(labels[i][t - 1], tokens[i][t]);
            seen[tokens[i][t]]++;
        }
    }
    for (int v = 0; v < VOCABULARY; v++) assert_in_range(seen[v], MANY * ROWS / VOCABULARY / 2, MANY * ROWS);
    ls_dataset_close(few);
    ls_dataset_close(many);
}

TEST_IN(scratch, impossible_random_datasets) {
    static const struct {
        size_t count;
        ls_sample_spec spec;
        const char *text;
    } rows[] = {
        {0, {.channels = 1, .height = 1, .width = 1, .classes = 2}, "at least one sample"},
        {1, {.channels = 0, .height = 1, .width = 1, .classes = 2}, "positive shape"},
        {1, {.channels = 1, .height = -1, .width = 1, .classes = 2}, "positive shape"},
        {1, {.channels = 1, .height = 1, .width = 0, .classes = 2}, "positive shape"},
        {1, {.channels = INT32_MAX, .height = INT32_MAX, .width = INT32_MAX, .classes = 2}, "too large"},
        {1, {.channels = INT32_MAX, .height = INT32_MAX, .width = 1, .classes = 2}, "too large"},
        {1, {.channels = 1, .height = 1, .width = 1}, "either classes or targets"},
        {1, {.channels = 1, .height = 1, .width = 1, .classes = -1, .target_count = 3}, "either classes or targets"},
        {1, {.channels = 1, .height = 1, .width = 1, .classes = -1}, "either classes or targets"},
        {1, {.channels = 1, .height = 1, .width = 1, .classes = 2, .target_count = 3}, "either classes or targets"},
        {1, {.channels = 1, .height = 1, .width = 1, .target_count = SIZE_MAX}, "too large"},
        {1, {.channels = 1, .height = 1, .width = 1, .classes = 2, .rows = 3}, "must be tokens"},
        {1, {.channels = 1, .height = 1, .width = 1, .target_count = 2, .rows = 3, .tokens = true}, "a vocabulary"},
        {1, {.channels = 2, .height = 1, .width = 1, .classes = 2, .rows = 3, .tokens = true}, "a row for each"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_dataset *dataset = (ls_dataset *)&dataset;
        assert_int_equal(ls_dataset_random(&dataset, 0, rows[i].count, &rows[i].spec), LS_ERR_INVALID);
        assert_null(dataset);
        scratch_expect_error(rows[i].text, NULL);
    }
    ls_dataset_close(NULL);
}

TEST_IN(scratch, random_data_and_none_have_descriptions) {
    static const ls_sample_spec large = {.channels = 3, .height = 300, .width = 300, .target_count = 5};
    char texts[3][200];
    for (int i = 0; i < 3; i++) {
        ls_dataset *dataset;
        assert_int_equal(ls_dataset_random(&dataset, i == 2 ? 8 : 7, 1000000, &large), LS_OK);
        assert_int_equal(ls_dataset_describe(dataset, texts[i], sizeof texts[i]), LS_OK);
        ls_dataset_close(dataset);
    }
    assert_ptr_equal(strstr(texts[0], "1000000 samples of 3 x 300 x 300 with 5 targets (sampled hash "), texts[0]);
    assert_string_equal(texts[1], texts[0]);
    assert_string_not_equal(texts[2], texts[0]);
    assert_int_equal(ls_dataset_describe(NULL, texts[0], sizeof texts[0]), LS_OK);
    assert_string_equal(texts[0], "none");
}
