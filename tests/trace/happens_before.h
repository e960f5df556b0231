/* What a sealed trace says of the order of two tasks. */
#ifndef TESTS_TRACE_HAPPENS_BEFORE_H
#define TESTS_TRACE_HAPPENS_BEFORE_H

#include "common/trace/trace.h"

/* Whether `a` must have ended before `b` begins, by edges, lanes and meetings alone, whatever the durations. The tasks
 * of a meeting begin when all of them have come, and end together. */
bool happens_before(const ls_trace *trace, int a, int b);

#endif
