/* report_files — whether the files that the options name can be written, and files of lines.
 *   idea  : what can be refused is refused before the first step, and all files are looked at before the first is emptied
 *   cost  : a system call for the lines of each look (deferred.h), which a kill can then no longer lose
 *   fails : lines that cannot be written are no reason to end a training: it is said once, when it happens, no more
 *           lines follow, so that there is no gap in them, and the run ends as failed. A pipe whose reader does not
 *           read holds the training up */
#include "common/report/report_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/report/report.h"

/* --- lines -------------------------------------------------------------------------------------------------------- */

static ls_status cannot_write(const char *path, int error) {
    return ls_fail(LS_ERR_IO, "cannot write %s: %s", path, ls_write_error(error));
}

/* Lines go to a file, a pipe that has a reader, a terminal or another device that takes characters. */
static bool takes_lines(mode_t mode) { return S_ISREG(mode) || S_ISFIFO(mode) || S_ISCHR(mode); }

static ls_status refuse(const char *path) {
    return ls_fail(LS_ERR_IO, "cannot write %s: it is neither a file nor a pipe; choose another path", path);
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

ls_status ls_lines_begin(struct ls_lines *lines) {
    if (!lines->is_file || ftruncate(fileno(lines->file), 0) == 0) return LS_OK;
    return cannot_write(lines->path, errno);
}

bool ls_lines_go_on(const struct ls_lines *lines) { return lines->file && !lines->failed; }

void ls_lines_flush(struct ls_lines *lines) {
    if (!ls_lines_go_on(lines)) return;
    bool failed_before = ferror(lines->file) != 0;
    const char *why = fflush(lines->file) != 0 ? ls_write_error(errno) : failed_before ? "a write failed" : NULL;
    if (!why) return;
    lines->failed = true;
    ls_report_error("cannot write all of %s: %s; no more is written there, and this run will end as failed",
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

/* --- what the options name ---------------------------------------------------------------------------------------- */

/* Pipes that were looked at. Their readers end with the last writer, so each stays open until the next look; at the
 * latest until this process ends, which may be one that only looks, and starts those that write. */
static int held[] = {-1, -1};

/* Whether somebody reads it. */
static ls_status check_pipe(int *held_fd, const char *path) {
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return cannot_write(path, errno);
    if (*held_fd >= 0) close(*held_fd);
    *held_fd = fd;
    return LS_OK;
}

/* All but opening it, pipes excepted. */
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

/* How a file is used: weights are read before the run, lines are written from its begin on; a text, or weights,
 * replace what was there when they are complete. */
typedef enum { READ, LINES, TEXT, WEIGHTS } use;

struct named_file {
    const char *option, *path; /* NULL: not given */
    use use;
};

/* The file, and if there is none yet, its folder and name. */
struct identity {
    dev_t device;
    ino_t number;
    char name[NAME_MAX + 1];
};

/* Devices and pipes have none. */
static bool identify(const char *path, struct identity *of) {
    char place[PATH_MAX];
    struct stat info;
    *of = (struct identity){0};
    bool is_there = stat(path, &info) == 0;
    if (is_there && !S_ISREG(info.st_mode)) return false;
    if (!is_there) {
        if (ls_file_find_place(place, path) != 0) return false;
        char *slash = strrchr(place, '/');
        snprintf(of->name, sizeof of->name, "%.*s", NAME_MAX, slash ? slash + 1 : place);
        if (slash) slash[1] = '\0';
        if (stat(slash ? place : ".", &info) != 0) return false;
    }
    of->device = info.st_dev;
    of->number = info.st_ino;
    return true;
}

static bool is_same_file(const char *path, const char *other) {
    struct identity this, that;
    if (!identify(path, &this) || !identify(other, &that)) return false;
    return this.device == that.device && this.number == that.number && strcmp(this.name, that.name) == 0;
}

/* Weights may replace those that the run began with; otherwise one would destroy the other. The files that are read
 * come last in the list. */
static ls_status check_different(const struct named_file *file, const struct named_file *other) {
    bool may_be_same = other->use == READ && (file->use == READ || file->use == WEIGHTS);
    if (!file->path || !other->path || may_be_same || !is_same_file(file->path, other->path)) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--%s and --%s name the same file, %s", file->option, other->option, file->path);
}

/* A run that is resumed by its own command line would begin its lines anew, from the middle on. */
static ls_status check_kept(const struct named_file *file, const ls_train_options *o) {
    struct stat info;
    if (stat(file->path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--%s %s holds the lines of an earlier run, and --%s would write over them: name another file",
                   file->option, file->path, o->resume ? "resume" : "resume-if-present");
}

static ls_status check_file(const struct named_file *file, int *held_fd) {
    struct stat info;
    if (!file->path || file->use == READ) return LS_OK;
    if (file->use != LINES) return ls_file_check(file->path);
    bool is_pipe = stat(file->path, &info) == 0 && S_ISFIFO(info.st_mode);
    return is_pipe ? check_pipe(held_fd, file->path) : check_lines(file->path);
}

ls_status ls_report_check(const ls_train_options *o) {
    const char *summary = o->summary && strcmp(o->summary, "-") == 0 ? NULL : o->summary;
    const struct named_file files[] = {{"metrics", o->metrics, LINES},
                                       {"dump-losses", o->dump_losses, LINES},
                                       {"summary", summary, TEXT},
                                       {"save", o->save, WEIGHTS},
                                       {"save-weights", o->save_weights, WEIGHTS},
                                       {"resume", o->resume, READ},
                                       {"resume-if-present", o->resume_if_present, READ},
                                       {"init", o->init, READ}};
    enum { FILES = sizeof files / sizeof *files };
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < FILES; i++) {
        status = check_file(&files[i], &held[i % 2]); /* lines come first in the list, and are two */
        for (int k = 0; status == LS_OK && k < i; k++) status = check_different(&files[k], &files[i]);
    }
    for (int i = 0; status == LS_OK && ls_train_resumes(o) && i < FILES; i++) {
        if (files[i].path && files[i].use == LINES) status = check_kept(&files[i], o);
    }
    return status;
}
