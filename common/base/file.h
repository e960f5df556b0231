/* ls_file_read: a whole file at once. ls_file_writer: replaces a file as a whole or not at all.
 *
 * The bytes go to an unnamed file in the same folder. Commit flushes that file to disk (fsync), renames it to the path,
 * and flushes the folder. A reader that opens the path sees the old file or the new one, never a part. If anything
 * fails, or the process is killed, the old file stays and no temporary file is left. (A kill in the instant before the
 * rename may leave ".NAME.tmp", which the next writer of that path removes; on a file system without unnamed files, a
 * kill at any time may leave ".NAME.PID-N.tmp".) If several writers have one path open, the last to commit wins.
 *
 * If the folder is moved between open and commit, the file still ends up in it. If the folder is removed, every later
 * call fails with the same line: "cannot write PATH: No such file or directory; its folder must exist and be writable".
 *
 * A path that is a symbolic link stays one: its target is replaced or created. The new file has the mode of the old
 * one, and its owner and group if the system allows it.
 *
 * Use: open, put as often as needed, then commit or abort. Errors are reported with the path. One thread at a time. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <limits.h>
#include <stddef.h>

#include "common/base/status.h"

/* Reads a regular file of at most `most` bytes. The caller frees *text, which has *nbytes bytes and a terminating zero.
 * LS_ERR_IO: the file cannot be read or is not regular (a pipe is refused without waiting); LS_ERR_INVALID: it is
 * larger; LS_ERR_NO_MEMORY. On failure *text is NULL. */
ls_status ls_file_read(const char *path, size_t most, char **text, size_t *nbytes);

typedef struct ls_file_writer ls_file_writer;

/* Starts a new version of the file `path`, whose folder must exist. Refuses a path that names something other than a
 * regular file (a folder, a device, a pipe), and a file that this user may not replace there (another's in a sticky
 * folder, an immutable one). LS_ERR_IO if the folder cannot be written. On failure *out is NULL. */
ls_status ls_file_writer_open(ls_file_writer **out, const char *path);

/* Appends. A failure (disk full, for example) sticks: nothing more is written, and commit fails, too. */
void ls_file_writer_put(ls_file_writer *writer, const void *data, size_t nbytes);

/* LS_ERR_IO if an earlier call failed, which was reported then. Check before long work that precedes commit. */
ls_status ls_file_writer_status(const ls_file_writer *writer);

/* Flushes the bytes put so far to disk, which leaves fewer ways for commit to fail. To replace several files together,
 * sync all of them before the first commit. */
ls_status ls_file_writer_sync(ls_file_writer *writer);

/* Puts the new content in place and frees the writer, whatever the outcome. After a failure the old file is untouched,
 * except where the last step, the folder's fsync, failed: then the new file is in place but a power cut may undo it. */
ls_status ls_file_writer_commit(ls_file_writer *writer);

/* Finds the file that a write to `path` replaces: follows symbolic links in its last component, also to a file that
 * does not exist yet. Returns an errno, 0: done. */
int ls_file_find_place(char place[PATH_MAX], const char *path);

/* Replaces `path` by the text, as a whole or not at all. */
ls_status ls_file_write_text(const char *path, const char *text);

/* Checks that `path` can be written: does everything that writing an empty file does, up to the rename. Changes
 * nothing. */
ls_status ls_file_check(const char *path);

/* Describes a failed write by its errno: strerror's text, or a text that names the cause for EFBIG under a limit
 * (ulimit -f) and for ENXIO (a pipe without a reader). A program that called ls_log_init (log.h) gets EFBIG or EPIPE
 * where a signal would have killed it. */
const char *ls_write_error(int error);

/* Drops the new content and frees the writer. NULL is a no-op. */
void ls_file_writer_abort(ls_file_writer *writer);

#endif
