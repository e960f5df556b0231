/* resolve — a process's probe records become tasks and edges (resolve.c says how).
 *   tasks : every LAUNCH is a task of its host thread and one of its stream, with the times of its RUN; every wait of a
 *           host thread, every flag that it raises and every lock that it gives back is a task. What is put on a stream
 *           as "copy" is a COPY, what met others a COLLECTIVE, everything else a KERNEL
 *   edges : launch before work, work before wait. An event is complete when the task before its RECORD on that stream has
 *           ended; a WAIT for it makes an edge from that task to the next task of the waiting stream. What was recorded before the probes
 *           began has happened, and is left out
 *   times : what a host thread did between two of its tasks belongs to the later one, so a lane of the host has no
 *           gaps. A wait is two tasks: one for what came before it, and one which begins when what it waits for has
 *           ended, and whose own time is what waking up took. What a thread ran of a stream is not its own time: a
 *           launch ends where its inline RUN begins, and the next task of the host begins where that has ended, and
 *           waits for it. A collective's own time is what it lasts after its MEETING. What was not timed (a meta
 *           device's work) is a task without times
 *   locks : a LOCK is a wait, for the UNLOCK before it; what the thread did from there to its own UNLOCK is a task
 *           under that lock. The one lock that programs take is --host-lock's (device/host_lock.h): "lock host lock" is
 *           the wait, "unlock host lock" what a launch costs, and the launch itself follows without it. Where times are
 *           CPU time, threads took turns on too few cores, and whose turn at the lock came first says nothing of a
 *           machine that has them: there is no edge then, and who replays the trace hands out the lock */
#ifndef LS_TRACE_RESOLVE_H
#define LS_TRACE_RESOLVE_H

#include "common/base/probe.h"
#include "common/trace/trace.h"

/* Appends to `trace` what the threads wrote down, as rank `rank`, whose devices begin at number `first_device` (a
 * record's `device` is added to it). Where `cpu_time`, durations are CPU time. Not sealed. LS_ERR_INVALID if the
 * records contradict each other. */
ls_status ls_trace_resolve(ls_trace *trace, const struct ls_probe_thread *threads, size_t thread_count, int rank,
                           int first_device, bool cpu_time);

#endif
