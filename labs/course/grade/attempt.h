/* One run of a probe: in a process of its own, with a deadline and limits on its resources. */
#ifndef LABS_COURSE_GRADE_ATTEMPT_H
#define LABS_COURSE_GRADE_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* A run hangs once it has computed for the deadline, has made no progress for as long (no line, hardly any processor
 * time), or has not ended after ten times as long. */
typedef struct attempt_request {
    const char *program, *check;
    int64_t seed;
    double deadline_s;
    bool asan; /* built with AddressSanitizer, which maps more memory than any limit allows */
} attempt_request;

typedef struct attempt {
    bool timed_out;      /* it hung and was killed; twice, unless it had used up its processor time */
    int signal;          /* that ended it; 0: none */
    int exit_status;     /* if it ended by itself */
    bool left_processes; /* it had started processes, which were killed */
    char *seen;          /* the probe's observations; owned */
    char said[1 << 15];  /* the end of its output, terminated */
} attempt;

/* Runs program --check=... --seed=... --out=FILE, where FILE is the only file that it may write, and waits for it and
 * all processes that it started. LS_OK whatever the program did; otherwise it could not be run. Close also after a
 * failure. */
ls_status attempt_run(attempt *out, const attempt_request *request);
void attempt_close(attempt *a);

#endif
