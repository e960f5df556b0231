/* The order that a sealed trace imposes on two tasks. */
#ifndef TESTS_TRACE_HAPPENS_BEFORE_H
#define TESTS_TRACE_HAPPENS_BEFORE_H

#include "common/trace/trace.h"

/* True if `a` must end before `b` begins, by edges, lanes and meetings alone, whatever the durations. The tasks of a
 * meeting begin when all of them have arrived, and end together. */
bool happens_before(const ls_trace *trace, int a, int b);

#endif
