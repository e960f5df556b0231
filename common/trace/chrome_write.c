/* chrome_write — a trace as a file of Chrome's trace events, one on each line.
 *   header: schemaVersion, distributedInfo and deviceProperties as Kineto has them; "lockstep", what the trace says about the run
 *   events: M names processes (pid = rank + 1) and lanes (tid = lane + 1; Perfetto takes 0 for the idle process), with args
 *             lane, kind, device
 *           X a task: args id (they count up from 0), kind, after (ids of what it waits for), us (its own duration, -1: not
 *             known), and where they are not 0 or none: step, phase, bytes, flops, fixed_bytes, from and to (a copy), lock,
 *             virtual, launched; timed = false where ts and dur mean nothing. A collective operation has Kineto's "Collective
 *             name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name", "Seq", and algorithm
 *           i a mark: args number, step, after
 *   tools : cat is Kineto's (cpu_op, cuda_runtime, kernel, gpu_memcpy); stream, device and correlation on kernels and on what
 *           launched them, ProfilerStep#N around steps (HTA), and flow arrows (s, f) for edges between lanes follow from the rest,
 *           and are not read back. Arrows from launches are drawn for collective operations and copies only
 *   times : in nanoseconds as whole numbers until they are printed, so that what is within something else stays within
 *   order : that of the trace, so that writing what was read gives the same bytes */
#include "common/trace/chrome.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/trace/chrome_parts.h"
#include "common/trace/trace_parts.h"

struct writer {
    const ls_trace *trace;
    int rank; /* LS_NONE: all of them */
    ls_file_writer *file;
    ls_status status; /* the first failure; afterwards nothing is written */
    char buffer[16384];
    size_t used;
    int *task_ids, *lane_ids; /* in this file; LS_NONE: of another rank */
    double zero_us;           /* the recorded moment that becomes ts 0 */
    bool begun;               /* an event has been written */
    long long arrows;
    int *sorted, sorted_capacity; /* scratch */
};

/* --- bytes ------------------------------------------------------------------------------------------------------- */

static void flush(struct writer *w) {
    if (w->status == LS_OK) w->status = ls_file_writer_put(w->file, w->buffer, w->used);
    w->used = 0;
}

static LS_PRINTF(2, 3) void put(struct writer *w, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments); /* numbers and fixed texts: never longer */
    va_end(arguments);
    if (w->used + (size_t)length > sizeof w->buffer) flush(w);
    memcpy(w->buffer + w->used, text, (size_t)length);
    w->used += (size_t)length;
}

/* Characters of a JSON text. */
static void put_escaped(struct writer *w, const char *text) {
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

static void put_text(struct writer *w, const char *text) {
    put(w, "\"");
    put_escaped(w, text ? text : "");
    put(w, "\"");
}

static void put_member(struct writer *w, const char *name, const char *text) {
    put(w, ", \"%s\": ", name);
    put_text(w, text);
}

/* Of a moment of the trace. */
static long long ns_of(const struct writer *w, double us) { return llround((us - w->zero_us) * 1000); }

static void put_ns(struct writer *w, const char *name, long long ns) {
    put(w, ", \"%s\": %lld.%03lld", name, ns / 1000, ns % 1000);
}

static bool is_timed(const struct ls_task *task) {
    return isfinite(task->start_us) && isfinite(task->end_us) && task->end_us >= task->start_us;
}

/* --- header ------------------------------------------------------------------------------------------------------ */

static void put_devices(struct writer *w) {
    int most = LS_NONE;
    for (int i = 0; i < ls_trace_lane_count(w->trace); i++) {
        int device = ls_trace_lane(w->trace, i)->device;
        if (w->lane_ids[i] != LS_NONE && device > most) most = device;
    }
    const char *separator = "";
    put(w, "\"deviceProperties\": [");
    for (int d = 0; d <= most; d++) {
        bool is_here = false;
        for (int i = 0; i < ls_trace_lane_count(w->trace) && !is_here; i++)
            is_here = w->lane_ids[i] != LS_NONE && ls_trace_lane(w->trace, i)->device == d;
        if (!is_here) continue;
        put(w, "%s{\"id\": %d", separator, d);
        put_member(w, "name", ls_trace_what(w->trace)->device_name);
        put(w, "}");
        separator = ", ";
    }
    put(w, "],\n");
}

#define PUT_TEXT(field) put_member(w, #field, about->field);
#define PUT_WHOLE(field, lowest, highest) put(w, ", \"%s\": %" PRId64, #field, (int64_t)about->field);
#define PUT_FLAG(field) put(w, ", \"%s\": %s", #field, about->field ? "true" : "false");

static void put_header(struct writer *w) {
    const struct ls_trace_about *about = ls_trace_what(w->trace);
    put(w, "{\n\"schemaVersion\": 1,\n\"distributedInfo\": {\"backend\": ");
    put_text(w, about->backend);
    if (w->rank != LS_NONE) put(w, ", \"rank\": %d", w->rank);
    put(w, ", \"world_size\": %d},\n", about->world_size);
    put_devices(w);
    put(w, "\"lockstep\": {\"format\": %d", LS_CHROME_FORMAT);
    LS_CHROME_ABOUT_MAP(PUT_TEXT, PUT_WHOLE, PUT_FLAG)
    put(w, ", \"origin_us\": %.3f", about->origin_us + w->zero_us);
    if (isfinite(about->median_step_ms)) put(w, ", \"median_step_ms\": %.17g", about->median_step_ms);
    put(w, ", \"parameters\": [");
    for (int i = 0; i < ls_trace_parameter_count(w->trace); i++) {
        put(w, "%s[", i > 0 ? ", " : "");
        put_text(w, ls_trace_parameter(w->trace, i)->name);
        put(w, ", %" PRIu64 "]", ls_trace_parameter(w->trace, i)->count);
    }
    put(w, "]},\n" LS_CHROME_EVENTS_LINE "\n");
}

/* --- lanes ------------------------------------------------------------------------------------------------------- */

static void begin_event(struct writer *w, const char *phase, const char *category, int rank, int lane) {
    put(w, "%s{\"ph\": \"%s\"", w->begun ? ",\n" : "", phase);
    if (category) put(w, ", \"cat\": \"%s\"", category);
    put(w, ", \"pid\": %d, \"tid\": %d", rank + 1, lane + 1);
    w->begun = true;
}

static void put_lane(struct writer *w, int index) {
    const struct ls_lane *lane = ls_trace_lane(w->trace, index);
    int id = w->lane_ids[index];
    begin_event(w, "M", NULL, lane->rank, id);
    put(w, ", \"name\": \"thread_name\", \"args\": {\"name\": \"");
    if (lane->kind != LS_LANE_HOST) put(w, "device %d ", lane->device);
    put_escaped(w, lane->name);
    put(w, "\"");
    put_member(w, "lane", lane->name);
    put(w, ", \"kind\": \"%s\", \"device\": %d}}", ls_lane_kind_name(lane->kind), lane->device);
    begin_event(w, "M", NULL, lane->rank, id);
    put(w, ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": %d}}", id);
}

/* A process is named with the first of its lanes. */
static void put_lanes(struct writer *w) {
    int named = LS_NONE;
    for (int i = 0; i < ls_trace_lane_count(w->trace); i++) {
        int rank = ls_trace_lane(w->trace, i)->rank;
        if (w->lane_ids[i] == LS_NONE) continue;
        if (rank != named) {
            begin_event(w, "M", NULL, rank, w->lane_ids[i]);
            put(w, ", \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\"}}", rank);
            begin_event(w, "M", NULL, rank, w->lane_ids[i]);
            put(w, ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}", rank);
        }
        named = rank;
        put_lane(w, i);
    }
}

/* --- tasks ------------------------------------------------------------------------------------------------------- */

/* What a host task launched, or what launched a stream's: the other end of an edge between a host's and a device's lane. */
static int launch_partner(const struct writer *w, int index) {
    bool on_host = ls_trace_lane(w->trace, ls_trace_task(w->trace, index)->lane)->kind == LS_LANE_HOST;
    int count;
    const int *others = on_host ? ls_trace_after(w->trace, index, &count) : ls_trace_before(w->trace, index, &count);
    for (int i = 0; i < count; i++) {
        bool is_host = ls_trace_lane(w->trace, ls_trace_task(w->trace, others[i])->lane)->kind == LS_LANE_HOST;
        if (is_host != on_host) return others[i];
    }
    return LS_NONE;
}

static int compare_ints(const void *a, const void *b) {
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

/* What the task waits for, ascending, each once, in w->sorted; how many. */
static int sort_before(struct writer *w, int index) {
    int count, kept = 0;
    const int *before = ls_trace_before(w->trace, index, &count);
    while (count > w->sorted_capacity && w->status == LS_OK)
        if (!ls_trace_room(&w->sorted, w->sorted_capacity, &w->sorted_capacity, sizeof *w->sorted))
            w->status = ls_fail(LS_ERR_NO_MEMORY, "no memory to write a trace");
    if (count == 0 || w->status != LS_OK) return 0;
    memcpy(w->sorted, before, (size_t)count * sizeof *before);
    qsort(w->sorted, (size_t)count, sizeof *w->sorted, compare_ints);
    for (int i = 0; i < count; i++)
        if (i == 0 || w->sorted[i] != w->sorted[kept - 1]) w->sorted[kept++] = w->sorted[i];
    return kept;
}

static void put_after(struct writer *w, int index) {
    int count = sort_before(w, index);
    for (int i = 0; i < count; i++) {
        int id = w->task_ids[w->sorted[i]];
        if (id == LS_NONE && w->status == LS_OK)
            w->status =
                ls_fail(LS_ERR_INVALID,
                        "task %d (\"%s\") waits for a task of another rank, which a file of one rank cannot say", index,
                        ls_trace_task(w->trace, index)->name);
        put(w, "%s%d", i == 0 ? ", \"after\": [" : ", ", id);
    }
    if (count > 0) put(w, "]");
}

static const char *kineto_dtype(const char *ours) {
#define DTYPE_ROW(our, their) {our, their},
    static const struct { const char *ours, *theirs; } rows[] = {LS_CHROME_DTYPE_MAP(DTYPE_ROW)};
#undef DTYPE_ROW
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].ours, ours) == 0) return rows[i].theirs;
    return "";
}

static void put_meeting(struct writer *w, const struct ls_meeting *meeting) {
    put_member(w, "Collective name", meeting->operation);
    put(w, ", \"In msg nelems\": %" PRIu64 ", \"Out msg nelems\": %" PRIu64, meeting->elements, meeting->elements);
    put_member(w, "dtype", kineto_dtype(meeting->dtype));
    put(w, ", \"Group size\": %d", meeting->ranks);
    put_member(w, "Process Group Name", meeting->group);
    put(w, ", \"Seq\": %" PRIu32, meeting->number);
    put_member(w, "algorithm", meeting->algorithm);
}

/* The numbers that are left out where they say nothing. */
static void put_rest(struct writer *w, const struct ls_task *task) {
    if (task->step >= 0) put(w, ", \"step\": %d", task->step);
    if (task->phase[0]) put_member(w, "phase", task->phase);
    if (task->bytes > 0) put(w, ", \"bytes\": %" PRIu64, task->bytes);
    if (task->flops > 0) put(w, ", \"flops\": %" PRIu64, task->flops);
    if (task->fixed_bytes > 0) put(w, ", \"fixed_bytes\": %.17g", task->fixed_bytes);
    if (task->kind == LS_TASK_COPY) put(w, ", \"from\": %d, \"to\": %d", task->from, task->to);
    if (task->lock != LS_NONE) put(w, ", \"lock\": %d", task->lock);
    if (task->virtual_time) put(w, ", \"virtual\": true");
    if (!is_timed(task)) put(w, ", \"timed\": false");
    if (isfinite(task->launched_us)) put_ns(w, "launched", ns_of(w, task->launched_us));
}

static void put_task(struct writer *w, int index) {
    const struct ls_task *task = ls_trace_task(w->trace, index);
    const struct ls_lane *lane = ls_trace_lane(w->trace, task->lane);
    int partner = launch_partner(w, index), id = w->task_ids[index];
    bool on_host = lane->kind == LS_LANE_HOST;
    const char *category = on_host                      ? partner != LS_NONE ? "cuda_runtime" : "cpu_op"
                           : task->kind == LS_TASK_COPY ? "gpu_memcpy"
                                                        : "kernel";
    long long start_ns = is_timed(task) ? ns_of(w, task->start_us) : 0;
    begin_event(w, "X", category, lane->rank, w->lane_ids[task->lane]);
    put(w, ", \"name\": \"%s", ls_chrome_prefix(task));
    put_escaped(w, task->name);
    put(w, "\"");
    put_ns(w, "ts", start_ns);
    put_ns(w, "dur", is_timed(task) ? ns_of(w, task->end_us) - start_ns : 0);
    put(w, ", \"args\": {\"id\": %d, \"kind\": \"%s\"", id, ls_task_kind_name(task->kind));
    put_after(w, index);
    if (task->us < 0)
        put(w, ", \"us\": -1");
    else
        put(w, ", \"us\": %.3f", task->us + 0.0); /* -0.0 becomes 0.0 */
    put_rest(w, task);
    if (task->kind == LS_TASK_COLLECTIVE) put_meeting(w, ls_trace_meeting(w->trace, task->meeting));
    if (!on_host) put(w, ", \"stream\": %d, \"device\": %d", w->lane_ids[task->lane] + 1, lane->device);
    if (partner != LS_NONE) put(w, ", \"correlation\": %d", (on_host ? w->task_ids[partner] : id) + 1);
    put(w, "}}");
}

static void put_mark(struct writer *w, const struct ls_mark *mark) {
    bool timed = isfinite(mark->at_us) && mark->at_us >= w->zero_us;
    begin_event(w, "i", "mark", ls_trace_lane(w->trace, mark->lane)->rank, w->lane_ids[mark->lane]);
    put(w, ", \"s\": \"t\"");
    put_member(w, "name", mark->name);
    put_ns(w, "ts", timed ? ns_of(w, mark->at_us) : 0);
    put(w, ", \"args\": {\"number\": %" PRId64 ", \"step\": %d, \"after\": %d%s}}", mark->number, mark->step,
        mark->after == LS_NONE ? LS_NONE : w->task_ids[mark->after], timed ? "" : ", \"timed\": false");
}

/* --- what follows from the rest ------------------------------------------------------------------------------------ */

static void put_arrow(struct writer *w, int before, int task) {
    const struct ls_task *ends[] = {ls_trace_task(w->trace, before), ls_trace_task(w->trace, task)};
    if (!is_timed(ends[0]) || !is_timed(ends[1])) return;
    w->arrows++;
    for (int e = 0; e < 2; e++) {
        begin_event(w, e == 0 ? "s" : "f", "edge", ls_trace_lane(w->trace, ends[e]->lane)->rank,
                    w->lane_ids[ends[e]->lane]);
        put_ns(w, "ts", ns_of(w, ends[e]->start_us));
        put(w, ", \"name\": \"edge\", \"id\": %lld%s}", w->arrows, e == 0 ? "" : ", \"bp\": \"e\"");
    }
}

static void put_arrows(struct writer *w, int task) {
    int count = sort_before(w, task);
    for (int i = 0; i < count; i++) {
        const struct ls_task *from = ls_trace_task(w->trace, w->sorted[i]), *to = ls_trace_task(w->trace, task);
        bool launches = ls_trace_lane(w->trace, from->lane)->kind == LS_LANE_HOST &&
                        ls_trace_lane(w->trace, to->lane)->kind != LS_LANE_HOST;
        if (from->lane != to->lane && (!launches || to->kind != LS_TASK_KERNEL)) put_arrow(w, w->sorted[i], task);
    }
}

/* The steps of a rank, on the first of its host lanes: from the first of a step's tasks there to the last. */
static void put_steps(struct writer *w, int lane) {
    int count;
    const int *tasks = ls_trace_lane_tasks(w->trace, lane, &count);
    for (int i = 0, next; i < count; i = next) {
        const struct ls_task *first = ls_trace_task(w->trace, tasks[i]), *last = first;
        for (next = i + 1; next < count && ls_trace_task(w->trace, tasks[next])->step == first->step; next++)
            last = ls_trace_task(w->trace, tasks[next]);
        if (first->step < 0 || !is_timed(first) || !is_timed(last)) continue;
        long long start_ns = ns_of(w, first->start_us);
        begin_event(w, "X", "user_annotation", ls_trace_lane(w->trace, lane)->rank, w->lane_ids[lane]);
        put(w, ", \"name\": \"ProfilerStep#%d\"", first->step);
        put_ns(w, "ts", start_ns);
        put_ns(w, "dur", ns_of(w, last->end_us) - start_ns);
        put(w, "}");
    }
}

static void put_all_steps(struct writer *w) {
    int shown = LS_NONE;
    for (int i = 0; i < ls_trace_lane_count(w->trace); i++) {
        const struct ls_lane *lane = ls_trace_lane(w->trace, i);
        if (w->lane_ids[i] == LS_NONE || lane->kind != LS_LANE_HOST || lane->rank == shown) continue;
        shown = lane->rank;
        put_steps(w, i);
    }
}

/* --- a file ------------------------------------------------------------------------------------------------------ */

/* Ids count up over what belongs to the file. */
static ls_status number_all(struct writer *w) {
    int lane_count = ls_trace_lane_count(w->trace), task_count = ls_trace_task_count(w->trace), lanes = 0, tasks = 0;
    w->lane_ids = calloc((size_t)lane_count + 1, sizeof *w->lane_ids);
    w->task_ids = calloc((size_t)task_count + 1, sizeof *w->task_ids);
    if (!w->lane_ids || !w->task_ids) return ls_fail(LS_ERR_NO_MEMORY, "no memory to write a trace");
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
        if (is_timed(task)) w->zero_us = fmin(w->zero_us, task->start_us);
        if (isfinite(task->launched_us)) w->zero_us = fmin(w->zero_us, task->launched_us);
    }
    if (!isfinite(w->zero_us)) w->zero_us = 0;
    return LS_OK;
}

static void put_events(struct writer *w) {
    put_lanes(w);
    for (int i = 0; i < ls_trace_task_count(w->trace) && w->status == LS_OK; i++)
        if (w->task_ids[i] != LS_NONE) put_task(w, i);
    for (int i = 0; i < ls_trace_mark_count(w->trace); i++)
        if (w->lane_ids[ls_trace_mark(w->trace, i)->lane] != LS_NONE) put_mark(w, ls_trace_mark(w->trace, i));
    put_all_steps(w);
    for (int i = 0; i < ls_trace_task_count(w->trace) && w->status == LS_OK; i++)
        if (w->task_ids[i] != LS_NONE) put_arrows(w, i);
    put(w, "\n]\n}\n");
}

static ls_status write_file(const ls_trace *trace, const char *path, int rank) {
    struct writer *w = calloc(1, sizeof *w);
    if (!w) return ls_fail(LS_ERR_NO_MEMORY, "no memory to write %s", path);
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
    if (snprintf(path, sizeof path, "%s/rank_%d.json", folder, rank) >= (int)sizeof path)
        return ls_fail(LS_ERR_IO, "the name of the folder %s is too long", folder);
    return write_file(trace, path, rank);
}
