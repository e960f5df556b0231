/* Damaged data and weights: each is refused in one line that names the file, before training, with exit status 1. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/data/folders.h"
#include "tests/programs/program.h"

enum { SAMPLES = 12, SIDE = 28, IMAGES_BYTES = 16 + SAMPLES * SIDE * SIDE, LABELS_BYTES = 8 + SAMPLES };

static const char *const train_images = "train-images-idx3-ubyte", *const train_labels = "train-labels-idx1-ubyte",
                         *const test_images = "t10k-images-idx3-ubyte", *const test_labels = "t10k-labels-idx1-ubyte";

/* Checks the message for the options, from one process and from a launcher. */
static void expect_refusal(const char *text, const char *options) {
    static const char *const programs[] = {"dp_train --devices 2", "ddp_train --spawn 2"};
    static program p;
    int files = scratch_file_count();
    for (int i = 0; i < 2; i++) {
        program_run(&p, "%s --steps 1 --batch-size 4 %s", programs[i], options);
        bool good = p.status == 1 && p.out_text[0] == '\0' && count_lines(p.err_text) == 1 &&
                    strstr(p.err_text, "_train: error: ") && strstr(p.err_text, text);
        if (!good)
            fail_msg("%s %s: expected '%s'; got status %d, stdout '%s', stderr '%s'", programs[i], options, text,
                     p.status, p.out_text, p.err_text);
    }
    assert_int_equal(scratch_file_count(), files);
}

/* --- data ----------------------------------------------------------------------------------------------------------- */

static void write_big_endian(unsigned char *out, uint32_t value) {
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void make_images(unsigned char *bytes) {
    const uint32_t header[] = {0x00000803, SAMPLES, SIDE, SIDE};
    for (int i = 0; i < 4; i++) write_big_endian(bytes + 4 * i, header[i]);
    for (int i = 16; i < IMAGES_BYTES; i++) bytes[i] = (unsigned char)(i * 7);
}

static void make_labels(unsigned char *bytes) {
    write_big_endian(bytes, 0x00000801);
    write_big_endian(bytes + 4, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) bytes[8 + i] = (unsigned char)(i % 10);
}

/* A good data folder, which each case then damages. */
static void write_folder(void) {
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES];
    make_images(images);
    make_labels(labels);
    scratch_write(train_images, images, sizeof images);
    scratch_write(train_labels, labels, sizeof labels);
    scratch_write(test_images, images, sizeof images);
    scratch_write(test_labels, labels, sizeof labels);
}

static void expect_bad_data(const char *text) {
    char options[400];
    snprintf(options, sizeof options, "--data %s", scratch_folder());
    expect_refusal(text, options);
    write_folder();
}

static void write_images(const char *name, size_t nbytes, size_t at, uint32_t value) {
    unsigned char images[IMAGES_BYTES];
    make_images(images);
    write_big_endian(images + at, value);
    scratch_write(name, images, nbytes);
}

static void write_labels(const char *name, size_t nbytes, size_t at, unsigned char value) {
    unsigned char labels[LABELS_BYTES];
    make_labels(labels);
    labels[at] = value;
    scratch_write(name, labels, nbytes);
}

TEST_IN(programs, test_damaged_data) {
    static program p;
    write_folder();
    assert_int_equal(program_run(&p, "dp_train --devices 2 --steps 1 --batch-size 4 --data %s", scratch_folder()), 0);
    for (int split = 0; split < 2; split++) {
        const char *images = split ? test_images : train_images, *labels = split ? test_labels : train_labels;
        write_images(images, IMAGES_BYTES - 1, 0, 0x00000803);
        expect_bad_data(images);
        write_images(images, 7, 0, 0x00000803);
        expect_bad_data("truncated");
        write_images(images, 0, 0, 0x00000803);
        expect_bad_data("truncated");
        write_images(images, IMAGES_BYTES, 0, 0x00000801);
        expect_bad_data("expected magic number 0x00000803, found 0x00000801");
        write_images(images, IMAGES_BYTES, 4, 0xffffffff);
        expect_bad_data("announces 4294967295 elements");
        write_images(images, IMAGES_BYTES, 4, SAMPLES - 1);
        expect_bad_data("bytes after its last element");
        write_images(images, 16 + (SAMPLES - 1) * SIDE * SIDE, 4, SAMPLES - 1);
        expect_bad_data("has 11 images but ");
        write_labels(labels, LABELS_BYTES - 1, 7, SAMPLES - 1);
        expect_bad_data("has 12 images but ");
        write_labels(labels, LABELS_BYTES, 8 + 3, 10);
        expect_bad_data("label 10 of sample 3 is out of range 0 to 9");
        unlink(scratch_path(labels));
        expect_bad_data("there is no ");
    }
}

TEST_IN(programs, test_damaged_gzip) {
    static const char *const name = "train-images-idx3-ubyte.gz";
    size_t nbytes;
    write_folder();
    unlink(scratch_path(train_images));
    unsigned char *plain = scratch_read("data/digits/train-images-idx3-ubyte", &nbytes);
    gzFile packed = gzopen(scratch_path(name), "wb");
    assert_int_equal(gzwrite(packed, plain, (unsigned)nbytes), nbytes);
    assert_int_equal(gzclose(packed), Z_OK);
    unsigned char *images = scratch_read(scratch_path(name), &nbytes);
    free(plain);
    scratch_write(name, images, nbytes / 2);
    expect_bad_data("is truncated: the file ends within sample");
    unlink(scratch_path(train_images));
    for (size_t i = nbytes / 2; i < nbytes / 2 + 64; i++) images[i] ^= 0x55;
    scratch_write(name, images, nbytes);
    expect_bad_data("is damaged");
    unlink(scratch_path(train_images));
    memset(images, 0x1f, 64);
    scratch_write(name, images, nbytes);
    expect_bad_data(name);
    free(images);
}

static void write_small_images(const char *name) {
    unsigned char images[IMAGES_BYTES];
    make_images(images);
    write_big_endian(images + 8, 14);
    write_big_endian(images + 12, 14);
    scratch_write(name, images, 16 + SAMPLES * 14 * 14);
}

/* Images whose size differs from the other split's or from the model's, and images of a size that fits a different
 * model. */
TEST_IN(programs, test_another_image_size) {
    char options[400];
    write_folder();
    for (int split = 0; split < 2; split++) {
        write_small_images(split ? test_images : train_images);
        expect_bad_data(split ? "have 1 x 14 x 14 values, but those of" : "train-images-idx3-ubyte have 1 x 14 x 14");
    }
    write_small_images(train_images);
    write_small_images(test_images);
    expect_bad_data("1 x 14 x 14 = 196 values, but the model takes 784: give --model mlp:196,256,10");
    snprintf(options, sizeof options, "--model mlp:784,9 --data %s", scratch_folder());
    expect_refusal("is out of range 0 to 8: the model has 9 outputs", options);
}

/* --- the other layouts, from the command line --------------------------------------------------------------------- */

static void expect_bad_arrays(const char *text, const char *model) {
    char options[400];
    snprintf(options, sizeof options, "--data %s --model %s", scratch_folder(), model);
    expect_refusal(text, options);
}

TEST_IN(programs, test_arrays_and_models_that_do_not_fit) {
    static const float values[6] = {0, 1, 2, 3, 4, 5};
    folders_write_npy("inputs.npy", "<f4", "(2, 3)", values, 24);
    folders_write_npy("targets.npy", "<f4", "(2, 2)", values, 16);
    expect_bad_arrays("3 x 1 x 1 = 3 values, but the model takes 784: give --model wide:3,256,2", "mlp");
    expect_bad_arrays("has target vectors, but the model is trained on labels: save int64 labels", "mlp:3,2");
    expect_bad_arrays("has target vectors of 2 values, but the model gives 5", "wide:3,5");
    folders_write_npy("targets.npy", "|u1", "(2,)", "\1\0", 2);
    expect_bad_arrays("has labels, but the model is trained on target vectors", "wide:3,2");
    expect_bad_arrays("label 1 of sample 0 is out of range 0 to 0: the model has 1 outputs", "mlp:3,1");
    unlink(scratch_path("targets.npy"));
    expect_bad_arrays("there is no targets.npy or targets.npy.gz in ", "mlp:3,2");
    unlink(scratch_path("inputs.npy"));
    expect_bad_arrays("there is no data in ", "mlp:3,2");
    scratch_write("table.csv", "1,2", 3);
    expect_bad_arrays("but can read table.csv after conversion: convert it with: python3 -c 'import numpy as n; ",
                      "mlp:3,2");
}

/* A class for each output of the model, however many; a split that is not used may be missing. */
TEST_IN(programs, test_classes_and_splits_follow_the_run) {
    static program p;
    char options[400];
    write_folder();
    write_labels(train_labels, LABELS_BYTES, 8 + 3, 46);
    for (int outputs = 46; outputs <= 47; outputs++) {
        snprintf(options, sizeof options, "--model mlp:784,4,%d --data %s", outputs, scratch_folder());
        if (outputs == 46) expect_refusal("label 46 of sample 3 is out of range 0 to 45: the model has 46", options);
    }
    assert_int_equal(program_run(&p, "dp_train --devices 2 --steps 1 --batch-size 4 %s", options), 0);
    unlink(scratch_path(test_images));
    unlink(scratch_path(test_labels));
    expect_refusal("there is no ", options);
    assert_int_equal(program_run(&p, "ddp_train --spawn 2 --steps 1 --batch-size 4 --no-evaluate %s", options), 0);
    snprintf(options, sizeof options, "--model mlp:784,4,47 --data stream:%s", scratch_folder());
    assert_int_equal(program_run(&p, "dp_train --devices 2 --steps 1 --batch-size 4 --no-evaluate %s", options), 0);
}

/* --- weights -------------------------------------------------------------------------------------------------------- */

static void expect_bad_weights(const void *bytes, size_t nbytes, const char *text) {
    char options[700];
    scratch_write("bad.safetensors", bytes, nbytes);
    snprintf(options, sizeof options, "--model mlp:784,16,10 --init %s", scratch_path("bad.safetensors"));
    expect_refusal(text, options);
}

TEST_IN(programs, test_damaged_weights) {
    static program p;
    size_t nbytes;
    program_run(&p, "dp_train --devices 2 --steps 1 --model mlp:784,16,10 --save-weights %s", scratch_path("good"));
    assert_int_equal(p.status, 0);
    char *good = scratch_read(scratch_path("good"), &nbytes), *bad = malloc(nbytes);
    assert_non_null(bad);
    static const char *const name = "bad.safetensors";
    expect_bad_weights(good, 0, name);
    expect_bad_weights(good, 5, name);
    expect_bad_weights(good, 60, "beyond the end of the file");
    expect_bad_weights(good, nbytes - 1, name);
    memcpy(bad, good, nbytes);
    memset(bad, 0xff, 8);
    expect_bad_weights(bad, nbytes, "exceeds the limit");
    memcpy(bad, good, nbytes);
    bad[8] = '[';
    expect_bad_weights(bad, nbytes, "is not a valid safetensors file");
    memcpy(bad, good, nbytes);
    memcpy(strstr(bad + 8, "F32"), "F33", 3);
    expect_bad_weights(bad, nbytes, "F33");
    memcpy(bad, good, nbytes);
    strstr(bad + 8, "fc1.weight")[2] = '7';
    expect_bad_weights(bad, nbytes, "has no tensor fc1.weight, which the model needs");
    expect_bad_weights("this is no such file, but it is long enough for a header's length", 64, name);
    free(bad);
    free(good);
}

TEST_IN(programs, test_weights_of_another_model) {
    static program p;
    char options[700];
    const char *weights = scratch_path("weights");
    program_run(&p, "dp_train --devices 2 --steps 1 --model mlp:784,16,10 --save %s", weights);
    assert_int_equal(p.status, 0);
    snprintf(options, sizeof options, "--init %s", weights);
    expect_refusal("the model needs", options);
    snprintf(options, sizeof options, "--model convnet --init %s", weights);
    expect_refusal("which the model needs", options);
    snprintf(options, sizeof options, "--model mlp:784,10 --init %s", weights);
    expect_refusal("the model", options);
    expect_refusal("cannot open /no/such/file: No such file or directory", "--init /no/such/file");
    expect_refusal("not a regular file", "--init /dev/zero");
}

int main(void) {
    alarm(230);
    return run_added_tests();
}
