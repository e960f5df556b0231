/* A small trace of two ranks: hosts, streams, every kind of task, edges, a meeting, a lock, marks, texts that need
 * escapes. */
#ifndef TESTS_TRACE_SMALL_TRACE_H
#define TESTS_TRACE_SMALL_TRACE_H

#include "common/trace/trace.h"

/* Not sealed yet; without recorded times if not `timed`. */
ls_trace *small_trace(bool timed);

/* The same, sealed. */
ls_trace *small_trace_sealed(bool timed);

/* Writes both ranks' files into FOLDER/name, in the scratch folder. */
void small_trace_write(const char *name, bool timed);

/* Add a lane, and a task on it, with default values for all other fields; return their indices. */
int small_lane(ls_trace *trace, ls_lane_kind kind, int rank, int device);
int small_task(ls_trace *trace, ls_task_kind kind, const char *name, int lane);

/* A collective operation: number `number` of `ranks` ranks in the group "world". */
int small_collective(ls_trace *trace, int lane, uint32_t number, int ranks);

#endif
