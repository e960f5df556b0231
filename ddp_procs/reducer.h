/* The reducer: averages gradients over the ranks, bucket by bucket, while the backward pass still runs.
 *
 * Gradients live in the buckets and the buckets in shared memory, so nothing is copied: backward writes a gradient
 * where the all-reduce will read it. Whenever the last gradient of a bucket is ready (model.h's hook), the bucket's
 * all-reduce is enqueued on the comm stream, in bucket order, which is the same on all ranks; the compute stream goes
 * on with the next layer. */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "common/comm/comm.h"
#include "common/nn/model.h"
#include "common/seam/phase.h"
#include "common/trace/trace.h"

typedef struct ddp_reducer ddp_reducer;

/* Enqueues the sum over all ranks of a full bucket, or of its compressed copy: of all values in place (all-reduce), or
 * of each rank's slice (reduce-scatter). */
typedef ls_status (*ddp_reduce_fn)(void *context, size_t bucket, ls_stream *stream, void *values, size_t count,
                                   ls_dtype dtype);

/* Sets each bucket's offset, or the bytes sent of it (bucket.at, bucket.sent_nbytes, reducer_internal.h). */
struct bucket;
typedef ls_status (*ddp_place_fn)(void *context, const ddp_reducer *reducer, struct bucket *buckets, size_t count);

typedef struct ddp_reducer_options {
    double bucket_cap_mb;   /* MiB, > 0 */
    double first_bucket_mb; /* the first bucket's limit, unless bucket_cap_mb is less; 0: PyTorch's 1 MiB */
    bool overlap;           /* false: all-reduces start after the whole backward */
    bool find_unused;       /* parameters without a gradient are allowed (docs/pytorch.md#unused-parameters) */
    ls_dtype compress;      /* gradients are sent as LS_FP32, or rounded to LS_FP16 or LS_BF16 (reducer.c) */
    /* reduces a full bucket; NULL: ls_comm_all_reduce. A function that sums only the rank's own slice needs `sliced`,
     * and an optimizer over slices (sharded.c). Its bytes are counted in `phase` */
    ddp_reduce_fn reduce;
    ls_phase phase;
    ddp_place_fn
        place;     /* NULL: consecutive; other offsets only for buckets that are never rebuilt (sharded_gradients.c) */
    void *context; /* of both */
    /* each rank owns one of world_size equal slices of every bucket: gradients are padded for that, as by
     * ls_parameters_widen_slots, and buckets are never rebuilt (they follow the order of definition, as with
     * find_unused) */
    bool sliced;
    bool by_block;      /* with `sliced`: a bucket for each block of the network, whatever its size */
    bool each_backward; /* every backward is reduced, since gradients are not kept; no_sync is not possible */
} ddp_reducer_options;

/* Places all gradients of the model in one bucket (find_unused, sliced: in their final buckets) and hooks into its
 * backward. Collective. Everything is borrowed until destroy. */
ls_status ddp_reducer_create(ddp_reducer **out, ls_comm *comm, ls_model *model, struct ls_phase_clock *clock,
                             const ddp_reducer_options *options);
void ddp_reducer_destroy(ddp_reducer *reducer);

/* Arms the reducer for the next backward; `sync` false: gradients stay local (no_sync). The first call after a reduced
 * backward rebuilds the buckets, unless they are final, in the order in which the gradients became ready on rank 0.
 * `samples` of this rank: with 0 samples backward reports zero gradients, which find_unused does not count as use.
 * Collective. */
ls_status ddp_reducer_arm(ddp_reducer *reducer, bool sync, size_t samples);

/* After backward: launches the remaining buckets and makes the compute stream wait for all of them. LS_ERR_INVALID
 * names the parameters that got no gradient; with find_unused they are allowed, and the host waits for all buckets. */
ls_status ddp_reducer_finish(ddp_reducer *reducer);

/* unused[p]: no rank has used parameter p in the step that ddp_reducer_finish has ended; the optimizer must skip it.
 * NULL: every parameter was used, or find_unused is off. */
const bool *ddp_reducer_unused(const ddp_reducer *reducer);

/* State for checkpoints: the order in which the gradients of the first reduced backward became ready, each parameter's
 * index once. *order is the reducer's memory. Returns the number of indices: 0 before that backward has finished. Until
 * the next ddp_reducer_arm the order is this rank's own; buckets are built from rank 0's. Final buckets do not depend
 * on it; a count above 0 still means that the first reduced backward is over. */
size_t ddp_reducer_get_order(const ddp_reducer *reducer, const int64_t **order);

/* Restores that order, before the first step: the reducer then continues as the saved one would have, bit for bit.
 * Every rank passes the same order; nothing is communicated. A count of 0 is a no-op. LS_ERR_INVALID, with one line,
 * unless the numbers are a permutation of this model's parameters. Host-blocking. */
ls_status ddp_reducer_set_order(ddp_reducer *reducer, const int64_t *order, size_t count);

/* Bytes sent of all buckets: unless `place` sets others, each gradient padded to its slot, in the type of
 * `compress`. */
size_t ddp_reducer_sent_nbytes(const ddp_reducer *reducer);

/* Fills in the reducer's part of a trace's description: the bucket limits, and whether reduction overlaps with
 * backward. */
void ddp_reducer_describe(const ddp_reducer *reducer, struct ls_trace_about *about);

#endif
