#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

static void expect_content(const char *path, const char *text) {
    size_t nbytes;
    char *content = scratch_read(path, &nbytes);
    assert_string_equal(content, text);
    assert_int_equal(nbytes, strlen(text));
    free(content);
}

static ls_status write_text(const char *path, const char *text) {
    ls_file_writer *writer;
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) {
        assert_null(writer);
        return status;
    }
    ls_file_writer_put(writer, text, strlen(text));
    assert_int_equal(ls_file_writer_status(writer), LS_OK);
    return ls_file_writer_commit(writer);
}

TEST_IN(scratch, makes_and_replaces_a_file) {
    assert_int_equal(write_text(scratch_path("a"), "first, and longer"), LS_OK);
    expect_content(scratch_path("a"), "first, and longer");
    assert_int_equal(write_text(scratch_path("a"), "second"), LS_OK);
    expect_content(scratch_path("a"), "second");
    assert_int_equal(write_text(scratch_path("empty"), ""), LS_OK);
    expect_content(scratch_path("empty"), "");
    assert_int_equal(scratch_file_count(), 2);
}

TEST_IN(scratch, nothing_shows_before_commit_nor_after_abort) {
    scratch_write("a", "old", 3);
    ls_file_writer *writer;
    assert_int_equal(ls_file_writer_open(&writer, scratch_path("a")), LS_OK);
    ls_file_writer_put(writer, "new", 3);
    expect_content(scratch_path("a"), "old");
    ls_file_writer_abort(writer);
    expect_content(scratch_path("a"), "old");
    assert_int_equal(scratch_file_count(), 1);
    ls_file_writer_abort(NULL);
}

TEST_IN(scratch, a_path_without_a_folder_is_in_the_current_one) {
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(here >= 0);
    assert_int_equal(chdir(scratch_folder()), 0);
    assert_int_equal(write_text("plain", "text"), LS_OK);
    assert_int_equal(fchdir(here), 0);
    close(here);
    expect_content(scratch_path("plain"), "text");
}

TEST_IN(scratch, places_that_cannot_be_written) {
    assert_int_equal(write_text(scratch_path("missing/a"), "text"), LS_ERR_IO);
    scratch_expect_error("missing/a", "No such file or directory");
    scratch_write("file", "text", 4);
    assert_int_equal(write_text(scratch_path("file/a"), "text"), LS_ERR_IO);
    scratch_expect_error("file/a", "Not a directory");
    assert_int_equal(write_text(scratch_folder(), "text"), LS_ERR_IO);
    scratch_expect_error(scratch_folder(), "not a regular file");
    assert_int_equal(write_text("/dev/null", "text"), LS_ERR_IO);
    scratch_expect_error("/dev/null", "not a regular file");
    char *path = malloc(5000);
    assert_non_null(path);
    memset(path, 'x', 4999);
    path[4999] = '\0';
    assert_int_equal(write_text(path, "text"), LS_ERR_IO);
    scratch_expect_error("too long", NULL);
    free(path);
    assert_int_equal(scratch_file_count(), 1);
}

/* Exit status of a child process that runs `act`, so that the limits and rights of this process stay unchanged. */
static int status_of_child(int (*act)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        _exit(act());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int write_without_rights(void) {
    if (geteuid() == 0 && seteuid(65534) != 0) return 1;
    if (write_text(scratch_path("a"), "new") != LS_ERR_IO) return 2;
    scratch_expect_error(scratch_path("a"), "Permission denied");
    return 0;
}

TEST_IN(scratch, an_unwritable_folder_keeps_the_old_file) {
    scratch_write("a", "old", 3);
    assert_int_equal(chmod(scratch_folder(), 0555), 0);
    int status = status_of_child(write_without_rights);
    assert_int_equal(chmod(scratch_folder(), 0755), 0);
    assert_int_equal(status, 0);
    expect_content(scratch_path("a"), "old");
    assert_int_equal(scratch_file_count(), 1);
}

/* A limit on file sizes stands for a full disk: write fails in the middle. */
static int write_beyond_the_limit(void) {
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    static const char bytes[600];
    char more[200] = "";
    for (int commits = 0; commits < 2; commits++) {
        ls_file_writer *writer;
        if (ls_file_writer_open(&writer, scratch_path("a")) != LS_OK) return 2;
        ls_file_writer_put(writer, bytes, sizeof bytes);
        if (ls_file_writer_status(writer) != LS_OK) return 3;
        ls_file_writer_put(writer, bytes, sizeof bytes);
        if (ls_file_writer_status(writer) != LS_ERR_IO) return 4;
        scratch_expect_error(scratch_path("a"), "File too large");
        if (commits) ls_log_capture(more, sizeof more);
        ls_file_writer_put(writer, bytes, sizeof bytes);
        if (more[0] != '\0') return 6; /* the error was reported */
        if (commits && ls_file_writer_commit(writer) != LS_ERR_IO) return 5;
        if (!commits) ls_file_writer_abort(writer);
    }
    return 0;
}

TEST_IN(scratch, a_full_disk_keeps_the_old_file) {
    scratch_write("a", "old", 3);
    assert_int_equal(status_of_child(write_beyond_the_limit), 0);
    expect_content(scratch_path("a"), "old");
    assert_int_equal(scratch_file_count(), 1);
}

static int die_while_writing(void) {
    ls_file_writer *writer;
    if (ls_file_writer_open(&writer, scratch_path("a")) != LS_OK) return 1;
    ls_file_writer_put(writer, "new", 3);
    return raise(SIGKILL);
}

TEST_IN(scratch, a_killed_writer_leaves_nothing) {
    int hidden = open(scratch_folder(), O_WRONLY | O_TMPFILE, 0600);
    if (hidden < 0) {
        print_message("skip: no unnamed files in %s\n", scratch_folder());
        skip();
    }
    close(hidden);
    scratch_write("a", "old", 3);
    assert_int_equal(status_of_child(die_while_writing), 100 + SIGKILL);
    expect_content(scratch_path("a"), "old");
    assert_int_equal(scratch_file_count(), 1);
}

/* A writer that is killed just before its rename leaves a temporary file; the next writer removes it. */
TEST_IN(scratch, what_a_killed_writer_left_goes) {
    scratch_write("a", "old", 3);
    scratch_write(".a.tmp", "half of", 7);
    assert_int_equal(write_text(scratch_path("a"), "new"), LS_OK);
    expect_content(scratch_path("a"), "new");
    assert_int_equal(scratch_file_count(), 1);
    scratch_write(".b.tmp", "another's", 9); /* not a temporary file of either writer */
    assert_int_equal(write_text(scratch_path("a"), "newer"), LS_OK);
    assert_int_equal(scratch_file_count(), 2);
}

static int write_often(const char *text) {
    for (int i = 0; i < 200; i++) {
        if (write_text(scratch_path("a"), text) != LS_OK) return 1;
    }
    return 0;
}

static int write_many_as(void) { return write_often("as"); }

/* Writers of one path share a temporary name, repeatedly: none fails, each file is complete, none is left behind. */
TEST_IN(scratch, writers_of_one_path_do_not_harm_each_other) {
    fflush(NULL);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) _exit(write_often("b"));
    assert_int_equal(status_of_child(write_many_as), 0);
    int status = 0;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    size_t nbytes;
    char *content = scratch_read(scratch_path("a"), &nbytes);
    assert_true(strcmp(content, "as") == 0 || strcmp(content, "b") == 0);
    free(content);
    assert_int_equal(scratch_file_count(), 1);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void expect_not_read(const char *path, size_t most, ls_status status, const char *said) {
    char *text = (char *)path;
    size_t nbytes;
    assert_int_equal(ls_file_read(path, most, &text, &nbytes), status);
    assert_null(text);
    scratch_expect_error(said, path);
}

TEST_IN(scratch, a_file_is_read_whole_or_not_at_all) {
    char *text;
    size_t nbytes;
    scratch_write("file", "ab\0cd", 5);
    assert_int_equal(ls_file_read(scratch_path("file"), 5, &text, &nbytes), LS_OK);
    assert_int_equal(nbytes, 5);
    assert_memory_equal(text, "ab\0cd", 6); /* a zero byte after it */
    free(text);
    expect_not_read(scratch_path("file"), 4, LS_ERR_INVALID, "larger than the limit of 4 bytes");
    scratch_write("empty", "", 0);
    assert_int_equal(ls_file_read(scratch_path("empty"), 0, &text, &nbytes), LS_OK);
    assert_true(nbytes == 0 && text[0] == '\0');
    free(text);
    assert_int_equal(ls_file_read("/proc/self/status", 1 << 20, &text, &nbytes), LS_OK); /* reports a size of 0 bytes */
    assert_true(nbytes > 0 && strlen(text) == nbytes);
    free(text);
    expect_not_read("/proc/self/status", 10, LS_ERR_INVALID, "larger than the limit of 10 bytes");
}

TEST_IN(scratch, what_is_no_file_is_not_waited_for) {
    expect_not_read(scratch_path("absent"), 10, LS_ERR_IO, "No such file");
    expect_not_read(scratch_folder(), 10, LS_ERR_IO, "not a regular file");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    alarm(20); /* kills this process if the read waits for a writer */
    expect_not_read(scratch_path("pipe"), 10, LS_ERR_IO, "not a regular file");
    alarm(0);
}
