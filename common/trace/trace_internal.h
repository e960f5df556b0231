/* What the files of ls_trace share. Private to common/trace. */
#ifndef LS_TRACE_TRACE_INTERNAL_H
#define LS_TRACE_TRACE_INTERNAL_H

#include "common/trace/trace.h"

/* An array that grows by half; `items` are of the size that its user says. */
struct ls_growing {
    void *items;
    size_t count, capacity;
};

struct ls_trace_edge {
    int before, task;
};

/* Lists of ints, one after another: list i is items[start[i]] .. items[start[i + 1] - 1]. */
struct ls_int_lists {
    int *start, *items;
};

/* Texts, each kept once: blocks that never move, and a hash table of where the texts begin in them. */
struct ls_text_block;
struct ls_texts {
    struct ls_text_block *blocks;
    const char **table; /* capacity: a power of 2, at most 3/4 of it in use */
    size_t capacity, count;
};

struct ls_trace {
    struct ls_growing lanes, tasks, marks, meetings, parameters, edges;
    struct ls_texts texts;
    int *meeting_table; /* hash table: group and number to index + 1; 0: free */
    size_t meeting_capacity;
    struct ls_trace_about about;
    bool failed, sealed; /* failed: no memory, or more than 2^31 of something */

    /* sealed */
    struct ls_int_lists before, after, lane_tasks, meeting_tasks;
    int *next_on_lane; /* the task behind a task, or LS_NONE */
};

/* What is wrong with a trace: a line of text, and the tasks it is about (LS_NONE: none). */
struct ls_trace_fault {
    char text[400];
    int task, other;
};

/* ls_trace_seal without the report: the reader of files knows the line of each task. */
ls_status ls_trace_seal_quietly(ls_trace *trace, struct ls_trace_fault *fault);

void ls_trace_unseal(ls_trace *trace); /* frees what sealing made */

/* Grows an array whose address is at `items`, of `size` bytes each, so that one more than `count` fits; false: no
 * memory. */
bool ls_trace_room(void *items, int count, int *capacity, size_t size);

#endif
