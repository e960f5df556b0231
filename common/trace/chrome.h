/* Traces as files: Chrome's trace events, which Perfetto, chrome://tracing and (a file per rank) HTA open.
 *
 *     FOLDER/rank_0.pt.trace.json, rank_1.pt.trace.json, ...   one process each
 *     FOLDER/merged.json                     all of them side by side, for viewers
 *
 * The writer puts one event on each line; the reader accepts any layout and any order of members. ts and dur are in
 * microseconds, in a rank's file from the earliest event of that rank on, in the merged one of all ranks; pid is the
 * rank + 1, tid the lane + 1 (Perfetto keeps 0 for itself). In addition to Kineto's names for kernels, launches and
 * collectives, args have the data for replay: id, after, us, step, phase, bytes, flops, ... (the list is in
 * chrome_write.c, and chrome_events.c reads that list). HTA's TraceAnalysis takes the rank files by name,
 * trace_files={0: ".../rank_0.pt.trace.json", ...}: given the folder, it would take the merged file for another rank
 * 0. */
#ifndef LS_TRACE_CHROME_H
#define LS_TRACE_CHROME_H

#include "common/trace/trace.h"

/* The path of a rank's file in a folder, or, for LS_NONE, of the merged one. LS_ERR_IO: longer than `capacity`. */
ls_status ls_trace_file_name(char *path, size_t capacity, const char *folder, int rank);

/* Whether a trace's folder may have a file of that name: "rank_3.pt.trace.json", "merged.json". */
bool ls_trace_owns_name(const char *name);

/* Checks that a trace may be written to the folder: each file in it with the name of a trace's file was written by
 * lockstep (recognised by its beginning). The folder need not exist. LS_ERR_INVALID names a foreign file; LS_ERR_IO: a
 * file cannot be read, or this user may not replace it. Call before the work to be traced. */
ls_status ls_trace_check_folder(const char *folder);

/* Removes the files of an earlier trace, which may be of more ranks than the new one, and nothing else. Fails as
 * ls_trace_check_folder does, with nothing removed; LS_ERR_IO: a file cannot be removed. */
ls_status ls_trace_clear(const char *folder);

/* Writes the lanes of `rank` (of a sealed trace) to FOLDER/rank_N.pt.trace.json, first to a temporary file; creates the
 * folder if necessary. LS_ERR_IO. */
ls_status ls_trace_write_rank(const ls_trace *trace, const char *folder, int rank);

/* Writes FOLDER/merged.json from the rank files in the folder. Replaces nothing on failure. */
ls_status ls_trace_merge(const char *folder);

/* Writes one trace as one file: the result of replay (start_us and end_us are replayed times). */
ls_status ls_trace_write_file(const ls_trace *trace, const char *path);

/* Reads all rank_N.pt.trace.json of a folder into one sealed trace. The events must match the header: at least one
 * device, rank, recorded rank and step, no more steps than tasks, and no rank or device beyond those. (The writer does
 * not check this.) LS_ERR_IO: there is none, or a rank is missing; LS_ERR_INVALID: a file is malformed, or the files
 * are of different runs ("FILE:LINE: ..."). */
ls_status ls_trace_read(ls_trace **out, const char *folder);

/* Reads one such file from memory into a trace that is not sealed yet; for tests and the fuzzer. */
ls_status ls_trace_read_text(ls_trace *trace, const char *name, const char *text, size_t nbytes);

#endif
