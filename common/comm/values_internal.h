/* The table of labels, shared by values.c and values_compare.c. */
#ifndef LS_COMM_VALUES_INTERNAL_H
#define LS_COMM_VALUES_INTERNAL_H

#include "common/comm/values.h"

enum { LS_VALUE_NAME = 96 };

struct ls_labelled {
    const char *begin; /* NULL: its memory was relabelled */
    size_t nbytes;
    char name[LS_VALUE_NAME];
    struct ls_labels labels;
    bool kept;
};

struct ls_values {
    int sizes[LS_MESH_AXES];
    ls_comm *groups[LS_MESH_AXES];
    struct ls_labelled *list;
    size_t count, room;
    const char *pass;
    int block;
    bool is_full; /* memory for an entry ran out */
};

extern const char *const ls_mesh_axis_names[LS_MESH_AXES];

/* values_compare.c: compares, bit for bit, the kept ranges that are replicated on the axis. Collective over its group,
 * host-blocking. */
ls_status ls_values_compare(const ls_values *values, ls_mesh_axis axis, ls_stream *stream);

#endif
