/* DistributedDataParallel: one process per device. Each rank reads its own shard and computes its own gradients; they
 * are averaged by all-reduce, bucket by bucket, while the backward pass still runs; every rank takes the same optimizer
 * step.
 *
 * As PyTorch's DistributedDataParallel (docs/pytorch.md#distributeddataparallel): at construction the ranks compare
 * their models and take rank 0's parameters and buffers; buffers are broadcast from rank 0 before a training forward;
 * no_sync keeps gradients local. A rank's loss is weighted by local samples x W / global samples, so that the average
 * over ranks is the whole batch's mean even with uneven shards. */
#ifndef DDP_DISTRIBUTED_H
#define DDP_DISTRIBUTED_H

#include "common/comm/mesh.h"
#include "common/seam/parallel.h"
#include "ddp_procs/compression.h"
#include "ddp_procs/reducer.h"
#include "ddp_procs/schedule.h"

extern const struct ls_mode ddp_mode;

/* Ranks that run out of samples at different steps (docs/pytorch.md#join). A rank without samples still takes part in
 * collectives, with zero gradients, until all have run out; then all take the buffers of the last rank that had samples
 * (in a tie, the highest rank). */
typedef struct ddp_join_options {
    bool enable;
    /* true: a step's gradients are divided by the world size even if fewer ranks still have samples (PyTorch's
     * default); false: they are the mean over the samples of the step. */
    bool divide_by_initial_world_size;
    bool throw_on_early_termination; /* every rank fails at the step at which the first has run out */
} ddp_join_options;

typedef struct ddp_options {
    /* The ranks that average their gradients: all ranks of the job or, with a mesh, its data axis (common/comm/mesh.h).
     * Borrowed, like all groups, until destroy */
    ls_comm *comm;
    const ls_mesh *mesh; /* NULL: none */
    ls_comm *sync_bn;    /* a second group of the same ranks as `comm`: batch norm over the whole batch; NULL: over each
                          * rank's own */
    /* for shards of the optimizer's state (sharded.h): also a second group; it may be that of sync_bn, since both are
     * used on the compute stream */
    ls_comm *shards;
    ls_comm *stages; /* for a pipeline (pipeline.h): a second group of its axis, for the compute stream ... */
    ddp_schedule_kind schedule; /* ... and the order of its passes ... */
    int micro_batches;          /* ... of so many micro-batches a step */
    int prefetch_blocks;        /* ZeRO-3: units that are gathered ahead (units.h), 0 to DDP_MOST_PREFETCHED */
    ddp_join_options join;
    int gpu_count;          /* different GPUs among the ranks' devices, for the report; 0: CPU devices, or not known */
    bool compare_each_step; /* ddp_compare_state after every step; slow, for debugging */
    size_t max_batch;       /* samples of a micro-batch on this rank */
    ls_optimizer_options optimizer;
    ddp_reducer_options reducer;
    ddp_compression compression; /* of top-k only (topk.h); for fp16 and bf16 see reducer.compress */
} ddp_options;

/* Collective. `model` is this rank's, initialised, borrowed until destroy. LS_ERR_INVALID on every rank if the models
 * differ in the number or the shapes of their parameters, naming the rank and the first difference. On failure *out is
 * NULL. */
ls_status ddp_create(ls_parallel **out, ls_model *model, const ddp_options *options);

/* A range of host or device memory that should be equal on all ranks. */
struct ddp_named_range {
    const char *name;
    const void *data;
    size_t nbytes;
};

/* Compares tensors over the ranks of a group bit for bit (by hash). LS_ERR_INVALID on every rank if one differs: the
 * report begins with `when` and names the first such tensor in the list, its number of bytes, and the ranks that differ
 * from rank 0. The ranks must pass the same names in the same order. Collective on `stream`, host-blocking. */
ls_status ddp_compare_over_ranks(const char *when, ls_comm *comm, ls_stream *stream,
                                 const struct ddp_named_range *ranges, size_t count);

#endif
