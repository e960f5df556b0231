/* The state of DataParallel, shared by the files of this folder. */
#ifndef DP_DP_H
#define DP_DP_H

#include "dp_threads/data_parallel.h"
#include "dp_threads/parallel_apply.h"

struct dp_replica {
    /* constant after create */
    ls_device *device;
    ls_model *model; /* replica 0: the module itself */
    ls_stream *compute, *copy, *comm;
    ls_comm *nccl;    /* this replica's endpoint in the group for parameters and gradients; NULL: flat copies */
    ls_comm *sync_bn; /* this replica's endpoint in the group of synchronised batch norm, or NULL */
    struct ls_phase_clock *clock;
    void *inputs; /* room for a piece, in the model's precision; replica 0 reads the batch in place and has none */
    float *dy;    /* room for the outputs' gradient; the output device reads it in place and has none */
    float *sent;  /* on device 0: room for this replica's gradients; replica 0 has none, nor has any with nccl */
    ls_event *piece_arrived, *arrived, *outputs_ready, *gathered, *gradient_arrived, *backward_done, *gradients_sent;
    /* this step: written by the caller before the threads start */
    size_t begin, rows; /* the piece of this micro-batch: its rows begin .. begin + rows - 1 */
    /* this step: written by the replica's thread */
    const void *x;
    const float *y;
};

/* A part of the step in one replica, in its thread. */
struct dp;
typedef void (*dp_part_fn)(struct dp *dp, struct dp_replica *r);

struct dp {
    ls_parallel base; /* first: ops receive a pointer to it */
    /* constant after create */
    int output_replica;  /* the replica on the output device */
    size_t output_count; /* per sample */
    /* parameters without a gradient; NULL with several devices, since the sum over replicas makes it zero */
    const bool *without_gradient;
    dp_workers *workers;
    float *gathered_outputs; /* on the output device: [batch, outputs]; the loss's gradient overwrites them */
    const float **sent;      /* sent[i] = replicas[i + 1].sent */
    /* the loss scale on the output device, a copy from device 0; NULL: no loss scaling, or the output device is device
     * 0 */
    float *loss_scale;
    ls_event *loss_taken, *updated;
    /* this step */
    int active;      /* replicas that run: those with a piece, or all (see dp_chunk_batch) */
    dp_part_fn part; /* the part they run now */
    struct dp_replica replicas[];
};

static inline struct dp *dp_of(ls_parallel *p) { return (struct dp *)p; }

/* --- dp_step.c: the four calls of a step (common/seam/mode.h) ------------------------------------------------ */

void dp_prepare(ls_parallel *p, const ls_batch *batch);
ls_status dp_forward_backward(ls_parallel *p);
ls_status dp_reduce(ls_parallel *p);
ls_status dp_apply(ls_parallel *p);

/* --- hand_over.c ------------------------------------------------------------------------------------------------- */

/* Runs the part in the threads of all active replicas concurrently. Returns the first failure of a replica or of its
 * device. */
ls_status dp_on_replicas(struct dp *dp, dp_part_fn part);

/* Ends the replicas' waits for each other after a failure. */
void dp_abandon(ls_parallel *p);

/* --- scatter_gather.c -------------------------------------------------------------------------------------------- */

/* Cuts the micro-batch into pieces (torch.chunk): sets active, begin and rows (0: no piece). All replicas are active,
 * with or without a piece, if they run collectives (sync_bn, nccl) or if there are several micro-batches, since a
 * replica with a piece of one micro-batch may have none of the next, while the gradients of the whole step are kept and
 * sent. */
void dp_chunk_batch(struct dp *dp);
/* Enqueues: device 0's inputs -> the replica's piece (replica 0: no copy). */
void dp_scatter_inputs(struct dp *dp, struct dp_replica *r);
/* Enqueues: the replica's outputs -> their rows on the output device. */
void dp_gather_outputs(struct dp *dp, struct dp_replica *r);
/* Enqueues: `compute` waits until the outputs of all replicas have arrived. */
void dp_await_outputs(struct dp *dp, ls_stream *compute);
/* Enqueues: their rows of the loss's gradient -> memory of the replica, which is returned. */
float *dp_scatter_gradient(struct dp *dp, struct dp_replica *r);
/* After the replica's backward: its copy stream waits for it before it copies the next piece in, or the gradients to
 * device 0. */
void dp_end_backward(struct dp_replica *r);

/* --- nonfinite.c ------------------------------------------------------------------------------------------------- */

/* Names the first tensor that holds a NaN or an infinity, in the order of the replicas: "the output of conv2 on device
 * 1".
 */
ls_status dp_find_nonfinite(ls_parallel *p, char *place, size_t capacity);

/* --- replicate.c ------------------------------------------------------------------------------------------------- */

/* Enqueues, once a step: device 0's parameters -> the replica's, as one flat copy (replica 0: nothing) or by a
 * broadcast (replica 0: its part). */
void dp_replicate(struct dp *dp, struct dp_replica *r);
/* Enqueues on the output device, once per step, after device 0's outputs and so after its last update: the copy of the
 * loss scale, if there is one and it is on another device. */
void dp_replicate_loss_scale(struct dp *dp, ls_stream *compute);

/* --- reduce.c ---------------------------------------------------------------------------------------------------- */

/* Enqueues, after the last micro-batch: the replica's gradients -> device 0 (replica 0: nothing), or its call of NCCL's
 * reduction to device 0. */
void dp_send_gradients(struct dp *dp, struct dp_replica *r);
/* Enqueues on device 0: its gradients += those of replica 1, 2, ... in that order; or the wait for NCCL's sum. */
void dp_reduce_gradients(struct dp *dp);

#endif
