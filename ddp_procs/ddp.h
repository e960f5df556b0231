/* The state of DistributedDataParallel on one rank, shared by distributed.c and ddp_step.c. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "ddp_procs/distributed.h"

struct ddp {
    ls_parallel base; /* first: ops receive a pointer to it */
    /* constant after create */
    ls_comm *comm, *sync_bn; /* sync_bn: what batch norm's ranks meet in, or NULL */
    ls_stream *compute, *copy, *comm_stream;
    ddp_reducer *reducer;
    struct ls_device_batch batch;
    float *dy;           /* gradient of the outputs */
    float *buffers;      /* the model's buffers, one range */
    size_t buffer_count; /* floats */
    ddp_join_options join;
    bool compare_each_step, find_unused;
    ls_event *buffers_idle, *buffers_arrived;
    /* changes from step to step */
    bool sync;              /* no_sync: false */
    bool micro_batch_syncs; /* this micro-batch's gradients, and those before it, are reduced: the last one, if sync */
    bool broadcast_now;     /* buffers travel before this micro-batch's forward */
    bool broadcast_buffers; /* and before the next one: this one is a synchronised training forward */
    bool accumulate;        /* the gradients hold something that the next backward adds to */
    int buffers_root;       /* whose buffers count: rank 0's; with join, those of the highest rank that has samples */
    int weight; /* over the step's samples it weights the gradients: W; with join, perhaps the ranks that have samples */
};

static inline struct ddp *ddp_of(ls_parallel *p) { return (struct ddp *)p; }

extern const struct ls_parallel_ops ddp_ops; /* ddp_step.c */

/* distributed.c */
ls_status ddp_before_evaluation(ls_parallel *p);
ls_status ddp_sum_over_ranks(ls_parallel *p, double *values, size_t count);
ls_status ddp_gather_from_ranks(ls_parallel *p, const double *values, size_t count, double *all);
const char *ddp_graph_obstacle(const ls_parallel *p);
void ddp_describe(const ls_parallel *p, struct ls_trace_about *about);
void ddp_destroy(ls_parallel *p);

/* Runs what was enqueued on the comm stream; the first of two failures. */
ls_status ddp_settle(struct ddp *ddp, ls_status status);

/* ddp_step.c. Enqueues: buffers as the rank has them whose buffers count, if the last forward changed them. `due`: so
 * it has. */
ls_status ddp_sync_buffers(struct ddp *ddp, bool due);

/* divergence.c */
ls_status ddp_find_nonfinite(ls_parallel *p, char *place, size_t capacity);
void ddp_abandon(ls_parallel *p);
bool ddp_give_up(ls_parallel *p, const char *reason, ls_status *status);

/* memory.c */
void ddp_get_memory(const ls_parallel *p, const int64_t **values, size_t *count);
ls_status ddp_set_memory(ls_parallel *p, const int64_t *values, size_t count);

/* join.c */
ls_status ddp_join(ls_parallel *p, ls_batch *batch, bool *anyone);

/* check_sync.c. ddp_compare_state, naming the step. */
ls_status ddp_compare_after_step(struct ddp *ddp);

#endif
