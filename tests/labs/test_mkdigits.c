/* The data set that mkdigits makes: from which digits, by which seed, and what happens to what was there before. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "labs/mkdigits/mkdigits.h"
#include "tests/base/scratch.h"

enum { PIXELS = 28 * 28, TRAIN_DIGITS = 1500, TEST_DIGITS = 297 };

static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                    "t10k-labels-idx1-ubyte", "README.md"};
enum { NAMES = sizeof names / sizeof *names };

/* --- folders ------------------------------------------------------------------------------------------------------- */

static const char *in_set(const char *name) {
    static char paths[4][700];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_path("set"), name);
    return path;
}

/* Empties and removes the set's folder; the number of files that were in it, -1 if there was none. */
static int remove_set(void) {
    DIR *folder = opendir(scratch_path("set"));
    if (!folder) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        count++;
        remove(in_set(entry->d_name));
    }
    closedir(folder);
    rmdir(scratch_path("set"));
    return count;
}

static int teardown(void **state) {
    remove_set();
    return scratch_teardown(state);
}

static mkdigits_options small_set(void) {
    static char folder[600];
    snprintf(folder, sizeof folder, "%s", scratch_path("set"));
    mkdigits_options options = mkdigits_defaults();
    options.folder = folder;
    options.counts[LS_SPLIT_TRAIN] = 3200;
    options.counts[LS_SPLIT_TEST] = 500;
    options.quiet = true;
    return options;
}

static mkdigits_result make(const mkdigits_options *options) {
    mkdigits_result result;
    assert_int_equal(mkdigits_make(options, &result), LS_OK);
    return result;
}

static uint64_t hash_of_file(const char *path) {
    size_t nbytes;
    void *bytes = scratch_read(path, &nbytes);
    uint64_t hash = ls_hash(LS_HASH_SEED, bytes, nbytes);
    free(bytes);
    return hash;
}

struct hashes {
    uint64_t of[NAMES];
};

static struct hashes hashes_of_set(void) {
    struct hashes hashes;
    for (int i = 0; i < NAMES; i++) hashes.of[i] = hash_of_file(in_set(names[i]));
    return hashes;
}

/* --- samples ------------------------------------------------------------------------------------------------------- */

/* A split of some folder, read as training would read it, back in bytes. */
struct split {
    size_t count;
    uint8_t *pixels;
    int64_t *labels;
};

static struct split read_split(const char *folder, ls_split which) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, folder, which, LS_NORMALIZE_NONE), LS_OK);
    struct split split = {.count = ls_dataset_count(dataset)};
    assert_int_equal(ls_sample_input_count(ls_dataset_spec(dataset)), PIXELS);
    split.pixels = malloc(split.count * PIXELS);
    split.labels = malloc(split.count * sizeof *split.labels);
    float input[PIXELS];
    for (size_t i = 0; i < split.count; i++) {
        const int64_t index = (int64_t)i;
        assert_int_equal(ls_dataset_read(dataset, &index, 1, input, &split.labels[i], NULL), LS_OK);
        for (int p = 0; p < PIXELS; p++) split.pixels[i * PIXELS + (size_t)p] = (uint8_t)(input[p] * 255 + 0.5f);
    }
    ls_dataset_close(dataset);
    return split;
}

static void free_split(struct split *split) {
    free(split->pixels);
    free(split->labels);
}

static void same_options_make_the_same_bytes(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    mkdigits_result first = make(&options);
    struct hashes before = hashes_of_set();
    remove_set();
    mkdigits_result second = make(&options);
    struct hashes after = hashes_of_set();
    assert_true(first.hash == second.hash);
    assert_memory_equal(&before, &after, sizeof before);
    assert_true(first.hash == UINT64_C(0x2469c16e4ae9c747)); /* on every machine */
    uint64_t hash = LS_HASH_SEED;
    for (int s = 0; s < DIGIT_SPLITS; s++) {
        struct split made = read_split(options.folder, (ls_split)s);
        size_t per_class[DIGIT_CLASSES] = {0};
        assert_int_equal(made.count, options.counts[s]);
        for (size_t i = 0; i < made.count; i++) {
            uint8_t label = (uint8_t)made.labels[i];
            hash = ls_hash(ls_hash(hash, made.pixels + i * PIXELS, PIXELS), &label, 1);
            per_class[label]++;
        }
        assert_memory_equal(per_class, first.splits[s].per_class, sizeof per_class);
        free_split(&made);
    }
    assert_true(hash == first.hash);
}

static void seeds_differ_and_splits_do_not_depend_on_each_other(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    make(&options);
    struct hashes before = hashes_of_set();
    options.force = true;
    options.counts[LS_SPLIT_TRAIN] = 10;
    make(&options);
    struct hashes after = hashes_of_set();
    for (int i = 0; i < NAMES; i++) assert_true((before.of[i] == after.of[i]) == (strncmp(names[i], "t10k", 4) == 0));
    options.seed = 1;
    make(&options);
    before = after;
    after = hashes_of_set();
    for (int i = 0; i < NAMES; i++) assert_true(before.of[i] != after.of[i]);
}

/* --- sources ------------------------------------------------------------------------------------------------------- */

static void expect_balance(const int64_t *source_of, int64_t count, int64_t sources) {
    int64_t *uses = calloc((size_t)sources, sizeof *uses);
    int64_t in_order = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_in_range(source_of[i], 0, sources - 1);
        uses[source_of[i]]++;
        in_order += source_of[i] == i % sources;
    }
    for (int64_t s = 0; s < sources; s++) assert_in_range(uses[s], count / sources, (count + sources - 1) / sources);
    assert_true(in_order < count / 10 + 3); /* shuffled */
    free(uses);
}

static void sources_are_used_equally_often(void **state) {
    (void)state;
    static int64_t source_of[7000], again[7000];
    static const int64_t counts[] = {7000, 3000, 1500, 1499, 100, 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        mkdigits_choose_sources(source_of, counts[i], TRAIN_DIGITS, 0, LS_SPLIT_TRAIN);
        expect_balance(source_of, counts[i], TRAIN_DIGITS);
    }
    mkdigits_choose_sources(source_of, 7000, TRAIN_DIGITS, 0, LS_SPLIT_TRAIN);
    mkdigits_choose_sources(again, 7000, TRAIN_DIGITS, 0, LS_SPLIT_TRAIN);
    assert_memory_equal(source_of, again, sizeof again);
    mkdigits_choose_sources(again, 7000, TRAIN_DIGITS, 1, LS_SPLIT_TRAIN);
    assert_memory_not_equal(source_of, again, sizeof again);
    mkdigits_choose_sources(again, 7000, TRAIN_DIGITS, 0, LS_SPLIT_TEST);
    assert_memory_not_equal(source_of, again, sizeof again);
}

/* Reads the list's next line and checks it against the data; returns the source. */
static int64_t expect_line(FILE *list, const char *split, int64_t index, const struct split *made) {
    char name[8];
    long long at, source, label;
    assert_int_equal(fscanf(list, "%7[^,],%lld,%lld,%lld\n", name, &at, &source, &label), 4);
    assert_string_equal(name, split);
    assert_int_equal(at, index);
    assert_int_equal(label, made->labels[index]);
    return source;
}

/* Without warps each sample is its source, byte for byte. So the list tells the truth, and training samples come from training
 * digits alone, test samples from test digits alone. */
static void splits_have_no_source_in_common(void **state) {
    (void)state;
    static const char *const split_names[] = {"train", "t10k"};
    mkdigits_options options = small_set();
    options.limits = (ls_warp_limits){0};
    options.list = scratch_path("list");
    mkdigits_result result = make(&options);
    FILE *list = fopen(options.list, "r");
    assert_non_null(list);
    assert_int_equal(fscanf(list, "split,index,source,label%*[\n]"), 0);
    for (int s = 0; s < DIGIT_SPLITS; s++) {
        struct split made = read_split(options.folder, (ls_split)s), digits = read_split("data/digits", (ls_split)s);
        assert_int_equal(digits.count, s == LS_SPLIT_TRAIN ? TRAIN_DIGITS : TEST_DIGITS);
        assert_int_equal(result.splits[s].source_count, digits.count);
        int64_t *source_of = calloc(made.count, sizeof *source_of);
        for (size_t i = 0; i < made.count; i++) {
            size_t source = (size_t)(source_of[i] = expect_line(list, split_names[s], (int64_t)i, &made));
            assert_true(source < digits.count);
            assert_memory_equal(made.pixels + i * PIXELS, digits.pixels + source * PIXELS, PIXELS);
            assert_int_equal(made.labels[i], digits.labels[source]);
        }
        expect_balance(source_of, (int64_t)made.count, (int64_t)digits.count);
        free(source_of);
        free_split(&made);
        free_split(&digits);
    }
    assert_int_equal(fgetc(list), EOF);
    fclose(list);
}

/* The list is the same whether samples are warped or not, so the proof above holds for warped sets. */
static void warps_keep_sources_and_change_pixels(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    options.list = scratch_path("plain");
    options.limits = (ls_warp_limits){0};
    make(&options);
    uint64_t plain = hash_of_file(scratch_path("plain")), plain_images = hash_of_file(in_set(names[0]));
    options = small_set();
    options.list = scratch_path("warped");
    options.force = true;
    make(&options);
    assert_true(hash_of_file(scratch_path("warped")) == plain);
    assert_true(hash_of_file(in_set(names[0])) != plain_images);
}

static void test_digits_may_stay_as_they_are(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    options.counts[LS_SPLIT_TEST] = TEST_DIGITS;
    options.warp_test = false;
    options.list = scratch_path("list");
    make(&options);
    struct split made = read_split(options.folder, LS_SPLIT_TEST), digits = read_split("data/digits", LS_SPLIT_TEST);
    static int64_t source_of[TEST_DIGITS];
    mkdigits_choose_sources(source_of, TEST_DIGITS, TEST_DIGITS, 0, LS_SPLIT_TEST);
    expect_balance(source_of, TEST_DIGITS, TEST_DIGITS);
    for (size_t i = 0; i < TEST_DIGITS; i++)
        assert_memory_equal(made.pixels + i * PIXELS, digits.pixels + (size_t)source_of[i] * PIXELS, PIXELS);
    free_split(&made);
    free_split(&digits);
}

/* --- the folder ---------------------------------------------------------------------------------------------------- */

static void expect_refusal(const mkdigits_options *options, ls_status status, const char *text, const char *another) {
    mkdigits_result result;
    assert_int_equal(mkdigits_make(options, &result), status);
    scratch_expect_error(text, another);
}

static void attribution_goes_along(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    make(&options);
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

static void a_data_set_is_replaced_only_by_force(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    make(&options);
    struct hashes before = hashes_of_set();
    options.seed = 1;
    expect_refusal(&options, LS_ERR_INVALID, "already holds train-images-idx3-ubyte", "--force");
    struct hashes after = hashes_of_set();
    assert_memory_equal(&before, &after, sizeof before);
    options.force = true;
    make(&options);
    after = hashes_of_set();
    for (int i = 0; i < NAMES; i++) assert_true(before.of[i] != after.of[i]);
    assert_int_equal(remove_set(), NAMES);
}

/* Any one of its files is enough. In another spelling, the loader might take it for ours, so force does not help. */
static void parts_of_a_data_set_are_not_mixed(void **state) {
    (void)state;
    static const char *const others[] = {"train-images-idx3-ubyte.gz", "train-labels.idx1-ubyte",
                                         "t10k-images.idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
    mkdigits_options options = small_set();
    assert_int_equal(mkdir(options.folder, 0777), 0);
    for (int i = 0; i < NAMES + 4; i++) {
        const char *name = i < NAMES ? names[i] : others[i - NAMES];
        FILE *file = fopen(in_set(name), "w");
        assert_non_null(file);
        fclose(file);
        options.force = i >= NAMES;
        expect_refusal(&options, LS_ERR_INVALID, options.folder, name);
        struct stat entry;
        assert_true(stat(in_set(name), &entry) == 0 && entry.st_size == 0);
        assert_int_equal(remove(in_set(name)), 0);
    }
    options.force = false;
    make(&options); /* a folder that is there is fine; so is anything else in it */
    assert_int_equal(remove_set(), NAMES);
}

static void bad_places_and_sources_leave_nothing(void **state) {
    (void)state;
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

static void sources_must_be_digits_of_one_size(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    options.source = scratch_folder();
    write_source("train", 3, 0);
    write_source("t10k", 2, 0);
    expect_refusal(&options, LS_ERR_FORMAT, "training images of 3 x 3 pixels, but test images of 2 x 2", NULL);
    write_source("t10k", 3, 10);
    expect_refusal(&options, LS_ERR_FORMAT, "label 10", NULL);
    assert_int_equal(remove_set(), -1);
    write_source("t10k", 3, 9);
    scratch_write("README.md", "origin\n", 7); /* without one there would be a warning */
    mkdigits_result result = make(&options);
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

static void a_full_disk_leaves_what_was_there(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    expect_full_disk(&options);
    assert_int_equal(remove_set(), -1); /* the folder that was made is gone again */
    make(&options);
    struct hashes before = hashes_of_set();
    options.seed = 1;
    options.force = true;
    expect_full_disk(&options);
    struct hashes after = hashes_of_set();
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(remove_set(), NAMES);
}

/* A commit that fails on its way leaves a set with files missing, which no loader takes, and never one put together from two. */
static void old_and_new_files_are_not_mixed(void **state) {
    (void)state;
    mkdigits_options options = small_set();
    make(&options);
    static const uint8_t pixels[PIXELS];
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

int main(void) {
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(same_options_make_the_same_bytes),
        WITH_FOLDER(seeds_differ_and_splits_do_not_depend_on_each_other),
        WITH_FOLDER(sources_are_used_equally_often),
        WITH_FOLDER(splits_have_no_source_in_common),
        WITH_FOLDER(warps_keep_sources_and_change_pixels),
        WITH_FOLDER(test_digits_may_stay_as_they_are),
        WITH_FOLDER(attribution_goes_along),
        WITH_FOLDER(a_data_set_is_replaced_only_by_force),
        WITH_FOLDER(parts_of_a_data_set_are_not_mixed),
        WITH_FOLDER(bad_places_and_sources_leave_nothing),
        WITH_FOLDER(sources_must_be_digits_of_one_size),
        WITH_FOLDER(old_and_new_files_are_not_mixed),
        WITH_FOLDER(a_full_disk_leaves_what_was_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
