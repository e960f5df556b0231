/* The files of lines that a run writes while it trains (--metrics, --dump-losses). Private to common/report; whether
 * the files that the options name can be written is ls_report_check (report.h). */
#ifndef LS_REPORT_LINES_H
#define LS_REPORT_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/status.h"

struct ls_lines {
    FILE *file; /* NULL: there is none */
    const char *path;
    bool is_file; /* not a pipe or a device */
    long kept;    /* bytes of the file that stay when ls_lines_begin empties it, and when a flush fails */
    bool failed;  /* a write has failed, and that was reported */
};

/* Checks that `path` can be opened; changes nothing. A pipe must have a reader; it is opened, and replaces the previous
 * one in *held_fd (-1: none), since readers end with the last writer. LS_ERR_IO, with one line. */
ls_status ls_lines_check(const char *path, int *held_fd);

/* Opens `path` (NULL: no lines are written) without emptying it. A pipe without a reader is refused. LS_ERR_IO: there
 * is nothing to close. */
ls_status ls_lines_open(struct ls_lines *lines, const char *path);

/* For a run that resumes from a checkpoint after `count` steps: keeps the lines of these steps and drops later ones,
 * which will be written again. The last kept line must begin with `begin` and contain `piece`, so that a file of
 * another run is detected. An empty file stays empty: the earlier lines are in another file. LS_ERR_USAGE, with one
 * line that names `option`. */
ls_status ls_lines_keep(struct ls_lines *lines, const char *option, int64_t count, const char *begin,
                        const char *piece);

/* For an elastic run that continues with other ranks: keeps all lines. */
ls_status ls_lines_keep_all(struct ls_lines *lines);

/* Truncates the file to the kept lines. */
ls_status ls_lines_begin(struct ls_lines *lines);

/* Whether lines can still be printed to `file`. */
bool ls_lines_go_on(const struct ls_lines *lines);

/* Flushes printed lines to the system. Reports the first failure; a file then keeps its content of the previous
 * flush. */
void ls_lines_flush(struct ls_lines *lines);

/* Flushes and closes. LS_ERR_IO if anything could not be written, now or before. */
ls_status ls_lines_close(struct ls_lines *lines);

#endif
