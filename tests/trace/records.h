/* Probe records as threads would write them, for the tests of resolving. Times are in microseconds; CPU time is a tenth
 * of them, so that a test fails if one is used in place of the other. */
#ifndef TESTS_TRACE_RECORDS_H
#define TESTS_TRACE_RECORDS_H

#include "common/base/probe.h"
#include "common/trace/trace.h"

#define RECORDS_MOST 64

/* Streams and other objects have any number that is not 0. Streams 10 d, 10 d + 1 and 10 d + 2 are device d's for
 * computing, copying and communicating. */
struct records {
    struct ls_probe_thread thread;
    struct ls_probe_record records[RECORDS_MOST];
};

/* Adds a record of any kind, in the order of ending, and returns it, so that the caller can set further fields. */
struct ls_probe_record *records_add(struct records *records, ls_probe_kind kind, const char *label, uintptr_t object,
                                    uint32_t number, double begin_us, double end_us);

/* A record of an event: RECORD, WAIT or SYNC_EVENT. */
void records_event(struct records *records, ls_probe_kind kind, uintptr_t stream, uintptr_t event, uint32_t ticket,
                   double begin_us, double end_us);

/* A LAUNCH that contains its RUN from run_us to run_end_us. */
void records_inline(struct records *records, const char *label, uintptr_t stream, uint32_t number, double begin_us,
                    double run_us, double run_end_us, double end_us);

/* Resolves and seals; fails the test on an error. */
ls_trace *records_resolve(struct records *threads, size_t count, bool cpu_time);

/* The same, but expects an error. */
void records_refused(struct records *threads, size_t count, const char *text);

/* The task of that name, which must exist; if there are several, the `which`-th, from 0. */
int records_task(const ls_trace *trace, const char *name, int which);

/* Asserts that an edge makes `task` wait for `before`. */
void records_expect_edge(const ls_trace *trace, int before, int task);
int records_edge_count(const ls_trace *trace, int task);

#endif
