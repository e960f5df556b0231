/* The reader of one trace file, for chrome_read.c (a folder of them) and chrome_events.c (the events). Private to
 * common/trace. */
#ifndef LS_TRACE_CHROME_READER_H
#define LS_TRACE_CHROME_READER_H

#include "common/base/json.h"
#include "common/trace/trace.h"

struct ls_chrome_reader {
    ls_trace *trace;
    const char *name; /* of the file, for messages */
    int rank;         /* the file's rank; LS_NONE: of all ranks */
    int first_lane, first_task;
    int task_count, mark_count; /* of this file so far */
    double shift_us;            /* difference of the trace's times to the file's */
    int highest_id;             /* highest id referred to, and the line of it */
    size_t highest_line;
    int *lines; /* line of each task read so far; used to report a cycle */
    int line_count, line_capacity;
};

/* Reads one event, which begins on this line. */
ls_status ls_chrome_read_event(struct ls_chrome_reader *reader, const char *text, size_t nbytes, size_t line);

#endif
