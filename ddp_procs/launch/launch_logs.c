#define _GNU_SOURCE
#include "ddp_procs/launch/launch_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/folder.h"
#include "common/base/log.h"

ls_status ddp_logs_create(ddp_logs *logs, const char *log_dir, const char *run_id) {
    *logs = (ddp_logs){.folder = ""};
    if (!log_dir) return LS_OK;
    ls_status status = ls_make_folders(log_dir);
    if (status != LS_OK) return status;
    size_t begin = strlen(log_dir) + 1;
    int length = snprintf(logs->folder, sizeof logs->folder, "%s/%s_XXXXXX", log_dir, run_id);
    if (length >= (int)sizeof logs->folder)
        return ls_fail(LS_ERR_IO, "--log-dir: the folder's name is too long: %.60s...", log_dir);
    for (char *at = logs->folder + begin; (at = strchr(at, '/'));) *at = '_'; /* one folder, whatever the run's id */
    if (mkdtemp(logs->folder) && chmod(logs->folder, 0755) == 0) return LS_OK;
    return ls_fail(LS_ERR_IO, "--log-dir: cannot make %s: %s", logs->folder, strerror(errno));
}

void ddp_logs_path(const ddp_logs *logs, int rank, const char *name, char path[PATH_MAX]) {
    path[0] = '\0';
    if (logs->folder[0]) snprintf(path, PATH_MAX, "%s/attempt_%d/%d/%s", logs->folder, logs->attempt, rank, name);
}

ls_status ddp_logs_begin(ddp_logs *logs, int attempt, int nproc) {
    char path[PATH_MAX];
    ls_status status = LS_OK;
    logs->attempt = attempt;
    for (int rank = 0; status == LS_OK && logs->folder[0] && rank < nproc; rank++) {
        ddp_logs_path(logs, rank, "", path);
        status = ls_make_folders(path);
    }
    return status;
}

bool ddp_logs_last_line(const ddp_logs *logs, int rank, char *line, size_t capacity) {
    enum { TAIL = 4096 };
    char path[PATH_MAX], tail[TAIL + 1];
    ddp_logs_path(logs, rank, "stderr.log", path);
    int fd = path[0] ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return false;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t got = pread(fd, tail, TAIL, size > TAIL ? size - TAIL : 0);
    close(fd);
    while (got > 0 && strchr(" \t\r\n", tail[got - 1])) got--;
    if (got <= 0) return false;
    tail[got] = '\0';
    const char *newline = strrchr(tail, '\n');
    snprintf(line, capacity, "%s", newline ? newline + 1 : tail);
    return true;
}
