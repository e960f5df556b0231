/* Labels of values: how each communicated tensor relates across each axis of the mesh (--debug-values).
 *
 *     replicated  the same bits on all ranks of the axis          partial  the sum over the axis is the value
 *     varying     each rank has a different value                 split    each rank has a part of one value
 *
 * A rank's table has an entry for each labelled range of memory. Modes and layers set a label when they produce a
 * tensor. Each collective operation checks the labels of its input and sets those of its output (table: values.c). The
 * optimizer requires complete gradients. At the end of a step, kept ranges that are replicated are compared bit for
 * bit, by hash. An operation on memory without a label is not checked.
 *
 * Between ls_values_enter and ls_values_leave, that is in a step, ls_values_on() is true in the rank's thread, if it has a
 * table. Callers check it before they set a label, so that without --debug-values the cost is one predicted branch:
 *
 *     if (ls_values_on()) ls_values_set(sums, nbytes, ls_labels_of(LS_PARTIAL, LS_VARYING), false, "sums of %s", name);
 *
 * The table belongs to the thread that called ls_values_begin, which also enqueues the rank's steps. Failures are
 * LS_ERR_INVALID, reported with the tensor's name, the axis, the block, and the pass: forward, backward or update. */
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

/* On the pipeline axis every value is varying. */
static inline struct ls_labels ls_labels_of(ls_value tensor, ls_value data) {
    return (struct ls_labels){{[LS_MESH_TENSOR] = tensor, [LS_MESH_DATA] = data, [LS_MESH_PIPELINE] = LS_VARYING}};
}

/* Creates the table of this thread's rank. `groups`: one per axis, borrowed until ls_values_end; NULL for an axis of
 * one rank. They are used to compare bits between steps, when nothing else runs in them. */
ls_status ls_values_begin(const int sizes[LS_MESH_AXES], ls_comm *const groups[LS_MESH_AXES]);
void ls_values_end(void); /* without a table a no-op */

/* Begin and end a step; no-ops without a table. leave waits for `device` and compares the replicated ranges, unless
 * `status` is a failure, which it returns. Collective. */
void ls_values_enter(void);
ls_status ls_values_leave(ls_device *device, ls_status status);

/* --- while ls_values_on() ------------------------------------------------------------------------------------------- */

/* Sets the rank's position for messages: "forward", "backward" or "update"; `block` below 0: none. */
void ls_values_at(const char *pass, int block);

/* Labels a range; overlapping entries are replaced. A `kept` entry has a unique name, by which it is found even after
 * it has moved; if replicated, it is compared at the end of the step. */
__attribute__((format(printf, 5, 6))) void ls_values_set(const void *data, size_t nbytes, struct ls_labels labels,
                                                         bool kept, const char *format, ...);

/* The labels of the range at an address, or of the kept range with a name. The caller may change them. NULL: none. */
struct ls_labels *ls_values_find(const void *data);
__attribute__((format(printf, 1, 2))) struct ls_labels *ls_values_named(const char *format, ...);

/* LS_ERR_INVALID, reported, unless the label is one of `allowed` (bits 1 << label) or the axis has one rank. `reader`,
 * the user of the value, is for the message: "the update". */
ls_status ls_values_need(const char *name, const struct ls_labels *labels, ls_mesh_axis axis, unsigned allowed,
                         const char *reader);

#endif
