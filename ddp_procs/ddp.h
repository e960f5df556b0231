/* The state of DistributedDataParallel on one rank, shared by distributed.c and ddp_step.c. */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "ddp_procs/distributed.h"

struct ddp {
    ls_parallel base; /* first: ops receive a pointer to it */
    /* constant after create */
    ls_comm *comm;
    ls_stream *compute, *copy, *comm_stream;
    ddp_reducer *reducer;
    struct ls_device_batch batch;
    float *dy;           /* gradient of the outputs */
    float *buffers;      /* the model's buffers, one range */
    size_t buffer_count; /* floats */
    ls_event *batch_used, *buffers_idle, *buffers_arrived;
    /* changes from step to step */
    bool sync;              /* no_sync: false */
    bool broadcast_buffers; /* before the next forward: the last one was a synchronised training forward */
    bool accumulate;        /* the gradients hold something that the next backward adds to */
};

static inline struct ddp *ddp_of(ls_parallel *p) { return (struct ddp *)p; }

extern const struct ls_parallel_ops ddp_ops; /* ddp_step.c */

/* distributed.c */
ls_status ddp_before_evaluation(ls_parallel *p);
ls_status ddp_sum_over_ranks(ls_parallel *p, double *values, size_t count);
void ddp_destroy(ls_parallel *p);

/* ddp_step.c. Enqueues: buffers as rank 0 has them, if the last forward changed them. */
ls_status ddp_sync_buffers(struct ddp *ddp);

#endif
