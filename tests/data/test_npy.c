/* Pairs of NumPy arrays: which are accepted, and which are refused, each with its own message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/data/dataset.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/folders.h"

static const float floats[24] = {0.5f, -1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const uint8_t bytes[] = "\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27";
static const int64_t labels[] = {2, 0};

/* Two samples of three floats, with labels. */
static void write_good(void) {
    folders_write_npy("inputs.npy", "<f4", "(2, 3)", floats, 24);
    folders_write_npy("targets.npy", "<i8", "(2,)", labels, 16);
}

static ls_dataset *open_good(void) {
    ls_dataset *dataset;
    int normalize = LS_NORMALIZE_NONE;
    assert_int_equal(ls_dataset_open_folder(&dataset, NULL, scratch_folder(), &normalize), LS_OK);
    return dataset;
}

static void expect_refused(ls_status expected, const char *text, const char *another) {
    ls_dataset *dataset;
    int normalize = -1;
    assert_int_equal(ls_dataset_open_folder(&dataset, NULL, scratch_folder(), &normalize), expected);
    assert_null(dataset);
    scratch_expect_error(text, another);
    write_good();
}

struct shape {
    const char *descr, *shape;
    int channels, height, width;
};

TEST_IN(scratch, shapes_of_inputs) {
    static const struct shape rows[] = {{"<f4", "(2, 3)", 3, 1, 1},       {"|u1", "(2, 3)", 3, 1, 1},
                                        {"<f4", "(2, 2, 3)", 1, 2, 3},    {"|u1", "(2,2,3)", 1, 2, 3},
                                        {"<f4", "(2, 3, 2, 2)", 3, 2, 2}, {"|u1", "(2, 3, 2, 2,)", 3, 2, 2}};
    write_good();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_bytes = rows[i].descr[1] == 'u';
        size_t count = (size_t)(rows[i].channels * rows[i].height * rows[i].width);
        folders_write_npy("inputs.npy", rows[i].descr, rows[i].shape, is_bytes ? (const void *)bytes : floats,
                          2 * count * (is_bytes ? 1 : sizeof *floats));
        ls_dataset *dataset = open_good();
        const ls_sample_spec *spec = ls_dataset_spec(dataset);
        assert_true(spec->channels == rows[i].channels && spec->height == rows[i].height);
        assert_true(spec->width == rows[i].width && spec->classes == 3 && spec->target_count == 0);
        float inputs[13];
        int64_t label;
        inputs[count] = -7;
        assert_int_equal(ls_dataset_read(dataset, (const int64_t[]){1}, 1, inputs, &label, NULL), LS_OK);
        for (size_t k = 0; k < count; k++)
            assert_true(inputs[k] == (is_bytes ? (float)bytes[count + k] / 255.0f : floats[count + k]));
        assert_true(inputs[count] == -7 && label == 0);
        ls_dataset_close(dataset);
    }
}

TEST_IN(scratch, labels_of_each_type_and_float_targets) {
    static const int32_t narrow[] = {0, 5};
    ls_dataset *dataset;
    float inputs[6], targets[7] = {[6] = -7};
    write_good();
    folders_write_npy("targets.npy", "<i4", "(2,)", narrow, 8);
    dataset = open_good();
    assert_int_equal(ls_dataset_spec(dataset)->classes, 6);
    ls_dataset_close(dataset);
    folders_write_npy("targets.npy", "|u1", "(2, 1)", "\1\3", 2);
    dataset = open_good();
    assert_int_equal(ls_dataset_spec(dataset)->classes, 4);
    ls_dataset_close(dataset);
    folders_write_npy("targets.npy", "<f4", "(2, 3)", floats, 24);
    dataset = open_good();
    assert_int_equal(ls_dataset_spec(dataset)->classes, 0);
    assert_int_equal(ls_dataset_spec(dataset)->target_count, 3);
    assert_int_equal(ls_dataset_read(dataset, (const int64_t[]){1, 0}, 2, inputs, NULL, targets), LS_OK);
    for (int i = 0; i < 6; i++) assert_true(targets[i] == floats[(i + 3) % 6]);
    assert_true(targets[6] == -7);
    ls_dataset_close(dataset);
    folders_write_npy("targets.npy", "<f4", "(2,)", floats, 8);
    dataset = open_good();
    assert_int_equal(ls_dataset_spec(dataset)->target_count, 1);
    ls_dataset_close(dataset);
}

TEST_IN(scratch, gzipped_arrays_and_headers_of_version_2) {
    size_t nbytes;
    write_good();
    char *plain = scratch_read(scratch_path("inputs.npy"), &nbytes), header[400];
    folders_gzip("inputs.npy.gz", plain, nbytes, 1);
    unlink(scratch_path("inputs.npy"));
    ls_dataset_close(open_good());
    memcpy(header, "\x93NUMPY\2\0\x76\0\0\0", 12);
    memcpy(header + 12, plain + 10, nbytes - 10);
    scratch_write("inputs.npy", header, nbytes + 2); /* takes precedence over the gzipped one */
    ls_dataset_close(open_good());
    free(plain);
}

/* --- files that are refused --------------------------------------------------------------------------------------- */

struct refusal {
    const char *file, *descr, *shape;
    size_t nbytes;
    const char *text;
};

TEST_IN(scratch, arrays_that_are_refused) {
    static const struct refusal rows[] = {
        {"inputs.npy", ">f4", "(2, 3)", 24, "inputs.npy is big endian (>f4): save a.astype("},
        {"inputs.npy", "|O", "(2, 3)", 24, "inputs.npy holds Python objects; expected numbers"},
        {"inputs.npy", "<f8", "(2, 3)", 48, "inputs.npy has elements of type <f8; expected uint8, float32, or int64"},
        {"inputs.npy", "<i8", "(2, 1)", 16, "inputs.npy has integers of more than a byte"},
        {"inputs.npy", "<f4", "(2,)", 8, "inputs.npy has 1 axis; expected samples and their values"},
        {"inputs.npy", "<f4", "()", 4, "inputs.npy has 0 axes; expected 1 to 4"},
        {"inputs.npy", "<f4", "(2, 1, 1, 1, 3)", 24, "inputs.npy has 5 axes; expected 1 to 4"},
        {"inputs.npy", "|u1", "(1, 8, 1, 3)", 24, "has shape (1, 8, 1, 3), channels last"},
        {"inputs.npy", "<f4", "(2, 0)", 0, "inputs.npy is empty: its axis 1 is zero"},
        {"inputs.npy", "<f4", "(0, 3)", 0, "inputs.npy is empty: its axis 0 is zero"},
        {"inputs.npy", "<f4", "(2, 4)", 24, "inputs.npy is truncated: the file ends within sample 1 of 2"},
        {"inputs.npy", "<f4", "(2, 2)", 24, "inputs.npy has bytes after its last element"},
        {"inputs.npy", "<f4", "(3, 2)", 24, "inputs.npy has 3 samples but "},
        {"inputs.npy", "<f4", "(2, 99999999999, 99999999999)", 24, "its samples would be larger than any file"},
        {"inputs.npy", "<f4", "(2, 3, 1000000000000)", 24,
         "inputs.npy is truncated or damaged: its header announces 2 elements"},
        {"inputs.npy", "<f4", "(2, 9999999999999999999)", 24, "its header is not {'descr'"},
        {"inputs.npy", "<f4", "(2, -3)", 24, "its header is not {'descr'"},
        {"inputs.npy", "<f4", "(2 3)", 24, "its header is not {'descr'"},
        {"inputs.npy", "<f4", "2", 24, "its header is not {'descr'"},
        {"inputs.npy", "<f4', 'x': '", "(2, 3)", 24, "its header is not {'descr'"},
        {"targets.npy", "<i8", "(1,)", 8, "inputs.npy has 2 samples but "},
        {"targets.npy", "|u1", "(2, 3)", 6, "targets.npy has 3 labels for each sample; expected one"},
        {"targets.npy", "<f8", "(2,)", 16, "targets.npy has elements of type <f8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_good();
        folders_write_npy(rows[i].file, rows[i].descr, rows[i].shape, floats, rows[i].nbytes);
        expect_refused(LS_ERR_FORMAT, rows[i].text, NULL);
    }
}

/* Replaces text in the header of inputs.npy by a text of the same length. */
static void change_header(const char *from, const char *to) {
    size_t nbytes;
    write_good();
    char *file = scratch_read(scratch_path("inputs.npy"), &nbytes);
    memcpy(strstr(file + 10, from), to, strlen(to));
    scratch_write("inputs.npy", file, nbytes);
    free(file);
}

TEST_IN(scratch, headers_that_are_refused) {
    static const struct {
        size_t at;
        char byte;
        const char *text;
    } rows[] = {
        {1, 'n', "inputs.npy is not a .npy file"},   {6, 3, "inputs.npy is of .npy version 3.0; expected 1.0 or 2.0"},
        {6, 0, "inputs.npy is of .npy version 0.0"}, {9, 0x11, "its header announces 4470 bytes"},
        {8, 0x20, "its header is not {'descr'"},     {126, 0, "its header is not {'descr'"},
        {20, 0, "its header is not {'descr'"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t nbytes;
        write_good();
        char *file = scratch_read(scratch_path("inputs.npy"), &nbytes);
        file[rows[i].at] = rows[i].byte;
        scratch_write("inputs.npy", file, nbytes);
        expect_refused(LS_ERR_FORMAT, rows[i].text, NULL);
        free(file);
    }
    change_header("False", "True ");
    expect_refused(LS_ERR_FORMAT, "inputs.npy is in Fortran order: save numpy.ascontiguousarray(a)", NULL);
    change_header("'<f4'", "[('a'");
    expect_refused(LS_ERR_FORMAT, "inputs.npy is a structured array", NULL);
    change_header("shape", "shade");
    expect_refused(LS_ERR_FORMAT, "its header is not {'descr'", NULL);
    unlink(scratch_path("targets.npy"));
    expect_refused(LS_ERR_IO, "there is no targets.npy or targets.npy.gz in ", NULL);
}

TEST_IN(scratch, values_that_are_refused) {
    static const struct {
        int64_t label;
        const char *text;
    } rows[] = {{-1, "targets.npy: label -1 of sample 1 is negative"},
                {INT64_MIN, "of sample 1 is negative"},
                {INT64_MAX, "label 9223372036854775807 of sample 1 is out of range"},
                {1 << 24, "is out of range 0 to 16777215: the data has at most 16777216 classes"}};
    static const float special[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_good();
        folders_write_npy("targets.npy", "<i8", "(2,)", (const int64_t[]){0, rows[i].label}, 16);
        expect_refused(LS_ERR_FORMAT, rows[i].text, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        float values[6];
        memcpy(values, floats, sizeof values);
        values[4] = special[i];
        folders_write_npy("inputs.npy", "<f4", "(2, 3)", values, 24);
        expect_refused(LS_ERR_FORMAT, "inputs.npy: value 1 of sample 1 is ", "expected finite numbers");
        folders_write_npy("targets.npy", "<f4", "(2, 3)", values, 24);
        expect_refused(LS_ERR_FORMAT, "targets.npy: value 1 of sample 1 is ", i == 0 ? "nan" : "inf");
    }
}

TEST_IN(scratch, files_cut_after_each_byte) {
    size_t nbytes;
    write_good();
    char *file = scratch_read(scratch_path("inputs.npy"), &nbytes);
    for (size_t length = 0; length < nbytes; length++) {
        scratch_write("inputs.npy", file, length);
        expect_refused(LS_ERR_FORMAT, "inputs.npy is truncated", NULL);
    }
    free(file);
}
