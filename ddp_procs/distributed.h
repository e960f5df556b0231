/* DistributedDataParallel: one process per device. Each rank reads its own shard and computes its own gradients; they are averaged
 * by all-reduce, bucket by bucket, while the backward pass still runs; every rank takes the same optimizer step.
 *
 * As PyTorch's DistributedDataParallel: at construction the ranks compare their models and take rank 0's parameters and
 * buffers; buffers are broadcast from rank 0 before a training forward; no_sync keeps gradients local. A rank's loss is
 * weighted by local samples x W / global samples, so that uneven shards too add up to the whole batch's mean. */
#ifndef DDP_DISTRIBUTED_H
#define DDP_DISTRIBUTED_H

#include "common/comm/comm.h"
#include "common/train/parallel.h"
#include "ddp_procs/reducer.h"

typedef struct ddp_options {
    ls_comm *comm;    /* all ranks of the job; borrowed until destroy */
    size_t max_batch; /* samples a step on this rank */
    ls_optimizer_options optimizer;
    ddp_reducer_options reducer;
} ddp_options;

/* Collective. `model` is this rank's, initialised, borrowed until destroy. LS_ERR_INVALID on every rank if the models differ in
 * the number or the shapes of their parameters, naming the rank and the first difference. On failure *out is NULL. */
ls_status ddp_create(ls_parallel **out, ls_model *model, const ddp_options *options);

/* PyTorch's no_sync(): while `sync` is false, forward_backward adds gradients up locally and nothing is communicated. */
void ddp_set_sync(ls_parallel *p, bool sync);

/* Whether every rank's parameters have the same bits; false on all ranks if not. Collective, host-blocking. */
ls_status ddp_check_sync(ls_parallel *p, bool *same);

const ddp_reducer *ddp_reducer_of(ls_parallel *p);

#endif
