/* Messages for people: one line each, written to stderr by one write(2), so that lines of several threads and
 * processes never mix. Control characters of a name or a value are shown as ?. All functions are safe in any thread.
 *
 * A line reads "program: error: what, where, what to do", or "program[rank 2]: ..." once a rank is set. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

#if defined(__GNUC__)
#define LS_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define LS_PRINTF(format_index, first_index)
#endif

/* Names this process in every later line. Call before the first thread starts. `program` may be a path: its last
 * component is used and must stay valid. `rank` < 0: no rank (the DP program, the launcher). Quiet drops notes, not
 * warnings and errors. The pipe that the environment's LS_CAUSE_FD and LS_CAUSE_INODE name (set by the launcher)
 * receives a copy of each error, so that the launcher can name the cause; LS_SAID_FD and LS_SAID_INODE (log_once.h) let only
 * the first of its ranks print an error or warning that several have in the same words. A descriptor that is not the
 * file with that inode number is left alone. Where stdin, stdout or stderr is closed, it becomes
 * /dev/null. From here on SIGXFSZ and SIGPIPE do not kill the process: the write fails, with EFBIG or EPIPE. */
void ls_log_init(const char *program, int rank, bool quiet);

/* Reports an error and evaluates to `status`, so that one statement reports a failure and returns it:
 *     if (fd < 0) return ls_fail(LS_ERR_IO, "cannot open %s: %s", path, strerror(errno));
 * (A macro only so that compilers and analyzers see which value it has.) */
#define ls_fail(status, ...) ls_status_after((status), ls_report_error(__VA_ARGS__))

int ls_report_error(const char *format, ...) LS_PRINTF(1, 2);

static inline ls_status ls_status_after(ls_status status, int reported) {
    (void)reported;
    return status;
}

void ls_warn(const char *format, ...) LS_PRINTF(1, 2);

/* Prints lines that explain the error just reported; each ends with \n. All lines go out in one write, from every
 * process, regardless of --quiet and ls_log_capture, and each gets the prefix of an error. While errors are held back
 * (ls_log_hold), the lines are details. */
void ls_report_lines(const char *lines);

/* The program's name as given to ls_log_init, without its folder. */
const char *ls_log_program(void);

/* A remark that --quiet drops. */
void ls_note(const char *format, ...) LS_PRINTF(1, 2);

/* A remark that only --verbose shows: dropped unless ls_log_verbose(true) was called, and with --quiet. Call
 * ls_log_verbose before the first thread starts, after ls_log_init. */
void ls_log_verbose(bool verbose);
void ls_detail(const char *format, ...) LS_PRINTF(1, 2);

/* Passes every line that this process would write to stderr to `take` instead, without its \n. `take` is called by any
 * thread, by one at a time. NULL: back to stderr. Call while no other thread reports. */
void ls_log_redirect(void (*take)(void *context, const char *line), void *context);

/* The destination of a thread's errors; buffer NULL: stderr. */
typedef struct ls_log_sink {
    char *buffer;
    size_t capacity;
} ls_log_sink;

/* Redirects this thread's errors into `buffer` (of `capacity` bytes, always terminated, first error kept) instead of
 * stderr, until called with NULL. A replica's thread uses this; its error is reported after all threads have joined.
 * Returns the previous sink. */
ls_log_sink ls_log_capture(char *buffer, size_t capacity);

/* Holds back the errors of all threads without ls_log_capture, for a caller that may recover from them. The first one
 * is kept; all are shown as details (ls_detail). A second ls_log_hold forgets the kept error. ls_log_release ends the
 * hold and, if `tell`, reports the kept error. */
void ls_log_hold(void);
void ls_log_release(bool tell);

/* Restores the sink that ls_log_capture returned; its buffer keeps its content. */
void ls_log_restore(ls_log_sink sink);

#endif
