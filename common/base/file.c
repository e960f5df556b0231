/* file — reads whole files, and replaces files atomically.
 *   order : write, fsync of the file, link under a temporary name, rename, fsync of the folder. The rename must come
 *           after the data's fsync, or a power cut could leave the new name on an empty file.
 *   place : a symbolic link is followed, and the file that it names is replaced. That file's folder is opened once, and
 *           every step uses its descriptor. So all steps happen in one folder, even if another folder gets its name
 *           meanwhile. If the folder is moved, the file is created there; if it is removed, naming the file fails
 *   fails : before the rename the old file is untouched, and the new one has no name at all (O_TMPFILE), so a killed
 *           process leaves nothing. linkat cannot replace a name, hence the short-lived temporary name between the last
 *           two steps. All writers of a path use the same temporary name, so that the next one finds the leftover of a
 *           killed one. Each locks its file, so that no writer removes the file of a running one; a writer that finds
 *           it locked uses a name of its own */
#define _GNU_SOURCE
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

#define LS_TEMPORARY_TRIES 1000
#define LS_TEMPORARY_BASE_MAX 200

#ifndef STATX_ATTR_MOUNT_ROOT /* headers before Linux 5.8 */
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Reads to the end, whatever size was reported when the file was opened: it may grow, and /proc reports 0. */
static ls_status read_to_end(int fd, const char *path, size_t expected, size_t most, char **text, size_t *nbytes) {
    size_t capacity = 0;
    for (ssize_t got = 1; got > 0; *nbytes += (size_t)got) {
        if (*nbytes + 1 >= capacity) {
            capacity = capacity == 0 ? expected + 2 : 2 * capacity; /* the end is seen by trying to read past it */
            char *larger = realloc(*text, capacity);
            if (!larger) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", path);
            *text = larger;
        }
        do got = read(fd, *text + *nbytes, capacity - 1 - *nbytes);
        while (got < 0 && errno == EINTR);
        if (got < 0) return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (*nbytes + (size_t)got > most)
            return ls_fail(LS_ERR_INVALID, "%s is larger than the limit of %zu bytes", path, most);
    }
    (*text)[*nbytes] = '\0';
    return LS_OK;
}

ls_status ls_file_read(const char *path, size_t most, char **text, size_t *nbytes) {
    struct stat info;
    *text = NULL;
    *nbytes = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* or opening a pipe would wait for its writer */
    if (fd < 0) return ls_fail(LS_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    ls_status status = LS_OK;
    if (fstat(fd, &info) != 0)
        status = ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = ls_fail(LS_ERR_IO, "cannot read %s: not a regular file", path);
    else if (info.st_size > 0 && (uintmax_t)info.st_size > most)
        status = ls_fail(LS_ERR_INVALID, "%s is larger than the limit of %zu bytes", path, most);
    else
        status = read_to_end(fd, path, (size_t)info.st_size, most, text, nbytes);
    close(fd);
    if (status == LS_OK) return LS_OK;
    free(*text);
    *text = NULL;
    return status;
}

/* --- replacing ---------------------------------------------------------------------------------------------------- */

struct ls_file_writer {
    int fd;
    int folder;                    /* the path's folder, even if it is renamed meanwhile */
    bool named;                    /* temporary[] exists in the folder */
    bool failed;                   /* a put or a sync has failed and was reported */
    char path[PATH_MAX];           /* as the caller passed it, for messages */
    char place[PATH_MAX];          /* its target, which is not a symbolic link */
    const char *name;              /* in place: the text after its last slash */
    char temporary[NAME_MAX + 64]; /* a name in the same folder, so that rename works */
};

const char *ls_write_error(int error) {
    struct rlimit limit;
    if (error == ENXIO) return "no process reads this pipe; start its reader first";
    bool limited = error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? "File too large for the limit on the size of files (ulimit -f)" : strerror(error);
}

/* One message for all steps: opening, writing, syncing, naming and replacing fail for the same reasons (full disks,
 * lost folders), and which of them fails first is chance. */
static ls_status cannot_write(const char *path, int error) {
    static const int of_folder[] = {ENOENT, ENOTDIR, EACCES, EPERM, EROFS};
    const char *known = "what was there before is unchanged";
    for (size_t i = 0; i < sizeof of_folder / sizeof *of_folder; i++)
        if (error == of_folder[i]) known = "its folder must exist and be writable";
    return ls_fail(LS_ERR_IO, "cannot write %s: %s; %s", path, ls_write_error(error), known);
}

/* `own`: a name that is unused in this process; it contains the pid, so no other process uses it. */
static void make_temporary_name(ls_file_writer *writer, bool own) {
    static _Atomic unsigned counter;
    char mark[64] = "";
    own = own || strlen(writer->name) > LS_TEMPORARY_BASE_MAX; /* two truncated names could be equal */
    if (own) snprintf(mark, sizeof mark, ".%ld-%u", (long)getpid(), atomic_fetch_add(&counter, 1));
    snprintf(writer->temporary, sizeof writer->temporary, ".%.*s%s.tmp", LS_TEMPORARY_BASE_MAX, writer->name, mark);
}

int ls_file_find_place(char place[PATH_MAX], const char *path) {
    enum { MOST_LINKS = 40 };
    char target[PATH_MAX];
    if (strlen(path) >= PATH_MAX) return ENAMETOOLONG;
    memcpy(place, path, strlen(path) + 1);
    for (int i = 0; i < MOST_LINKS; i++) {
        ssize_t length = readlink(place, target, sizeof target - 1);
        if (length < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno; /* not a link, or does not exist */
        target[length] = '\0';
        const char *slash = strrchr(place, '/');
        size_t kept = target[0] == '/' || !slash ? 0 : (size_t)(slash - place) + 1;
        if (kept + (size_t)length >= PATH_MAX) return ENAMETOOLONG;
        memcpy(place + kept, target, (size_t)length + 1);
    }
    return ELOOP;
}

static int open_folder(ls_file_writer *writer) {
    char folder[PATH_MAX] = ".";
    const char *place = writer->place, *slash = strrchr(place, '/');
    writer->name = slash ? slash + 1 : place;
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash == place ? 1 : (int)(slash - place), place);
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Whether the rename at the end may replace the existing file. Tries rmdir, which needs the same permission and checks
 * it first (another user's file in a sticky folder, an immutable one); it then fails, as the file is not a folder. */
static ls_status check_replaced(const ls_file_writer *writer) {
    struct statx there, folder;
    bool appends = statx(writer->folder, "", AT_EMPTY_PATH, STATX_TYPE, &folder) == 0 &&
                   (folder.stx_attributes & STATX_ATTR_APPEND) != 0;
    if (appends) return cannot_write(writer->path, EPERM); /* no name can be removed from an append-only folder */
    if (statx(writer->folder, writer->name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &there) != 0)
        return errno == ENOENT ? LS_OK : cannot_write(writer->path, errno);
    int error = there.stx_attributes & STATX_ATTR_MOUNT_ROOT ? EBUSY : 0;
    if (error == 0 && S_ISREG(there.stx_mode) && unlinkat(writer->folder, writer->name, AT_REMOVEDIR) != 0)
        error = errno;
    if (error != EPERM && error != EACCES && error != EROFS && error != EBUSY) return LS_OK;
    return ls_fail(LS_ERR_IO, "cannot write %s: %s; %s, so choose another path", writer->path, strerror(error),
                   error == EBUSY ? "the file is a mount point of its own"
                                  : "another user owns the file there, or the file is protected, and this user may not "
                                    "replace files in its folder");
}

/* For file systems without unnamed files, and systems where /proc cannot give one a name. */
static int open_named(ls_file_writer *writer) {
    int fd = -1;
    for (int i = 0; i < LS_TEMPORARY_TRIES && fd < 0; i++) {
        make_temporary_name(writer, true);
        fd = openat(writer->folder, writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    writer->named = fd >= 0;
    return fd;
}

static int open_hidden(ls_file_writer *writer) {
    if (access("/proc/self/fd", X_OK) != 0) return open_named(writer);
    make_temporary_name(writer, false);
    int fd = openat(writer->folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    return open_named(writer);
}

/* Returns an errno. */
static int open_place(ls_file_writer *writer) {
    int error = ls_file_find_place(writer->place, writer->path);
    if (error != 0) return error;
    writer->folder = open_folder(writer);
    if (writer->folder < 0) return errno;
    if (writer->name[0] == '\0') return EISDIR;
    writer->fd = open_hidden(writer);
    return writer->fd < 0 ? errno : 0;
}

/* The checks that do not need the path's folder to be open. */
static ls_status check_path(const char *path) {
    struct stat info;
    if (strlen(path) >= PATH_MAX) return ls_fail(LS_ERR_IO, "cannot write a file whose path is too long: %s", path);
    if (stat(path, &info) != 0) return errno == ENOENT ? LS_OK : cannot_write(path, errno);
    if (S_ISREG(info.st_mode)) return LS_OK;
    return ls_fail(LS_ERR_IO, "cannot write %s: not a regular file; choose another path", path);
}

ls_status ls_file_writer_open(ls_file_writer **out, const char *path) {
    *out = NULL;
    ls_status status = check_path(path);
    if (status != LS_OK) return status;
    ls_file_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
    memcpy(writer->path, path, strlen(path));
    writer->fd = writer->folder = -1;
    int error = open_place(writer);
    status = error == 0 ? check_replaced(writer) : cannot_write(path, error);
    if (status == LS_OK)
        *out = writer;
    else
        ls_file_writer_abort(writer);
    return status;
}

/* Marks the writer as failed, so that commit does not put half a file in place. */
static ls_status fail_writer(ls_file_writer *writer) {
    writer->failed = true;
    return cannot_write(writer->path, errno);
}

void ls_file_writer_put(ls_file_writer *writer, const void *data, size_t nbytes) {
    const char *next = data;
    while (nbytes > 0 && !writer->failed) {
        ssize_t written = write(writer->fd, next, nbytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            (void)fail_writer(writer);
            return;
        }
        next += written;
        nbytes -= (size_t)written;
    }
}

ls_status ls_file_writer_status(const ls_file_writer *writer) { return writer->failed ? LS_ERR_IO : LS_OK; }

/* Removes the file under the temporary name if its writer is dead, so that it is not locked. This process holds the
 * lock while it removes the file, so no other writer can have replaced it. */
static bool remove_leftover(const ls_file_writer *writer) {
    struct stat opened, there;
    int fd = openat(writer->folder, writer->temporary, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool dead = flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 &&
                fstatat(writer->folder, writer->temporary, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
    bool removed = dead && unlinkat(writer->folder, writer->temporary, 0) == 0;
    close(fd);
    return removed;
}

/* Gives the unnamed file its temporary name. Through /proc, since linkat by descriptor alone needs a privilege. */
static bool name_file(ls_file_writer *writer) {
    char descriptor[64];
    snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", writer->fd);
    (void)flock(writer->fd, LOCK_EX | LOCK_NB); /* without support for locks, a leftover stays */
    for (int i = 0; i < LS_TEMPORARY_TRIES && !writer->named; i++) {
        writer->named = linkat(AT_FDCWD, descriptor, writer->folder, writer->temporary, AT_SYMLINK_FOLLOW) == 0;
        if (writer->named) break;
        if (errno != EEXIST) return false;
        if (i == 0 && remove_leftover(writer)) continue;
        make_temporary_name(writer, true);
    }
    return writer->named;
}

/* The new file gets the mode of the one that it replaces, and its owner and group where that is allowed. */
static void keep_rights(const ls_file_writer *writer) {
    struct stat old;
    if (fstatat(writer->folder, writer->name, &old, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(old.st_mode)) return;
    mode_t mode = old.st_mode & 0777;
    if (fchown(writer->fd, (uid_t)-1, old.st_gid) != 0) mode = (mode & ~070u) | (mode & 07) << 3; /* to other groups */
    (void)fchmod(writer->fd, mode);
    (void)!fchown(writer->fd, old.st_uid, (gid_t)-1); /* last: the former owner may not change the mode */
}

ls_status ls_file_check(const char *path) {
    ls_file_writer *writer;
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    if (!writer->named && !name_file(writer)) status = cannot_write(path, errno);
    ls_file_writer_abort(writer);
    return status;
}

static ls_status sync_folder(const ls_file_writer *writer) {
    if (fsync(writer->folder) == 0 || errno == EINVAL) return LS_OK; /* EINVAL: there is nothing to sync here */
    return ls_fail(LS_ERR_IO, "%s is written, but its folder could not be synced to disk: %s", writer->path,
                   strerror(errno));
}

ls_status ls_file_writer_sync(ls_file_writer *writer) {
    if (writer->failed) return LS_ERR_IO;
    return fsync(writer->fd) == 0 ? LS_OK : fail_writer(writer);
}

ls_status ls_file_writer_commit(ls_file_writer *writer) {
    keep_rights(writer);
    ls_status status = ls_file_writer_sync(writer);
    if (status == LS_OK && !name_file(writer)) status = fail_writer(writer);
    if (status == LS_OK && renameat(writer->folder, writer->temporary, writer->folder, writer->name) != 0)
        status = fail_writer(writer);
    if (status == LS_OK) {
        writer->named = false;
        status = sync_folder(writer);
    }
    ls_file_writer_abort(writer);
    return status;
}

void ls_file_writer_abort(ls_file_writer *writer) {
    if (!writer) return;
    if (writer->named) unlinkat(writer->folder, writer->temporary, 0);
    if (writer->fd >= 0) close(writer->fd);
    if (writer->folder >= 0) close(writer->folder);
    free(writer);
}

ls_status ls_file_write_text(const char *path, const char *text) {
    ls_file_writer *writer;
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    ls_file_writer_put(writer, text, strlen(text));
    return ls_file_writer_commit(writer);
}
