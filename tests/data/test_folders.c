/* Folders of each layout: how they are read and normalized, and why a folder is refused. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/data/dataset.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/folders.h"

static ls_dataset *train, *test;

static void open_folder(int normalize) {
    assert_int_equal(ls_dataset_open_folder(&train, &test, scratch_folder(), &normalize), LS_OK);
}

static void close_folder(void) {
    ls_dataset_close(train);
    ls_dataset_close(test);
    train = test = NULL;
}

static void expect_spec(const ls_dataset *dataset, size_t count, const int shape[3], int classes, size_t targets) {
    const ls_sample_spec *spec = ls_dataset_spec(dataset);
    assert_int_equal(ls_dataset_count(dataset), count);
    assert_int_equal(spec->channels, shape[0]);
    assert_int_equal(spec->height, shape[1]);
    assert_int_equal(spec->width, shape[2]);
    assert_int_equal(spec->classes, classes);
    assert_int_equal(spec->target_count, targets);
}

static void expect_refused(ls_status expected, const char *text, const char *another) {
    int normalize = -1;
    train = test = (ls_dataset *)&train;
    assert_int_equal(ls_dataset_open_folder(&train, &test, scratch_folder(), &normalize), expected);
    assert_true(!train && !test);
    scratch_expect_error(text, another);
}

/* --- CIFAR -------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, cifar_10) {
    folders_write_cifar10();
    open_folder(LS_NORMALIZE_NONE);
    expect_spec(train, 15, (const int[]){3, 32, 32}, 10, 0);
    expect_spec(test, 3, (const int[]){3, 32, 32}, 10, 0);
    static float inputs[2 * 3072];
    int64_t labels[2];
    assert_int_equal(ls_dataset_read(train, (const int64_t[]){14, 3}, 2, inputs, labels, NULL), LS_OK);
    for (int i = 0; i < 3072; i++) {
        assert_true(inputs[i] == (float)((7 * 14 + i) % 256 >> i / 1024) / 255.0f);
        assert_true(inputs[3072 + i] == (float)((7 * 3 + i) % 256 >> i / 1024) / 255.0f);
    }
    assert_true(labels[0] == 4 && labels[1] == 3);
    close_folder();
    unlink(scratch_path("data_batch_3.bin"));
    expect_refused(LS_ERR_IO, "there is no data_batch_3.bin or data_batch_3.bin.gz", NULL);
    folders_write_cifar10();
    folders_write_records("data_batch_4.bin", 6, 4, 1, 10, 3073 * 4 - 1);
    expect_refused(LS_ERR_FORMAT, "data_batch_4.bin is truncated or not a CIFAR file", "12291 bytes");
    folders_write_records("data_batch_4.bin", 10, 4, 1, 11, 0);
    expect_refused(LS_ERR_FORMAT, "label 10 of sample 6 is out of range 0 to 9: the data has 10 classes", NULL);
    folders_write_records("data_batch_4.bin", 0, 0, 1, 10, 0);
    expect_refused(LS_ERR_FORMAT, "data_batch_4.bin is truncated or not a CIFAR file", NULL);
}

TEST_IN(scratch, cifar_100_has_a_coarse_label_in_front) {
    folders_write_records("train.bin", 0, 12, 2, 100, 0);
    folders_write_records("test.bin", 0, 2, 2, 100, 0);
    open_folder(-1);
    expect_spec(train, 12, (const int[]){3, 32, 32}, 100, 0);
    static float input[3072];
    int64_t label, last[] = {11};
    size_t sample;
    assert_int_equal(ls_dataset_read(train, last, 1, input, &label, NULL), LS_OK);
    assert_int_equal(label, 11);
    assert_int_equal(ls_dataset_largest_label(train, &sample), 11);
    assert_int_equal(sample, 11);
    close_folder();
}

TEST_IN(scratch, gzipped_records_and_a_bomb) {
    size_t nbytes;
    folders_write_records("train.bin", 0, 12, 2, 100, 0);
    void *plain = scratch_read(scratch_path("train.bin"), &nbytes);
    folders_gzip("test.bin.gz", plain, nbytes, 1);
    open_folder(-1);
    assert_int_equal(ls_dataset_count(test), 12);
    close_folder();
    char *packed = scratch_read(scratch_path("test.bin.gz"), &nbytes);
    scratch_write("test.bin.gz", packed, nbytes - 3);
    expect_refused(LS_ERR_FORMAT, "test.bin.gz is truncated: the file ends within its compressed data", NULL);
    free(packed);
    void *zeros = calloc(3074, 4096);
    folders_gzip("test.bin.gz", zeros, 3074 * 4096, 17); /* 214 MB out of 1 MB */
    free(zeros);
    expect_refused(LS_ERR_FORMAT, "test.bin.gz has more than 65536 samples of 3074 bytes", NULL);
    free(plain);
}

/* --- IDX with channels -------------------------------------------------------------------------------------------- */

TEST_IN(scratch, idx_with_channels) {
    folders_write_idx4("train", 4);
    folders_write_idx4("t10k", 2);
    open_folder(LS_NORMALIZE_NONE);
    expect_spec(train, 4, (const int[]){2, 1, 3}, 4, 0);
    float input[6];
    int64_t label;
    assert_int_equal(ls_dataset_read(train, (const int64_t[]){3}, 1, input, &label, NULL), LS_OK);
    for (int i = 0; i < 6; i++) assert_true(input[i] == (float)(3 * 6 + i) / 255.0f);
    assert_int_equal(label, 3);
    close_folder();
    open_folder(-1);
    char text[200];
    ls_dataset_describe_normalization(train, text, sizeof text);
    assert_memory_equal(text, "auto (mean ", 11);
    close_folder();
}

/* --- normalization ------------------------------------------------------------------------------------------------ */

/* NumPy's: x = ((7 * s[:, None] + i) % 256 >> i // 1024).astype("u1").reshape(15, 3, 1024) / 255; x.mean((0, 2)), x.std((0, 2)) */
static const double means[] = {0.5, 0.24901960784313726, 0.12352941176470589};
static const double deviations[] = {0.2898049828843099, 0.14489917479876327, 0.07244295373298498};

TEST_IN(scratch, the_training_data_give_each_channel_its_mean_and_deviation) {
    char text[200], gray[200];
    folders_write_cifar10();
    folders_write_records("test_batch.bin", 0, 1, 1, 10, 0);
    open_folder(-1);
    ls_dataset_describe_normalization(train, text, sizeof text);
    ls_dataset_describe_normalization(test, gray, sizeof gray);
    assert_string_equal(text, "auto (mean 0.5 0.249 0.1235, deviation 0.2898 0.1449 0.07244)");
    assert_string_equal(gray, text); /* the test samples are normalized like the training samples */
    static float inputs[3072];
    assert_int_equal(ls_dataset_read(test, (const int64_t[]){0}, 1, inputs, NULL, NULL), LS_OK);
    for (int i = 0; i < 3072; i++) {
        int channel = i / 1024;
        float value = (float)(i % 256 >> channel) / 255.0f;
        value = value - (float)means[channel];
        assert_true(inputs[i] == value / (float)deviations[channel]);
    }
    close_folder();
}

TEST_IN(scratch, what_is_usual_depends_on_the_files) {
    char text[200];
    int normalize = -1;
    assert_int_equal(ls_dataset_open_folder(&train, NULL, "data/digits", &normalize), LS_OK);
    assert_int_equal(normalize, LS_NORMALIZE_MNIST);
    close_folder();
    normalize = LS_NORMALIZE_AUTO;
    assert_int_equal(ls_dataset_open_folder(&train, NULL, "data/digits", &normalize), LS_OK);
    ls_dataset_describe_normalization(train, text, sizeof text);
    assert_string_equal(text, "auto (mean 0.1557, deviation 0.2764)");
    close_folder();
    normalize = -1;
    folders_write_npy("inputs.npy", "<f4", "(2, 3)", (const float[]){1, 2, 3, 4, 5, 9}, 24);
    folders_write_npy("targets.npy", "<i8", "(2,)", (const int64_t[]){1, 0}, 16);
    assert_int_equal(ls_dataset_open_folder(&train, NULL, scratch_folder(), &normalize), LS_OK);
    assert_int_equal(normalize, LS_NORMALIZE_NONE);
    close_folder();
    normalize = LS_NORMALIZE_AUTO; /* each feature separately: 1 4, 2 5, 3 9 */
    float input[3];
    assert_int_equal(ls_dataset_open_folder(&train, NULL, scratch_folder(), &normalize), LS_OK);
    assert_int_equal(ls_dataset_read(train, (const int64_t[]){1}, 1, input, NULL, NULL), LS_OK);
    assert_true(input[0] == 1 && input[1] == 1 && input[2] == 1);
    close_folder();
}

/* One mean and one deviation for all pixels of flattened images, as for images of one channel. */
TEST_IN(scratch, bytes_without_channels_share_their_numbers) {
    static const char *const shapes[] = {"(2, 2)", "(2, 1, 2)"};
    char text[200];
    folders_write_npy("targets.npy", "|u1", "(2,)", "\1\0", 2);
    for (int i = 0; i < 2; i++) {
        int normalize = -1;
        folders_write_npy("inputs.npy", "|u1", shapes[i], (const uint8_t[]){0, 255, 255, 0}, 4);
        assert_int_equal(ls_dataset_open_folder(&train, NULL, scratch_folder(), &normalize), LS_OK);
        assert_int_equal(normalize, LS_NORMALIZE_AUTO);
        ls_dataset_describe_normalization(train, text, sizeof text);
        assert_string_equal(text, "auto (mean 0.5, deviation 0.5)");
        close_folder();
    }
}

TEST_IN(scratch, a_constant_channel_stays_finite) {
    float input[3];
    folders_write_npy("inputs.npy", "<f4", "(2, 3)", (const float[]){1, 7, 3, 4, 7, 9}, 24);
    folders_write_npy("targets.npy", "<i8", "(2,)", (const int64_t[]){1, 0}, 16);
    open_folder(LS_NORMALIZE_AUTO);
    assert_null(test);
    assert_int_equal(ls_dataset_read(train, (const int64_t[]){1}, 1, input, NULL, NULL), LS_OK);
    assert_true(input[0] == 1 && input[1] == 0);
    close_folder();
}

/* --- folders that are refused, and names -------------------------------------------------------------------------- */

TEST_IN(scratch, test_samples_are_of_the_training_samples_kind) {
    const float floats[4] = {0};
    folders_write_npy("inputs.npy", "<f4", "(2, 2)", floats, 16);
    folders_write_npy("targets.npy", "|u1", "(2,)", "\1\0", 2);
    folders_write_npy("test_inputs.npy", "<f4", "(1, 3)", floats, 12);
    folders_write_npy("test_targets.npy", "|u1", "(1,)", "\1", 1);
    expect_refused(LS_ERR_FORMAT, "test_inputs.npy have 3 x 1 x 1 values, but those of", "2 x 1 x 1");
    folders_write_npy("test_inputs.npy", "|u1", "(1, 2)", "\1\2", 2);
    expect_refused(LS_ERR_FORMAT, "differ in type: bytes and floats", NULL);
    folders_write_npy("test_inputs.npy", "<f4", "(1, 2)", floats, 8);
    folders_write_npy("test_targets.npy", "<f4", "(1,)", floats, 4);
    expect_refused(LS_ERR_FORMAT, "test_targets.npy has 1 target values per sample", "0: labels");
    unlink(scratch_path("test_targets.npy"));
    expect_refused(LS_ERR_IO, "there is no test_targets.npy or test_targets.npy.gz", NULL);
    folders_write_records("train.bin", 0, 1, 2, 100, 0);
    expect_refused(LS_ERR_FORMAT, "has files of two data sets", "keep the files of one");
}

struct wrong {
    const char *name, *text, *another;
};

TEST_IN(scratch, what_is_no_data_gets_its_own_line) {
    static const struct wrong rows[] = {
        {"train.pt", "but can read train.pt after conversion: convert it with: python3 -c", "torch.load("},
        {"a.pth", "but can read a.pth after conversion: convert it with: python3 -c", "torch.load("},
        {"table.CSV", "but can read table.CSV after conversion: convert it with: python3 -c", "n.loadtxt("},
        {"x.npz", "but can read x.npz after conversion: convert it with: python3 -c", "z.files[:2]"},
        {"x.parquet", "but can read x.parquet after conversion: convert it with: python3 -c", "pandas.read_parquet("},
        {"x.zip", "but can read x.zip after conversion: unpack it with: unzip ", NULL},
        {"x.tar.gz", "but can read x.tar.gz after conversion: unpack it with: tar -xf ", NULL},
        {"cat.png", "but can read cat.png after conversion: convert it with: python3 -c", "PIL"},
        {"data_batch_1", "CIFAR-10's Python files; expected its binary version", NULL},
        {"notes.txt", "there is no data in ", "train-images-idx3-ubyte"},
    };
    expect_refused(LS_ERR_IO, "there is no data in ", scratch_folder());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scratch_write(rows[i].name, "x", 1);
        expect_refused(LS_ERR_IO, rows[i].text, rows[i].another);
        unlink(scratch_path(rows[i].name));
    }
    int normalize = -1;
    for (size_t i = 0; i + 2 < sizeof rows / sizeof *rows; i++) { /* the same files passed instead of the folder */
        scratch_write(rows[i].name, "x", 1);
        assert_int_equal(ls_dataset_open_folder(&train, NULL, scratch_path(rows[i].name), &normalize), LS_ERR_IO);
        scratch_expect_error("is a file; expected a folder: ", strstr(rows[i].text, "it with"));
        unlink(scratch_path(rows[i].name));
    }
}

TEST_IN(scratch, the_folder_that_was_meant) {
    int normalize = -1;
    assert_int_equal(mkdir(scratch_path("batches"), 0700), 0);
    folders_write_records("batches/train.bin", 0, 1, 2, 100, 0);
    expect_refused(LS_ERR_IO, "has no data, but its folder batches does: give --data ", "/batches");
    assert_int_equal(ls_dataset_open_folder(&train, NULL, scratch_path("batches/train.bin"), &normalize), LS_ERR_IO);
    scratch_expect_error("is a file; expected a folder: give --data ", "/batches");
    unlink(scratch_path("batches/train.bin"));
    scratch_write("batches/b.png", "", 0);
    expect_refused(LS_ERR_IO, "but can read batches/b.png after conversion: convert it with: python3", NULL);
    assert_int_equal(ls_dataset_open_folder(&train, NULL, "fashion-mnist", &normalize), LS_ERR_IO);
    scratch_expect_error("fashion-mnist is not installed: apt-get install dataset-fashion-mnist", NULL);
}

/* If the package is installed, its name refers to it; a folder of that name takes precedence. */
TEST_IN(scratch, fashion_mnist_by_name) {
    const char *installed = "/usr/share/datasets/fashion-mnist";
    bool is_there = access(installed, F_OK) == 0;
    assert_string_equal(ls_dataset_find("fashion-mnist"), is_there ? installed : "fashion-mnist");
    assert_string_equal(ls_dataset_find("data/digits"), "data/digits");
    if (!is_there) return;
    int normalize = -1;
    assert_int_equal(ls_dataset_open_folder(&train, &test, ls_dataset_find("fashion-mnist"), &normalize), LS_OK);
    expect_spec(train, 60000, (const int[]){1, 28, 28}, 10, 0);
    expect_spec(test, 10000, (const int[]){1, 28, 28}, 10, 0);
    assert_int_equal(normalize, LS_NORMALIZE_MNIST);
    close_folder();
}
