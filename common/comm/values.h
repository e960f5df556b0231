/* Labels of values: what each tensor that ranks communicate is on each axis of the mesh (--debug-values).
 *
 *     replicated  the same bits on all ranks of the axis          partial  the sum over the axis is the value
 *     varying     each rank has a value of its own                split    each rank has a part of one value
 *
 * A rank's table has an entry for each labelled range of memory. Modes and layers set labels where a tensor comes to be; each
 * collective operation checks the labels of its input and sets those of its output (values.c has the table of both); the
 * optimizer asks for gradients that are complete; and at the end of a step the replicated ranges that are kept are compared in
 * bits, by hash. An operation on memory without a label is not checked.
 *
 * Between ls_values_enter and ls_values_leave, that is in a step, ls_values_on() is true in the rank's thread, if it has a
 * table. Whoever sets a label asks first, so that without --debug-values it costs one predicted branch:
 *
 *     if (ls_values_on()) ls_values_set(sums, nbytes, ls_labels_of(LS_PARTIAL, LS_VARYING), false, "sums of %s", name);
 *
 * The table belongs to the thread that has begun it, in which the rank's steps are enqueued. Failures are LS_ERR_INVALID, reported
 * with the tensor's name, the axis, and the place: block, and forward, backward or update. */
#ifndef LS_COMM_VALUES_H
#define LS_COMM_VALUES_H

#include "common/comm/mesh.h"

typedef enum ls_value { LS_REPLICATED, LS_VARYING, LS_PARTIAL, LS_SPLIT } ls_value;

struct ls_labels {
    ls_value on[LS_MESH_AXES];
};

typedef struct ls_values ls_values;
extern _Thread_local ls_values *ls_values_here; /* NULL: not in a step, or off */

static inline bool ls_values_on(void) { return __builtin_expect(ls_values_here != NULL, 0); }

/* On the pipeline axis each stage has values of its own. */
static inline struct ls_labels ls_labels_of(ls_value tensor, ls_value data) {
    return (struct ls_labels){{[LS_MESH_TENSOR] = tensor, [LS_MESH_DATA] = data, [LS_MESH_PIPELINE] = LS_VARYING}};
}

/* Gives this thread's rank a table. `groups`: those of the axes, borrowed until ls_values_end; NULL where an axis has one rank.
 * They compare bits between steps, when nothing else runs in them. */
ls_status ls_values_begin(const int sizes[LS_MESH_AXES], ls_comm *const groups[LS_MESH_AXES]);
void ls_values_end(void); /* without a table a no-op */

/* A step begins, and ends: without a table both do nothing. leave waits for `device` and compares what is replicated; not after a
 * failure (`status`), which it returns. Collective. */
void ls_values_enter(void);
ls_status ls_values_leave(ls_device *device, ls_status status);

/* --- while ls_values_on() ------------------------------------------------------------------------------------------- */

/* Where the rank is: "forward", "backward" or "update"; `block` below 0: in none. */
void ls_values_at(const char *pass, int block);

/* Labels a range; entries that lie there are replaced. Those that are kept are found by their names, which then are unique, also when
 * they have moved, and compared in bits where they are replicated at the step's end. */
__attribute__((format(printf, 5, 6))) void ls_values_set(const void *data, size_t nbytes, struct ls_labels labels,
                                                         bool kept, const char *format, ...);

/* The labels of what lies at the address; of what is kept under a name. They may be written. NULL: there are none. */
struct ls_labels *ls_values_find(const void *data);
__attribute__((format(printf, 1, 2))) struct ls_labels *ls_values_named(const char *format, ...);

/* LS_ERR_INVALID, reported, unless the label is one of `allowed` (bits 1 << label) or the axis has one rank. `reader` says what
 * for: "the update". */
ls_status ls_values_need(const char *name, const struct ls_labels *labels, ls_mesh_axis axis, unsigned allowed,
                         const char *reader);

#endif
