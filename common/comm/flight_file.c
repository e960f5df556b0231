/* flight_file — flight records as files: JSON lines (flight.h lists them).
 *   idea  : a line per operation, so that grep, jq and a text editor serve as well as build/flight
 *   fails : a file replaces another as a whole. A reader checks every field before it uses it, and names file and line */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/comm/flight.h"
#include "common/comm/reduce_kernels.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define WHOLE_MAX ((int64_t)1 << 53)

enum { GROUPS_MAX = LS_FLIGHT_RANKS * LS_FLIGHT_GROUPS, RANK_MAX = LS_FLIGHT_KEPT * LS_FLIGHT_GROUPS };

static const char *const states[] = {
#define LS_ROW(name, text) text,
    LS_FLIGHT_STATE_MAP(LS_ROW)};
static const char *const presences[] = {LS_FLIGHT_PRESENCE_MAP(LS_ROW)
#undef LS_ROW
};

/* --- life ----------------------------------------------------------------------------------------------------------- */

ls_flight_record *ls_flight_create(int world_size, int group_count) {
    ls_flight_record *record = calloc(1, sizeof *record);
    if (!record) return NULL;
    record->world_size = world_size;
    record->groups = calloc((size_t)group_count, sizeof *record->groups);
    record->ranks = calloc((size_t)world_size, sizeof *record->ranks);
    record->operations = calloc((size_t)world_size * RANK_MAX, sizeof *record->operations);
    for (int r = 0; record->ranks && record->operations && r < world_size; r++)
        record->ranks[r].operations = record->operations + (size_t)r * RANK_MAX;
    if (record->groups && record->ranks && record->operations) return record;
    ls_flight_free(record);
    return NULL;
}

void ls_flight_free(ls_flight_record *record) {
    if (!record) return;
    free(record->groups);
    free(record->ranks);
    free(record->operations);
    free(record);
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

static cJSON *begin_line(const char *line) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "line", line);
    return object;
}

static void add_number(cJSON *object, const char *name, int64_t value) {
    cJSON_AddNumberToObject(object, name, (double)value);
}

/* Without memory for a line the file's end is never written, and readers refuse the file. */
static void end_line(ls_file_writer *writer, cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    if (text) ls_file_writer_put(writer, text, strlen(text));
    if (text) ls_file_writer_put(writer, "\n", 1);
    cJSON_free(text);
    cJSON_Delete(object);
}

static void write_head(ls_file_writer *writer, const ls_flight_record *record) {
    cJSON *object = begin_line("record");
    add_number(object, "version", LS_FLIGHT_VERSION);
    cJSON_AddStringToObject(object, "program", record->program);
    cJSON_AddStringToObject(object, "backend", record->backend);
    add_number(object, "world_size", record->world_size);
    add_number(object, "taken_by", record->taken_by);
    add_number(object, "taken_ms", record->taken_ms);
    add_number(object, "group", record->group);
    cJSON_AddStringToObject(object, "status", record->status);
    cJSON_AddStringToObject(object, "reason", record->reason);
    end_line(writer, object);
}

static void write_group(ls_file_writer *writer, const ls_flight_group *group) {
    cJSON *object = begin_line("group");
    cJSON_AddStringToObject(object, "name", group->name);
    add_number(object, "first", group->first);
    add_number(object, "stride", group->stride);
    add_number(object, "size", group->size);
    end_line(writer, object);
}

static void write_rank(ls_file_writer *writer, int r, const ls_flight_rank *rank) {
    cJSON *object = begin_line("rank");
    add_number(object, "rank", r);
    add_number(object, "pid", rank->pid);
    cJSON_AddStringToObject(object, "presence", presences[rank->presence]);
    cJSON_AddBoolToObject(object, "late", rank->late);
    add_number(object, "looked_ms", rank->looked_ms);
    end_line(writer, object);
}

static void write_operation(ls_file_writer *writer, int rank, const ls_flight_operation *o) {
    cJSON *object = begin_line("operation");
    add_number(object, "rank", rank);
    add_number(object, "group", o->group);
    add_number(object, "number", (int64_t)o->number);
    add_number(object, "sequence", (int64_t)o->sequence);
    add_number(object, "received", (int64_t)o->received);
    cJSON_AddStringToObject(object, "kind", ls_operation_name((int32_t)o->kind));
    add_number(object, "count", (int64_t)o->count);
    cJSON_AddStringToObject(object, "dtype", ls_dtype_name((ls_dtype)o->dtype));
    cJSON_AddStringToObject(object, "op", ls_reduce_op_name((ls_reduce_op)o->op));
    add_number(object, "root", o->root);
    cJSON_AddStringToObject(object, "label", o->label);
    add_number(object, "label_number", o->label_number);
    cJSON_AddStringToObject(object, "state", states[o->state]);
    add_number(object, "enqueued_ms", o->enqueued_ms);
    add_number(object, "started_ms", o->started_ms);
    add_number(object, "done_ms", o->done_ms);
    end_line(writer, object);
}

ls_status ls_flight_write(const ls_flight_record *record, const char *path) {
    ls_file_writer *writer;
    ls_status status = ls_file_writer_open(&writer, path);
    if (status != LS_OK) return status;
    write_head(writer, record);
    for (int g = 0; g < record->group_count; g++) write_group(writer, &record->groups[g]);
    for (int r = 0; r < record->world_size; r++) write_rank(writer, r, &record->ranks[r]);
    for (int r = 0; r < record->world_size; r++)
        for (int i = 0; i < record->ranks[r].count; i++) write_operation(writer, r, &record->ranks[r].operations[i]);
    end_line(writer, begin_line("end"));
    return ls_file_writer_commit(writer);
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

/* A file while it is read, line by line. */
struct reading {
    ls_flight_record *record; /* NULL before its first line */
    int ranks;                /* lines of ranks so far */
    bool ended;
};

/* The index of the member's value in `names`. */
static int read_choice(ls_json *json, const cJSON *object, const char *name, const char *const *names, int count) {
    const char *text = ls_json_text(json, object, name);
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0) return i;
    ls_json_refuse(json, cJSON_GetObjectItem(object, name), "\"%s\" is not a %s of a flight record", text, name);
    return 0;
}

/* The text will be printed on a terminal, so control characters are replaced. */
static void read_text(ls_json *json, const cJSON *object, const char *name, char *to, size_t capacity) {
    snprintf(to, capacity, "%s", ls_json_text(json, object, name));
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
}

static void read_head(struct reading *reading, ls_json *json, const cJSON *line) {
    int64_t version = ls_json_whole(json, line, "version", 1, WHOLE_MAX);
    if (version != LS_FLIGHT_VERSION)
        ls_json_refuse(json, cJSON_GetObjectItem(line, "version"),
                       "the flight record has version %lld; this program reads version %d", (long long)version,
                       LS_FLIGHT_VERSION);
    int world_size = (int)ls_json_whole(json, line, "world_size", 1, LS_FLIGHT_RANKS);
    if (ls_json_failed(json)) return;
    ls_flight_record *record = reading->record = ls_flight_create(world_size, GROUPS_MAX);
    if (!record) {
        ls_json_refuse(json, line, "cannot allocate memory for a flight record of %d ranks", world_size);
        return;
    }
    read_text(json, line, "program", record->program, sizeof record->program);
    read_text(json, line, "backend", record->backend, sizeof record->backend);
    read_text(json, line, "status", record->status, sizeof record->status);
    read_text(json, line, "reason", record->reason, sizeof record->reason);
    record->taken_by = (int)ls_json_whole(json, line, "taken_by", 0, world_size - 1);
    record->taken_ms = ls_json_whole(json, line, "taken_ms", 0, WHOLE_MAX);
    record->group = (int)ls_json_whole(json, line, "group", 0, GROUPS_MAX - 1);
}

static void read_group(ls_flight_record *record, ls_json *json, const cJSON *line) {
    if (record->group_count == GROUPS_MAX) {
        ls_json_refuse(json, line, "the flight record has too many groups; expected at most %d", GROUPS_MAX);
        return;
    }
    ls_flight_group *group = &record->groups[record->group_count++];
    read_text(json, line, "name", group->name, sizeof group->name);
    group->first = (int)ls_json_whole(json, line, "first", 0, record->world_size - 1);
    group->stride = (int)ls_json_whole(json, line, "stride", 1, LS_FLIGHT_RANKS);
    group->size = (int)ls_json_whole(json, line, "size", 1, LS_FLIGHT_RANKS);
}

static void read_rank(struct reading *reading, ls_json *json, const cJSON *line) {
    int r = (int)ls_json_whole(json, line, "rank", 0, reading->record->world_size - 1);
    if (r != reading->ranks) ls_json_refuse(json, line, "found rank %d, expected rank %d", r, reading->ranks);
    reading->ranks++;
    ls_flight_rank *rank = &reading->record->ranks[r];
    rank->pid = (int)ls_json_whole(json, line, "pid", 0, INT32_MAX);
    rank->presence = (ls_flight_presence)read_choice(json, line, "presence", presences, LS_FLIGHT_PRESENCE_COUNT);
    rank->late = ls_json_bool(json, line, "late");
    rank->looked_ms = ls_json_whole(json, line, "looked_ms", 0, WHOLE_MAX);
}

static void read_operation(ls_flight_record *record, ls_json *json, const cJSON *line) {
    const char *kinds[LS_OPERATION_COUNT], *dtypes[LS_DTYPE_COUNT], *ops[LS_REDUCE_OP_COUNT];
    for (int i = 0; i < LS_OPERATION_COUNT; i++) kinds[i] = ls_operation_name(i);
    for (int i = 0; i < LS_DTYPE_COUNT; i++) dtypes[i] = ls_dtype_name((ls_dtype)i);
    for (int i = 0; i < LS_REDUCE_OP_COUNT; i++) ops[i] = ls_reduce_op_name((ls_reduce_op)i);
    ls_flight_rank *rank = &record->ranks[ls_json_whole(json, line, "rank", 0, record->world_size - 1)];
    if (rank->count == RANK_MAX) {
        ls_json_refuse(json, line, "a rank has too many operations; a ring holds at most %d", RANK_MAX);
        return;
    }
    uint64_t before = rank->count > 0 ? rank->operations[rank->count - 1].number : 0;
    ls_flight_operation *o = &rank->operations[rank->count++];
    o->number = (uint64_t)ls_json_whole(json, line, "number", before > 0 ? (int64_t)before : 1, WHOLE_MAX);
    o->group = (int)ls_json_whole(json, line, "group", 0, record->group_count - 1);
    o->sequence = (uint64_t)ls_json_whole(json, line, "sequence", 0, WHOLE_MAX);
    o->received = (uint64_t)ls_json_whole(json, line, "received", 0, WHOLE_MAX);
    o->count = (uint64_t)ls_json_whole(json, line, "count", 0, WHOLE_MAX);
    o->kind = (ls_operation_kind)read_choice(json, line, "kind", kinds, LS_OPERATION_COUNT);
    o->dtype = read_choice(json, line, "dtype", dtypes, LS_DTYPE_COUNT);
    o->op = read_choice(json, line, "op", ops, LS_REDUCE_OP_COUNT);
    o->root = (int)ls_json_whole(json, line, "root", -1, record->world_size - 1);
    read_text(json, line, "label", o->label, sizeof o->label);
    o->label_number = (int)ls_json_whole(json, line, "label_number", INT32_MIN, INT32_MAX);
    o->state = (ls_flight_state)read_choice(json, line, "state", states, LS_FLIGHT_STATE_COUNT);
    o->enqueued_ms = ls_json_whole(json, line, "enqueued_ms", 0, WHOLE_MAX);
    o->started_ms = ls_json_whole(json, line, "started_ms", 0, WHOLE_MAX);
    o->done_ms = ls_json_whole(json, line, "done_ms", 0, WHOLE_MAX);
}

static void read_line(struct reading *reading, ls_json *json, const cJSON *line) {
    const char *kind = ls_json_text(json, line, "line");
    if (strcmp(kind, "record") == 0 && !reading->record)
        read_head(reading, json, line);
    else if (!reading->record)
        ls_json_refuse(json, line, "expected a flight record, which begins with {\"line\":\"record\"");
    else if (strcmp(kind, "group") == 0)
        read_group(reading->record, json, line);
    else if (strcmp(kind, "rank") == 0)
        read_rank(reading, json, line);
    else if (strcmp(kind, "operation") == 0)
        read_operation(reading->record, json, line);
    else if (strcmp(kind, "end") == 0)
        reading->ended = true;
    else
        ls_json_refuse(json, line, "a flight record cannot have a line \"%s\"", kind);
}

static ls_status read_lines(struct reading *reading, const char *path, const char *text) {
    for (size_t number = 1; *text && !reading->ended; number++) {
        size_t nbytes = strcspn(text, "\n");
        ls_json *json;
        ls_status status = ls_json_parse(&json, path, number, text, nbytes);
        if (status != LS_OK) return status;
        read_line(reading, json, ls_json_root(json));
        bool failed = ls_json_failed(json);
        ls_json_close(json);
        if (failed) return LS_ERR_INVALID;
        text += nbytes + (text[nbytes] == '\n');
    }
    if (!reading->record) return ls_fail(LS_ERR_INVALID, "%s is empty; expected a flight record", path);
    if (!reading->ended || reading->ranks != reading->record->world_size ||
        reading->record->group >= reading->record->group_count)
        return ls_fail(LS_ERR_INVALID, "%s is truncated: the flight record has no last line", path);
    return LS_OK;
}

ls_status ls_flight_read(ls_flight_record **out, const char *path) {
    struct reading reading = {0};
    char *text;
    size_t nbytes;
    *out = NULL;
    ls_status status = ls_file_read(path, FILE_BYTES_MAX, &text, &nbytes);
    if (status != LS_OK) return status;
    status = read_lines(&reading, path, text);
    free(text);
    if (status != LS_OK) {
        ls_flight_free(reading.record);
        return status;
    }
    *out = reading.record;
    return LS_OK;
}
