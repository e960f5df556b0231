/* trace — builds a trace, and reads it once it is sealed (trace_seal.c).
 *   idea  : all references are indices into arrays that grow by half; texts are stored once, so a task's name costs a
 *           pointer
 *   cost  : a sealed task takes 137 bytes, an edge 16; adding is O(1) on average
 *   fails : out of memory is remembered until the trace is sealed, so that builders need no branch for each task */
#include "common/trace/trace_internal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/log.h"

/* --- arrays that grow --------------------------------------------------------------------------------------------- */

/* Makes room for one more item of `size` bytes at the end; returns its index, or -1. */
static int grow(ls_trace *trace, struct ls_growing *array, size_t size) {
    if (array->count == INT_MAX) trace->failed = true;
    if (trace->failed) return -1;
    if (array->count == array->capacity) {
        size_t capacity = array->capacity + array->capacity / 2 + 16;
        void *items = realloc(array->items, capacity * size);
        if (!items) {
            trace->failed = true;
            return -1;
        }
        array->items = items;
        array->capacity = capacity;
    }
    return (int)array->count++;
}

bool ls_trace_room(void *items, int count, int *capacity, size_t size) {
    if (count < *capacity) return true;
    if (*capacity > INT_MAX / 2 - 16) return false;
    int wider = *capacity + *capacity / 2 + 16;
    void *grown = realloc(*(void **)items, (size_t)wider * size);
    if (!grown) return false;
    *(void **)items = grown;
    *capacity = wider;
    return true;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

#define TEXT_BLOCK_NBYTES ((size_t)16 << 10)

struct ls_text_block {
    struct ls_text_block *next;
    size_t used, capacity;
    char text[];
};

static const char **text_slot(const char **table, size_t capacity, const char *text) {
    size_t slot = (size_t)ls_hash(LS_HASH_SEED, text, strlen(text)) & (capacity - 1);
    while (table[slot] && strcmp(table[slot], text) != 0) slot = (slot + 1) & (capacity - 1);
    return &table[slot];
}

static bool texts_widen(struct ls_texts *texts) {
    if (texts->count * 4 < texts->capacity * 3) return true;
    size_t capacity = texts->capacity > 0 ? texts->capacity * 2 : 64;
    const char **table = calloc(capacity, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < texts->capacity; i++)
        if (texts->table[i]) *text_slot(table, capacity, texts->table[i]) = texts->table[i];
    free(texts->table);
    texts->table = table;
    texts->capacity = capacity;
    return true;
}

static const char *texts_keep(struct ls_texts *texts, const char *text) {
    size_t nbytes = strlen(text) + 1;
    struct ls_text_block *block = texts->blocks;
    if (!block || block->capacity - block->used < nbytes) {
        size_t capacity = nbytes > TEXT_BLOCK_NBYTES ? nbytes : TEXT_BLOCK_NBYTES;
        block = malloc(sizeof *block + capacity);
        if (!block) return NULL;
        *block = (struct ls_text_block){.next = texts->blocks, .capacity = capacity};
        texts->blocks = block;
    }
    char *copy = memcpy(block->text + block->used, text, nbytes);
    block->used += nbytes;
    return copy;
}

const char *ls_trace_text(ls_trace *trace, const char *text) {
    if (!text || text[0] == '\0') return "";
    if (!texts_widen(&trace->texts)) trace->failed = true;
    if (trace->failed) return "";
    const char **slot = text_slot(trace->texts.table, trace->texts.capacity, text);
    if (*slot) return *slot;
    *slot = texts_keep(&trace->texts, text);
    if (!*slot) {
        trace->failed = true;
        return "";
    }
    trace->texts.count++;
    return *slot;
}

static void texts_free(struct ls_texts *texts) {
    for (struct ls_text_block *block = texts->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(texts->table);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

ls_status ls_trace_create(ls_trace **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a trace");
    struct ls_trace_about *about = &(*out)->about;
    about->mode = about->model = about->precision = about->optimizer = about->device_kind = about->device_name = "";
    about->backend = about->algorithm = about->stream_mode = "";
    about->median_step_ms = NAN;
    return LS_OK;
}

void ls_trace_destroy(ls_trace *trace) {
    if (!trace) return;
    ls_trace_unseal(trace);
    free(trace->lanes.items);
    free(trace->tasks.items);
    free(trace->marks.items);
    free(trace->meetings.items);
    free(trace->parameters.items);
    free(trace->edges.items);
    free(trace->meeting_table);
    texts_free(&trace->texts);
    free(trace);
}

struct ls_trace_about *ls_trace_about(ls_trace *trace) {
    return &trace->about;
}

struct ls_task ls_task_default(ls_task_kind kind, const char *name, int lane) {
    return (struct ls_task){.name = name,
                            .phase = "",
                            .kind = kind,
                            .lane = lane,
                            .step = -1,
                            .us = -1,
                            .from = LS_HOST_MEMORY,
                            .to = LS_HOST_MEMORY,
                            .meeting = LS_NONE,
                            .lock = LS_NONE,
                            .work = LS_NONE,
                            .launched_us = NAN,
                            .start_us = NAN,
                            .end_us = NAN};
}

int ls_trace_add_lane(ls_trace *trace, const struct ls_lane *lane) {
    struct ls_lane copy = *lane;
    copy.name = ls_trace_text(trace, lane->name);
    int index = grow(trace, &trace->lanes, sizeof copy);
    if (index < 0) return 0;
    ((struct ls_lane *)trace->lanes.items)[index] = copy;
    return index;
}

int ls_trace_add_task(ls_trace *trace, const struct ls_task *task) {
    struct ls_task copy = *task;
    copy.name = ls_trace_text(trace, task->name);
    copy.phase = ls_trace_text(trace, task->phase);
    int index = grow(trace, &trace->tasks, sizeof copy);
    if (index < 0) return 0;
    ((struct ls_task *)trace->tasks.items)[index] = copy;
    return index;
}

int ls_trace_add_mark(ls_trace *trace, const struct ls_mark *mark) {
    struct ls_mark copy = *mark;
    copy.name = ls_trace_text(trace, mark->name);
    int index = grow(trace, &trace->marks, sizeof copy);
    if (index < 0) return 0;
    ((struct ls_mark *)trace->marks.items)[index] = copy;
    return index;
}

int ls_trace_add_parameter(ls_trace *trace, const struct ls_trace_parameter *parameter) {
    struct ls_trace_parameter copy = {.name = ls_trace_text(trace, parameter->name), .count = parameter->count};
    int index = grow(trace, &trace->parameters, sizeof copy);
    if (index < 0) return 0;
    ((struct ls_trace_parameter *)trace->parameters.items)[index] = copy;
    return index;
}

void ls_trace_add_edge(ls_trace *trace, int before, int task) {
    int index = grow(trace, &trace->edges, sizeof(struct ls_trace_edge));
    if (index < 0) return;
    ((struct ls_trace_edge *)trace->edges.items)[index] = (struct ls_trace_edge){.before = before, .task = task};
}

/* --- meetings, found by group and number -------------------------------------------------------------------------- */

/* Groups are texts of the trace, so that equal names have the same address. */
static int *meeting_slot(const ls_trace *trace, int *table, size_t capacity, const char *group, uint32_t number) {
    const struct ls_meeting *meetings = trace->meetings.items;
    size_t slot = (size_t)ls_hash(ls_hash(LS_HASH_SEED, &group, sizeof group), &number, sizeof number) & (capacity - 1);
    while (table[slot] > 0 && (meetings[table[slot] - 1].group != group || meetings[table[slot] - 1].number != number))
        slot = (slot + 1) & (capacity - 1);
    return &table[slot];
}

static bool meetings_widen(ls_trace *trace) {
    if (trace->meetings.count * 4 < trace->meeting_capacity * 3) return true;
    size_t capacity = trace->meeting_capacity > 0 ? trace->meeting_capacity * 2 : 64;
    int *table = calloc(capacity, sizeof *table);
    if (!table) return false;
    const struct ls_meeting *meetings = trace->meetings.items;
    for (size_t i = 0; i < trace->meetings.count; i++)
        *meeting_slot(trace, table, capacity, meetings[i].group, meetings[i].number) = (int)i + 1;
    free(trace->meeting_table);
    trace->meeting_table = table;
    trace->meeting_capacity = capacity;
    return true;
}

int ls_trace_join_meeting(ls_trace *trace, const struct ls_meeting *meeting) {
    struct ls_meeting copy = *meeting;
    copy.group = ls_trace_text(trace, meeting->group);
    copy.operation = ls_trace_text(trace, meeting->operation);
    copy.algorithm = ls_trace_text(trace, meeting->algorithm);
    copy.dtype = ls_trace_text(trace, meeting->dtype);
    copy.tasks = 0;
    if (!meetings_widen(trace)) trace->failed = true;
    if (trace->failed) return 0;
    int *slot = meeting_slot(trace, trace->meeting_table, trace->meeting_capacity, copy.group, copy.number);
    if (*slot == 0) {
        int index = grow(trace, &trace->meetings, sizeof copy);
        if (index < 0) return 0;
        ((struct ls_meeting *)trace->meetings.items)[index] = copy;
        *slot = index + 1;
    }
    ((struct ls_meeting *)trace->meetings.items)[*slot - 1].tasks++;
    return *slot - 1;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

int ls_trace_lane_count(const ls_trace *trace) { return (int)trace->lanes.count; }
int ls_trace_task_count(const ls_trace *trace) { return (int)trace->tasks.count; }
int ls_trace_mark_count(const ls_trace *trace) { return (int)trace->marks.count; }
int ls_trace_meeting_count(const ls_trace *trace) { return (int)trace->meetings.count; }
int ls_trace_parameter_count(const ls_trace *trace) { return (int)trace->parameters.count; }

const struct ls_lane *ls_trace_lane(const ls_trace *trace, int lane) {
    return &((const struct ls_lane *)trace->lanes.items)[lane];
}

const struct ls_task *ls_trace_task(const ls_trace *trace, int task) {
    return &((const struct ls_task *)trace->tasks.items)[task];
}

const struct ls_mark *ls_trace_mark(const ls_trace *trace, int mark) {
    return &((const struct ls_mark *)trace->marks.items)[mark];
}

const struct ls_meeting *ls_trace_meeting(const ls_trace *trace, int meeting) {
    return &((const struct ls_meeting *)trace->meetings.items)[meeting];
}

const struct ls_trace_parameter *ls_trace_parameter(const ls_trace *trace, int parameter) {
    return &((const struct ls_trace_parameter *)trace->parameters.items)[parameter];
}

const struct ls_trace_about *ls_trace_what(const ls_trace *trace) { return &trace->about; }

void ls_trace_set_times(ls_trace *trace, int task, double launched_us, double start_us, double end_us) {
    struct ls_task *changed = &((struct ls_task *)trace->tasks.items)[task];
    changed->launched_us = launched_us;
    changed->start_us = start_us;
    changed->end_us = end_us;
}

static const int *list(const struct ls_int_lists *lists, int index, int *count) {
    *count = lists->start[index + 1] - lists->start[index];
    return lists->items + lists->start[index];
}

const int *ls_trace_before(const ls_trace *trace, int task, int *count) { return list(&trace->before, task, count); }

const int *ls_trace_after(const ls_trace *trace, int task, int *count) { return list(&trace->after, task, count); }

const int *ls_trace_lane_tasks(const ls_trace *trace, int lane, int *count) {
    return list(&trace->lane_tasks, lane, count);
}

const int *ls_trace_meeting_tasks(const ls_trace *trace, int meeting, int *count) {
    return list(&trace->meeting_tasks, meeting, count);
}

#define LANE_NAME(name, text) text,
#define TASK_NAME(name, text) text,

const char *ls_lane_kind_name(ls_lane_kind kind) {
    static const char *const names[] = {LS_LANE_MAP(LANE_NAME)};
    return names[kind];
}

const char *ls_task_kind_name(ls_task_kind kind) {
    static const char *const names[] = {LS_TASK_MAP(TASK_NAME)};
    return names[kind];
}
