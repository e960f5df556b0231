/* A folder is removed or moved while a file is written into it. At any moment the writer reports the same line, or the
 * file is complete in the folder's new place. This program defines the system calls between which that happens (its
 * functions take precedence over those of the C library), so each moment is tested deterministically. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/file.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

#define GONE "cannot write %s: No such file or directory; its folder must exist and be writable"

/* The moments: before each of these steps. */
enum moment { AT_OPEN, AT_PUT, AT_SYNC, AT_NAMING, AT_REPLACING, AT_FOLDERS_SYNC, NEVER };

static enum moment moment = NEVER;
static void (*go)(void);
static bool gone;

static void reach(enum moment now) {
    if (now != moment || gone) return;
    gone = true;
    go();
}

/* --- the system calls -------------------------------------------------------------------------------------------- */

int fsync(int fd);
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int renameat(int from_folder, const char *from, int to_folder, const char *to);
int rename(const char *from, const char *to);

int fsync(int fd) {
    struct stat info;
    reach(fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? AT_FOLDERS_SYNC : AT_SYNC);
    return (int)syscall(SYS_fsync, fd);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    reach(AT_NAMING);
    return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    reach(AT_REPLACING);
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

/* --- the folder -------------------------------------------------------------------------------------------------- */

/* Removes the folder with its contents, as rm -r does. */
static void is_removed(void) {
    unlink(scratch_path("folder/a"));
    unlink(scratch_path("folder/.a.tmp"));
    assert_int_equal(rmdir(scratch_path("folder")), 0);
}

static void is_moved(void) {
    assert_int_equal(syscall(SYS_renameat2, AT_FDCWD, scratch_path("folder"), AT_FDCWD, scratch_path("moved"), 0), 0);
}

static ls_status write_new(void) {
    ls_file_writer *writer;
    reach(AT_OPEN);
    ls_status status = ls_file_writer_open(&writer, scratch_path("folder/a"));
    if (status != LS_OK) return status;
    reach(AT_PUT);
    ls_file_writer_put(writer, "new", 3);
    assert_int_equal(ls_file_writer_status(writer), LS_OK);
    return ls_file_writer_commit(writer);
}

static ls_status write_while_it_goes(enum moment when, void (*how)(void)) {
    assert_int_equal(mkdir(scratch_path("folder"), 0755), 0);
    scratch_write("folder/a", "old", 3);
    moment = when;
    go = how;
    gone = false;
    ls_status status = write_new();
    moment = NEVER;
    assert_true(gone);
    return status;
}

static void expect_the_line(void) {
    char line[4200];
    snprintf(line, sizeof line, GONE, scratch_path("folder/a"));
    scratch_expect_error(line, NULL);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, a_folder_that_is_removed_is_told_in_one_line) {
    for (enum moment when = AT_OPEN; when <= AT_REPLACING; when++) {
        assert_int_equal(write_while_it_goes(when, is_removed), LS_ERR_IO);
        expect_the_line();
        assert_int_equal(scratch_file_count(), 0);
    }
    /* After the last step that could fail: as if the folder had been removed after the write. The next write reports
     * the line. */
    assert_int_equal(write_while_it_goes(AT_FOLDERS_SYNC, is_removed), LS_OK);
    assert_int_equal(write_new(), LS_ERR_IO);
    expect_the_line();
}

/* The file that was begun is completed in the folder's new place, without other files; the next write reports the
 * line. */
TEST_IN(scratch, a_folder_that_is_moved_gets_the_file) {
    for (enum moment when = AT_OPEN; when <= AT_FOLDERS_SYNC; when++) {
        ls_status status = write_while_it_goes(when, is_moved);
        assert_int_equal(status, when == AT_OPEN ? LS_ERR_IO : LS_OK);
        if (when != AT_OPEN) assert_int_equal(write_new(), LS_ERR_IO);
        expect_the_line();
        char *content = scratch_read_text("moved/a");
        assert_string_equal(content, when == AT_OPEN ? "old" : "new");
        free(content);
        assert_int_equal(unlink(scratch_path("moved/a")), 0);
        assert_int_equal(rmdir(scratch_path("moved")), 0); /* the folder contained nothing else */
    }
}

/* Another folder takes the name: the file is completed in the folder where it was begun. */
static void is_exchanged(void) {
    is_moved();
    assert_int_equal(mkdir(scratch_path("folder"), 0755), 0);
}

TEST_IN(scratch, another_folder_of_that_name_gets_nothing) {
    for (enum moment when = AT_PUT; when <= AT_FOLDERS_SYNC; when++) {
        assert_int_equal(write_while_it_goes(when, is_exchanged), LS_OK);
        assert_int_equal(rmdir(scratch_path("folder")), 0);
        char *content = scratch_read_text("moved/a");
        assert_string_equal(content, "new");
        free(content);
        assert_int_equal(unlink(scratch_path("moved/a")), 0);
        assert_int_equal(rmdir(scratch_path("moved")), 0);
    }
}
