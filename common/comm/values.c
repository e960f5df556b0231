/* values — the labels of tensors, and how a collective operation changes them.
 *   idea  : how a tensor is distributed over the ranks of an axis is known where it is created, and changes in
 *           collectives only. A slightly wrong loss is usually a sum over values that were not its terms, or a term
 *           that was never summed
 *   table : for each axis that the operation's group spans; labels on the other axes stay unchanged
 *
 *               operation         input                    output
 *               all_reduce sum    partial                  replicated
 *               all_reduce max    varying, replicated      replicated
 *               reduce_scatter    partial                  split
 *               all_gather        split, varying           replicated
 *               broadcast         varying, replicated      replicated
 *               send, recv        any                      as it is
 *
 *   axes  : an operation's axes are those on which the group's ranks have different coordinates, by their ranks in the
 *           job (mesh.h). So a group with too many ranks is found by the axis that it should not span
 *   cost  : off: a branch per operation. On: a pass over all entries per operation
 *   fails : memory without a label is not checked. Wrong labels are not found, except that memory labelled replicated
 *           is compared bitwise */
#include "common/comm/values.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/comm/comm_internal.h"
#include "common/comm/values_internal.h"

_Thread_local ls_values *ls_values_here;
static _Thread_local ls_values *own;

const char *const ls_mesh_axis_names[LS_MESH_AXES] = {"tensor", "data", "pipeline"};
static const char *const texts[] = {"replicated", "varying", "partial", "split"};

/* --- the table ------------------------------------------------------------------------------------------------------- */

ls_status ls_values_begin(const int sizes[LS_MESH_AXES], ls_comm *const groups[LS_MESH_AXES]) {
    own = calloc(1, sizeof *own);
    if (!own) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the labels of values");
    memcpy(own->sizes, sizes, sizeof own->sizes);
    memcpy(own->groups, groups, sizeof own->groups);
    return LS_OK;
}

void ls_values_end(void) {
    if (own) free(own->list);
    free(own);
    own = ls_values_here = NULL;
}

void ls_values_at(const char *pass, int block) {
    ls_values_here->pass = pass;
    ls_values_here->block = block;
}

static bool overlaps(const struct ls_labelled *entry, const void *data, size_t nbytes) {
    const char *begin = data;
    return entry->begin && entry->begin < begin + nbytes && begin < entry->begin + entry->nbytes;
}

static struct ls_labelled *find_kept(const char *name) {
    ls_values *v = ls_values_here;
    for (size_t i = 0; i < v->count; i++)
        if (v->list[i].kept && strcmp(v->list[i].name, name) == 0) return &v->list[i];
    return NULL;
}

/* A new entry, in place of one whose memory has been freed, if there is one. */
static struct ls_labelled *add_entry(ls_values *v) {
    for (size_t i = 0; i < v->count; i++)
        if (!v->list[i].kept && !v->list[i].begin) return &v->list[i];
    if (v->count == v->room) {
        size_t room = 2 * v->room + 64;
        struct ls_labelled *list = realloc(v->list, room * sizeof *list);
        if (!list) return NULL;
        v->list = list;
        v->room = room;
    }
    return &v->list[v->count++];
}

void ls_values_set(const void *data, size_t nbytes, struct ls_labels labels, bool kept, const char *format, ...) {
    ls_values *v = ls_values_here;
    char name[LS_VALUE_NAME];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (nbytes == 0) return;
    for (size_t i = 0; i < v->count; i++)
        if (overlaps(&v->list[i], data, nbytes)) v->list[i].begin = NULL;
    struct ls_labelled *entry = kept ? find_kept(name) : NULL;
    if (!entry) entry = add_entry(v);
    v->is_full = v->is_full || !entry;
    if (!entry) return;
    *entry = (struct ls_labelled){.begin = data, .nbytes = nbytes, .labels = labels, .kept = kept};
    memcpy(entry->name, name, sizeof name);
}

static struct ls_labelled *first_at(const void *data, size_t nbytes) {
    ls_values *v = ls_values_here;
    for (size_t i = 0; i < v->count; i++)
        if (overlaps(&v->list[i], data, nbytes)) return &v->list[i];
    return NULL;
}

struct ls_labels *ls_values_find(const void *data) {
    struct ls_labelled *entry = first_at(data, 1);
    return entry ? &entry->labels : NULL;
}

struct ls_labels *ls_values_named(const char *format, ...) {
    char name[LS_VALUE_NAME];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    struct ls_labelled *entry = find_kept(name);
    return entry ? &entry->labels : NULL;
}

/* --- checks ---------------------------------------------------------------------------------------------------------- */

/* "partial" or "split or varying". */
static const char *allowed_text(char text[40], unsigned allowed) {
    size_t length = 0;
    text[0] = '\0';
    for (int label = 0; label <= LS_SPLIT; label++)
        if (allowed & 1u << label)
            length += (size_t)snprintf(text + length, 40 - length, "%s%s", length > 0 ? " or " : "", texts[label]);
    return text;
}

ls_status ls_values_need(const char *name, const struct ls_labels *labels, ls_mesh_axis axis, unsigned allowed,
                         const char *reader) {
    const ls_values *v = ls_values_here;
    char expected[40], block[24] = "";
    if (v->sizes[axis] == 1 || allowed & 1u << labels->on[axis]) return LS_OK;
    if (v->block >= 0) snprintf(block, sizeof block, "block %d, ", v->block);
    return ls_fail(LS_ERR_INVALID, "--debug-values: %s, %s axis, %s%s: found %s, but %s needs %s", name,
                   ls_mesh_axis_names[axis], block, v->pass, texts[labels->on[axis]], reader,
                   allowed_text(expected, allowed));
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

struct rule {
    unsigned allowed; /* 0: none */
    ls_value after;
};

/* The operation's row of the table above, as bits 1 << LS_PARTIAL and so on. If it moves no values between ranks, or is
 * a message between two, `allowed` is 0: it is not checked, and changes no label. */
static struct rule rule_of(const ls_announcement *what) {
    const unsigned own_values = 1u << LS_VARYING | 1u << LS_REPLICATED;
    switch (what->kind) {
    case LS_OPERATION_ALL_REDUCE:
        return (struct rule){what->op == LS_REDUCE_SUM ? 1u << LS_PARTIAL : own_values, LS_REPLICATED};
    case LS_OPERATION_REDUCE_SCATTER: return (struct rule){1u << LS_PARTIAL, LS_SPLIT};
    case LS_OPERATION_ALL_GATHER: return (struct rule){1u << LS_SPLIT | 1u << LS_VARYING, LS_REPLICATED};
    case LS_OPERATION_BROADCAST: return (struct rule){own_values, LS_REPLICATED};
    default: return (struct rule){0, LS_VARYING};
    }
}

/* Whether ranks of the group have different places on the axis. A rank's place follows from its rank in the job
 * (ls_job_rank) and the sizes of the axes (mesh.h). */
static bool spans(const ls_comm *comm, ls_mesh_axis axis) {
    const int *sizes = ls_values_here->sizes;
    int below = axis == LS_MESH_TENSOR ? 1 : sizes[LS_MESH_TENSOR];
    if (axis == LS_MESH_PIPELINE) below *= sizes[LS_MESH_DATA];
    for (int r = 1; r < comm->world_size; r++)
        if (ls_job_rank(comm, r) / below % sizes[axis] != ls_job_rank(comm, 0) / below % sizes[axis]) return true;
    return false;
}

static ls_status check_entry(const struct ls_labelled *entry, const ls_operation *operation, unsigned allowed) {
    const ls_comm *comm = operation->comm;
    char number[16] = "", reader[128];
    if (comm->label && comm->label_number >= 0) snprintf(number, sizeof number, " %d", comm->label_number);
    snprintf(reader, sizeof reader, "%s%s%s%s in group %s", ls_operation_name(operation->what.kind),
             comm->label ? " of " : "", comm->label ? comm->label : "", number, comm->name);
    ls_status status = LS_OK;
    for (int a = 0; a < LS_MESH_AXES && status == LS_OK; a++)
        if (spans(comm, (ls_mesh_axis)a))
            status = ls_values_need(entry->name, &entry->labels, (ls_mesh_axis)a, allowed, reader);
    return status;
}

/* Sets the labels after an operation of the group. */
static void relabel(struct ls_labels *labels, const ls_comm *comm, ls_value after) {
    for (int a = 0; a < LS_MESH_AXES; a++)
        if (spans(comm, (ls_mesh_axis)a)) labels->on[a] = after;
}

/* After the operation, entries within its output get new labels. If there are none, the output becomes a new entry with
 * its input's name. */
static void label_output(const ls_operation *operation, ls_value after, const char *in, size_t read, size_t written) {
    ls_values *v = ls_values_here;
    bool gathers = operation->what.kind == LS_OPERATION_ALL_GATHER, in_place = !operation->send, any = false;
    const char *changed = gathers ? operation->receive : in;
    const struct ls_labelled *first = first_at(in, read);
    struct ls_labelled result = first ? *first : (struct ls_labelled){.begin = NULL};
    for (size_t i = 0; i < v->count; i++) {
        bool changes = overlaps(&v->list[i], changed, gathers ? written : read) && (in_place || v->list[i].kept);
        if (changes) relabel(&v->list[i].labels, operation->comm, after);
        any = any || changes;
    }
    if (any || !first) return;
    relabel(&result.labels, operation->comm, after);
    ls_values_set(operation->receive, written, result.labels, false, "%s", result.name);
}

static ls_status check_operation(const ls_operation *operation) {
    const ls_values *v = ls_values_here;
    const ls_announcement *what = &operation->what;
    const struct rule rule = rule_of(what);
    const char *in = operation->send ? operation->send : operation->receive;
    size_t nbytes = what->count * ls_dtype_nbytes((ls_dtype)what->dtype), world = (size_t)operation->comm->world_size;
    size_t read = what->kind == LS_OPERATION_REDUCE_SCATTER ? world * nbytes : nbytes;
    size_t written = what->kind == LS_OPERATION_ALL_GATHER ? world * nbytes : nbytes;
    ls_status status = LS_OK;
    if (!rule.allowed) return LS_OK;
    for (size_t i = 0; i < v->count && status == LS_OK; i++)
        if (overlaps(&v->list[i], in, read)) status = check_entry(&v->list[i], operation, rule.allowed);
    if (status == LS_OK) label_output(operation, rule.after, in, read, written);
    return status;
}

/* --- a step ------------------------------------------------------------------------------------------------------------ */

void ls_values_enter(void) {
    ls_values_here = own;
    ls_operation_check = own ? check_operation : NULL;
    if (own) ls_values_at("start of the step", -1);
}

ls_status ls_values_leave(ls_device *device, ls_status status) {
    ls_values *v = ls_values_here;
    ls_values_here = NULL;
    ls_operation_check = NULL;
    if (!v || status != LS_OK || ls_device_kind_of(device) == LS_DEVICE_META) return status;
    if (v->is_full) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the labels of values");
    status = ls_device_synchronize(device);
    for (int a = 0; a < LS_MESH_AXES && status == LS_OK; a++)
        if (v->sizes[a] > 1 && v->groups[a])
            status = ls_values_compare(v, (ls_mesh_axis)a, ls_device_stream(device, LS_STREAM_COMM));
    return status;
}
