/* Probes: record what every thread does, when, and what it waits for.
 *
 * Devices, kernels, process groups, hand-offs between threads, locks, the loader and the phases of a step call the
 * probes. While they are off, which is the default, a probe is one predicted branch. Each thread writes records of
 * fixed size into its own memory, without a lock and without a system call (except for the clock of virtual time,
 * below, and to allocate more memory occasionally). common/trace turns the records into a trace: tasks on lanes, and
 * the edges between them.
 *
 *     if (ls_probing()) {
 *         struct ls_probe_record record = ls_probe_begin(LS_PROBE_RUN, "gemm");
 *         ... the work ...
 *         record.object = (uintptr_t)stream;
 *         ls_probe_end(&record);
 *     }
 *
 * Virtual time: with `cpu_time`, records also have the thread's CPU time, which advances only while the thread runs. If
 * devices share cores, CPU time is what each device would have needed on a core of its own.
 *
 * Threads: start, stop and read while no other thread writes a record (between steps). A thread may be inside an AWAIT
 * meanwhile: that record is kept if it ends while probes are on, and its time counts from ls_probe_start on. Everything
 * else: any thread. */
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

/* Kinds of records. Each kind uses these fields, in addition to times, label, phase and step:
 *
 *     LAUNCH       a host thread put work on a stream: object = the stream, number = the launch's number on that stream,
 *                  device, stream_kind, bytes, flops, and of a "copy" from and to; elements = 1 + the number of a
 *                  described network's operation, 0: none; from the beginning to the end of the call. Where streams run
 *                  inline, the RUN lies within it, written by the same thread before it
 *     RUN          a stream ran that work: object, number, device, stream_kind as in its LAUNCH. Written by the thread
 *                  that ran it, with its phase (the phase of the work is the LAUNCH's)
 *     RECORD       a host thread puts the record of an event on a stream: object = the stream, event = the event,
 *                  number = the ticket. Written before any thread can see the event
 *     WAIT         likewise that the stream shall wait for it. Where the stream runs inline, the thread itself waits,
 *                  from begin to end
 *     SYNC_EVENT   a host thread waited for an event: event, number = the ticket
 *     SYNC_STREAM  for a stream: object = the stream, number = of its latest LAUNCH
 *     RAISE        a thread raises a flag: object = the flag, number = its new value. Written before it is raised
 *     AWAIT        a thread waited for a flag: object, number = the value that it waited for
 *     LOCK         a thread waited for a lock: object = the lock; from the request until the lock is held, written then
 *     UNLOCK       the thread releases the lock; written before another thread can take it. The only lock: "host lock",
 *                  --host-lock's
 *     MEETING      written within a RUN, before its end, by a collective operation: object = the group's name, alike in
 *                  all ranks, number = the operation's number in the group, label = "all_reduce", detail = the
 *                  algorithm or NULL, bytes, elements, dtype, peers = world size, root; begin and end = when the last
 *                  rank arrived. A send and its receive are a MEETING of two, labelled "send" in both
 *     MARK         an instant: label = the event, number = its index, bytes; object = the stream it happened on, 0: the
 *                  thread. "gradient ready": of that parameter, on the compute stream; "bucket": it is being launched;
 *                  "step": it has ended */
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
    uintptr_t object, event;         /* addresses used as names; never dereferenced */
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
    const char *name; /* "replica 1", "comm stream of device 2": from ls_probe_name_thread, or "thread" */
    int number;       /* from 0, in the order of their first records */
    const struct ls_probe_record *records;
    size_t count;
};

#ifndef __cplusplus /* .cu files include this header through device.h but do not use ls_probing */
extern _Atomic bool ls_probe_is_on;

static inline bool ls_probing(void) {
    return __builtin_expect(atomic_load_explicit(&ls_probe_is_on, memory_order_relaxed), 0);
}
#endif

/* Starts recording, and drops earlier records. `cpu_time`: as above. Takes about as long as a thousand records. */
void ls_probe_start(bool cpu_time);

/* Stops recording; the records stay until the next start or ls_probe_drop. */
void ls_probe_stop(void);

/* The time that writing a record costs its thread, measured by the latest start; 0: never started. */
double ls_probe_record_us(void);

/* Returns a record that begins now, with the calling thread's step and phase. */
struct ls_probe_record ls_probe_begin(ls_probe_kind kind, const char *label);

/* Ends the record now and keeps it. If memory runs out, the record is lost and ls_probe_lost counts it. */
void ls_probe_end(struct ls_probe_record *record);

/* Keeps a record whose times the caller has set, for work that a GPU ran. All such records appear under one thread
 * named "GPUs". Takes a lock. */
void ls_probe_tell(const struct ls_probe_record *record);

/* Begin and end in one call, for an event without duration. */
void ls_probe_instant(ls_probe_kind kind, const char *label, uintptr_t object, uint32_t number);

/* Sets the calling thread's phase from now on; NULL: none. */
void ls_probe_phase(const char *phase);

/* Sets the step in progress, for all threads; -1: none. Call from one thread while no other writes records. */
void ls_probe_step(int32_t step);

/* While `muted`, the calling thread's records are dropped: for work that is captured now and run later. */
void ls_probe_mute(bool muted);

/* Names the calling thread in traces, with up to 47 characters. May be called while probes are off. */
void ls_probe_name_thread(const char *format, ...) LS_PRINTF(1, 2);

/* Returns the records by thread. *threads belongs to the probes and is valid until the next read, start or drop.
 * LS_ERR_NO_MEMORY. */
ls_status ls_probe_read(const struct ls_probe_thread **threads, size_t *count);

/* The number of records lost because memory ran out. */
uint64_t ls_probe_lost(void);

/* Frees all records, of threads that have ended and of threads that still run. */
void ls_probe_drop(void);

#endif
