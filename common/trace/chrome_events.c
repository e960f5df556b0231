/* chrome_events — converts one line of a trace file to a lane, a task or a mark (chrome_write.c lists the events).
 *   ids   : tasks count up from 0 within a file, and lanes from tid 1 on, so a duplicate or missing number is detected
 *           at once. A task may wait for a later one of the file; the end of the file shows whether that task exists
 *   fails : missing, unknown or absurd values are LS_ERR_INVALID, "FILE:LINE: what" */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/trace/chrome_internal.h"
#include "common/trace/chrome_reader.h"
#include "common/trace/trace_internal.h"

/* --- lanes ------------------------------------------------------------------------------------------------------- */

static int find_name(ls_json *json, const cJSON *object, const char *member, const char *const *names, int count) {
    const char *text = ls_json_text(json, object, member);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0) return i;
    ls_json_refuse(json, object, "%s has the unknown value \"%.40s\"", member, text);
    return 0;
}

#define ROW_NAME(name, text) text,
static const char *const lane_kinds[] = {LS_LANE_MAP(ROW_NAME)};
static const char *const task_kinds[] = {LS_TASK_MAP(ROW_NAME)};
#undef ROW_NAME

/* pid is rank + 1; a file of one rank has one pid only. */
static int read_rank(struct ls_chrome_reader *reader, ls_json *json) {
    const cJSON *event = ls_json_root(json);
    int rank = (int)ls_json_whole(json, event, "pid", 1, ls_trace_what(reader->trace)->world_size) - 1;
    if (reader->rank != LS_NONE && rank != reader->rank)
        ls_json_refuse(json, event, "pid is %d in the file of rank %d, whose pid is %d", rank + 1, reader->rank,
                       reader->rank + 1);
    return rank;
}

static int highest_device(const struct ls_chrome_reader *reader) { return ls_trace_what(reader->trace)->devices - 1; }

static void read_lane(struct ls_chrome_reader *reader, ls_json *json) {
    static const char *const members[] = {"name", "lane", "kind", "device", NULL};
    int expected = ls_trace_lane_count(reader->trace) - reader->first_lane, rank = read_rank(reader, json);
    int id = (int)ls_json_whole(json, ls_json_root(json), "tid", 1, LS_CHROME_MOST) - 1;
    const cJSON *args = ls_json_object(json, ls_json_root(json), "args");
    if (args) ls_json_only(json, args, members);
    struct ls_lane lane = {.name = ls_json_text(json, args, "lane"),
                           .kind = (ls_lane_kind)find_name(json, args, "kind", lane_kinds, LS_LANE_COUNT),
                           .rank = rank,
                           .device = (int)ls_json_whole(json, args, "device", LS_NONE, highest_device(reader))};
    if (id != expected)
        ls_json_refuse(json, ls_json_root(json), "found the lane of tid %d; expected that of tid %d", id + 1,
                       expected + 1);
    if (reader->task_count > 0) ls_json_refuse(json, ls_json_root(json), "lanes must be named before the first task");
    if (!ls_json_failed(json)) (void)ls_trace_add_lane(reader->trace, &lane);
}

/* The lane of an event. */
static int find_lane(struct ls_chrome_reader *reader, ls_json *json) {
    int rank = read_rank(reader, json), count = ls_trace_lane_count(reader->trace) - reader->first_lane;
    int id = (int)ls_json_whole(json, ls_json_root(json), "tid", 1, LS_CHROME_MOST) - 1;
    if (ls_json_failed(json)) return 0;
    if (id >= count)
        ls_json_refuse(json, ls_json_root(json), "tid %d is not a lane; there are %d lanes", id + 1, count);
    else if (ls_trace_lane(reader->trace, reader->first_lane + id)->rank != rank)
        ls_json_refuse(json, ls_json_root(json), "tid %d is a lane of another rank", id + 1);
    return reader->first_lane + id;
}

/* --- tasks ------------------------------------------------------------------------------------------------------- */

static int64_t whole_or(ls_json *json, const cJSON *args, const char *name, int64_t lowest, int64_t otherwise) {
    int64_t highest = otherwise == 0 ? LS_CHROME_LARGEST : INT_MAX;
    return ls_json_has(args, name) ? ls_json_whole(json, args, name, lowest, highest) : otherwise;
}

static bool flag_or(ls_json *json, const cJSON *args, const char *name, bool otherwise) {
    return ls_json_has(args, name) ? ls_json_bool(json, args, name) : otherwise;
}

/* -1: unknown. */
static double read_us(ls_json *json, const cJSON *args) {
    double us = ls_json_number(json, args, "us", -1, LS_CHROME_LONGEST_US);
    if (us < 0 && us != -1)
        ls_json_refuse(json, cJSON_GetObjectItemCaseSensitive(args, "us"),
                       "us is %.15g; expected -1 (not known) or at least 0", us);
    return us;
}

static void read_times(struct ls_chrome_reader *reader, ls_json *json, const cJSON *args, struct ls_task *task) {
    double start_us = ls_json_number(json, ls_json_root(json), "ts", 0, LS_CHROME_LONGEST_US) + reader->shift_us;
    double dur_us = ls_json_number(json, ls_json_root(json), "dur", 0, LS_CHROME_LONGEST_US);
    if (flag_or(json, args, "timed", true)) {
        task->start_us = start_us;
        task->end_us = start_us + dur_us;
    }
    if (ls_json_has(args, "launched"))
        task->launched_us = ls_json_number(json, args, "launched", 0, LS_CHROME_LONGEST_US) + reader->shift_us;
}

/* The task's own name, without the prefix that tools recognise. */
static const char *read_name(ls_json *json, const cJSON *args, const struct ls_task *task) {
    if (ls_json_has(args, LS_CHROME_LAUNCH)) return ls_json_text(json, args, LS_CHROME_LAUNCH);
    const char *name = ls_json_text(json, ls_json_root(json), "name"), *prefix = ls_chrome_prefix(task);
    if (strncmp(name, prefix, strlen(prefix)) == 0) return name + strlen(prefix);
    ls_json_refuse(json, ls_json_root(json), "the name of this %s must begin with \"%s\"",
                   ls_task_kind_name(task->kind), prefix);
    return "";
}

static const char *our_dtype(const char *theirs) {
#define DTYPE_ROW(our, their) {our, their},
    static const char *const rows[][2] = {LS_CHROME_DTYPE_MAP(DTYPE_ROW)};
#undef DTYPE_ROW
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i][1], theirs) == 0) return rows[i][0];
    return "";
}

static void read_meeting(struct ls_chrome_reader *reader, ls_json *json, const cJSON *args, struct ls_task *task) {
    struct ls_meeting meeting = {.group = ls_json_text(json, args, "Process Group Name"),
                                 .number = (uint32_t)ls_json_whole(json, args, "Seq", 0, UINT32_MAX),
                                 .operation = ls_json_text(json, args, "Collective name"),
                                 .algorithm = ls_json_text(json, args, "algorithm"),
                                 .ranks = (int)ls_json_whole(json, args, "Group size", 1, LS_CHROME_MOST),
                                 .bytes = task->bytes,
                                 .elements = (uint64_t)ls_json_whole(json, args, "In msg nelems", 0, LS_CHROME_LARGEST),
                                 .dtype = our_dtype(ls_json_text(json, args, "dtype"))};
    (void)ls_json_whole(json, args, "Out msg nelems", 0, LS_CHROME_LARGEST);
    if (ls_json_failed(json)) return;
    task->meeting = ls_trace_join_meeting(reader->trace, &meeting);
    if (reader->trace->failed) return;
    const struct ls_meeting *joined = ls_trace_meeting(reader->trace, task->meeting);
    if (joined->ranks != meeting.ranks || strcmp(joined->operation, meeting.operation) != 0)
        ls_json_refuse(
            json, args, "operation %" PRIu32 " of \"%.40s\" is \"%.40s\" of %d ranks here, \"%.40s\" of %d elsewhere",
            meeting.number, meeting.group, meeting.operation, meeting.ranks, joined->operation, joined->ranks);
    else if (joined->tasks > joined->ranks)
        ls_json_refuse(json, args, "operation %" PRIu32 " of \"%.40s\" has more tasks than its %d ranks",
                       meeting.number, meeting.group, meeting.ranks);
}

/* The edges to the next task. Ids are stored, and checked when all tasks have been read. */
static void read_after(struct ls_chrome_reader *reader, ls_json *json, const cJSON *args, size_t line) {
    const cJSON *after = ls_json_has(args, "after") ? ls_json_array(json, args, "after") : NULL, *id;
    if (ls_json_failed(json)) return;
    cJSON_ArrayForEach(id, after) {
        double value = cJSON_IsNumber(id) ? id->valuedouble : NAN;
        if (!(value >= 0 && value < INT_MAX && value == trunc(value)) || (int)value == reader->task_count) {
            ls_json_refuse(json, id, "after must hold ids of other tasks");
            return;
        }
        if ((int)value > reader->highest_id) {
            reader->highest_id = (int)value;
            reader->highest_line = line;
        }
        ls_trace_add_edge(reader->trace, reader->first_task + (int)value, reader->first_task + reader->task_count);
    }
}

/* The members that a task's args may have. Derived ones are ignored. */
static const char *const task_members[] = {"id",
                                           "kind",
                                           "after",
                                           "us",
                                           "step",
                                           "phase",
                                           "bytes",
                                           "flops",
                                           "fixed_bytes",
                                           "from",
                                           "to",
                                           "probes_us",
                                           "lock",
                                           "virtual",
                                           "timed",
                                           "launched",
                                           LS_CHROME_LAUNCH,
                                           LS_CHROME_BANDWIDTH,
                                           "Collective name",
                                           "In msg nelems",
                                           "Out msg nelems",
                                           "dtype",
                                           "Group size",
                                           "Process Group Name",
                                           "Seq",
                                           "algorithm",
                                           "stream",
                                           "device",
                                           "correlation",
                                           NULL};

static ls_status keep_line(struct ls_chrome_reader *reader, size_t line) {
    if (!ls_trace_room(&reader->lines, reader->line_count, &reader->line_capacity, sizeof *reader->lines))
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", reader->name);
    reader->lines[reader->line_count++] = line < INT_MAX ? (int)line : INT_MAX;
    return LS_OK;
}

static ls_status read_task(struct ls_chrome_reader *reader, ls_json *json, size_t line) {
    const cJSON *args = ls_json_object(json, ls_json_root(json), "args");
    if (args) ls_json_only(json, args, task_members);
    struct ls_task task = ls_task_default(LS_TASK_HOST, "", find_lane(reader, json));
    task.kind = (ls_task_kind)find_name(json, args, "kind", task_kinds, LS_TASK_COUNT);
    int id = (int)ls_json_whole(json, args, "id", 0, INT_MAX - 1);
    if (id != reader->task_count) ls_json_refuse(json, args, "found task %d; expected task %d", id, reader->task_count);
    task.us = read_us(json, args);
    task.step = (int)whole_or(json, args, "step", 0, -1);
    task.phase = ls_json_has(args, "phase") ? ls_json_text(json, args, "phase") : "";
    task.bytes = (uint64_t)whole_or(json, args, "bytes", 0, 0);
    task.flops = (uint64_t)whole_or(json, args, "flops", 0, 0);
    if (ls_json_has(args, "fixed_bytes")) task.fixed_bytes = ls_json_number(json, args, "fixed_bytes", 0, 1e18);
    if (task.kind == LS_TASK_COPY) {
        task.from = (int)ls_json_whole(json, args, "from", LS_HOST_MEMORY, highest_device(reader));
        task.to = (int)ls_json_whole(json, args, "to", LS_HOST_MEMORY, highest_device(reader));
    }
    if (ls_json_has(args, "probes_us"))
        task.probes_us = ls_json_number(json, args, "probes_us", 0, LS_CHROME_LONGEST_US);
    if (task.kind == LS_TASK_HOST) task.lock = (int)whole_or(json, args, "lock", 0, LS_NONE);
    task.virtual_time = flag_or(json, args, "virtual", false);
    read_times(reader, json, args, &task);
    task.name = read_name(json, args, &task);
    if (task.kind == LS_TASK_COLLECTIVE) read_meeting(reader, json, args, &task);
    read_after(reader, json, args, line);
    if (ls_json_failed(json)) return LS_ERR_INVALID;
    ls_status status = keep_line(reader, line);
    if (status != LS_OK) return status;
    (void)ls_trace_add_task(reader->trace, &task);
    reader->task_count++;
    return LS_OK;
}

/* --- marks ------------------------------------------------------------------------------------------------------- */

static void read_mark(struct ls_chrome_reader *reader, ls_json *json) {
    static const char *const members[] = {"number", "step", "after", "timed", NULL};
    const cJSON *args = ls_json_object(json, ls_json_root(json), "args");
    if (args) ls_json_only(json, args, members);
    int after = (int)ls_json_whole(json, args, "after", LS_NONE, INT_MAX - 1);
    double at_us = ls_json_number(json, ls_json_root(json), "ts", 0, LS_CHROME_LONGEST_US) + reader->shift_us;
    struct ls_mark mark = {.name = ls_json_text(json, ls_json_root(json), "name"),
                           .lane = find_lane(reader, json),
                           .step = (int)ls_json_whole(json, args, "step", -1, INT_MAX),
                           .number = ls_json_whole(json, args, "number", -LS_CHROME_LARGEST, LS_CHROME_LARGEST),
                           .after = after == LS_NONE ? LS_NONE : reader->first_task + after,
                           .at_us = flag_or(json, args, "timed", true) ? at_us : NAN};
    if (after >= reader->task_count)
        ls_json_refuse(json, args, "a mark follows task %d, which does not exist", after);
    else if (!ls_json_failed(json) && after != LS_NONE && ls_trace_task(reader->trace, mark.after)->lane != mark.lane)
        ls_json_refuse(json, args, "a mark follows task %d, which lies on another lane", after);
    if (!ls_json_failed(json)) (void)ls_trace_add_mark(reader->trace, &mark);
}

/* --- an event ---------------------------------------------------------------------------------------------------- */

static ls_status read_event(struct ls_chrome_reader *reader, ls_json *json, size_t line) {
    const cJSON *event = ls_json_root(json);
    const char *phase = ls_json_text(json, event, "ph"), *name = ls_json_text(json, event, "name");
    if (strcmp(phase, "X") == 0) {
        const char *category = ls_json_text(json, event, "cat");
        return strcmp(category, "user_annotation") == 0 ? LS_OK : read_task(reader, json, line);
    }
    if (strcmp(phase, "M") == 0) {
        if (strcmp(name, "thread_name") == 0) read_lane(reader, json);
    } else if (strcmp(phase, "i") == 0) {
        read_mark(reader, json);
    } else if (strcmp(phase, "s") != 0 && strcmp(phase, "f") != 0) {
        ls_json_refuse(json, event, "an event has the unknown phase \"%.20s\"", phase);
    }
    return LS_OK;
}

ls_status ls_chrome_read_event(struct ls_chrome_reader *reader, const char *text, size_t nbytes, size_t line) {
    ls_json *json;
    ls_status status = ls_json_parse(&json, reader->name, line, text, nbytes);
    if (status != LS_OK) return status;
    status = read_event(reader, json, line);
    if (ls_json_failed(json)) status = LS_ERR_INVALID;
    ls_json_close(json);
    if (status == LS_OK && reader->trace->failed)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", reader->name);
    return status;
}
