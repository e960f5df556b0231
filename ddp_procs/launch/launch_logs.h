/* The files of --log-dir, laid out as torchrun does:
 *
 *     DIR/RUN_XXXXXX/attempt_K/RANK/stdout.log, stderr.log, error.json
 *
 * RUN is the run's id, XXXXXX makes the folder unique, K counts restarts from 0. A log file exists if its stream is
 * redirected; PyTorch's @record writes error.json. */
#ifndef DDP_LAUNCH_LAUNCH_LOGS_H
#define DDP_LAUNCH_LAUNCH_LOGS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct ddp_logs {
    char folder[PATH_MAX / 2]; /* DIR/RUN_XXXXXX; empty: there are no files */
    int attempt;
} ddp_logs;

/* Creates DIR, with the folders above it, and the run's folder in it. `log_dir` NULL: no files. */
ls_status ddp_logs_create(ddp_logs *logs, const char *log_dir, const char *run_id);

/* Makes the folders of an attempt. */
ls_status ddp_logs_begin(ddp_logs *logs, int attempt, int nproc);

/* Writes the path of a file of this attempt; an empty path without files. */
void ddp_logs_path(const ddp_logs *logs, int rank, const char *name, char path[PATH_MAX]);

/* Reads the last line of the rank's stderr.log that is not blank: where a Python program says why it ends. False: there
 * is none. */
bool ddp_logs_last_line(const ddp_logs *logs, int rank, char *line, size_t capacity);

#endif
