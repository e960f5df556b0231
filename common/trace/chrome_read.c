/* chrome_read — reads trace files, one file or a folder of them, as one trace.
 *   idea  : the header is everything around the array "traceEvents"; of the events in it (chrome_events.c) only one at
 *           a time is a JSON tree (chrome_scan.c splits the text). The files of a folder go into one trace,
 *           one after another, each with its own ids; their times are shifted by the difference of their origins,
 *           since all ranks of a machine share a clock
 *   checks: the numbers in events stay below the header's counts (devices, ranks, steps). All files have the same facts
 *           about the run; there is exactly one for each recorded rank; if all ranks were recorded, every collective
 *           operation has all of its tasks. Cycles are found by sealing, which names a task, whose line is known
 *   memory: a file's text, and the trace
 *   fails : LS_ERR_INVALID, "FILE:LINE: what"; LS_ERR_IO for files that do not exist */
#include "common/trace/chrome.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/trace/chrome_internal.h"
#include "common/trace/chrome_reader.h"
#include "common/trace/chrome_scan.h"
#include "common/trace/trace_internal.h"

/* --- header ------------------------------------------------------------------------------------------------------ */

#define NAME_FIELD(field) #field,
#define NAME_WHOLE(field, lowest, highest) #field,
static const char *const about_members[] = {LS_CHROME_ABOUT_MAP(NAME_FIELD, NAME_WHOLE, NAME_FIELD) "format",
                                            "run",
                                            "origin_us",
                                            "median_step_ms",
                                            "parameters",
                                            NULL};

static void read_about(ls_trace *trace, ls_json *json, const cJSON *object, struct ls_trace_about *about) {
    *about = *ls_trace_what(trace);
#define READ_TEXT(field) about->field = ls_trace_text(trace, ls_json_text(json, object, #field));
#define READ_WHOLE(field, lowest, highest) about->field = ls_json_whole(json, object, #field, lowest, highest);
#define READ_FLAG(field) about->field = ls_json_bool(json, object, #field);
    LS_CHROME_ABOUT_MAP(READ_TEXT, READ_WHOLE, READ_FLAG)
    about->origin_us = ls_json_number(json, object, "origin_us", -LS_CHROME_LONGEST_US, LS_CHROME_LONGEST_US);
    about->run = ls_json_has(object, "run") ? (uint64_t)ls_json_whole(json, object, "run", 1, LS_CHROME_LARGEST) : 0;
    about->median_step_ms = NAN;
    if (ls_json_has(object, "median_step_ms"))
        about->median_step_ms = ls_json_number(json, object, "median_step_ms", 0, LS_CHROME_LONGEST_US);
}

/* The first field in which two files disagree about their run, or NULL. Device names may differ between ranks. */
static const char *difference(const struct ls_trace_about *a, const struct ls_trace_about *b) {
#define SAME_TEXT(field)                                                                                               \
    if (strcmp(a->field, b->field) != 0 && strcmp(#field, "device_name") != 0) return #field;
#define SAME_WHOLE(field, lowest, highest)                                                                             \
    if (a->field != b->field) return #field;
#define SAME_FLAG(field)                                                                                               \
    if (a->field != b->field) return #field;
    LS_CHROME_ABOUT_MAP(SAME_TEXT, SAME_WHOLE, SAME_FLAG)
    SAME_WHOLE(run, , ) /* last: any other difference is more informative */
    return NULL;
}

static void read_parameters(ls_trace *trace, ls_json *json, const cJSON *object, bool is_first) {
    const cJSON *parameters = ls_json_array(json, object, "parameters"), *parameter;
    int index = 0;
    cJSON_ArrayForEach(parameter, parameters) {
        const cJSON *name = cJSON_GetArrayItem(parameter, 0), *count = cJSON_GetArrayItem(parameter, 1);
        double value = cJSON_IsNumber(count) ? count->valuedouble : NAN;
        if (cJSON_GetArraySize(parameter) != 2 || !cJSON_IsString(name) ||
            !(value >= 0 && value <= (double)LS_CHROME_LARGEST && value == trunc(value))) {
            ls_json_refuse(json, parameter, "a parameter must be [name, count]");
            return;
        }
        struct ls_trace_parameter read = {.name = name->valuestring, .count = (uint64_t)value};
        if (is_first) {
            (void)ls_trace_add_parameter(trace, &read);
        } else if (index >= ls_trace_parameter_count(trace) || ls_trace_parameter(trace, index)->count != read.count ||
                   strcmp(ls_trace_parameter(trace, index)->name, read.name) != 0) {
            ls_json_refuse(json, parameter,
                           "parameter %d differs from the other files': the files are of different runs", index);
            return;
        }
        index++;
    }
    if (!ls_json_failed(json) && !trace->failed && index != ls_trace_parameter_count(trace))
        ls_json_refuse(json, parameters,
                       "found %d parameters, but %d in the other files: the files are of different runs", index,
                       ls_trace_parameter_count(trace));
}

/* Reads the header as a separate object, without events. */
static void read_header(struct ls_chrome_reader *reader, ls_json *json) {
    ls_trace *trace = reader->trace;
    const cJSON *root = ls_json_root(json), *job = ls_json_object(json, root, "distributedInfo");
    const cJSON *object = ls_json_object(json, root, "lockstep");
    bool is_first = ls_trace_lane_count(trace) == 0;
    struct ls_trace_about about;
    if (!object) return;
    ls_json_only(json, object, about_members);
    if (ls_json_whole(json, object, "format", 0, INT_MAX) != LS_CHROME_FORMAT)
        ls_json_refuse(json, object, "the trace's format is not %d, which this program reads", LS_CHROME_FORMAT);
    read_about(trace, json, object, &about);
    if (about.recorded_ranks > about.world_size)
        ls_json_refuse(json, cJSON_GetObjectItemCaseSensitive(object, "recorded_ranks"),
                       "%d ranks were recorded, but world_size is %d", about.recorded_ranks, about.world_size);
    reader->rank = ls_json_has(job, "rank") ? (int)ls_json_whole(json, job, "rank", 0, about.world_size - 1) : LS_NONE;
    if (trace->failed || ls_json_failed(json)) return;
    const char *differs = is_first ? NULL : difference(ls_trace_what(trace), &about);
    if (differs)
        ls_json_refuse(json, cJSON_GetObjectItemCaseSensitive(object, differs),
                       "%s differs from the other files': the files are of different runs", differs);
    if (is_first) *ls_trace_about(trace) = about;
    reader->shift_us = about.origin_us - ls_trace_what(trace)->origin_us;
    read_parameters(trace, json, object, is_first);
}

/* --- a file, event by event -------------------------------------------------------------------------------------- */

/* The file without its events, as a separate text with the same lines; malloc'd. If the file is damaged after the
 * events, or within them, the damaged part is left out. */
static char *header_text(const struct ls_chrome_text *found, const char *text, const char *end, size_t *nbytes) {
    bool is_whole = found->behind.at && !found->wrong;
    size_t above = (size_t)(found->events.at - text), lines = is_whole ? found->behind.line - found->events.line : 0;
    const char *below = is_whole ? found->behind.at : "]}";
    size_t below_nbytes = is_whole ? (size_t)(end - below) : 2;
    char *header = malloc(above + lines + below_nbytes + 1);
    if (!header) return NULL;
    memcpy(header, text, above);
    memset(header + above, '\n', lines);
    memcpy(header + above + lines, below, below_nbytes);
    *nbytes = above + lines + below_nbytes;
    header[*nbytes] = '\0';
    return header;
}

static ls_status take_header(struct ls_chrome_reader *reader, const struct ls_chrome_text *found, const char *text,
                             const char *end) {
    size_t nbytes = 0;
    if (!found->events.at)
        return ls_fail(LS_ERR_INVALID, "%s is not a trace of this program: there is no array \"traceEvents\"%s%s",
                       reader->name, found->wrong ? "; " : "", found->wrong ? found->wrong : "");
    char *header = header_text(found, text, end, &nbytes);
    if (!header) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", reader->name);
    ls_json *json;
    ls_status status = ls_json_parse(&json, reader->name, 1, header, nbytes);
    free(header);
    if (status != LS_OK) return status;
    read_header(reader, json);
    status = ls_json_failed(json) ? LS_ERR_INVALID : LS_OK;
    ls_json_close(json);
    return status;
}

/* Reads the events between the array's [ and its ]. */
static ls_status take_events(struct ls_chrome_reader *reader, struct ls_chrome_place place) {
    ls_status status = LS_OK;
    char next = ls_chrome_skip_blanks(&place);
    if (next == ']') return LS_OK;
    while (status == LS_OK && next) {
        struct ls_chrome_place begin = place;
        if (!ls_chrome_skip_value(&place) && place.at == begin.at) place.at++; /* a bracket or the like */
        status = ls_chrome_read_event(reader, begin.at, (size_t)(place.at - begin.at), begin.line);
        next = ls_chrome_skip_blanks(&place);
        if (status != LS_OK || next == ']') return status;
        if (next && next != ',')
            return ls_fail(LS_ERR_INVALID, "%s:%zu: expected a comma before this event", reader->name, place.line);
        place.at += next == ',';
        next = ls_chrome_skip_blanks(&place);
    }
    return status != LS_OK
               ? status
               : ls_fail(LS_ERR_INVALID, "%s:%zu: the file ends within its events", reader->name, place.line);
}

static ls_status check_end(const struct ls_chrome_reader *reader, const struct ls_chrome_text *found) {
    int steps = ls_trace_what(reader->trace)->steps;
    if (found->wrong) return ls_fail(LS_ERR_INVALID, "%s:%zu: %s", reader->name, found->wrong_line, found->wrong);
    if (steps > reader->task_count)
        return ls_fail(LS_ERR_INVALID, "%s:1: the header announces %d steps, but the file has only %d tasks",
                       reader->name, steps, reader->task_count);
    if (reader->highest_id >= reader->task_count)
        return ls_fail(LS_ERR_INVALID, "%s:%zu: an event waits for task %d, but there are only %d tasks", reader->name,
                       reader->highest_line, reader->highest_id, reader->task_count);
    return LS_OK;
}

/* Reads a file's text from its header to its end into reader->trace; its name, trace and lines are set. */
static ls_status read_text(struct ls_chrome_reader *reader, const char *text, size_t nbytes) {
    struct ls_chrome_text found;
    reader->first_lane = ls_trace_lane_count(reader->trace);
    reader->first_task = ls_trace_task_count(reader->trace);
    reader->task_count = 0;
    reader->highest_id = -1;
    if (nbytes == 0) return ls_fail(LS_ERR_INVALID, "%s is empty; expected a trace", reader->name);
    ls_chrome_find_events(&found, text, nbytes);
    ls_status status = take_header(reader, &found, text, text + nbytes);
    if (status == LS_OK) status = take_events(reader, found.events);
    return status == LS_OK ? check_end(reader, &found) : status;
}

ls_status ls_trace_read_text(ls_trace *trace, const char *name, const char *text, size_t nbytes) {
    struct ls_chrome_reader reader = {.trace = trace, .name = name};
    ls_status status = read_text(&reader, text, nbytes);
    free(reader.lines);
    return status;
}

/* --- a folder ---------------------------------------------------------------------------------------------------- */

/* Counts the rank files, and finds the highest rank among them (-1: none). */
static ls_status look_into(const char *folder, int *count, int *highest) {
    DIR *directory = opendir(folder);
    *count = 0;
    *highest = -1;
    if (!directory) return ls_fail(LS_ERR_IO, "cannot read the folder %s: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory));) {
        int rank = ls_chrome_rank_of(entry->d_name);
        *count += rank >= 0;
        if (rank > *highest) *highest = rank;
    }
    closedir(directory);
    if (*count == 0) return ls_fail(LS_ERR_IO, "%s holds no trace: there is no rank_0.pt.trace.json", folder);
    return LS_OK;
}

struct folder_reader {
    struct ls_chrome_reader reader;
    const char *folder;
    int *first_tasks; /* of each rank's file; one more for the end */
    int rank_count;
};

static void path_of(const struct folder_reader *f, int rank, char path[PATH_MAX]) {
    (void)ls_trace_file_name(path, PATH_MAX, f->folder, rank); /* fits: read_folder has checked the longest */
}

static ls_status read_rank_file(struct folder_reader *f, int rank) {
    char path[PATH_MAX], *text;
    size_t nbytes;
    path_of(f, rank, path);
    ls_status status = ls_file_read(path, LS_CHROME_MOST_BYTES, &text, &nbytes);
    f->reader.name = path;
    if (status == LS_OK) status = read_text(&f->reader, text, nbytes);
    f->reader.name = NULL; /* it points to this function's stack */
    free(text);
    f->first_tasks[rank + 1] = ls_trace_task_count(f->reader.trace);
    if (status != LS_OK) return status;
    int recorded = ls_trace_what(f->reader.trace)->recorded_ranks;
    if (f->reader.rank != rank) return ls_fail(LS_ERR_INVALID, "%s:1: the file is of rank %d", path, f->reader.rank);
    if (rank == 0 && f->rank_count > recorded) {
        path_of(f, f->rank_count - 1, path);
        return ls_fail(LS_ERR_INVALID, "%s:1: of the run of rank 0 %d rank%s recorded: the files are of different runs",
                       path, recorded, recorded == 1 ? " was" : "s were");
    }
    if (rank + 1 == f->rank_count && f->rank_count < recorded)
        return ls_fail(LS_ERR_IO, "%s: %d ranks of this run were recorded, but rank_%d.pt.trace.json is missing",
                       f->folder, recorded, f->rank_count);
    return LS_OK;
}

static ls_status refuse_task(const struct folder_reader *f, int task, const char *text) {
    char path[PATH_MAX];
    int rank = 0;
    if (task == LS_NONE) return ls_fail(LS_ERR_INVALID, "%s: %s", f->folder, text);
    while (f->first_tasks[rank + 1] <= task) rank++;
    path_of(f, rank, path);
    return ls_fail(LS_ERR_INVALID, "%s:%d: %s", path, f->reader.lines[task], text);
}

/* If every rank was recorded, every operation has the tasks of all its ranks. */
static ls_status check_meetings(const struct folder_reader *f) {
    const ls_trace *trace = f->reader.trace;
    const struct ls_trace_about *about = ls_trace_what(trace);
    for (int i = 0; i < ls_trace_meeting_count(trace) && about->recorded_ranks >= about->world_size; i++) {
        const struct ls_meeting *meeting = ls_trace_meeting(trace, i);
        if (meeting->tasks == meeting->ranks) continue;
        char text[200];
        int count;
        snprintf(text, sizeof text,
                 "operation %" PRIu32 " of \"%.40s\" has %d tasks for %d ranks: the files are of "
                 "different runs",
                 meeting->number, meeting->group, meeting->tasks, meeting->ranks);
        return refuse_task(f, ls_trace_meeting_tasks(trace, i, &count)[0], text);
    }
    return LS_OK;
}

static ls_status read_folder(struct folder_reader *f) {
    int count, highest;
    ls_status status = look_into(f->folder, &count, &highest);
    if (status != LS_OK) return status;
    char path[PATH_MAX];
    if (status == LS_OK) status = ls_trace_file_name(path, sizeof path, f->folder, highest);
    for (int rank = 0; status == LS_OK && rank <= highest; rank++) {
        path_of(f, rank, path);
        if (access(path, F_OK) != 0)
            status = ls_fail(LS_ERR_IO, "%s is missing, but the file of rank %d exists", path, highest);
    }
    f->rank_count = highest + 1;
    f->first_tasks = calloc((size_t)highest + 2, sizeof *f->first_tasks);
    if (status == LS_OK && !f->first_tasks)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to read %s", f->folder);
    for (int rank = 0; status == LS_OK && rank <= highest; rank++) status = read_rank_file(f, rank);
    if (status != LS_OK) return status;
    struct ls_trace_fault fault;
    status = ls_trace_seal_quietly(f->reader.trace, &fault);
    if (status == LS_ERR_INVALID) return refuse_task(f, fault.task, fault.text);
    if (status != LS_OK) return ls_fail(status, "%s: %s", f->folder, fault.text);
    return check_meetings(f);
}

ls_status ls_trace_read(ls_trace **out, const char *folder) {
    struct folder_reader f = {.folder = folder};
    *out = NULL;
    ls_status status = ls_trace_create(&f.reader.trace);
    if (status == LS_OK) status = read_folder(&f);
    if (status == LS_OK)
        *out = f.reader.trace;
    else
        ls_trace_destroy(f.reader.trace);
    free(f.reader.lines);
    free(f.first_tasks);
    return status;
}
