/* The folder that mkdigits writes: the files beside the digits, the treatment of existing files, and that failures
 * leave nothing half done. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"
#include "tests/labs/digit_set.h"

static void expect_refusal(const mkdigits_options *options, ls_status status, const char *text, const char *another) {
    mkdigits_result result;
    assert_int_equal(mkdigits_make(options, &result), status);
    scratch_expect_error(text, another);
}

TEST_WITH(scratch_setup, digit_set_teardown, attribution_goes_along) {
    mkdigits_options options = small_set();
    make_set(&options);
    size_t note_nbytes, source_nbytes;
    char *note = scratch_read(in_set("README.md"), &note_nbytes);
    char *source = scratch_read("data/digits/README.md", &source_nbytes);
    assert_non_null(strstr(note, "3200 + 500 warped"));
    assert_non_null(strstr(note, "Changed copies"));
    assert_non_null(strstr(source, "CC BY 4.0"));
    assert_true(note_nbytes > source_nbytes);
    assert_string_equal(note + note_nbytes - source_nbytes, source);
    free(note);
    free(source);
}

TEST_WITH(scratch_setup, digit_set_teardown, a_data_set_is_replaced_only_by_force) {
    mkdigits_options options = small_set();
    make_set(&options);
    struct hashes before = hashes_of_set();
    options.seed = 1;
    expect_refusal(&options, LS_ERR_INVALID, "already holds train-images-idx3-ubyte", "--force");
    struct hashes after = hashes_of_set();
    assert_memory_equal(&before, &after, sizeof before);
    options.force = true;
    make_set(&options);
    after = hashes_of_set();
    for (int i = 0; i < SET_FILES; i++) assert_true(before.of[i] != after.of[i]);
    assert_int_equal(remove_set(), SET_FILES);
}

/* Any one of its files is enough. The loader might read the file under a different spelling, so --force does not
 * help. */
TEST_WITH(scratch_setup, digit_set_teardown, parts_of_a_data_set_are_not_mixed) {
    static const char *const others[] = {"train-images-idx3-ubyte.gz", "train-labels.idx1-ubyte",
                                         "t10k-images.idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
    mkdigits_options options = small_set();
    assert_int_equal(mkdir(options.folder, 0777), 0);
    for (int i = 0; i < SET_FILES + 4; i++) {
        const char *name = i < SET_FILES ? set_names[i] : others[i - SET_FILES];
        FILE *file = fopen(in_set(name), "w");
        assert_non_null(file);
        fclose(file);
        options.force = i >= SET_FILES;
        expect_refusal(&options, LS_ERR_INVALID, options.folder, name);
        struct stat entry;
        assert_true(stat(in_set(name), &entry) == 0 && entry.st_size == 0);
        assert_int_equal(remove(in_set(name)), 0);
    }
    options.force = false;
    make_set(&options); /* the folder may exist, and may contain other files */
    assert_int_equal(remove_set(), SET_FILES);
}

TEST_WITH(scratch_setup, digit_set_teardown, bad_places_and_sources_leave_nothing) {
    mkdigits_options options = small_set();
    options.source = "/no/such/source";
    expect_refusal(&options, LS_ERR_IO, "there is no data folder /no/such/source", NULL);
    options = small_set();
    options.folder = scratch_path("none/set");
    expect_refusal(&options, LS_ERR_IO, "cannot make the folder", "none/set: No such file");
    scratch_write("file", "", 0);
    options.folder = scratch_path("file");
    expect_refusal(&options, LS_ERR_IO, "file is not a folder", NULL);
    remove(scratch_path("file"));
    options = small_set();
    options.list = scratch_path("none/list");
    expect_refusal(&options, LS_ERR_IO, "none/list", "folder must exist");
    options = small_set();
    options.list = in_set("t10k-labels-idx1-ubyte");
    expect_refusal(&options, LS_ERR_USAGE, options.list, "--list and FOLDER name the same file");
    assert_int_equal(scratch_file_count(), 0);
}

static void write_source(const char *prefix, uint8_t side, uint8_t label) {
    char name[64];
    const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 1, label};
    uint8_t images[16 + 9] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, side, 0, 0, 0, side};
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    scratch_write(name, images, 16 + (size_t)side * side);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    scratch_write(name, labels, sizeof labels);
}

TEST_WITH(scratch_setup, digit_set_teardown, sources_must_be_digits_of_one_size) {
    mkdigits_options options = small_set();
    options.source = scratch_folder();
    write_source("train", 3, 0);
    write_source("t10k", 2, 0);
    expect_refusal(&options, LS_ERR_FORMAT, "training images of 3 x 3 pixels, but test images of 2 x 2", NULL);
    write_source("t10k", 3, 10);
    expect_refusal(&options, LS_ERR_FORMAT, "label 10", NULL);
    assert_int_equal(remove_set(), -1);
    write_source("t10k", 3, 9);
    assert_int_equal(mkfifo(scratch_path("README.md"), 0600), 0); /* without a writer */
    stderr_begin();
    alarm(20);
    make_set(&options);
    alarm(0);
    assert_non_null(strstr(stderr_end(), "has no readable README.md"));
    assert_int_equal(remove_set(), SET_FILES);
    assert_int_equal(unlink(scratch_path("README.md")), 0);
    scratch_write("README.md", "origin\n", 7); /* without one there would be a warning */
    mkdigits_result result = make_set(&options);
    assert_int_equal(result.splits[LS_SPLIT_TEST].per_class[9], 500);
    assert_int_equal(result.splits[LS_SPLIT_TRAIN].per_class[0], 3200);
}

/* A limit on the size of files stands for a full disk. */
static void expect_full_disk(const mkdigits_options *options) {
    struct rlimit whole;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {.rlim_cur = 1000000, .rlim_max = whole.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    mkdigits_result result;
    ls_status status = mkdigits_make(options, &result);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    assert_int_equal(status, LS_ERR_IO);
    scratch_expect_error("cannot write", "train-images-idx3-ubyte");
}

TEST_WITH(scratch_setup, digit_set_teardown, a_full_disk_leaves_what_was_there) {
    mkdigits_options options = small_set();
    expect_full_disk(&options);
    assert_int_equal(remove_set(), -1); /* the created folder has been removed */
    make_set(&options);
    struct hashes before = hashes_of_set();
    options.seed = 1;
    options.force = true;
    expect_full_disk(&options);
    struct hashes after = hashes_of_set();
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(remove_set(), SET_FILES);
}

/* A commit that fails halfway leaves a set with missing files, which no loader accepts, and never a mixture of two
 * sets. */
TEST_WITH(scratch_setup, digit_set_teardown, old_and_new_files_are_not_mixed) {
    mkdigits_options options = small_set();
    make_set(&options);
    static const uint8_t pixels[DIGIT_PIXELS];
    digits_folder *folder;
    options.force = true;
    for (int s = 0; s < DIGIT_SPLITS; s++) options.counts[s] = 1;
    assert_int_equal(digits_folder_open(&folder, &options, 28, 28), LS_OK);
    for (int s = 0; s < DIGIT_SPLITS; s++)
        assert_int_equal(digits_folder_put(folder, (ls_split)s, 0, pixels, 0, 0), LS_OK);
    remove(in_set("README.md"));
    assert_int_equal(mkdir(in_set("README.md"), 0777), 0); /* so that the note cannot be put in place */
    assert_int_equal(digits_folder_commit(folder), LS_ERR_IO);
    scratch_expect_error("README.md", NULL);
    assert_int_equal(remove_set(), 1);
}
