/* ls_file_read: a whole file at once. ls_file_writer: replaces a file as a whole or not at all.
 *
 * The bytes go to an unnamed file in the same folder, which reaches the disk (fsync), gets the path's name in one
 * rename and is made durable by an fsync of the folder. A reader that opens the path sees the old file or the new one,
 * never a part; when anything fails, or the process is killed, the old file stays and nothing lies beside it. (A kill
 * in the instant before the rename may leave ".NAME.tmp", which the next writer of that path takes away; on a file
 * system without unnamed files, a kill at any time may leave ".NAME.PID-N.tmp".) Of several writers of a path the last
 * to commit wins.
 *
 * A folder that is moved between open and commit gets the file all the same. One that is removed is an error, in the
 * same line whatever the step: "cannot write PATH: No such file or directory; its folder must exist and be writable".
 *
 * A path that is a symbolic link keeps it: what is replaced, or made, is the file that the link names. The new file has
 * the old one's mode, and its owner and group where the system allows it.
 *
 * Use: open, put as often as needed, then commit or abort. Errors are reported with the path. One thread at a time. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <limits.h>
#include <stddef.h>

#include "common/base/status.h"

/* Reads a regular file of at most `most` bytes; *text is the caller's to free, with a zero byte behind its *nbytes.
 * LS_ERR_IO: it cannot be read, or is something else than a file (a pipe is not waited for); LS_ERR_INVALID: it is
 * larger; LS_ERR_NO_MEMORY. On failure *text is NULL. */
ls_status ls_file_read(const char *path, size_t most, char **text, size_t *nbytes);

typedef struct ls_file_writer ls_file_writer;

/* Begins a new content for `path`, whose folder must exist. Refuses a path that names something other than a regular
 * file (a folder, a device, a pipe), and a file that this user may not replace there (another's in a sticky folder, an
 * immutable one). LS_ERR_IO if the folder cannot be written. On failure *out is NULL. */
ls_status ls_file_writer_open(ls_file_writer **out, const char *path);

/* Appends. A failure (disk full, for example) sticks: nothing more is written, and commit fails, too. */
void ls_file_writer_put(ls_file_writer *writer, const void *data, size_t nbytes);

/* LS_ERR_IO if something has failed so far, which was reported: to be asked before long work that precedes commit. */
ls_status ls_file_writer_status(const ls_file_writer *writer);

/* Brings what was put so far to the disk, so that commit has less to fail at: where several files are to be replaced
 * together, sync all of them before the first commit. */
ls_status ls_file_writer_sync(ls_file_writer *writer);

/* Puts the new content in place and frees the writer, whatever the outcome. After a failure the old file is untouched,
 * except where the last step, the folder's fsync, failed: then the new file is in place but a power cut may undo it. */
ls_status ls_file_writer_commit(ls_file_writer *writer);

/* Where writing `path` goes to: follows symbolic links at its end, also to a file that is not there yet. Returns an
 * errno, 0: done. */
int ls_file_find_place(char place[PATH_MAX], const char *path);

/* Replaces `path` by the text, as a whole or not at all. */
ls_status ls_file_write_text(const char *path, const char *text);

/* Whether `path` could be written: does all that writing does, with an empty file, up to the rename. Changes
 * nothing. */
ls_status ls_file_check(const char *path);

/* What went wrong with a write, by its errno: strerror's text, or the limit that was met (ulimit -f), or the reader
 * that a pipe lacks. A program whose ls_log_init (log.h) was called gets that errno where it would have been killed. */
const char *ls_write_error(int error);

/* Drops the new content and frees the writer. NULL is a no-op. */
void ls_file_writer_abort(ls_file_writer *writer);

#endif
