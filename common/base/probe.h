/* Probes: what every thread did, when, and what it waited for, written down as it happens.
 *
 * Device, kernels, process groups, hand-overs between threads, locks, the loader and the phases of a step call the
 * probes. While they are off, which is the default, a probe is one predicted branch. Each thread writes records of
 * fixed size into memory of its own, without a lock and without a system call (except for the clock of virtual time,
 * below, and now and then for more memory). common/trace makes a trace out of the records: tasks on lanes, and the
 * edges between them.
 *
 *     if (ls_probing()) {
 *         struct ls_probe_record record = ls_probe_begin(LS_PROBE_RUN, "gemm");
 *         ... the work ...
 *         record.object = (uintptr_t)stream;
 *         ls_probe_end(&record);
 *     }
 *
 * Virtual time: with `cpu_time`, records also have the thread's own CPU time, which goes on only while the thread runs.
 * Where devices share cores, it is the time that each of them would have needed alone.
 *
 * Threads: start, stop and read while no other thread writes a record (between steps). A thread may be waiting
 * meanwhile, within an AWAIT: that record is kept if it ends while probes are on, and counts from the start on.
 * Everything else: any thread. */
#ifndef LS_BASE_PROBE_H
#define LS_BASE_PROBE_H

#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/log.h"
#include "common/base/status.h"

/* What a record says. Which fields a kind uses, beside the times, label, phase and step:
 *
 *     LAUNCH       a host thread put work on a stream: object = the stream, number = the launch's number on that stream,
 *                  device, stream_kind, bytes, flops, and of a "copy" from and to; elements = 1 + the number of a
 *                  described network's operation, 0: none; from the beginning to the end of the call. Where streams run
 *                  inline, the RUN lies within it, written by the same thread before it
 *     RUN          a stream ran it: object, number, device, stream_kind as of its LAUNCH, by whichever thread ran it
 *                  (its phase is that thread's; the phase of the work is the LAUNCH's)
 *     RECORD       a host thread puts the record of an event on a stream: object = the stream, event = the event,
 *                  number = the ticket. Written before any thread can see the event
 *     WAIT         likewise that the stream shall wait for it. Where the stream runs inline, the thread itself waits,
 *                  from begin to end
 *     SYNC_EVENT   a host thread waited for an event: event, number = the ticket
 *     SYNC_STREAM  for a stream: object = the stream, number = of its latest LAUNCH
 *     RAISE        a thread raises a flag: object = the flag, number = its new value. Written before it is raised
 *     AWAIT        a thread waited for a flag: object, number = the value that it waited for
 *     LOCK         a thread waited for a lock: object = the lock; from asking for it to having it, written then
 *     UNLOCK       it gives the lock back; written before another thread can have it. The only lock: "host lock",
 *                  --host-lock's
 *     MEETING      written within a RUN, before its end, by a collective operation: object = what names the group in
 *                  all ranks, number = which operation of the group, label = "all_reduce", detail = the algorithm or
 *                  NULL, bytes, elements, dtype, peers = world size, root; begin and end = when the last rank had
 *                  come. A send and its receive are a meeting of two, "send" for both
 *     MARK         something happened: label says what, number = of what, bytes; object = the stream that it happened
 *                  on, 0: it happened in the thread. "gradient ready": of that parameter, on the compute stream;
 *                  "bucket": it is being launched; "step": it has ended */
#define LS_PROBE_MAP(X)                                                                                                \
    X(LAUNCH)                                                                                                          \
    X(RUN) X(RECORD) X(WAIT) X(SYNC_EVENT) X(SYNC_STREAM) X(RAISE) X(AWAIT) X(LOCK) X(UNLOCK) X(MEETING) X(MARK)
#define LS_PROBE_ENUM(name) LS_PROBE_##name,
typedef enum ls_probe_kind { LS_PROBE_MAP(LS_PROBE_ENUM) LS_PROBE_COUNT } ls_probe_kind;
#undef LS_PROBE_ENUM

struct ls_probe_record {
    double begin_us, end_us;         /* ls_now_us() */
    double begin_cpu_us, end_cpu_us; /* the thread's CPU time; 0 without cpu_time */
    const char *label, *phase;       /* strings that live for ever; phase NULL: none */
    const char *detail;              /* MEETING: the algorithm */
    uintptr_t object, event;         /* addresses as names; what lies there is not looked at */
    uint64_t bytes, flops, elements;
    uint32_t number;
    int32_t step; /* -1: outside of a step */
    int16_t device, peers, root;
    int16_t from, to;    /* LAUNCH of a copy: devices, -1: the host's memory */
    uint8_t stream_kind; /* ls_stream_kind */
    uint8_t kind;        /* ls_probe_kind */
    uint8_t dtype;       /* MEETING: ls_dtype */
};

/* The records of one thread, in the order in which they ended. */
struct ls_probe_thread {
    const char *name; /* "replica 1", "rank 0", "comm stream of device 2": as ls_probe_name_thread said, or "thread" */
    int number;       /* from 0, in the order of their first records */
    const struct ls_probe_record *records;
    size_t count;
};

#ifndef __cplusplus /* .cu files see this header through device.h, and ask nothing */
extern _Atomic bool ls_probe_is_on;

static inline bool ls_probing(void) {
    return __builtin_expect(atomic_load_explicit(&ls_probe_is_on, memory_order_relaxed), 0);
}
#endif

/* Starts recording, and drops earlier records. `cpu_time`: as above. Takes about as long as a thousand records. */
void ls_probe_start(bool cpu_time);

/* Ends it; the records stay until the next start or ls_probe_drop. */
void ls_probe_stop(void);

/* What a record costs the thread that writes it, measured by the latest start; 0: there was none. */
double ls_probe_record_us(void);

/* A record of the calling thread, with its step and phase, beginning now. */
struct ls_probe_record ls_probe_begin(ls_probe_kind kind, const char *label);

/* Ends it now and keeps it. A thread for whose records there is no memory loses them: ls_probe_lost counts. */
void ls_probe_end(struct ls_probe_record *record);

/* Keeps a record whose times the caller has set, for work that a GPU ran. It goes to the log of a thread of its own,
 * "GPUs". Takes a lock. */
void ls_probe_tell(const struct ls_probe_record *record);

/* The same as begin and end for what has no duration. */
void ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number);

/* What the calling thread does from now on; NULL: nothing in particular. */
void ls_probe_phase(const char *phase);

/* The step in progress, for all threads; -1: none. Called by one thread, while others do not write. */
void ls_probe_step(int32_t step);

/* The calling thread's records are dropped until it is false again: of what is captured to be run later. */
void ls_probe_mute(bool muted);

/* Names the calling thread in traces, with up to 47 characters. May be called while probes are off. */
void ls_probe_name_thread(const char *format, ...) LS_PRINTF(1, 2);

/* What was written down, by thread; *threads is the probes' memory, until the next read, start or drop.
 * LS_ERR_NO_MEMORY. */
ls_status ls_probe_read(const struct ls_probe_thread **threads, size_t *count);

/* Records that were lost because there was no memory. */
uint64_t ls_probe_lost(void);

/* Frees everything. Threads that have ended, and threads that go on, are both fine. */
void ls_probe_drop(void);

#endif
