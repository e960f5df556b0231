/* DataParallel: one process, one thread per device. Every step scatters the batch from device 0, replicates the
 * parameters, runs the replicas, gathers the outputs on the output device, takes the loss there, scatters its gradient,
 * runs the backward passes, sums the gradients on device 0 and updates the parameters there.
 *
 * As PyTorch's nn.DataParallel (docs/pytorch.md#dataparallel): pieces follow torch.chunk's rule (batch 9 on 4 devices
 * uses 3); device 0 uses the original parameters and buffers, so batch norm's running statistics are those of the first
 * piece (with sync_bn: of the whole batch); gradients are summed, since the loss is the mean over the whole batch.
 *
 * With several micro-batches per step, each is split and scattered like a batch, the replicas accumulate gradients, and
 * parameters and gradients are transferred once per step.
 *
 * On GPUs, batches, outputs and their gradients are copied between the devices. Parameters and gradients are
 * transferred in one of two modes. "flat": by copies, too; sums then have the bits of DDP's ordered all-reduces.
 * "nccl": NCCL broadcasts the parameters and reduces the gradients. Each device then needs a GPU of its own, and device
 * 0 needs no memory for the replicas' gradients. The deadline of NCCL's operations is half of ls_wait_timeout_s(). */
#ifndef DP_DATA_PARALLEL_H
#define DP_DATA_PARALLEL_H

#include "common/seam/parallel.h"

extern const struct ls_mode dp_mode;

typedef enum dp_replication { DP_REPLICATE_FLAT, DP_REPLICATE_NCCL } dp_replication;

typedef struct dp_options {
    ls_device *const *devices; /* distinct; borrowed until destroy */
    int device_count;          /* 1 .. LS_MAX_DEVICES */
    int output_device;         /* index in `devices` of the one that gathers the outputs and computes the loss */
    size_t max_batch;          /* samples of a micro-batch over all devices */
    bool sync_bn;              /* batch norm over the whole batch instead of each device's piece */
    dp_replication replicate;  /* how parameters and gradients are transferred */
    ls_optimizer_options optimizer;
} dp_options;

/* `module` is the initialised model to train, borrowed until destroy; it must be on devices[0] (otherwise
 * LS_ERR_INVALID names both devices) and have room for the largest batch to evaluate. The calling thread becomes device
 * 0's and must run all steps. On failure *out is NULL. */
ls_status dp_create(ls_parallel **out, ls_model *module, const dp_options *options);

#endif
