#include "tests/labs/digit_set.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

const char *const set_names[SET_FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                          "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "README.md"};

/* --- the folder ------------------------------------------------------------------------------------------------------- */

const char *in_set(const char *name) {
    static char paths[4][700];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_path("set"), name);
    return path;
}

int remove_set(void) {
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

int digit_set_teardown(void **state) {
    remove_set();
    return scratch_teardown(state);
}

/* --- making --------------------------------------------------------------------------------------------------------- */

mkdigits_options small_set(void) {
    static char folder[600];
    snprintf(folder, sizeof folder, "%s", scratch_path("set"));
    mkdigits_options options = mkdigits_defaults();
    options.folder = folder;
    options.counts[LS_SPLIT_TRAIN] = 3200;
    options.counts[LS_SPLIT_TEST] = 500;
    options.quiet = true;
    return options;
}

mkdigits_result make_set(const mkdigits_options *options) {
    mkdigits_result result;
    assert_int_equal(mkdigits_make(options, &result), LS_OK);
    return result;
}

uint64_t hash_of_file(const char *path) {
    size_t nbytes;
    void *bytes = scratch_read(path, &nbytes);
    uint64_t hash = ls_hash(LS_HASH_SEED, bytes, nbytes);
    free(bytes);
    return hash;
}

struct hashes hashes_of_set(void) {
    struct hashes hashes;
    for (int i = 0; i < SET_FILES; i++) hashes.of[i] = hash_of_file(in_set(set_names[i]));
    return hashes;
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

struct split read_split(const char *folder, ls_split which) {
    ls_dataset *dataset;
    assert_int_equal(ls_dataset_open_idx(&dataset, folder, which, 10, LS_NORMALIZE_NONE), LS_OK);
    struct split split = {.count = ls_dataset_count(dataset)};
    assert_int_equal(ls_sample_input_count(ls_dataset_spec(dataset)), DIGIT_PIXELS);
    split.pixels = malloc(split.count * DIGIT_PIXELS);
    split.labels = malloc(split.count * sizeof *split.labels);
    float input[DIGIT_PIXELS];
    for (size_t i = 0; i < split.count; i++) {
        const int64_t index = (int64_t)i;
        assert_int_equal(ls_dataset_read(dataset, &index, 1, input, &split.labels[i], NULL), LS_OK);
        for (int p = 0; p < DIGIT_PIXELS; p++)
            split.pixels[i * DIGIT_PIXELS + (size_t)p] = (uint8_t)(input[p] * 255 + 0.5f);
    }
    ls_dataset_close(dataset);
    return split;
}

void free_split(struct split *split) {
    free(split->pixels);
    free(split->labels);
}
