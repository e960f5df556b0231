/* Texts as data: tokens, samples, the two sets, files that are refused, generated sums. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/data/text.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

enum { T = 5, BYTES = 137, TEST = BYTES / 10, TRAIN = BYTES - TEST };

static char text[BYTES];

/* The test part contains a byte that the training part does not, and vice versa. */
static void make_text(void) {
    for (size_t i = 0; i < BYTES; i++) text[i] = (char)('c' + (i * i + i / 7) % 11);
    text[3] = '\n';
    text[BYTES - 2] = 'a';
}

static const char *named(const char *name) {
    static char files[4][300];
    static int turn;
    snprintf(files[turn %= 4], sizeof *files, "%s", scratch_path(name));
    return files[turn++];
}

static void gzip(const char *name, const void *data, size_t nbytes, const char *mode) {
    gzFile stream = gzopen(scratch_path(name), mode);
    assert_non_null(stream);
    assert_int_equal(gzwrite(stream, data, (unsigned)nbytes), nbytes);
    assert_int_equal(gzclose(stream), Z_OK);
}

/* Converts each sample back to bytes: the inputs equal the text, and the labels the text one byte further. */
static void expect_samples(const ls_dataset *set, const char *part, size_t count) {
    const uint8_t *vocabulary = ls_text_vocabulary(set);
    const ls_sample_spec *spec = ls_dataset_spec(set);
    assert_int_equal(ls_dataset_count(set), (count - 1) / T);
    assert_int_equal(ls_sample_input_count(spec), T);
    assert_int_equal(ls_sample_label_count(spec), T);
    assert_true(spec->tokens);
    for (int64_t i = (int64_t)ls_dataset_count(set) - 1; i >= 0; i--) {
        int32_t x[T + 1] = {[T] = -7};
        int64_t y[T + 1] = {[T] = -7};
        assert_int_equal(ls_dataset_read(set, &i, 1, x, y, NULL), LS_OK);
        for (size_t t = 0; t < T; t++) {
            assert_int_equal(vocabulary[x[t]], (uint8_t)part[(size_t)i * T + t]);
            assert_int_equal(vocabulary[y[t]], (uint8_t)part[(size_t)i * T + t + 1]);
        }
        assert_true(x[T] == -7 && y[T] == -7);
    }
}

static void expect_text(const char *files) {
    ls_dataset *train, *test;
    size_t count;
    assert_int_equal(ls_dataset_open_text(&train, &test, files, T), LS_OK);
    expect_samples(train, text, TRAIN);
    expect_samples(test, text + TRAIN, TEST);
    assert_non_null(ls_text_tokens(train, &count));
    assert_int_equal(count, TRAIN);
    assert_non_null(ls_text_tokens(test, &count));
    assert_int_equal(count, TEST);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

TEST_IN(scratch, a_text_is_read_plain_and_gzipped_and_from_several_files) {
    char files[700];
    make_text();
    scratch_write("plain", text, BYTES);
    expect_text(named("plain"));
    gzip("packed.gz", text, BYTES, "wb");
    expect_text(named("packed.gz"));
    gzip("packed.gz", text, 40, "wb"); /* two members, as gzip files may have */
    gzip("packed.gz", text + 40, BYTES - 40, "ab");
    expect_text(named("packed.gz"));
    scratch_write("first", text, 13);
    gzip("second", text + 13, BYTES - 13, "wb");
    snprintf(files, sizeof files, "%s,%s", named("first"), named("second"));
    expect_text(files);
}

TEST_IN(scratch, the_vocabulary_is_every_byte_that_occurs_sorted) {
    ls_dataset *train, *test;
    static const char sorted[] = "\nacdefghijklm";
    make_text();
    scratch_write("plain", text, BYTES);
    assert_int_equal(ls_dataset_open_text(&train, &test, named("plain"), T), LS_OK);
    const ls_dataset *sets[] = {train, test};
    for (int s = 0; s < 2; s++) {
        assert_int_equal(ls_dataset_spec(sets[s])->classes, sizeof sorted - 1);
        assert_memory_equal(ls_text_vocabulary(sets[s]), sorted, sizeof sorted - 1);
        for (int token = 0; token < (int)sizeof sorted - 1; token++)
            assert_int_equal(ls_text_token(sets[s], sorted[token]), token);
        assert_int_equal(ls_text_token(sets[s], 'b'), -1);
    }
    ls_dataset_close(train);
    ls_dataset_close(test);
}

/* The shortest text whose last tenth is one sample and the byte after it. */
TEST_IN(scratch, a_text_has_a_sample_in_each_set_or_is_refused) {
    enum { LEAST = 10 * (T + 1) };
    ls_dataset *train, *test;
    make_text();
    scratch_write("least", text, LEAST);
    assert_int_equal(ls_dataset_open_text(&train, &test, named("least"), T), LS_OK);
    assert_int_equal(ls_dataset_count(test), 1);
    assert_int_equal(ls_dataset_count(train), (LEAST - T - 2) / T);
    ls_dataset_close(train);
    ls_dataset_close(test);
    scratch_write("short", text, LEAST - 1);
    assert_int_equal(ls_dataset_open_text(&train, &test, named("short"), T), LS_ERR_INVALID);
    scratch_expect_error("short is too short: 54 bytes for training and 5 for the test",
                         "a sample of 5 tokens takes 6");
    assert_true(!train && !test);
}

static void expect_refused(const char *files, ls_status expected, const char *words, const char *others) {
    ls_dataset *train, *test;
    assert_int_equal(ls_dataset_open_text(&train, &test, files, T), expected);
    scratch_expect_error(words, others);
    assert_true(!train && !test);
}

TEST_IN(scratch, what_is_no_text_is_refused_by_name) {
    char files[700];
    make_text();
    scratch_write("good", text, BYTES);
    expect_refused("", LS_ERR_USAGE, "--data text: needs the name of a file", NULL);
    expect_refused(named("none"), LS_ERR_IO, "none: No such file", NULL);
    expect_refused(scratch_folder(), LS_ERR_IO, "is not a regular file", scratch_folder());
    scratch_write("empty", "", 0);
    snprintf(files, sizeof files, "%s,%s", named("good"), named("empty"));
    expect_refused(files, LS_ERR_FORMAT, "empty is empty", NULL);
    char zero[BYTES];
    memcpy(zero, text, BYTES);
    zero[77] = '\0';
    scratch_write("zero", zero, BYTES);
    expect_refused(named("zero"), LS_ERR_FORMAT, "zero is binary: byte 77 is zero", NULL);
    memcpy(zero, text, BYTES);
    zero[7] = '\x1b';
    scratch_write("escape", zero, BYTES); /* one control character in over a hundred bytes */
    expect_text(named("good"));
    ls_dataset *train, *test;
    assert_int_equal(ls_dataset_open_text(&train, &test, named("escape"), T), LS_OK);
    ls_dataset_close(train);
    ls_dataset_close(test);
    zero[9] = '\x7f';
    scratch_write("escapes", zero, BYTES);
    expect_refused(named("escapes"), LS_ERR_FORMAT, "escapes is binary: 2 of its 137 bytes are control", NULL);
    scratch_write("array", "\x93NUMPY a text all the same, would it seem", 40);
    expect_refused(named("array"), LS_ERR_FORMAT, "array is a NumPy array", NULL);
}

TEST_IN(scratch, a_damaged_gzip_file_is_refused) {
    char packed[BYTES * 2];
    size_t nbytes;
    make_text();
    gzip("packed.gz", text, BYTES, "wb");
    char *whole = scratch_read(scratch_path("packed.gz"), &nbytes);
    assert_true(nbytes < sizeof packed);
    memcpy(packed, whole, nbytes);
    free(whole);
    scratch_write("cut.gz", packed, nbytes - 5);
    expect_refused(named("cut.gz"), LS_ERR_FORMAT, "cut.gz is truncated", NULL);
    packed[nbytes - 6] ^= 1; /* a byte of the checksum */
    scratch_write("bad.gz", packed, nbytes);
    expect_refused(named("bad.gz"), LS_ERR_FORMAT, "bad.gz is damaged: incorrect data check", NULL);
}

/* Two texts with the same tokens but different bytes are different data. */
TEST_IN(scratch, a_description_tells_vocabularies_apart) {
    char words[2][200];
    make_text();
    for (int shift = 0; shift < 2; shift++) {
        ls_dataset *train, *test;
        char shifted[BYTES];
        for (size_t i = 0; i < BYTES; i++) shifted[i] = (char)(text[i] + (text[i] == 'm' ? shift : 0));
        scratch_write("shifted", shifted, BYTES);
        assert_int_equal(ls_dataset_open_text(&train, &test, named("shifted"), T), LS_OK);
        assert_int_equal(ls_dataset_describe(train, words[shift], sizeof words[shift]), LS_OK);
        assert_non_null(strstr(words[shift], "24 samples of 5 tokens in 13 classes (sampled hash "));
        ls_dataset_close(train);
        ls_dataset_close(test);
    }
    assert_string_not_equal(words[0], words[1]);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

struct read_sums {
    int counts[100][100], total;
};

/* Reads the stream of a set, all of which must be correct sums. */
static void read_sums(struct read_sums *sums, const ls_dataset *set) {
    size_t count;
    const uint8_t *tokens = ls_text_tokens(set, &count), *vocabulary = ls_text_vocabulary(set);
    char *stream = calloc(count + 1, 1), *at = stream;
    assert_non_null(stream);
    for (size_t i = 0; i < count; i++) stream[i] = (char)vocabulary[tokens[i]];
    *sums = (struct read_sums){.total = 0};
    while (*at != '\0') {
        unsigned a, b, c;
        char again[16];
        assert_int_equal(sscanf(at, "%u+%u=%u;", &a, &b, &c), 3);
        assert_true(a < 100 && b < 100 && c == a + b);
        snprintf(again, sizeof again, "%u+%u=%u;", a, b, c); /* no leading zeros */
        assert_memory_equal(again, at, strlen(again));
        at += strlen(again);
        sums->counts[a][b]++;
        sums->total++;
    }
    free(stream);
}

TEST(no_held_out_sum_is_trained_either_way_round) {
    static struct read_sums trained, held_out, other;
    for (uint64_t seed = 0; seed < 3; seed++) {
        ls_dataset *train, *test;
        assert_int_equal(ls_dataset_open_sums(&train, &test, seed, 64), LS_OK);
        read_sums(&trained, train);
        read_sums(&held_out, test);
        assert_int_equal(trained.total, LS_SUMS_TRAINED);
        assert_int_equal(held_out.total, LS_SUMS_HELD_OUT);
        int pairs = 0, questions = 0;
        for (int a = 0; a < 100; a++) {
            for (int b = 0; b < 100; b++) {
                pairs += trained.counts[a][b] > 0;
                questions += held_out.counts[a][b] > 0;
                if (held_out.counts[a][b] > 0) assert_true(trained.counts[a][b] == 0 && trained.counts[b][a] == 0);
            }
        }
        assert_int_equal(questions, LS_SUMS_HELD_OUT);
        assert_in_range(pairs, 9000, 10000 - LS_SUMS_HELD_OUT);
        if (seed > 0) assert_memory_not_equal(&held_out, &other, sizeof other);
        other = held_out;
        ls_dataset_close(train);
        ls_dataset_close(test);
    }
}

TEST(sums_follow_from_their_seed_and_have_thirteen_tokens) {
    ls_dataset *sets[2][2];
    char words[2][2][200];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_dataset_open_sums(&sets[i][0], &sets[i][1], 7, 64), LS_OK);
        for (int s = 0; s < 2; s++) {
            assert_int_equal(ls_dataset_describe(sets[i][s], words[i][s], sizeof *words[i]), LS_OK);
            assert_int_equal(ls_dataset_spec(sets[i][s])->classes, 13);
            assert_memory_equal(ls_text_vocabulary(sets[i][s]), "+0123456789;=", 13);
        }
    }
    for (int s = 0; s < 2; s++) {
        size_t count, again;
        const uint8_t *tokens = ls_text_tokens(sets[0][s], &count);
        assert_memory_equal(tokens, ls_text_tokens(sets[1][s], &again), count);
        assert_int_equal(count, again);
        assert_string_equal(words[0][s], words[1][s]);
        ls_dataset_close(sets[0][s]);
        ls_dataset_close(sets[1][s]);
    }
}

TEST_IN(scratch, a_context_that_the_held_out_sums_do_not_fill_is_refused) {
    ls_dataset *train, *test;
    assert_int_equal(ls_dataset_open_sums(&train, &test, 0, 4096), LS_ERR_INVALID);
    scratch_expect_error("the text of generated sums is too short", "a sample of 4096 tokens takes 4097");
    assert_true(!train && !test);
}
