/* lines — the files of lines that a run writes while it trains.
 *   cost  : a system call for the lines of each read (deferred.h), after which a kill cannot lose them
 *   fails : lines that cannot be written do not end a training: the failure is reported once, when it happens; no more
 *           lines follow, so that the file has no gap; the lines of earlier reads are kept, without half a line; and
 *           the run ends as failed. A pipe whose reader does not read blocks the training */
#include "common/report/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"

static ls_status cannot_write(const char *path, int error) {
    return ls_fail(LS_ERR_IO, "cannot write %s: %s", path, ls_write_error(error));
}

/* Lines can be written to a file, a pipe that has a reader, a terminal or another character device. */
static bool takes_lines(mode_t mode) { return S_ISREG(mode) || S_ISFIFO(mode) || S_ISCHR(mode); }

static ls_status refuse(const char *path) {
    return ls_fail(LS_ERR_IO, "cannot write %s: expected a file or a pipe; choose another path", path);
}

/* Whether the pipe has a reader. */
static ls_status check_pipe(int *held_fd, const char *path) {
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return cannot_write(path, errno);
    if (*held_fd >= 0) close(*held_fd);
    *held_fd = fd;
    return LS_OK;
}

/* All checks except opening the file; pipes are opened. */
static ls_status check_lines(const char *path) {
    struct stat info;
    char folder[PATH_MAX];
    int error = 0;
    if (stat(path, &info) == 0) {
        if (!S_ISDIR(info.st_mode) && !takes_lines(info.st_mode)) return refuse(path);
        error = S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    } else if (errno != ENOENT) {
        error = errno;
    } else {
        snprintf(folder, sizeof folder, "%s", path);
        char *slash = strrchr(folder, '/');
        if (slash) slash[1] = '\0';
        error = access(slash ? folder : ".", W_OK | X_OK) != 0 ? errno : 0;
    }
    return error == 0 ? LS_OK : cannot_write(path, error);
}

ls_status ls_lines_check(const char *path, int *held_fd) {
    struct stat info;
    bool is_pipe = stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
    return is_pipe ? check_pipe(held_fd, path) : check_lines(path);
}

ls_status ls_lines_open(struct ls_lines *lines, const char *path) {
    struct stat info;
    *lines = (struct ls_lines){.path = path};
    if (!path) return LS_OK;
    /* a pipe without a reader is refused, not waited for */
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) return cannot_write(path, errno);
    ls_status status = fstat(fd, &info) != 0 ? cannot_write(path, errno) : LS_OK;
    if (status == LS_OK && !takes_lines(info.st_mode)) status = refuse(path);
    if (status == LS_OK && (fcntl(fd, F_SETFL, 0) != 0 || !(lines->file = fdopen(fd, "w"))))
        status = cannot_write(path, errno);
    lines->is_file = status == LS_OK && S_ISREG(info.st_mode);
    if (!lines->file) close(fd);
    return status;
}

/* Reads `count` lines; returns how many there were, sets *line to the last one and *end to the position after it. */
static int64_t read_lines(FILE *file, int64_t count, char **line, long *end) {
    size_t capacity = 0;
    ssize_t length;
    int64_t read = 0;
    *end = 0;
    while (read < count && (length = getline(line, &capacity, file)) > 0 && (*line)[length - 1] == '\n') {
        *end += (long)length;
        read++;
    }
    return read;
}

ls_status ls_lines_keep(struct ls_lines *lines, const char *option, int64_t count, const char *begin,
                        const char *piece) {
    struct stat info;
    if (!lines->is_file || count == 0 || (stat(lines->path, &info) == 0 && info.st_size == 0)) return LS_OK;
    FILE *file = fopen(lines->path, "re");
    if (!file) return ls_fail(LS_ERR_IO, "cannot read %s to continue it: %s", lines->path, strerror(errno));
    char *line = NULL;
    int64_t there = read_lines(file, count, &line, &lines->kept);
    bool good = there == count && strncmp(line, begin, strlen(begin)) == 0 && strstr(line, piece);
    free(line);
    fclose(file);
    if (good) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "%s %s does not hold the lines of the %lld steps before the checkpoint and would be overwritten; "
                   "name another file",
                   option, lines->path, (long long)count);
}

ls_status ls_lines_keep_all(struct ls_lines *lines) {
    struct stat info;
    if (!lines->is_file) return LS_OK;
    if (fstat(fileno(lines->file), &info) != 0) return cannot_write(lines->path, errno);
    lines->kept = (long)info.st_size;
    return LS_OK;
}

ls_status ls_lines_begin(struct ls_lines *lines) {
    if (!lines->is_file) return LS_OK;
    if (ftruncate(fileno(lines->file), lines->kept) == 0 && fseek(lines->file, lines->kept, SEEK_SET) == 0)
        return LS_OK;
    return cannot_write(lines->path, errno);
}

bool ls_lines_go_on(const struct ls_lines *lines) { return lines->file && !lines->failed; }

/* Restores the file to its state after the last successful flush. */
static void drop_incomplete(struct ls_lines *lines) {
    __fpurge(lines->file);
    if (lines->is_file) (void)!ftruncate(fileno(lines->file), lines->kept);
}

void ls_lines_flush(struct ls_lines *lines) {
    if (!ls_lines_go_on(lines)) return;
    bool failed_before = ferror(lines->file) != 0;
    const char *why = fflush(lines->file) != 0 ? ls_write_error(errno) : failed_before ? "a write failed" : NULL;
    if (!why && lines->is_file) lines->kept = (long)lseek(fileno(lines->file), 0, SEEK_CUR);
    if (!why) return;
    lines->failed = true;
    drop_incomplete(lines);
    ls_report_error("cannot write all of %s: %s; writing there has stopped, and this run will end as failed",
                    lines->path, why);
}

ls_status ls_lines_close(struct ls_lines *lines) {
    if (!lines->file) return LS_OK;
    ls_lines_flush(lines);
    int error = fclose(lines->file) == 0 ? 0 : errno;
    bool told = lines->failed;
    lines->file = NULL;
    if (error != 0 && !told) return cannot_write(lines->path, error);
    return told ? LS_ERR_IO : LS_OK;
}
