/* Data sets in MNIST's format: which are read, and which are refused. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/data/dataset.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define DIGITS "data/digits"

/* --- IDX files
 * ----------------------------------------------------------------------------------------------------- */

#define SAMPLES 3
#define HEIGHT 2
#define WIDTH 2

/* Three images of 2 x 2 pixels, and their labels. Tests damage copies of them. */
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
    assert_true(inputs[12] == -7 && labels[3] == -7); /* nothing beyond the ends is written */
    ls_dataset_read(dataset, order, 3, inputs, NULL, NULL);
    ls_dataset_close(dataset);
}

static void expect_failure(ls_status expected, const char *text, const char *another) {
    ls_dataset *dataset = (ls_dataset *)&dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_MNIST), expected);
    assert_null(dataset);
    scratch_expect_error(text, another);
}

TEST_IN(scratch, plain_and_gzipped_files_in_both_spellings) {
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
    scratch_write("train-labels.idx1-ubyte.gz", good_labels, sizeof good_labels); /* a .gz file that is not gzipped */
    expect_good_dataset();
}

TEST_IN(scratch, missing_files) {
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
    scratch_expect_error(file, "is a file; expected a folder");
}

TEST_IN(scratch, wrong_magic_numbers) {
    write_good_files();
    scratch_write("train-images-idx3-ubyte", good_labels, sizeof good_labels);
    expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte", "expected magic number 0x00000803, found 0x00000801");
    write_good_files();
    scratch_write("train-labels-idx1-ubyte", good_images, sizeof good_images);
    expect_failure(LS_ERR_FORMAT, "train-labels-idx1-ubyte", "expected magic number 0x00000801, found 0x00000803");
}

/* Truncates the plain files after each number of bytes, and then the gzipped one, which ends with its checksum. */
TEST_IN(scratch, truncated_files) {
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

TEST_IN(scratch, a_spoilt_gzip_checksum) {
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

/* Of a file so large that zlib reaches its end before the last byte is requested. */
TEST_IN(scratch, a_checksum_that_is_cut) {
    size_t nbytes, other;
    char *plain = scratch_read(DIGITS "/train-images-idx3-ubyte", &nbytes),
         *labels = scratch_read(DIGITS "/train-labels-idx1-ubyte.gz", &other);
    scratch_write("train-labels-idx1-ubyte.gz", labels, other);
    gzip("train-images-idx3-ubyte.gz", plain, nbytes);
    char *images = scratch_read(scratch_path("train-images-idx3-ubyte.gz"), &nbytes);
    for (size_t cut = 1; cut <= 9; cut++) {
        scratch_write("train-images-idx3-ubyte.gz", images, nbytes - cut);
        expect_failure(LS_ERR_FORMAT, "train-images-idx3-ubyte.gz is truncated", NULL);
    }
    free(plain);
    free(images);
    free(labels);
}

TEST_IN(scratch, bytes_behind_the_end) {
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

TEST_IN(scratch, counts_and_labels_that_cannot_be) {
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

/* Must fail by arithmetic, before allocating that much memory. */
TEST_IN(scratch, sizes_that_no_file_can_hold) {
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

TEST_IN(scratch, the_digits) {
    static const int64_t train[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2};
    static const int64_t test[] = {1, 7, 4, 6, 3, 1, 3, 9, 1, 7, 8};
    expect_digits(LS_SPLIT_TRAIN, 1500, train, 29287, 29683);
    expect_digits(LS_SPLIT_TEST, 297, test, 29783, 39053);
}

/* torchvision's values for a black and a white pixel, exactly. */
TEST_IN(scratch, pixels_are_normalised_as_torchvision_does) {
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

/* A file in place of the folder: the message names its kind. */
TEST_IN(scratch, a_file_is_no_folder) {
    ls_dataset *set;
    scratch_write("x.npy", "\x93NUMPY\x01\x02xxxxyyyy", 16);
    assert_int_equal(ls_dataset_open_idx(&set, scratch_path("x.npy"), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE),
                     LS_ERR_IO);
    scratch_expect_error("x.npy is a NumPy array (.npy); expected a folder", NULL);
}
