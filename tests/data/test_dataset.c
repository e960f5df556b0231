#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/base/random.h"
#include "common/data/dataset.h"
#include "tests/base/scratch.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define DIGITS "data/digits"

/* --- IDX files -----------------------------------------------------------------------------------------------------
 * */

#define SAMPLES 3
#define HEIGHT 2
#define WIDTH 2

/* Three images of 2 x 2 pixels, and their labels. Tests spoil copies of them. */
static const uint8_t good_images[] = {0, 0,     8, 3,   0,  0,  0,  SAMPLES, 0,  0,  0,  HEIGHT, 0,  0,
                                      0, WIDTH, 0, 255, 10, 20, 30, 40,      50, 60, 70, 80,     90, 100};
static const uint8_t good_labels[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES, 9, 0, 4};

static void write_good_files(void) {
    scratch_write("train-images-idx3-ubyte", good_images, sizeof good_images);
    scratch_write("train-labels-idx1-ubyte", good_labels, sizeof good_labels);
}

static void gzip(const char *name, const void *data, size_t nbytes) {
    gzFile stream = gzopen(scratch_path(name), "wb");
    assert_non_null(stream);
    assert_int_equal(gzwrite(stream, data, (unsigned)nbytes), nbytes);
    assert_int_equal(gzclose(stream), Z_OK);
}

static void expect_good_dataset(void) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE), LS_OK);
    const ls_sample_spec *spec = ls_dataset_spec(dataset);
    assert_int_equal(ls_dataset_count(dataset), SAMPLES);
    assert_int_equal(spec->channels, 1);
    assert_int_equal(spec->height, HEIGHT);
    assert_int_equal(spec->width, WIDTH);
    assert_int_equal(spec->classes, 10);
    assert_int_equal(spec->target_count, 0);
    static const int64_t order[] = {2, 0, 2};
    float inputs[3 * 4 + 1];
    int64_t labels[4] = {0, 0, 0, -7};
    inputs[12] = -7;
    ls_dataset_read(dataset, order, 3, inputs, labels, NULL);
    for (int i = 0; i < 12; i++) {
        uint8_t pixel = good_images[16 + 4 * order[i / 4] + i % 4];
        assert_true(inputs[i] == (float)pixel / 255.0f);
    }
    assert_int_equal(labels[0], 4);
    assert_int_equal(labels[1], 9);
    assert_int_equal(labels[2], 4);
    assert_true(inputs[12] == -7 && labels[3] == -7); /* nothing behind the ends is touched */
    ls_dataset_read(dataset, order, 3, inputs, NULL, NULL);
    ls_dataset_close(dataset);
}

static void expect_failure(ls_status expected, const char *text, const char *another) {
    ls_dataset *dataset = (ls_dataset *)&dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_MNIST), expected);
    assert_null(dataset);
    scratch_expect_error(text, another);
}

static void plain_and_gzipped_files_in_both_spellings(void **state) {
    (void)state;
    write_good_files();
    expect_good_dataset();
    remove(scratch_path("train-images-idx3-ubyte"));
    gzip("train-images-idx3-ubyte.gz", good_images, sizeof good_images);
    expect_good_dataset();
    remove(scratch_path("train-images-idx3-ubyte.gz"));
    remove(scratch_path("train-labels-idx1-ubyte"));
    scratch_write("train-images.idx3-ubyte", good_images, sizeof good_images);
    gzip("train-labels.idx1-ubyte.gz", good_labels, sizeof good_labels);
    expect_good_dataset();
    remove(scratch_path("train-labels.idx1-ubyte.gz"));
    scratch_write("train-labels.idx1-ubyte.gz", good_labels, sizeof good_labels); /* a .gz that is none after all */
    expect_good_dataset();
}

static void missing_files(void **state) {
    (void)state;
    ls_dataset *dataset;
    const char *missing = scratch_path("none");
    assert_int_equal(ls_dataset_open_idx(&dataset, missing, LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE), LS_ERR_IO);
    assert_null(dataset);
    scratch_expect_error(missing, "no data folder");
    expect_failure(LS_ERR_IO, "train-images-idx3-ubyte", scratch_folder());
    write_good_files();
    remove(scratch_path("train-labels-idx1-ubyte"));
    expect_failure(LS_ERR_IO, "train-labels-idx1-ubyte", scratch_folder());
    write_good_files();
    assert_int_equal(ls_dataset_open_idx(&dataset, scratch_folder(), LS_SPLIT_TEST, 10, LS_NORMALIZE_NONE), LS_ERR_IO);
    scratch_expect_error("t10k-images-idx3-ubyte", NULL);
    const char *file = scratch_path("train-images-idx3-ubyte");
    assert_int_equal(ls_dataset_open_idx(&dataset, file, LS_SPLIT_TEST, 10, LS_NORMALIZE_NONE), LS_ERR_IO);
    scratch_expect_error(file, "no data folder");
}

static void wrong_magic_numbers(void **state) {
    (void)state;
    write_good_files();
    scratch_write("train-images-idx3-ubyte", good_labels, sizeof good_labels);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "0x00000803 expected, 0x00000801 found");
    write_good_files();
    scratch_write("train-labels-idx1-ubyte", good_images, sizeof good_images);
    expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte", "0x00000801 expected, 0x00000803 found");
}

/* Cuts the plain files after each number of bytes, and then the gzipped one, whose checksum is its last part. */
static void truncated_files(void **state) {
    (void)state;
    write_good_files();
    for (size_t nbytes = 0; nbytes < sizeof good_images; nbytes++) {
        scratch_write("train-images-idx3-ubyte", good_images, nbytes);
        expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "truncated");
    }
    write_good_files();
    for (size_t nbytes = 0; nbytes < sizeof good_labels; nbytes++) {
        scratch_write("train-labels-idx1-ubyte", good_labels, nbytes);
        expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte", "truncated");
    }
    write_good_files();
    remove(scratch_path("train-labels-idx1-ubyte"));
    gzip("train-labels-idx1-ubyte.gz", good_labels, sizeof good_labels);
    expect_good_dataset();
    size_t whole;
    uint8_t *bytes = scratch_read(scratch_path("train-labels-idx1-ubyte.gz"), &whole);
    for (size_t nbytes = 2; nbytes < whole; nbytes++) {
        scratch_write("train-labels-idx1-ubyte.gz", bytes, nbytes);
        expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte.gz", NULL);
    }
    free(bytes);
}

static void a_spoilt_gzip_checksum(void **state) {
    (void)state;
    write_good_files();
    remove(scratch_path("train-images-idx3-ubyte"));
    gzip("train-images-idx3-ubyte.gz", good_images, sizeof good_images);
    size_t nbytes;
    uint8_t *bytes = scratch_read(scratch_path("train-images-idx3-ubyte.gz"), &nbytes);
    bytes[nbytes - 8] ^= 1; /* the file ends with the checksum and the length, 4 bytes each */
    scratch_write("train-images-idx3-ubyte.gz", bytes, nbytes);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte.gz is damaged", "incorrect data check");
    free(bytes);
}

static void bytes_behind_the_end(void **state) {
    (void)state;
    uint8_t images[sizeof good_images + 1] = {0};
    uint8_t labels[sizeof good_labels + 1] = {0};
    memcpy(images, good_images, sizeof good_images);
    memcpy(labels, good_labels, sizeof good_labels);
    write_good_files();
    scratch_write("train-images-idx3-ubyte", images, sizeof images);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "after its last element");
    write_good_files();
    remove(scratch_path("train-labels-idx1-ubyte"));
    gzip("train-labels-idx1-ubyte.gz", labels, sizeof labels);
    expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte.gz", "after its last element");
}

static void counts_and_labels_that_cannot_be(void **state) {
    (void)state;
    static const uint8_t two_labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 0};
    static const uint8_t no_labels[] = {0, 0, 8, 1, 0, 0, 0, 0};
    static const uint8_t label_10[] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 10, 0};
    static const uint8_t no_width[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0};
    write_good_files();
    scratch_write("train-labels-idx1-ubyte", two_labels, sizeof two_labels);
    expect_failure(LS_ERR_FORMAT, "3 images", "2 labels");
    scratch_write("train-labels-idx1-ubyte", label_10, sizeof label_10);
    expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte", "label 10 of sample 1 is out of range 0 to 9");
    scratch_write("train-labels-idx1-ubyte", no_labels, sizeof no_labels);
    expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte", "empty");
    scratch_write("train-images-idx3-ubyte", no_width, sizeof no_width);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "empty");
}

/* Must fail by arithmetic, without asking for that much memory. */
static void sizes_that_no_file_can_hold(void **state) {
    (void)state;
    uint8_t images[sizeof good_images];
    write_good_files();
    memcpy(images, good_images, sizeof images);
    memset(images + 4, 255, 12); /* 2^96 bytes */
    scratch_write("train-images-idx3-ubyte", images, sizeof images);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "4294967295 elements");
    memcpy(images + 4, (const uint8_t[]){128, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 4}, 12); /* 2^64: 0 modulo 2^64 */
    scratch_write("train-images-idx3-ubyte", images, sizeof images);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "2147483648 elements");
    memcpy(images, good_images, sizeof images);
    memset(images + 4, 127, 4); /* 2^31 x 4 bytes */
    scratch_write("train-images-idx3-ubyte", images, sizeof images);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "more than its 28 bytes can hold");
    remove(scratch_path("train-images-idx3-ubyte"));
    gzip("train-images-idx3-ubyte.gz", images, sizeof images);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte.gz", "can hold");
}

static void expect_digits(ls_split split, size_t count, const int64_t *first_labels, int first_sum, int last_sum) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, DIGITS, split, 10, LS_NORMALIZE_NONE), LS_OK);
    assert_int_equal(ls_dataset_count(dataset), count);
    assert_int_equal(ls_sample_input_count(ls_dataset_spec(dataset)), 784);
    int64_t indices[11] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, (int64_t)count - 1};
    static float inputs[11 * 784];
    int64_t labels[11];
    ls_dataset_read(dataset, indices, 11, inputs, labels, NULL);
    assert_memory_equal(labels, first_labels, 11 * sizeof *labels);
    double sums[2] = {0, 0};
    for (int i = 0; i < 784; i++) {
        sums[0] += 255.0 * (double)inputs[i];
        sums[1] += 255.0 * (double)inputs[10 * 784 + i];
    }
    assert_int_equal((int)lround(sums[0]), first_sum);
    assert_int_equal((int)lround(sums[1]), last_sum);
    ls_dataset_close(dataset);
}

static void the_digits(void **state) {
    (void)state;
    static const int64_t train[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2};
    static const int64_t test[] = {1, 7, 4, 6, 3, 1, 3, 9, 1, 7, 8};
    expect_digits(LS_SPLIT_TRAIN, 1500, train, 29287, 29683);
    expect_digits(LS_SPLIT_TEST, 297, test, 29783, 39053);
}

/* torchvision's values for a black and a white pixel, exactly. */
static void pixels_are_normalised_as_torchvision_does(void **state) {
    (void)state;
    write_good_files();
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_MNIST), LS_OK);
    static const int64_t first[] = {0};
    float inputs[4];
    ls_dataset_read(dataset, first, 1, inputs, NULL, NULL);
    assert_true(inputs[0] == -0.4242129623889923f);
    assert_true(inputs[1] == 2.821486711502075f);
    ls_dataset_close(dataset);
}

/* --- random data ---------------------------------------------------------------------------------------------------
 * */

static const ls_sample_spec classification = {.channels = 3, .height = 5, .width = 7, .classes = 4};
static const ls_sample_spec regression = {.channels = 1, .height = 1, .width = 9, .target_count = 6};

static ls_dataset *open_random(uint64_t seed, size_t count, const ls_sample_spec *spec) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_random(&dataset, seed, count, spec), LS_OK);
    assert_int_equal(ls_dataset_count(dataset), count);
    return dataset;
}

static void random_samples_depend_on_seed_and_index_alone(void **state) {
    (void)state;
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

/* However few values they are: the same command gives the same bits as ever. */
static void small_random_samples_do_not_depend_on_how_many_there_are(void **state) {
    (void)state;
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

static void random_labels_are_uniform_and_inputs_normal(void **state) {
    (void)state;
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

static void random_regression_has_targets_and_no_labels(void **state) {
    (void)state;
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

/* What random_dataset.c says of a value, one by one. */
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
    assert_true(isnan(samples[3 * value_count])); /* nothing is written behind them */
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

static void random_values_are_sums_of_two_of_the_pool(void **state) {
    (void)state;
    /* More of them than the largest pool has, so that both of its runs meet its end, and a number that fills no vector;
     * the smallest pool; and one between that is just large enough, and one that is not quite. */
    expect_sums_of_the_pool(100, &(ls_sample_spec){.channels = 1, .height = 515, .width = 511, .classes = 2}, 1 << 18);
    expect_sums_of_the_pool(3, &(ls_sample_spec){.channels = 1, .height = 5, .width = 7, .classes = 2}, 1 << 10);
    expect_sums_of_the_pool(512, &(ls_sample_spec){.channels = 1, .height = 2, .width = 4, .classes = 2}, 1 << 12);
    /* large samples, which begin and end between vectors: in a batch behind others, and cut by the pool's end */
    for (int width = 2047; width <= 2053; width += 3)
        expect_sums_of_the_pool(100, &(ls_sample_spec){.channels = 1, .height = 1, .width = width, .classes = 2},
                                1 << 18);
    expect_sums_of_the_pool(513, &(ls_sample_spec){.channels = 1, .height = 2, .width = 4, .classes = 2}, 1 << 13);
}

static void impossible_random_datasets(void **state) {
    (void)state;
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
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        ls_dataset *dataset = (ls_dataset *)&dataset;
        assert_int_equal(ls_dataset_random(&dataset, 0, rows[i].count, &rows[i].spec), LS_ERR_INVALID);
        assert_null(dataset);
        scratch_expect_error(rows[i].text, NULL);
    }
    ls_dataset_close(NULL);
}

int main(void) {
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(plain_and_gzipped_files_in_both_spellings),
        WITH_FOLDER(missing_files),
        WITH_FOLDER(wrong_magic_numbers),
        WITH_FOLDER(truncated_files),
        WITH_FOLDER(a_spoilt_gzip_checksum),
        WITH_FOLDER(bytes_behind_the_end),
        WITH_FOLDER(counts_and_labels_that_cannot_be),
        WITH_FOLDER(sizes_that_no_file_can_hold),
        WITH_FOLDER(the_digits),
        WITH_FOLDER(pixels_are_normalised_as_torchvision_does),
        WITH_FOLDER(random_samples_depend_on_seed_and_index_alone),
        WITH_FOLDER(small_random_samples_do_not_depend_on_how_many_there_are),
        WITH_FOLDER(random_labels_are_uniform_and_inputs_normal),
        WITH_FOLDER(random_regression_has_targets_and_no_labels),
        WITH_FOLDER(random_values_are_sums_of_two_of_the_pool),
        WITH_FOLDER(impossible_random_datasets),
    };
    return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
