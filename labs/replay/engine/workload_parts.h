/* Builds an ls_workload step by step: shared by the two readers (workload.c, workload_trace.c). */
#ifndef LABS_REPLAY_ENGINE_WORKLOAD_PARTS_H
#define LABS_REPLAY_ENGINE_WORKLOAD_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "labs/replay/engine/workload.h"

struct ls_workload_parts {
    ls_workload workload; /* first: ls_workload_close frees all of it by its address */
    size_t work_room, parameter_room, ready_room;
    struct ls_workload_note *texts;
    bool failed; /* no memory */
};

/* NULL: no memory, reported. */
struct ls_workload_parts *ls_workload_begin(void);

/* These copy their arguments. If memory runs out they do nothing, and ls_workload_finish reports it. */
const char *ls_workload_text(struct ls_workload_parts *parts, const char *text);
void ls_workload_add_work(struct ls_workload_parts *parts, const struct ls_work *work);
int ls_workload_add_parameter(struct ls_workload_parts *parts, const char *name, uint64_t count);
void ls_workload_add_ready(struct ls_workload_parts *parts, int parameter);

/* Adds the operations of a step, and the bytes that a sample keeps and exchanges, to a workload that has its layers and
 * parameters. */
void ls_workload_add_step(struct ls_workload_parts *parts);

/* Whether a kernel's name, like "gemm 64x512x784", begins with this kind, like "gemm". */
bool ls_workload_kernel_is(const char *name, const char *kind);

/* Whether such a kernel is a matrix multiply or a convolution, which run at the device's rate. */
bool ls_workload_kernel_is_product(const char *name);

/* Deduces properties that the workload's trace does not record: batch norm's channels and buffers, the bytes that a
 * sample keeps and exchanges, the optimizer's states. */
void ls_workload_deduce(ls_workload *workload, const ls_trace *trace);

/* Returns the workload in *out; if `status` is not LS_OK, or memory ran out, frees it and sets *out to NULL. */
ls_status ls_workload_finish(struct ls_workload_parts *parts, ls_status status, ls_workload **out);

#endif
