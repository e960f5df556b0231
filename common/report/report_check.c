/* report_check — whether the files that the options name can be written, and are different ones.
 *   idea  : what can be refused is refused before the first step, and all files are checked before the first is
 *           emptied
 *   cost  : a few system calls a file, and for each pair of files */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/report/lines.h"
#include "common/report/report.h"

/* Pipes that were looked at. Their readers end with the last writer, so each stays open until the next look; at the
 * latest until this process ends, which may be one that only looks, and starts those that write. */
static int held[] = {-1, -1};

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
    if (!file->path || file->use == READ) return LS_OK;
    return file->use == LINES ? ls_lines_check(file->path, held_fd) : ls_file_check(file->path);
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
