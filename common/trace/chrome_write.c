/* chrome_write — a trace as a file of Chrome's trace events, one on each line.
 *   header: "lockstep", the trace's facts about the run; schemaVersion, distributedInfo and deviceProperties as in
 *           Kineto's files
 *   events: M names processes (pid = rank + 1) and lanes (tid = lane + 1; Perfetto takes 0 for the idle process), with
 *           args lane, kind, device
 *           X is a task: args id (ids count up from 0), kind, after (ids of tasks it waits for), us (its own duration;
 *           -1: unknown), and unless they are 0 or none: step, phase, bytes, flops, fixed_bytes, from and to (of a
 *           copy), lock, virtual, launched; timed = false if ts and dur are not measured. A collective operation has
 *           Kineto's "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name",
 *           "Seq", and algorithm
 *           i is a mark: args number, step, after
 *   tools : cat is Kineto's (cpu_op, cuda_runtime, kernel, gpu_memcpy). Derived values are not read back: stream,
 *           device and correlation on kernels and on their launches, ProfilerStep#N around steps (for HTA),
 *           and flow arrows (s, f) for edges between lanes; among launches only for collective operations and copies
 *   times : whole nanoseconds until they are printed, so that an interval within another one stays within it
 *   order : that of the trace, so that writing a trace that was read gives the same bytes */
#include "common/trace/chrome.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/trace/chrome_internal.h"
#include "common/trace/chrome_writer.h"

/* --- bytes ------------------------------------------------------------------------------------------------------- */

static void flush(struct ls_chrome_writer *w) {
    ls_file_writer_put(w->file, w->buffer, w->used);
    if (w->status == LS_OK) w->status = ls_file_writer_status(w->file);
    w->used = 0;
}

void ls_chrome_put(struct ls_chrome_writer *w, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments); /* numbers and fixed texts: never longer */
    va_end(arguments);
    if (w->used + (size_t)length > sizeof w->buffer) flush(w);
    memcpy(w->buffer + w->used, text, (size_t)length);
    w->used += (size_t)length;
}

/* Writes the characters of a JSON string. */
void ls_chrome_put_escaped(struct ls_chrome_writer *w, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (w->used + 8 > sizeof w->buffer) flush(w);
        if (*at == '"' || *at == '\\') {
            w->buffer[w->used++] = '\\';
            w->buffer[w->used++] = (char)*at;
        } else if (*at < 0x20) {
            w->used += (size_t)snprintf(w->buffer + w->used, 8, "\\u%04x", *at);
        } else {
            w->buffer[w->used++] = (char)*at;
        }
    }
}

static void put_text(struct ls_chrome_writer *w, const char *text) {
    ls_chrome_put(w, "\"");
    ls_chrome_put_escaped(w, text ? text : "");
    ls_chrome_put(w, "\"");
}

void ls_chrome_put_member(struct ls_chrome_writer *w, const char *name, const char *text) {
    ls_chrome_put(w, ", \"%s\": ", name);
    put_text(w, text);
}

/* A time of the trace in nanoseconds. */
long long ls_chrome_ns(const struct ls_chrome_writer *w, double us) { return llround((us - w->zero_us) * 1000); }

void ls_chrome_put_ns(struct ls_chrome_writer *w, const char *name, long long ns) {
    ls_chrome_put(w, ", \"%s\": %lld.%03lld", name, ns / 1000, ns % 1000);
}

void ls_chrome_begin_event(struct ls_chrome_writer *w, const char *phase, const char *category, int rank, int lane) {
    ls_chrome_put(w, "%s{\"ph\": \"%s\"", w->begun ? ",\n" : "", phase);
    if (category) ls_chrome_put(w, ", \"cat\": \"%s\"", category);
    ls_chrome_put(w, ", \"pid\": %d, \"tid\": %d", rank + 1, lane + 1);
    w->begun = true;
}

bool ls_chrome_is_timed(const struct ls_task *task) {
    return isfinite(task->start_us) && isfinite(task->end_us) && task->end_us >= task->start_us;
}

/* --- header ------------------------------------------------------------------------------------------------------ */

static void put_devices(struct ls_chrome_writer *w) {
    int most = LS_NONE;
    for (int i = 0; i < ls_trace_lane_count(w->trace); i++) {
        int device = ls_trace_lane(w->trace, i)->device;
        if (w->lane_ids[i] != LS_NONE && device > most) most = device;
    }
    const char *separator = "";
    ls_chrome_put(w, "\"deviceProperties\": [");
    for (int d = 0; d <= most; d++) {
        bool is_here = false;
        for (int i = 0; i < ls_trace_lane_count(w->trace) && !is_here; i++)
            is_here = w->lane_ids[i] != LS_NONE && ls_trace_lane(w->trace, i)->device == d;
        if (!is_here) continue;
        ls_chrome_put(w, "%s{\"id\": %d", separator, d);
        ls_chrome_put_member(w, "name", ls_trace_what(w->trace)->device_name);
        ls_chrome_put(w, "}");
        separator = ", ";
    }
    ls_chrome_put(w, "],\n");
}

#define PUT_TEXT(field) ls_chrome_put_member(w, #field, about->field);
#define PUT_WHOLE(field, lowest, highest) ls_chrome_put(w, ", \"%s\": %" PRId64, #field, (int64_t)about->field);
#define PUT_FLAG(field) ls_chrome_put(w, ", \"%s\": %s", #field, about->field ? "true" : "false");

static void put_header(struct ls_chrome_writer *w) {
    const struct ls_trace_about *about = ls_trace_what(w->trace);
    ls_chrome_put(w, LS_CHROME_BEGIN "%d", LS_CHROME_FORMAT);
    LS_CHROME_ABOUT_MAP(PUT_TEXT, PUT_WHOLE, PUT_FLAG)
    if (about->run > 0) ls_chrome_put(w, ", \"run\": %" PRIu64, about->run);
    ls_chrome_put(w, ", \"origin_us\": %.3f", about->origin_us + w->zero_us);
    if (isfinite(about->median_step_ms)) ls_chrome_put(w, ", \"median_step_ms\": %.17g", about->median_step_ms);
    ls_chrome_put(w, ", \"parameters\": [");
    for (int i = 0; i < ls_trace_parameter_count(w->trace); i++) {
        ls_chrome_put(w, "%s[", i > 0 ? ", " : "");
        put_text(w, ls_trace_parameter(w->trace, i)->name);
        ls_chrome_put(w, ", %" PRIu64 "]", ls_trace_parameter(w->trace, i)->count);
    }
    ls_chrome_put(w, "]},\n\"schemaVersion\": 1,\n\"distributedInfo\": {\"backend\": ");
    put_text(w, about->backend);
    if (w->rank != LS_NONE) ls_chrome_put(w, ", \"rank\": %d", w->rank);
    ls_chrome_put(w, ", \"world_size\": %d},\n", about->world_size);
    put_devices(w);
    ls_chrome_put(w, LS_CHROME_EVENTS_LINE "\n");
}

/* --- lanes ------------------------------------------------------------------------------------------------------- */

static void put_lane(struct ls_chrome_writer *w, int index) {
    const struct ls_lane *lane = ls_trace_lane(w->trace, index);
    int id = w->lane_ids[index];
    ls_chrome_begin_event(w, "M", NULL, lane->rank, id);
    ls_chrome_put(w, ", \"name\": \"thread_name\", \"args\": {\"name\": \"");
    if (lane->kind != LS_LANE_HOST) ls_chrome_put(w, "device %d ", lane->device);
    ls_chrome_put_escaped(w, lane->name);
    ls_chrome_put(w, "\"");
    ls_chrome_put_member(w, "lane", lane->name);
    ls_chrome_put(w, ", \"kind\": \"%s\", \"device\": %d}}", ls_lane_kind_name(lane->kind), lane->device);
    ls_chrome_begin_event(w, "M", NULL, lane->rank, id);
    ls_chrome_put(w, ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": %d}}", id);
}

/* Writes lanes; the first lane of a process is preceded by the process's name. */
static void put_lanes(struct ls_chrome_writer *w) {
    int named = LS_NONE;
    for (int i = 0; i < ls_trace_lane_count(w->trace); i++) {
        int rank = ls_trace_lane(w->trace, i)->rank;
        if (w->lane_ids[i] == LS_NONE) continue;
        if (rank != named) {
            ls_chrome_begin_event(w, "M", NULL, rank, w->lane_ids[i]);
            ls_chrome_put(w, ", \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\"}}", rank);
            ls_chrome_begin_event(w, "M", NULL, rank, w->lane_ids[i]);
            ls_chrome_put(w, ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}", rank);
        }
        named = rank;
        put_lane(w, i);
    }
}

/* --- a file ------------------------------------------------------------------------------------------------------ */

/* Numbers the lanes and tasks of this file. */
static ls_status number_all(struct ls_chrome_writer *w) {
    int lane_count = ls_trace_lane_count(w->trace), task_count = ls_trace_task_count(w->trace), lanes = 0, tasks = 0;
    w->lane_ids = calloc((size_t)lane_count + 1, sizeof *w->lane_ids);
    w->task_ids = calloc((size_t)task_count + 1, sizeof *w->task_ids);
    if (!w->lane_ids || !w->task_ids) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write a trace");
    for (int i = 0; i < lane_count; i++) {
        bool is_here = w->rank == LS_NONE || ls_trace_lane(w->trace, i)->rank == w->rank;
        w->lane_ids[i] = is_here ? lanes++ : LS_NONE;
    }
    w->zero_us = INFINITY;
    for (int i = 0; i < task_count; i++) {
        const struct ls_task *task = ls_trace_task(w->trace, i);
        bool is_here = w->lane_ids[task->lane] != LS_NONE;
        w->task_ids[i] = is_here ? tasks++ : LS_NONE;
        if (!is_here) continue;
        if (ls_chrome_is_timed(task)) w->zero_us = fmin(w->zero_us, task->start_us);
        if (isfinite(task->launched_us)) w->zero_us = fmin(w->zero_us, task->launched_us);
    }
    if (!isfinite(w->zero_us)) w->zero_us = 0;
    return LS_OK;
}

static void put_events(struct ls_chrome_writer *w) {
    put_lanes(w);
    for (int i = 0; i < ls_trace_task_count(w->trace) && w->status == LS_OK; i++)
        if (w->task_ids[i] != LS_NONE) ls_chrome_put_task(w, i);
    for (int i = 0; i < ls_trace_mark_count(w->trace); i++)
        if (w->lane_ids[ls_trace_mark(w->trace, i)->lane] != LS_NONE) ls_chrome_put_mark(w, ls_trace_mark(w->trace, i));
    ls_chrome_put_steps(w);
    for (int i = 0; i < ls_trace_task_count(w->trace) && w->status == LS_OK; i++)
        if (w->task_ids[i] != LS_NONE) ls_chrome_put_arrows(w, i);
    ls_chrome_put(w, "\n]\n}\n");
}

static ls_status write_file(const ls_trace *trace, const char *path, int rank) {
    struct ls_chrome_writer *w = calloc(1, sizeof *w);
    if (!w) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to write %s", path);
    w->trace = trace;
    w->rank = rank;
    ls_status status = number_all(w);
    if (status == LS_OK) status = ls_file_writer_open(&w->file, path);
    if (status == LS_OK) {
        put_header(w);
        put_events(w);
        flush(w);
        status = w->status;
        if (status == LS_OK)
            status = ls_file_writer_commit(w->file);
        else
            ls_file_writer_abort(w->file);
    }
    free(w->sorted);
    free(w->lane_ids);
    free(w->task_ids);
    free(w);
    return status;
}

ls_status ls_trace_write_file(const ls_trace *trace, const char *path) { return write_file(trace, path, LS_NONE); }

ls_status ls_trace_write_rank(const ls_trace *trace, const char *folder, int rank) {
    char path[PATH_MAX];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ls_fail(LS_ERR_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    ls_status status = ls_trace_file_name(path, sizeof path, folder, rank);
    return status == LS_OK ? write_file(trace, path, rank) : status;
}
