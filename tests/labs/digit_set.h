/* A data set of mkdigits in the folder "set" of a test's scratch folder: creates, hashes, reads and removes it. For
 * cmocka programs:
 *     cmocka_unit_test_setup_teardown(test, scratch_setup, digit_set_teardown) */
#ifndef TESTS_LABS_DIGIT_SET_H
#define TESTS_LABS_DIGIT_SET_H

#include <stdint.h>

#include "labs/bench/mkdigits/mkdigits.h"

enum { DIGIT_PIXELS = 28 * 28, SET_FILES = 5 };

/* Training images and labels, test images and labels, and the note. */
extern const char *const set_names[SET_FILES];

/* Also removes the set. */
int digit_set_teardown(void **state);

/* The path of a file in the set's folder; valid for the next three calls. */
const char *in_set(const char *name);

/* Empties and removes the set's folder. Returns the number of files that were in it, -1 if it did not exist. */
int remove_set(void);

/* 3200 + 500 digits, warped, without a progress bar. */
mkdigits_options small_set(void);

/* Makes a set; must succeed. */
mkdigits_result make_set(const mkdigits_options *options);

uint64_t hash_of_file(const char *path);

/* One for each file of the set, in the order of set_names. */
struct hashes {
    uint64_t of[SET_FILES];
};
struct hashes hashes_of_set(void);

/* A split of a folder, read as training reads it, converted back to bytes. */
struct split {
    size_t count;
    uint8_t *pixels;
    int64_t *labels;
};
struct split read_split(const char *folder, ls_split which);
void free_split(struct split *split);

#endif
