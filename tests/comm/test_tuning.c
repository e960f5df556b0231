/* The all-reduce tuning table: looking up, reading, writing, and what is wrong with bad files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/comm/allreduce_tuning.h"
#include "common/comm/comm.h"
#include "tests/base/scratch.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static const char *write_table(const char *text, size_t nbytes) {
    scratch_write("table", text, nbytes);
    return scratch_path("table");
}

static ls_allreduce_tuning *load(const char *path) {
    ls_allreduce_tuning *tuning;
    assert_int_equal(ls_allreduce_tuning_load(&tuning, path), LS_OK);
    assert_non_null(tuning);
    return tuning;
}

static ls_allreduce_tuning *load_text(const char *text) { return load(write_table(text, strlen(text))); }

static void expect_choice(const ls_allreduce_tuning *tuning, int world_size, size_t nbytes, const char *name) {
    assert_string_equal(ls_allreduce_choose(tuning, world_size, nbytes)->name, name);
}

/* --- looking up --------------------------------------------------------------------------------------------------- */

static const char good[] = "// a machine, a day\n"
                           "\n"
                           "LS_TUNED(2, 4096, direct)\n"
                           "  LS_TUNED ( 2 , 4097 ,ring )  // by a byte\r\n"
                           "LS_TUNED(2, LS_TUNED_MAX, tree)\n"
                           "// further\n"
                           "LS_TUNED(5, LS_TUNED_MAX, halving-doubling)\n"
                           "LS_TUNED(8, 0, naive)\n"
                           "LS_TUNED(8, 18446744073709551614, ring)\n"
                           "LS_TUNED(8, LS_TUNED_MAX, direct)"; /* no newline at the end */

static void test_choice(void **state) {
    (void)state;
    ls_allreduce_tuning *tuning = load_text(good);
    expect_choice(tuning, 2, 0, "direct");
    expect_choice(tuning, 2, 4096, "direct");
    expect_choice(tuning, 2, 4097, "ring");
    expect_choice(tuning, 2, 4098, "tree");
    expect_choice(tuning, 2, SIZE_MAX, "tree");
    expect_choice(tuning, 1, 1, "direct"); /* the nearest world size */
    expect_choice(tuning, 3, 4097, "ring");
    expect_choice(tuning, 4, 4097, "halving-doubling");
    expect_choice(tuning, 5, 0, "halving-doubling");
    expect_choice(tuning, 6, SIZE_MAX, "halving-doubling");
    expect_choice(tuning, 7, 0, "naive");
    expect_choice(tuning, 8, 0, "naive");
    expect_choice(tuning, 8, 1, "ring");
    expect_choice(tuning, 8, SIZE_MAX - 1, "ring");
    expect_choice(tuning, LS_COMM_MAX_RANKS, SIZE_MAX, "direct");
    ls_allreduce_tuning_destroy(tuning);
    tuning = load_text("LS_TUNED(2, LS_TUNED_MAX, ring)\nLS_TUNED(4, LS_TUNED_MAX, tree)\n");
    expect_choice(tuning, 3, 1, "ring"); /* as near to 2 as to 4 */
    ls_allreduce_tuning_destroy(tuning);
    ls_allreduce_tuning_destroy(NULL);
}

/* The table in the library is the file in the repository, and that is a valid one. */
static void test_built_in(void **state) {
    (void)state;
    ls_allreduce_tuning *file = load("common/comm/allreduce_tuned.def");
    assert_true(ls_allreduce_tuning_hash(file) == ls_allreduce_tuning_hash(NULL));
    for (int world_size = 1; world_size <= LS_COMM_MAX_RANKS; world_size++)
        for (size_t nbytes = 1; nbytes < SIZE_MAX / 2; nbytes *= 2)
            assert_ptr_equal(ls_allreduce_choose(NULL, world_size, nbytes),
                             ls_allreduce_choose(file, world_size, nbytes));
    ls_allreduce_tuning_destroy(file);
}

static uint64_t hash_of(const char *text) {
    ls_allreduce_tuning *tuning = load_text(text);
    uint64_t hash = ls_allreduce_tuning_hash(tuning);
    ls_allreduce_tuning_destroy(tuning);
    return hash;
}

static void test_hash(void **state) {
    (void)state;
    uint64_t hash = hash_of("LS_TUNED(2, 100, ring)\nLS_TUNED(2, LS_TUNED_MAX, tree)\n");
    assert_true(hash == hash_of("// elsewhere\nLS_TUNED(2,100,ring)\n\nLS_TUNED(2,LS_TUNED_MAX,tree) // so\n"));
    assert_true(hash != hash_of("LS_TUNED(2, 101, ring)\nLS_TUNED(2, LS_TUNED_MAX, tree)\n"));
    assert_true(hash != hash_of("LS_TUNED(3, 100, ring)\nLS_TUNED(3, LS_TUNED_MAX, tree)\n"));
    assert_true(hash != hash_of("LS_TUNED(2, 100, naive)\nLS_TUNED(2, LS_TUNED_MAX, tree)\n"));
    assert_true(hash != hash_of("LS_TUNED(2, LS_TUNED_MAX, tree)\n"));
}

/* --- bad files ---------------------------------------------------------------------------------------------------- */

static void expect_failure(const char *path, ls_status status, const char *text) {
    ls_allreduce_tuning *tuning = (void *)(uintptr_t)path;
    assert_int_equal(ls_allreduce_tuning_load(&tuning, path), status);
    assert_null(tuning);
    scratch_expect_error(path, text);
}

static void expect_bad(const char *table, size_t nbytes, const char *text) {
    expect_failure(write_table(table, nbytes), LS_ERR_FORMAT, text);
}

static void test_bad_tables(void **state) {
    (void)state;
    static const struct {
        const char *table, *text;
    } cases[] = {
        {"", "line 1: the table has no rows"},
        {"// nothing\n\n", "line 2: the table has no rows"},
        {"LS_TUNED(2, LS_TUNED_MAX, rings)\n",
         "line 1: 'rings' is no all-reduce algorithm; there are direct, ring, halving-doubling, tree, naive"},
        {"//\nLS_TUNED(3, LS_TUNED_MAX, ring)\nLS_TUNED(2, LS_TUNED_MAX, ring)\n",
         "line 3: world size 2 comes after 3; rows must ascend"},
        {"LS_TUNED(2, 100, ring)\nLS_TUNED(2, 100, tree)\n", "line 2: 100 bytes do not come after 100"},
        {"LS_TUNED(2, LS_TUNED_MAX, ring)\nLS_TUNED(2, LS_TUNED_MAX, tree)\n", "line 2: "},
        {"LS_TUNED(2, 100, ring)\n", "line 1: the last row of world size 2 must go up to LS_TUNED_MAX, not 100"},
        {"LS_TUNED(2, 100, ring)\nLS_TUNED(3, LS_TUNED_MAX, ring)\n", "line 2: the last row of world size 2 must"},
        {"LS_TUNED(1, LS_TUNED_MAX, ring)\n", "line 1: world size 1 is not between 2 and 64"},
        {"LS_TUNED(65, LS_TUNED_MAX, ring)\n", "line 1: world size 65 is not between 2 and 64"},
        {"LS_TUNED(99999999999, LS_TUNED_MAX, ring)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(-2, LS_TUNED_MAX, ring)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, 18446744073709551616, ring)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, 0x10, ring)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, SIZE_MAX, ring)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, LS_TUNED_MAX)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, LS_TUNED_MAX, ring\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, LS_TUNED_MAX, ring) LS_TUNED(3, LS_TUNED_MAX, ring)\n", "line 1: this is not LS_TUNED("},
        {"LS_TUNED(2, LS_TUNED_MAX, ring);\n", "line 1: this is not LS_TUNED("},
        {"\n\n{\"tuning\": []}\n", "line 3: this is not LS_TUNED("},
        {"\x7f\x45\x4c\x46\x02\n", "line 1: this is not LS_TUNED("},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) expect_bad(cases[i].table, strlen(cases[i].table), cases[i].text);
    static const char zero[] = "LS_TUNED(2, LS_TUNED_MAX, ring)\n\0\n";
    expect_bad(zero, sizeof zero - 1, "line 2: a zero byte");
}

static void test_bad_files(void **state) {
    (void)state;
    char *huge = malloc(LS_TUNED_FILE_BYTES + 1);
    assert_non_null(huge);
    memset(huge, '\n', LS_TUNED_FILE_BYTES + 1);
    memcpy(huge, good, sizeof good - 1);
    ls_allreduce_tuning_destroy(load(write_table(huge, LS_TUNED_FILE_BYTES)));
    expect_bad(huge, LS_TUNED_FILE_BYTES + 1, "larger than 1048576 bytes");
    free(huge);
    expect_failure("/no/such/table", LS_ERR_IO, "No such file or directory");
    expect_failure("tests", LS_ERR_IO, "not a regular file");
    expect_failure("/dev/zero", LS_ERR_IO, "not a regular file");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    expect_failure(scratch_path("pipe"), LS_ERR_IO, "not a regular file");
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void expect_text(const char *path, const char *expected) {
    size_t nbytes;
    char *text = scratch_read(path, &nbytes);
    assert_string_equal(text, expected);
    free(text);
}

static void test_save(void **state) {
    (void)state;
    static const ls_allreduce_tuned rows[] = {
        {2, 4096, "direct"}, {2, LS_TUNED_MAX, "halving-doubling"}, {64, LS_TUNED_MAX, "tree"}};
    static const char text[] = "// a machine\n// a day\nLS_TUNED(2, 4096, direct)\n"
                               "LS_TUNED(2, LS_TUNED_MAX, halving-doubling)\nLS_TUNED(64, LS_TUNED_MAX, tree)\n";
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("saved"));
    assert_int_equal(ls_allreduce_tuning_save(path, "a machine\na day", rows, COUNT_OF(rows)), LS_OK);
    expect_text(path, text);
    ls_allreduce_tuning *tuning = load(path);
    expect_choice(tuning, 2, 4096, "direct");
    expect_choice(tuning, 2, 4097, "halving-doubling");
    expect_choice(tuning, 64, 0, "tree");
    ls_allreduce_tuning_destroy(tuning);
}

static void test_what_cannot_be_saved(void **state) {
    (void)state;
    static const ls_allreduce_tuned open_end[] = {{2, 4096, "direct"}}, unknown[] = {{2, LS_TUNED_MAX, "rings"}};
    scratch_write("saved", "old", 3);
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("saved"));
    assert_int_equal(ls_allreduce_tuning_save(path, "", open_end, 1), LS_ERR_INVALID);
    scratch_expect_error(path, "row 2: the last row of world size 2 must go up to LS_TUNED_MAX, not 4096");
    assert_int_equal(ls_allreduce_tuning_save(path, "", unknown, 1), LS_ERR_INVALID);
    scratch_expect_error(path, "row 1: 'rings' is no all-reduce algorithm");
    assert_int_equal(ls_allreduce_tuning_save(path, "", unknown, 0), LS_ERR_INVALID);
    scratch_expect_error(path, "row 1: the table has no rows");
    static const ls_allreduce_tuned fine[] = {{2, LS_TUNED_MAX, "ring"}};
    assert_int_equal(ls_allreduce_tuning_save("/no/such/folder/table", "", fine, 1), LS_ERR_IO);
    scratch_expect_error("/no/such/folder/table", NULL);
    expect_text(path, "old");
    assert_int_equal(scratch_file_count(), 1);
}

int main(void) {
#define TEST(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_choice),
        TEST(test_built_in),
        TEST(test_hash),
        TEST(test_bad_tables),
        TEST(test_bad_files),
        TEST(test_save),
        TEST(test_what_cannot_be_saved),
    };
    return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
