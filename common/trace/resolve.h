/* resolve — a process's probe records become tasks and edges.
 *   idea  : every LAUNCH is a task of its host thread and, with its RUN, one of its stream; every wait of a host thread is
 *           a task; a RECORD stands for the task before it on its stream, and a WAIT makes edges from what its event stands for
 *           to the next task of the waiting stream (those that are waited for and were recorded before the probes began are
 *           forgotten: they have happened)
 *   times : a host thread's time between two of its records belongs to the later one, so a lane of the host has no gaps: what it
 *           does there is its own time. A wait's own time is what it lasts after the end of what it waited for (waking up). A collective's
 *           is what it lasts after its MEETING. Inline, what a stream ran is not its host's time, and the host's next task waits for it */
#ifndef LS_TRACE_RESOLVE_H
#define LS_TRACE_RESOLVE_H

#include "common/base/probe.h"
#include "common/trace/trace.h"

/* Appends to `trace` what the threads wrote down, as rank `rank`, whose devices begin at number `first_device` (a record's
 * `device` is added to it). Where `cpu_time`, durations are CPU time. Not sealed. LS_ERR_INVALID if the records contradict
 * each other. */
ls_status ls_trace_resolve(ls_trace *trace, const struct ls_probe_thread *threads, size_t thread_count, int rank,
                           int first_device, bool cpu_time);

#endif
