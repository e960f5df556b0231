/* Streams of files in MNIST's format, read by cursors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "common/data/dataset.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

/* Images of 1 x 2 pixels, 2 i and 2 i + 1; labels i mod 10. */
enum { WIDTH = 2, MAX_COUNT = 40, IMAGE_HEADER = 16, LABEL_HEADER = 8 };

static uint8_t images[IMAGE_HEADER + WIDTH * MAX_COUNT + 1], labels[LABEL_HEADER + MAX_COUNT + 1];

static void make_files(int count) {
    static const uint8_t image_header[] = {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, WIDTH};
    static const uint8_t label_header[] = {0, 0, 8, 1, 0, 0, 0, 0};
    memcpy(images, image_header, sizeof image_header);
    memcpy(labels, label_header, sizeof label_header);
    images[7] = labels[7] = (uint8_t)count;
    for (int i = 0; i < MAX_COUNT; i++) {
        images[IMAGE_HEADER + WIDTH * i] = (uint8_t)(2 * i);
        images[IMAGE_HEADER + WIDTH * i + 1] = (uint8_t)(2 * i + 1);
        labels[LABEL_HEADER + i] = (uint8_t)(i % 10);
    }
}

static void gzip(const char *name, const void *data, size_t nbytes) {
    gzFile stream = gzopen(scratch_path(name), "wb");
    assert_non_null(stream);
    assert_int_equal(gzwrite(stream, data, (unsigned)nbytes), nbytes);
    assert_int_equal(gzclose(stream), Z_OK);
}

/* Writes the first bytes of both files; 0: whole files of `count` samples. */
static void write_files(int count, size_t image_nbytes, size_t label_nbytes) {
    scratch_write(IMAGES, images, image_nbytes ? image_nbytes : IMAGE_HEADER + WIDTH * (size_t)count);
    scratch_write(LABELS, labels, label_nbytes ? label_nbytes : LABEL_HEADER + (size_t)count);
}

static ls_dataset *open_stream(void) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_open_stream(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE), LS_OK);
    assert_true(ls_dataset_is_stream(dataset));
    return dataset;
}

static ls_cursor *open_cursor(const ls_dataset *dataset, size_t share, size_t shares) {
    ls_cursor *cursor;
    assert_int_equal(ls_cursor_create(&cursor, dataset, share, shares), LS_OK);
    return cursor;
}

/* The next `count` samples are first, first + shares, ... below `end`; after fewer, the end. */
static void expect_read(ls_cursor *cursor, size_t count, int first, int shares, int end) {
    float inputs[MAX_COUNT * WIDTH];
    int64_t answers[MAX_COUNT];
    size_t read, expected = 0;
    assert_int_equal(ls_cursor_read(cursor, count, inputs, answers, NULL, &read), LS_OK);
    for (int i = first; i < end && expected < count; i += shares, expected++) {
        assert_true(inputs[WIDTH * expected] == (float)(2 * i) / 255.0f);
        assert_true(inputs[WIDTH * expected + 1] == (float)(2 * i + 1) / 255.0f);
        assert_int_equal(answers[expected], i % 10);
    }
    assert_int_equal(read, expected);
}

static void expect_failure(ls_cursor *cursor, size_t count, ls_status expected, const char *text, const char *another) {
    float inputs[3 * WIDTH];
    int64_t answers[3];
    size_t read = 7;
    assert_int_equal(ls_cursor_read(cursor, count, inputs, answers, NULL, &read), expected);
    assert_int_equal(read, 0);
    scratch_expect_error(text, another);
}

TEST_IN(scratch, every_share_of_every_length) {
    for (int zipped = 0; zipped < 2; zipped++) {
        for (int count = 1; count <= 13; count++) {
            make_files(count);
            write_files(count, 0, 0);
            if (zipped) {
                remove(scratch_path(IMAGES));
                remove(scratch_path(LABELS));
                gzip(IMAGES ".gz", images, IMAGE_HEADER + WIDTH * (size_t)count);
                gzip(LABELS ".gz", labels, LABEL_HEADER + (size_t)count);
            }
            ls_dataset *dataset = open_stream();
            for (int shares = 1; shares <= 5; shares++) {
                for (int share = 0; share < shares; share++) {
                    size_t chunk = 1 + (size_t)(count + shares) % 4;
                    ls_cursor *cursor = open_cursor(dataset, (size_t)share, (size_t)shares);
                    for (int first = share; first < count + shares; first += (int)chunk * shares) {
                        expect_read(cursor, chunk, first, shares, count);
                    }
                    expect_read(cursor, 1, count, 1, count); /* the end, repeatedly */
                    expect_read(cursor, 1, count, 1, count);
                    ls_cursor_destroy(cursor);
                }
            }
            ls_dataset_close(dataset);
        }
    }
    ls_cursor_destroy(NULL);
}

TEST_IN(scratch, the_digits_are_those_of_the_dataset) {
    enum { PIXELS = 784 };
    for (int split = 0; split < 2; split++) {
        ls_dataset *dataset, *stream;
        assert_int_equal(ls_dataset_open_idx(&dataset, "data/digits", (ls_split)split, 10, LS_NORMALIZE_MNIST), LS_OK);
        assert_int_equal(ls_dataset_open_stream(&stream, "data/digits", (ls_split)split, 10, LS_NORMALIZE_MNIST),
                         LS_OK);
        assert_false(ls_dataset_is_stream(dataset));
        assert_memory_equal(ls_dataset_spec(dataset), ls_dataset_spec(stream), sizeof(ls_sample_spec));
        ls_cursor *cursor = open_cursor(stream, 0, 1);
        int64_t count = (int64_t)ls_dataset_count(dataset), label, own_label;
        static float input[PIXELS], own_input[PIXELS];
        size_t read;
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(ls_dataset_read(dataset, &i, 1, input, &label, NULL), LS_OK);
            assert_int_equal(ls_cursor_read(cursor, 1, own_input, &own_label, NULL, &read), LS_OK);
            assert_int_equal(read, 1);
            assert_int_equal(own_label, label);
            assert_memory_equal(own_input, input, sizeof input);
        }
        assert_int_equal(ls_cursor_read(cursor, 1, own_input, NULL, NULL, &read), LS_OK);
        assert_int_equal(read, 0);
        ls_cursor_destroy(cursor);
        ls_dataset_close(stream);
        ls_dataset_close(dataset);
    }
}

/* The files are truncated after each number of bytes: samples before that are good, and the truncated one fails. */
TEST_IN(scratch, truncated_files_fail_at_the_sample) {
    enum { COUNT = 5 };
    char text[80];
    make_files(COUNT);
    for (size_t nbytes = IMAGE_HEADER + WIDTH; nbytes < IMAGE_HEADER + WIDTH * COUNT; nbytes++) {
        write_files(COUNT, nbytes, 0);
        ls_dataset *dataset = open_stream();
        ls_cursor *cursor = open_cursor(dataset, 0, 1), *odd = open_cursor(dataset, 1, 2);
        size_t whole = (nbytes - IMAGE_HEADER) / WIDTH;
        expect_read(cursor, whole - 1, 0, 1, COUNT);
        snprintf(text, sizeof text, "ends within sample %zu of %d", whole, COUNT);
        expect_failure(cursor, 3, LS_ERR_FORMAT, text, IMAGES " is truncated"); /* nor is one good one returned */
        expect_read(odd, whole / 2, 1, 2, COUNT); /* a truncated sample of another share fails this share, too */
        expect_failure(odd, 1, LS_ERR_FORMAT, text, NULL);
        ls_cursor_destroy(cursor);
        ls_cursor_destroy(odd);
        ls_dataset_close(dataset);
    }
    write_files(COUNT, 0, LABEL_HEADER + 3);
    ls_dataset *dataset = open_stream();
    ls_cursor *cursor = open_cursor(dataset, 0, 1);
    expect_read(cursor, 3, 0, 1, COUNT);
    expect_failure(cursor, 1, LS_ERR_FORMAT, "ends within sample 3 of 5", LABELS " is truncated");
    ls_cursor_destroy(cursor);
    ls_dataset_close(dataset);
}

TEST_IN(scratch, damage_behind_the_last_sample_shows_at_the_end) {
    enum { COUNT = 4 };
    for (int kind = 0; kind < 4; kind++) {
        make_files(COUNT);
        write_files(COUNT, kind == 0 ? IMAGE_HEADER + WIDTH * COUNT + 1 : 0, kind == 1 ? LABEL_HEADER + COUNT + 1 : 0);
        if (kind == 2) {
            labels[7] = COUNT + 1;
            write_files(COUNT, 0, LABEL_HEADER + COUNT + 1);
        } else if (kind == 3) {
            labels[7] = COUNT - 1;
            write_files(COUNT, 0, LABEL_HEADER + COUNT - 1);
        }
        ls_dataset *dataset = open_stream();
        ls_cursor *cursor = open_cursor(dataset, 0, 1);
        int good = kind == 3 ? COUNT - 1 : COUNT;
        for (int i = 0; i < good; i++) expect_read(cursor, 1, i, 1, COUNT);
        if (kind < 2)
            expect_failure(cursor, 1, LS_ERR_FORMAT, kind == 0 ? IMAGES : LABELS, "bytes after its last element");
        if (kind == 2) expect_failure(cursor, 1, LS_ERR_FORMAT, IMAGES " ends after 4 samples", LABELS " has more");
        if (kind == 3) expect_failure(cursor, 1, LS_ERR_FORMAT, LABELS " ends after 3 samples", IMAGES " has more");
        ls_cursor_destroy(cursor);
        ls_dataset_close(dataset);
    }
}

/* Reads single samples until one fails; returns how many were good. */
static int read_until_failure(ls_cursor *cursor) {
    static float input[784];
    int64_t label;
    size_t read = 1;
    for (int i = 0;; i++) {
        if (ls_cursor_read(cursor, 1, input, &label, NULL, &read) != LS_OK) return i;
        assert_int_equal(read, 1); /* never the end of the stream */
        assert_int_equal(label, 0);
        assert_true(input[0] == (float)i / 255.0f && input[783] == (float)i / 255.0f);
    }
}

/* 200 images of 28 x 28 pixels: several times zlib's buffer, whose contents are lost if the checksum is wrong. */
TEST_IN(scratch, a_spoilt_gzip_file) {
    enum { COUNT = 200, PIXELS = 784, BUFFER = 1 << 16 };
    static uint8_t large[IMAGE_HEADER + COUNT * PIXELS] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 28, 0, 0, 0, 28};
    static uint8_t zeros[LABEL_HEADER + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    size_t nbytes;
    for (int i = 0; i < COUNT; i++) memset(large + IMAGE_HEADER + PIXELS * i, i, PIXELS);
    scratch_write(LABELS, zeros, sizeof zeros);
    gzip(IMAGES ".gz", large, sizeof large);
    uint8_t *bytes = scratch_read(scratch_path(IMAGES ".gz"), &nbytes);
    bytes[nbytes - 8] ^= 1; /* the file ends with the checksum and the length, 4 bytes each */
    scratch_write(IMAGES ".gz", bytes, nbytes);
    ls_dataset *dataset = open_stream();
    ls_cursor *cursor = open_cursor(dataset, 0, 1);
    assert_in_range(read_until_failure(cursor), COUNT - BUFFER / PIXELS - 1, COUNT);
    scratch_expect_error(IMAGES ".gz is damaged", "incorrect data check");
    ls_cursor_destroy(cursor);
    bytes[nbytes - 8] ^= 1;
    scratch_write(IMAGES ".gz", bytes, nbytes - 3);
    cursor = open_cursor(dataset, 0, 1);
    assert_int_equal(read_until_failure(cursor), COUNT);
    scratch_expect_error(IMAGES ".gz is truncated", "within its compressed data");
    ls_cursor_destroy(cursor);
    ls_dataset_close(dataset);
    free(bytes);
}

/* A bad label fails the share that contains it, at its position, and no other. */
TEST_IN(scratch, a_label_out_of_range) {
    enum { COUNT = 7 };
    make_files(COUNT);
    labels[LABEL_HEADER + 3] = 10;
    write_files(COUNT, 0, 0);
    ls_dataset *dataset = open_stream();
    ls_cursor *even = open_cursor(dataset, 0, 2), *odd = open_cursor(dataset, 1, 2);
    expect_read(even, COUNT, 0, 2, COUNT);
    expect_read(odd, 1, 1, 2, COUNT);
    expect_failure(odd, 1, LS_ERR_FORMAT, LABELS ": label 10 of sample 3 is out of range 0 to 9", NULL);
    ls_cursor_destroy(even);
    ls_cursor_destroy(odd);
    ls_dataset_close(dataset);
}

static void expect_no_stream(ls_status expected, const char *text, const char *another) {
    ls_dataset *dataset = (ls_dataset *)&dataset;
    assert_int_equal(ls_dataset_open_stream(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE),
                     expected);
    assert_null(dataset);
    scratch_expect_error(text, another);
}

TEST_IN(scratch, streams_that_cannot_be_opened) {
    expect_no_stream(LS_ERR_IO, IMAGES, scratch_folder());
    make_files(3);
    write_files(3, 0, 0);
    remove(scratch_path(LABELS));
    expect_no_stream(LS_ERR_IO, LABELS, NULL);
    write_files(3, IMAGE_HEADER - 1, 0);
    expect_no_stream(LS_ERR_FORMAT, IMAGES " is truncated", "header");
    images[3] = 1;
    write_files(3, 0, 0);
    expect_no_stream(LS_ERR_FORMAT, "expected magic number 0x00000803, found 0x00000801", NULL);
    make_files(3);
    memset(images + 8, 255, 8); /* images of almost 2^64 bytes */
    write_files(3, 0, 0);
    expect_no_stream(LS_ERR_FORMAT, "3 elements of 18446744065119617025 bytes", "can hold");
}

/* Opening a pipe would wait for a writer. */
TEST_IN(scratch, a_pipe_is_no_data_file) {
    ls_dataset *dataset;
    make_files(3);
    write_files(3, 0, 0);
    assert_int_equal(remove(scratch_path(LABELS)), 0);
    assert_int_equal(mkfifo(scratch_path(LABELS), 0600), 0);
    assert_int_equal(ls_dataset_open_stream(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE),
                     LS_ERR_IO);
    scratch_expect_error(LABELS, "not a regular file");
    assert_int_equal(ls_dataset_open_idx(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, LS_NORMALIZE_NONE), LS_ERR_IO);
    scratch_expect_error(LABELS, "not a regular file");
}

TEST_IN(scratch, files_that_vanish_or_change_before_they_are_read) {
    ls_cursor *cursor = (ls_cursor *)&cursor;
    make_files(6);
    write_files(6, 0, 0);
    ls_dataset *dataset = open_stream();
    images[15] = 3;
    write_files(6, 0, 0);
    assert_int_equal(ls_cursor_create(&cursor, dataset, 0, 1), LS_ERR_FORMAT);
    assert_null(cursor);
    scratch_expect_error("has changed", IMAGES);
    remove(scratch_path(LABELS));
    cursor = (ls_cursor *)&cursor;
    assert_int_equal(ls_cursor_create(&cursor, dataset, 0, 1), LS_ERR_IO);
    assert_null(cursor);
    scratch_expect_error(LABELS, NULL);
    ls_dataset_close(dataset);
}

/* --- descriptions of data
 * -------------------------------------------------------------------------------------------- */

typedef ls_status (*opener)(ls_dataset **out, const char *folder, ls_split split, int classes, ls_normalize normalize);

static const char *describe(opener open, ls_normalize normalize) {
    static char texts[4][200];
    static int turn;
    char *text = texts[turn++ % 4];
    ls_dataset *dataset;
    assert_int_equal(open(&dataset, scratch_folder(), LS_SPLIT_TRAIN, 10, normalize), LS_OK);
    assert_int_equal(ls_dataset_describe(dataset, text, sizeof texts[0]), LS_OK);
    ls_dataset_close(dataset);
    return text;
}

TEST_IN(scratch, a_description_tells_data_apart) {
    make_files(MAX_COUNT);
    write_files(MAX_COUNT, 0, 0);
    const char *whole = describe(ls_dataset_open_idx, LS_NORMALIZE_NONE);
    assert_ptr_equal(strstr(whole, "40 samples of 1 x 1 x 2 in 10 classes (sampled hash "), whole);
    assert_string_equal(describe(ls_dataset_open_idx, LS_NORMALIZE_NONE), whole);
    assert_string_not_equal(describe(ls_dataset_open_idx, LS_NORMALIZE_MNIST), whole);
    labels[LABEL_HEADER + MAX_COUNT - 1]--; /* the last sample is one of those that are hashed */
    write_files(MAX_COUNT, 0, 0);
    assert_string_not_equal(describe(ls_dataset_open_idx, LS_NORMALIZE_NONE), whole);

    make_files(MAX_COUNT); /* of a stream: the header, right or wrong, and the first samples */
    write_files(MAX_COUNT, 0, 0);
    const char *stream = describe(ls_dataset_open_stream, LS_NORMALIZE_NONE);
    assert_ptr_equal(strstr(stream, "a stream of 40 samples of 1 x 1 x 2 in 10 classes (sampled hash "), stream);
    images[7] = 39;
    write_files(MAX_COUNT, 0, 0);
    const char *shorter = describe(ls_dataset_open_stream, LS_NORMALIZE_NONE);
    assert_string_equal(strstr(shorter, " samples of"), strstr(stream, " samples of"));
    assert_string_not_equal(shorter, stream);
    images[7] = 40;
    images[IMAGE_HEADER]++;
    write_files(MAX_COUNT, 0, 0);
    assert_string_not_equal(describe(ls_dataset_open_stream, LS_NORMALIZE_NONE), stream);

    make_files(1); /* fewer than are hashed */
    write_files(1, 0, 0);
    const char *single = describe(ls_dataset_open_idx, LS_NORMALIZE_NONE);
    assert_ptr_equal(strstr(single, "1 samples of"), single);
}
