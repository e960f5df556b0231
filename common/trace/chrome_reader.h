/* The reader of one trace file, for chrome_read.c (a folder of them) and chrome_events.c (the events). Private to
 * common/trace. */
#ifndef LS_TRACE_CHROME_READER_H
#define LS_TRACE_CHROME_READER_H

#include "common/base/json.h"
#include "common/trace/trace.h"

struct ls_chrome_reader {
    ls_trace *trace;
    const char *name; /* of the file, for messages */
    int rank;         /* whose file it is; LS_NONE: of all ranks */
    int first_lane, first_task;
    int task_count, mark_count; /* of this file so far */
    double shift_us;            /* from this file's times to the trace's */
    int highest_id;             /* that was referred to, and on which line */
    size_t highest_line;
    int *lines; /* of each task that this reader has read; the folder's says where a cycle lies */
    int line_count, line_capacity;
};

/* One event, which begins in that line. */
ls_status ls_chrome_read_event(struct ls_chrome_reader *reader, const char *text, size_t nbytes, size_t line);

#endif
