/* Shared by the two parts of the writer of trace files: chrome_write.c (the file, and all but the tasks) and
 * chrome_tasks.c. Private to common/trace. */
#ifndef LS_TRACE_CHROME_WRITER_H
#define LS_TRACE_CHROME_WRITER_H

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/trace/trace.h"

struct ls_chrome_writer {
    const ls_trace *trace;
    int rank; /* LS_NONE: all of them */
    ls_file_writer *file;
    ls_status status; /* the first failure; afterwards nothing is written */
    char buffer[16384];
    size_t used;
    int *task_ids, *lane_ids; /* in this file; LS_NONE: of another rank */
    double zero_us;           /* the recorded moment that becomes ts 0 */
    bool begun;               /* an event has been written */
    long long arrows;
    int *sorted, sorted_capacity; /* scratch */
};

/* Writes numbers and fixed texts, of less than 512 bytes. */
void ls_chrome_put(struct ls_chrome_writer *w, const char *format, ...) LS_PRINTF(2, 3);

void ls_chrome_put_escaped(struct ls_chrome_writer *w, const char *text);                  /* within quotes */
void ls_chrome_put_member(struct ls_chrome_writer *w, const char *name, const char *text); /* , "name": "text" */
void ls_chrome_put_ns(struct ls_chrome_writer *w, const char *name, long long ns);         /* , "name": us */

/* Converts a time of the trace to a time of the file. */
long long ls_chrome_ns(const struct ls_chrome_writer *w, double us);

/* Whether a task has recorded times. */
bool ls_chrome_is_timed(const struct ls_task *task);

/* Opens an event's object, up to its tid; category may be NULL. */
void ls_chrome_begin_event(struct ls_chrome_writer *w, const char *phase, const char *category, int rank, int lane);

/* --- chrome_tasks.c ----------------------------------------------------------------------------------------------- */

void ls_chrome_put_task(struct ls_chrome_writer *w, int index);
void ls_chrome_put_mark(struct ls_chrome_writer *w, const struct ls_mark *mark);
void ls_chrome_put_arrows(struct ls_chrome_writer *w, int task); /* from the tasks that it waits for */
void ls_chrome_put_steps(struct ls_chrome_writer *w);            /* around the steps of each rank */

#endif
