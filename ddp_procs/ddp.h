/* The state of DistributedDataParallel on one rank, shared by the files of this folder. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "ddp_procs/distributed.h"

struct ddp {
    ls_parallel base; /* first: ops receive a pointer to it */
    /* constant after create */
    ls_comm *comm, *sync_bn; /* comm averages gradients; sync_bn: the group of synchronised batch norm, or NULL */
    ls_comm *job;            /* all ranks; without a grid it is comm */
    ls_stream *compute, *copy, *comm_stream;
    ddp_reducer *reducer;
    float *dy;           /* gradient of the outputs */
    float *buffers;      /* the model's buffers, one range */
    size_t buffer_count; /* floats */
    ddp_join_options join;
    bool compare_each_step, find_unused;
    ls_event *buffers_idle, *buffers_arrived;
    /* changes from step to step */
    bool buffers_travel,
        buffers_changed; /* buffers.c: buffers_travel: broadcast before this forward; buffers_changed: by the last forward */
    int buffers_root; /* the rank that broadcasts buffers: 0; with join, the highest rank that has samples */
    /* gradients are scaled by this / samples of the step: W; with join, optionally, the number of ranks that have a
     * batch, even of 0 samples */
    int gradient_weight;
};

static inline struct ddp *ddp_of(ls_parallel *p) { return (struct ddp *)p; }

/* ddp_step.c: the four calls of a step (common/seam/mode.h) */
void ddp_prepare(ls_parallel *p, const ls_batch *batch);
ls_status ddp_forward_backward(ls_parallel *p);
ls_status ddp_reduce(ls_parallel *p);
ls_status ddp_apply(ls_parallel *p);

/* buffers.c */
/* In prepare: decides whether buffers are broadcast before the next forward. */
void ddp_begin_forward(struct ddp *ddp);
/* Before that forward: enqueues the broadcast from buffers_root, if so decided. */
void ddp_sync_buffers(struct ddp *ddp);
/* The same between steps, if the last forward has changed them. Host-blocking. */
ls_status ddp_share_buffers(struct ddp *ddp);
ls_status ddp_before_evaluation(ls_parallel *p);

/* distributed.c */
/* A variant of DDP: its row, the size of its state, which begins with struct ddp, and the function that creates the
 * reducer and the optimizer. On failure the step's destroy is called. */
struct ddp_kind {
    const struct ls_mode *mode;
    size_t state_nbytes;
    ls_status (*create_update)(struct ddp *ddp, const ddp_options *options);
};
ls_status ddp_create_as(ls_parallel **out, const struct ddp_kind *kind, ls_model *model, const ddp_options *options);
void ddp_destroy(ls_parallel *p);
const char *ddp_graph_obstacle(const ls_parallel *p);
void ddp_describe(const ls_parallel *p, struct ls_trace_about *about);

/* The optimizer's step, except for parameters that no rank has used; with compare_each_step the ranks then compare
 * their state. */
ls_status ddp_update(struct ddp *ddp);

/* process.c: communication between steps; the functions below are also used in other tables */
extern const struct ls_process_ops ddp_process_ops;
ls_status ddp_sum_over_ranks(ls_parallel *p, double *values, size_t count);
ls_status ddp_gather_from_ranks(ls_parallel *p, const double *values, size_t count, double *all);
bool ddp_give_up(ls_parallel *p, const char *reason, ls_status *status);
void ddp_abandon(ls_parallel *p);

/* join.c */
ls_status ddp_join(ls_parallel *p, ls_batch *batch, bool *anyone);

/* check_sync.c. ddp_compare_over_ranks for everything that should be equal after a step: parameters, optimizer state
 * that is not sharded, and, if `buffers`, the buffers. */
ls_status ddp_compare_state(struct ddp *ddp, bool buffers);

#endif
