/* named_files: which paths name the same file, however they are spelled, and which do not. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/named_files.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static bool begins_with_own(const char *name) { return strncmp(name, "own", 3) == 0; }

/* folder/{own_1,other}, file, hard (of file), link -> file, to_folder -> folder, dangling -> absent, fifo */
static int make_files(void **state) {
    char path[600];
    scratch_setup(state);
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    scratch_write("file", "x", 1);
    assert_int_equal(mkdir(scratch_path("folder"), 0777), 0);
    scratch_write("folder/own_1", "x", 1);
    scratch_write("folder/other", "x", 1);
    assert_int_equal(link(path, scratch_path("hard")), 0);
    assert_int_equal(symlink("file", scratch_path("link")), 0);
    assert_int_equal(symlink("folder", scratch_path("to_folder")), 0);
    assert_int_equal(symlink("absent", scratch_path("dangling")), 0);
    assert_int_equal(symlink("own_1", scratch_path("folder/to_own")), 0);
    assert_int_equal(symlink("circle", scratch_path("circle")), 0);
    assert_int_equal(mkfifo(scratch_path("fifo"), 0666), 0);
    return 0;
}

static const char *of_scratch(char path[600], const char *name) {
    snprintf(path, 600, "%s%s%s", *name == '/' ? "" : scratch_folder(), *name == '/' ? "" : "/", name);
    return path;
}

static ls_status check_two(const char *first, const char *second, bool first_is_folder) {
    char one[600], two[600];
    ls_named_files files = {0};
    ls_named_files_add(&files, &(ls_named_file){.option = "--in",
                                                .path = of_scratch(one, first),
                                                .owns = first_is_folder ? begins_with_own : NULL});
    ls_named_files_add(&files, &(ls_named_file){.option = "--out", .path = of_scratch(two, second), .is_output = true});
    return ls_named_files_check(&files);
}

TEST_WITH(make_files, scratch_teardown, a_file_has_many_names) {
    static const struct {
        const char *first, *second;
        bool same;
    } pairs[] = {
        {"file", "file", true},
        {"file", "./folder/..//file", true},
        {"file", "link", true},
        {"link", "hard", true},
        {"folder/other", "to_folder/other", true},
        {"absent", "to_folder/../absent", true},
        {"absent", "dangling", true},
        {"new/deep/absent", "new//./deep/x/../absent", true},
        {"to_folder/new/absent", "folder/new/absent", true},
        {"new", "new/", true},
        {"file", "absent", false},
        {"new/absent", "absent", false},
        {"folder/other", "folder/own_1", false},
        {"fifo", "fifo", false},
        {"/dev/null", "/dev/null", false},
        {"circle", "circle", false},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        ls_status expected = pairs[i].same ? LS_ERR_USAGE : LS_OK;
        if (check_two(pairs[i].first, pairs[i].second, false) != expected)
            fail_msg("%s and %s", pairs[i].first, pairs[i].second);
        if (pairs[i].same) scratch_expect_error("--in and --out name the same file", NULL);
    }
}

TEST_WITH(make_files, scratch_teardown, a_folder_has_files_and_names_to_come) {
    static const struct {
        const char *folder, *second;
        bool same;
    } pairs[] = {
        {"folder", "folder/own_1", true},  {"folder", "to_folder/own_2", true},
        {"folder", "folder/other", false}, {"folder", "folder/to_own", true},
        {"folder", "own_1", false},        {"to_folder", "folder/own_1", true},
        {"folder", "folder/x/own", false}, {"new", "new/own_1", true},
        {"new", "new/other", false},       {"new/deep", "new/deep/own", true},
        {"new", "newown", false},
    };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        ls_status expected = pairs[i].same ? LS_ERR_USAGE : LS_OK;
        if (check_two(pairs[i].folder, pairs[i].second, true) != expected)
            fail_msg("%s and %s", pairs[i].folder, pairs[i].second);
        if (pairs[i].same) scratch_expect_error("name the same file", NULL);
    }
}

TEST_WITH(make_files, scratch_teardown, inputs_may_be_one_and_an_exception_is_for_one_option) {
    char path[600];
    static const char *const outputs[] = {"--save", "--other"};
    for (int i = 0; i < 2; i++) {
        ls_named_files files = {0};
        of_scratch(path, "file");
        ls_named_files_add(&files, &(ls_named_file){.option = "--resume", .path = path, .replaced_by = "--save"});
        ls_named_files_add(&files, &(ls_named_file){.option = "--none"});
        ls_named_files_add(&files, &(ls_named_file){.option = outputs[i], .path = path, .is_output = true});
        assert_int_equal(ls_named_files_check(&files), i == 0 ? LS_OK : LS_ERR_USAGE);
        if (i > 0) scratch_expect_error("--resume and --other name the same file", "the input would be overwritten");
        ls_named_files_add(&files, &(ls_named_file){.option = "--a", .path = path});
        ls_named_files_add(&files, &(ls_named_file){.option = "--b", .path = path});
        assert_int_equal(ls_named_files_check(&files), LS_OK);
    }
    ls_named_files files = {0};
    static const char *const names[] = {"x", "./x"};
    ls_named_files_add_outputs(&files, "--out", scratch_folder(), names, 2);
    assert_int_equal(ls_named_files_check(&files), LS_ERR_USAGE);
    scratch_expect_error("--out and --out name the same file", "one output would overwrite the other");
}
