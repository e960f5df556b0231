/* resolve — converts a process's probe records to tasks and edges (implementation: resolve.c).
 *   tasks : every LAUNCH is a task of its host thread and one of its stream, with the times of its RUN; every wait of a
 *           host thread, every flag that it raises and every lock that it gives back is a task. Stream work named
 *           "copy" is a COPY, work with a MEETING a COLLECTIVE, everything else a KERNEL
 *   edges : launch before work, work before wait. An event is complete when the task before its RECORD on that stream
 *           has ended; a WAIT for it makes an edge from that task to the next task of the waiting stream. Events
 *           recorded before the probes began are complete and omitted
 *   times : a host thread's time between two of its tasks belongs to the later one, so its lane has no gaps. A wait is
 *           two tasks: the time before it, and one that begins when the awaited task has ended and lasts as long as
 *           waking up takes. Stream work that a thread runs inline is not its own time: the launch ends where the RUN
 *           begins; the thread's next task begins where the RUN ends, and waits for it. A collective's own time begins
 *           with its MEETING. Work that was not timed (a meta device's) is a task without times
 *   locks : a LOCK is a wait, for the UNLOCK before it; the thread's work from there to its own UNLOCK is a task
 *           under that lock. The only lock that programs take is --host-lock's (device/host_lock.h): "lock host lock"
 *           is the wait, "unlock host lock" the cost of a launch, and the launch itself follows without it. If times
 *           are CPU time, threads shared too few cores, and the order of their turns does not apply to a machine that
 *           has enough. There is no edge then, and replay schedules the lock */
#ifndef LS_TRACE_RESOLVE_H
#define LS_TRACE_RESOLVE_H

#include "common/base/probe.h"
#include "common/trace/trace.h"

/* Appends the threads' records to `trace`, as rank `rank`, whose devices begin at number `first_device` (a
 * record's `device` is added to it). If `cpu_time`, durations are CPU time. Does not seal. LS_ERR_INVALID if the
 * records contradict each other. */
ls_status ls_trace_resolve(ls_trace *trace, const struct ls_probe_thread *threads, size_t thread_count, int rank,
                           int first_device, bool cpu_time);

#endif
