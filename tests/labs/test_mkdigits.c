/* The data set that mkdigits makes: its source digits, and the effect of the seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/labs/digit_set.h"

enum { TRAIN_DIGITS = 1500, TEST_DIGITS = 297 };

/* --- samples ------------------------------------------------------------------------------------------------------- */

TEST_WITH(scratch_setup, digit_set_teardown, same_options_make_the_same_bytes) {
    mkdigits_options options = small_set();
    mkdigits_result first = make_set(&options);
    struct hashes before = hashes_of_set();
    remove_set();
    mkdigits_result second = make_set(&options);
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
            hash = ls_hash(ls_hash(hash, made.pixels + i * DIGIT_PIXELS, DIGIT_PIXELS), &label, 1);
            per_class[label]++;
        }
        assert_memory_equal(per_class, first.splits[s].per_class, sizeof per_class);
        free_split(&made);
    }
    assert_true(hash == first.hash);
}

TEST_WITH(scratch_setup, digit_set_teardown, seeds_differ_and_splits_do_not_depend_on_each_other) {
    mkdigits_options options = small_set();
    make_set(&options);
    struct hashes before = hashes_of_set();
    options.force = true;
    options.counts[LS_SPLIT_TRAIN] = 10;
    make_set(&options);
    struct hashes after = hashes_of_set();
    for (int i = 0; i < SET_FILES; i++)
        assert_true((before.of[i] == after.of[i]) == (strncmp(set_names[i], "t10k", 4) == 0));
    options.seed = 1;
    make_set(&options);
    before = after;
    after = hashes_of_set();
    for (int i = 0; i < SET_FILES; i++) assert_true(before.of[i] != after.of[i]);
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

TEST_WITH(scratch_setup, digit_set_teardown, sources_are_used_equally_often) {
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

/* Without warps each sample is its source, byte for byte. So the list is true, and training samples come only from
 * training digits, test samples only from test digits. */
TEST_WITH(scratch_setup, digit_set_teardown, splits_have_no_source_in_common) {
    static const char *const split_names[] = {"train", "t10k"};
    mkdigits_options options = small_set();
    options.limits = (ls_warp_limits){0};
    options.list = scratch_path("list");
    mkdigits_result result = make_set(&options);
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
            assert_memory_equal(made.pixels + i * DIGIT_PIXELS, digits.pixels + source * DIGIT_PIXELS, DIGIT_PIXELS);
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

/* The list is the same whether or not samples are warped, so the proof above holds for warped sets. */
TEST_WITH(scratch_setup, digit_set_teardown, warps_keep_sources_and_change_pixels) {
    mkdigits_options options = small_set();
    options.list = scratch_path("plain");
    options.limits = (ls_warp_limits){0};
    make_set(&options);
    uint64_t plain = hash_of_file(scratch_path("plain")), plain_images = hash_of_file(in_set(set_names[0]));
    options = small_set();
    options.list = scratch_path("warped");
    options.force = true;
    make_set(&options);
    assert_true(hash_of_file(scratch_path("warped")) == plain);
    assert_true(hash_of_file(in_set(set_names[0])) != plain_images);
}

TEST_WITH(scratch_setup, digit_set_teardown, test_digits_may_stay_as_they_are) {
    mkdigits_options options = small_set();
    options.counts[LS_SPLIT_TEST] = TEST_DIGITS;
    options.warp_test = false;
    options.list = scratch_path("list");
    make_set(&options);
    struct split made = read_split(options.folder, LS_SPLIT_TEST), digits = read_split("data/digits", LS_SPLIT_TEST);
    static int64_t source_of[TEST_DIGITS];
    mkdigits_choose_sources(source_of, TEST_DIGITS, TEST_DIGITS, 0, LS_SPLIT_TEST);
    expect_balance(source_of, TEST_DIGITS, TEST_DIGITS);
    for (size_t i = 0; i < TEST_DIGITS; i++)
        assert_memory_equal(made.pixels + i * DIGIT_PIXELS, digits.pixels + (size_t)source_of[i] * DIGIT_PIXELS,
                            DIGIT_PIXELS);
    free_split(&made);
    free_split(&digits);
}
