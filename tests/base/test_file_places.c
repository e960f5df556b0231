/* Where files are written: an error that would occur at the end of a long run is reported at its start, and links,
 * modes and owners are kept. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
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

enum { STRANGER = 65534 };

static ls_status write_new(const char *path) {
    ls_file_writer *writer;
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    ls_file_writer_put(writer, "new", 3);
    return ls_file_writer_commit(writer);
}

static void expect_new(const char *path) {
    size_t nbytes;
    assert_int_equal(write_new(path), LS_OK);
    char *content = scratch_read(path, &nbytes);
    assert_string_equal(content, "new");
    free(content);
}

static mode_t type_of(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 ? info.st_mode & S_IFMT : 0;
}

/* --- refused at once ---------------------------------------------------------------------------------------------- */

static void expect_refused(const char *path, const char *why) {
    ls_file_writer *writer;
    assert_int_equal(ls_file_writer_open(&writer, path), LS_ERR_IO);
    assert_null(writer);
    scratch_expect_error(path, why);
    assert_int_equal(ls_file_check(path), LS_ERR_IO);
    scratch_expect_error(path, why);
}

TEST_IN(scratch, names_that_no_file_can_have) {
    char name[NAME_MAX + 2], link[NAME_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    name[NAME_MAX + 1] = '\0';
    expect_refused(scratch_path(name), "File name too long");
    expect_refused(scratch_path("folder/"), "");
    memcpy(link, name, sizeof link);
    assert_int_equal(symlink(link, scratch_path("link")), 0);
    expect_refused(scratch_path("link"), "File name too long");
    assert_int_equal(unlink(scratch_path("link")), 0);
    name[NAME_MAX] = '\0'; /* the longest name that a file can have */
    expect_new(scratch_path(name));
    assert_int_equal(ls_file_check(scratch_path(name)), LS_OK);
    assert_int_equal(scratch_file_count(), 1);
}

TEST_IN(scratch, links_that_lead_nowhere) {
    assert_int_equal(symlink("b", scratch_path("a")), 0);
    assert_int_equal(symlink("a", scratch_path("b")), 0);
    expect_refused(scratch_path("a"), "Too many levels of symbolic links");
    assert_int_equal(symlink("no/folder", scratch_path("c")), 0);
    expect_refused(scratch_path("c"), "No such file or directory; its folder must exist");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", scratch_path("d")), 0);
    expect_refused(scratch_path("d"), "not a regular file");
}

/* Exit status of a child process that changes its user, which this process could not undo. */
static int as_a_stranger(void (*act)(void)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        if (setresuid(STRANGER, STRANGER, STRANGER) != 0) _exit(100);
        act();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void replace_anothers(void) {
    expect_refused(scratch_path("theirs"), "this user may not replace files in its folder");
    expect_new(scratch_path("own"));
    expect_new(scratch_path("own")); /* may be replaced */
}

static void skip_unless_root(void) {
    if (geteuid() == 0) return;
    print_message("skip: this user cannot make files of another\n");
    skip();
}

/* In a sticky folder such as /tmp any user may create files, but replace only their own. */
TEST_IN(scratch, anothers_file_in_a_sticky_folder) {
    skip_unless_root();
    scratch_write("theirs", "old", 3);
    assert_int_equal(chmod(scratch_path("theirs"), 0666), 0);
    assert_int_equal(chmod(scratch_folder(), 01777), 0);
    assert_int_equal(as_a_stranger(replace_anothers), 0);
    size_t nbytes;
    char *content = scratch_read(scratch_path("theirs"), &nbytes);
    assert_string_equal(content, "old");
    free(content);
    assert_int_equal(scratch_file_count(), 2);
}

/* --- kept --------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, a_link_stays_and_its_file_is_replaced) {
    char absolute[PATH_MAX];
    assert_int_equal(mkdir(scratch_path("far"), 0755), 0);
    scratch_write("far/file", "old", 3);
    assert_int_equal(symlink("far/file", scratch_path("near")), 0);
    snprintf(absolute, sizeof absolute, "%s", scratch_path("near"));
    assert_int_equal(symlink(absolute, scratch_path("far/link")), 0); /* a link to a link */
    expect_new(scratch_path("far/link"));
    assert_int_equal(type_of(scratch_path("far/link")), S_IFLNK);
    assert_int_equal(type_of(scratch_path("near")), S_IFLNK);
    assert_int_equal(type_of(scratch_path("far/file")), S_IFREG);
    char *content = scratch_read_text("far/file");
    assert_string_equal(content, "new");
    free(content);
    assert_int_equal(unlink(scratch_path("far/file")), 0); /* a link to a file that does not exist yet */
    expect_new(scratch_path("near"));
    assert_int_equal(type_of(scratch_path("near")), S_IFLNK);
    assert_int_equal(type_of(scratch_path("far/file")), S_IFREG);
}

TEST_IN(scratch, mode_and_owner_stay) {
    static const mode_t modes[] = {0600, 0644, 0664, 0400};
    struct stat info;
    mode_t mask = umask(027);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        scratch_write("file", "old", 3);
        assert_int_equal(chmod(scratch_path("file"), modes[i]), 0);
        if (geteuid() == 0) assert_int_equal(chown(scratch_path("file"), STRANGER, STRANGER), 0);
        expect_new(scratch_path("file"));
        assert_int_equal(stat(scratch_path("file"), &info), 0);
        assert_int_equal(info.st_mode & 07777, modes[i]);
        if (geteuid() == 0) assert_true(info.st_uid == STRANGER && info.st_gid == STRANGER);
        assert_int_equal(unlink(scratch_path("file")), 0);
    }
    expect_new(scratch_path("file")); /* the umask decides the mode of a new file */
    umask(mask);
    assert_int_equal(stat(scratch_path("file"), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static void write_too_much(void) {
    const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    static const char bytes[2000];
    ls_file_writer *writer;
    ls_log_init("test", -1, false);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(ls_file_writer_open(&writer, scratch_path("a")), LS_OK);
    ls_file_writer_put(writer, bytes, sizeof bytes);
    assert_int_equal(ls_file_writer_status(writer), LS_ERR_IO);
    scratch_expect_error(scratch_path("a"), "the limit on the size of files (ulimit -f)");
    ls_file_writer_abort(writer);
}

/* Without a handler the signal would kill the process without a message. */
TEST_IN(scratch, a_limit_on_sizes_is_named) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        write_too_much();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(scratch_file_count(), 0);
}
