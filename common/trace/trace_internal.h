/* Shared by the files of ls_trace. Private to common/trace. */
#ifndef LS_TRACE_TRACE_INTERNAL_H
#define LS_TRACE_TRACE_INTERNAL_H

#include "common/trace/trace.h"

/* An array that grows by half; its user knows the size of `items`. */
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

/* Texts, each stored once: blocks that never move, and a hash table of the texts' addresses. */
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
    int *next_on_lane; /* the task after each task, or LS_NONE */
};

/* A fault of a trace: a line of text, and the tasks concerned (LS_NONE: none). */
struct ls_trace_fault {
    char text[400];
    int task, other;
};

/* ls_trace_seal without printing: the reader of files knows the line of each task. */
ls_status ls_trace_seal_quietly(ls_trace *trace, struct ls_trace_fault *fault);

void ls_trace_unseal(ls_trace *trace); /* frees the results of sealing */

/* Grows the array whose address is stored at `items`, of `size` bytes an item, to more than `count` items; false: no
 * memory. */
bool ls_trace_room(void *items, int count, int *capacity, size_t size);

#endif
