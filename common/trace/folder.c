/* folder — the files of a trace: their names, and which files of an earlier trace may be removed.
 *   idea  : a name alone does not identify a trace file: a file that is removed or replaced must also begin as
 *           chrome_write.c begins every file
 *   order : all files are checked before the first is removed, so if one is not a trace file, nothing is changed
 *   fails : LS_ERR_INVALID, naming the file that is not a trace file; LS_ERR_IO, also for one that this user may not
 *           replace */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/trace/chrome_internal.h"

#define LS_MERGED_NAME "merged.json"
#define LS_RANK_NAME_END ".pt.trace.json" /* TensorBoard's profiler expects it */

ls_status ls_trace_file_name(char *path, size_t capacity, const char *folder, int rank) {
    int length = rank == LS_NONE ? snprintf(path, capacity, "%s/" LS_MERGED_NAME, folder)
                                 : snprintf(path, capacity, "%s/rank_%d" LS_RANK_NAME_END, folder, rank);
    if (length >= 0 && (size_t)length < capacity) return LS_OK;
    return ls_fail(LS_ERR_IO, "the name of the folder %s is too long", folder);
}

int ls_chrome_rank_of(const char *name) {
    int rank = 0, length = 0;
    if (strncmp(name, "rank_", 5) != 0 || (name[5] == '0' && name[6] != '.')) return LS_NONE;
    for (name += 5; *name >= '0' && *name <= '9' && length < 7; name++, length++) rank = 10 * rank + (*name - '0');
    return length > 0 && strcmp(name, LS_RANK_NAME_END) == 0 ? rank : LS_NONE;
}

bool ls_trace_owns_name(const char *name) {
    return ls_chrome_rank_of(name) != LS_NONE || strcmp(name, LS_MERGED_NAME) == 0;
}

/* --- files of an earlier trace ------------------------------------------------------------------------------------ */

/* Whether a trace may be written over this file. */
static ls_status check_ours(const char *path) {
    char head[sizeof LS_CHROME_BEGIN - 1];
    struct stat info;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* nonblocking: it may be a pipe */
    if (fd < 0 && errno != ELOOP && errno != ENXIO)
        return ls_fail(LS_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    bool ours = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                read(fd, head, sizeof head) == (ssize_t)sizeof head && memcmp(head, LS_CHROME_BEGIN, sizeof head) == 0;
    if (fd >= 0) close(fd);
    if (ours) return LS_OK;
    return ls_fail(LS_ERR_INVALID,
                   "%s has the name of a trace file, but this program did not write it; move the file away, or choose "
                   "another folder for the trace",
                   path);
}

static ls_status visit_files(const char *folder, bool remove) {
    DIR *directory = opendir(folder);
    if (!directory && errno == ENOENT) return LS_OK;
    if (!directory) return ls_fail(LS_ERR_IO, "cannot read the folder %s: %s", folder, strerror(errno));
    ls_status status = LS_OK;
    for (struct dirent *entry; status == LS_OK && (entry = readdir(directory));) {
        char path[PATH_MAX];
        int rank = ls_chrome_rank_of(entry->d_name);
        if (!ls_trace_owns_name(entry->d_name)) continue;
        status = ls_trace_file_name(path, sizeof path, folder, rank);
        if (status == LS_OK) status = check_ours(path);
        if (status == LS_OK && !remove) status = ls_file_check(path);
        if (status == LS_OK && remove && unlink(path) != 0)
            status = ls_fail(LS_ERR_IO, "cannot remove %s of an earlier trace: %s", path, strerror(errno));
    }
    closedir(directory);
    return status;
}

ls_status ls_trace_check_folder(const char *folder) { return visit_files(folder, false); }

ls_status ls_trace_clear(const char *folder) {
    ls_status status = ls_trace_check_folder(folder);
    return status == LS_OK ? visit_files(folder, true) : status;
}
