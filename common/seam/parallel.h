/* The seam between the training loop and a parallel mode: the state that every mode has, and the functions they share.
 *
 * mode.h defines the functions of a mode, step.h calls them. With --accumulate K the batch of a step is cut into K
 * micro-batches: prepare and forward_backward run for each of them, and gradients accumulate; they are communicated
 * with the last micro-batch only (PyTorch's no_sync), and reduce and apply follow once.
 *
 * Each call of a step processes one micro-batch, p->batch: the driver's newest. A mode with several in flight (a
 * pipeline) defers backwards to a later forward_backward, at the latest the last one, in the order of the
 * micro-batches. It saves p->batch of each forward_backward and restores it before the backward. It has as many places,
 * and a frame (common/nn/frame.h) for each.
 *
 * A failure of enqueued work poisons a device (device.h), and the driver checks the devices after each call; the calls
 * return all other failures: a stuck thread, another rank, memory.
 *
 * All of it is enqueued on streams; nothing in a step waits for the host. (Two exceptions: DDP's second step builds the
 * buckets, and an offloaded optimizer waits for the gradients.) */
#ifndef LS_SEAM_PARALLEL_H
#define LS_SEAM_PARALLEL_H

#include "common/nn/loss.h"
#include "common/nn/model.h"
#include "common/optim/optimizer.h"
#include "common/seam/mode.h"

/* Steps whose losses stay on the device until the host reads them together. */
#define LS_LOSS_RING 256

#define LS_MAX_DEVICES 64

/* A micro-batch in a step: memory for its inputs on one device and for its answers on the device that computes the
 * loss; and its content. */
struct ls_device_batch {
    void *inputs;    /* in the model's precision, or integers */
    int64_t *labels; /* or */
    float *targets;
    ls_event *used;             /* after its last reader */
    size_t count, global_count; /* samples: of the micro-batch, and of the whole step over all devices */
    int index;                  /* within its step; written by the driver (step.h) */
};

#define LS_MOST_BATCH_PLACES 64

/* The memory of micro-batches, used in turn. If the host runs ahead of the device there are two places: while one step
 * computes, the next batch arrives. A place is refilled only after its last use, so the host is never further ahead
 * than there are places. With --resident-batches K there are at least K, which keep the batches of the first steps. */
struct ls_batch_places {
    struct ls_device_batch place[LS_MOST_BATCH_PLACES];
    int count, newest; /* newest: filled last */
    size_t max_count;  /* samples of the largest batch */
};

struct ls_parallel {
    /* constant after create */
    const struct ls_mode *mode;
    const struct ls_parallel_ops *ops;    /* the mode's step */
    const struct ls_process_ops *process; /* the mode's process; NULL: one */
    int rank, world_size;                 /* processes; 0 and 1 if there is one */
    /* The axes of a mesh (common/comm/mesh.h); without a mesh all processes are on the data axis. Processes on the data
     * axis have different samples; those on the tensor axis compute the same samples together */
    int data_rank, data_size, tensor_rank, tensor_size;
    bool loss_elsewhere;    /* the losses of this process count 0: another process computes those of its samples */
    int device_count;       /* devices that train, over all processes */
    int local_device_count; /* devices of this process */
    ls_device *devices[LS_MAX_DEVICES]; /* of this process */
    int gpu_count;                      /* different GPUs among all devices; 0: CPU devices, or not known */
    ls_dtype sent_as;                   /* the type in which gradients are sent */
    const char *compression;            /* "topk:0.01"; NULL: none, other than sent_as */
    const char
        *join_rule; /* the divisor of gradients after ranks have run out of samples, as text; NULL: without --join */
    const char *backend;     /* the path between devices: "copies", "nccl", "shm", ...; NULL: one device */
    const char *why_not_gpu; /* the reason for CPU devices although a GPU was expected; NULL: none */
    struct ls_phase_clock clocks[LS_MAX_DEVICES]; /* one per device of this process, written by its thread */
    ls_model *model;                              /* the model that is evaluated and saved */
    ls_optimizer *optimizer;                      /* of that model */
    struct ls_batch_places places;
    ls_event *batch_copied; /* recorded by prepare: the host's batch may be overwritten after it */
    ls_device *loss_device;
    /* LS_LOSS_RING floats on loss_device: this rank's losses, whose sum over ranks (loss_elsewhere) divided by
     * data_size is the loss of the global batch; and two more, for captured steps and for the loss of a micro-batch */
    float *losses;
    const float *micro_loss; /* the last of them */
    /* the factor of the loss's gradient, in memory of loss_device; NULL: no loss scaling */
    const float *loss_scale;
    bool stuck; /* a thread missed its deadline and still uses devices and models: free none of them, end the process */
    /* the step in progress: written by the loop, except for batch and accumulates */
    uint64_t step;     /* counts all steps of the run; forward_backward writes losses[step mod LS_LOSS_RING] */
    int64_t epoch;     /* for messages */
    int micro_batches; /* of each step; 1 without accumulation */
    struct ls_device_batch *batch; /* the micro-batch of the calls: one of the places */
    bool no_sync;                  /* while true: no communication, gradients accumulate */
    bool accumulates;              /* the next backward adds to the gradients */
    /* written by the loop before the run */
    bool check_each_loss; /* forward_backward checks the loss before backward (ls_check_loss) */
    /* written by step_graph.c */
    struct ls_step_graph *graph; /* NULL: steps are enqueued operation by operation */
    bool is_capturing;           /* enqueued work is captured into a CUDA graph, to be launched repeatedly */
};

/* Allocates room for `max_count` samples of the model's shape, in category input. */
ls_status ls_device_batch_alloc(struct ls_device_batch *batch, ls_device *inputs_device, ls_device *answers_device,
                                const ls_model *model, size_t max_count);
void ls_device_batch_free(struct ls_device_batch *batch, ls_device *inputs_device, ls_device *answers_device);

/* Enqueues the copy of a host batch on `stream`, after the last use of the place. Without inputs (NULL) nothing is
 * copied: the batch is there already, or has no samples. */
void ls_device_batch_upload(struct ls_device_batch *batch, ls_stream *stream, const ls_model *model,
                            const ls_batch *host);

/* Gives p its places, for up to `max_count` samples each, on its first device and its loss device; release frees them. */
ls_status ls_parallel_alloc_places(ls_parallel *p, size_t max_count);

/* Adds places until there are `count` (at most LS_MOST_BATCH_PLACES). Before the first step. */
ls_status ls_parallel_add_places(ls_parallel *p, int count);

/* For the driver: micro-batch `index` of the step is p->batch from now on, in the next place in turn. */
void ls_parallel_next_place(ls_parallel *p, int index);

/* prepare, for all modes: enqueues the copy of the batch to p->batch, and records that it has been copied. */
void ls_parallel_upload(ls_parallel *p, ls_stream *copy, const ls_batch *batch);

/* For forward_backward. await_batch: work enqueued on `compute` afterwards runs after all batches prepared so far have
 * arrived. end_backward: work enqueued so far is the last that reads p->batch; unless this backward was to be
 * synchronised, the next one adds to its gradients. While a step is captured, neither touches the batch's events:
 * step_graph.c does, around each launch. */
void ls_parallel_await_batch(ls_parallel *p, ls_stream *compute);
void ls_parallel_end_backward(ls_parallel *p, ls_stream *compute);

/* The process's sum_over_ranks; a no-op with one process. */
ls_status ls_sum_over_ranks(ls_parallel *p, double *values, size_t count);

/* The outcome of a call of ops: `status` if that is a failure, else the failure of the model's device or of the loss
 * device, if any. (DataParallel checks its other replicas' devices at each hand-off.) */
ls_status ls_parallel_status(const ls_parallel *p, ls_status status);

/* The mode's rank_state of the parameter; empty if the mode has no such function. */
struct ls_rank_state ls_parallel_rank_state(const ls_parallel *p, size_t parameter);

/* The compression of gradients as text for files: "none", "fp16", "bf16" or "topk:...". */
static inline const char *ls_parallel_sent_as(const ls_parallel *p) {
    if (p->compression) return p->compression;
    return p->sent_as == LS_FP32 ? "none" : ls_dtype_name(p->sent_as);
}

/* Whether the clock measures this process's work: false if CPU devices take turns on too few cores. */
static inline bool ls_parallel_has_cores(const ls_parallel *p) {
    return ls_device_kind_of(p->devices[0]) != LS_DEVICE_CPU || ls_device_spin_us(p->devices[0]) > 0;
}

/* The number of replicas, each with different samples: copies of the model, each on one device or split over
 * several. */
static inline int ls_parallel_replicas(const ls_parallel *p) { return p->data_size * p->local_device_count; }

/* Whether p->batch is the first, or the last, micro-batch of its step. */
static inline bool ls_parallel_is_first(const ls_parallel *p) { return p->batch->index == 0; }
static inline bool ls_parallel_is_last(const ls_parallel *p) { return p->batch->index == p->micro_batches - 1; }

/* Whether this micro-batch's gradients, with those of earlier ones added, are communicated and used in the update: true
 * for the last one, unless it is no_sync. */
bool ls_parallel_syncs(const ls_parallel *p);

/* Rows of `batch` that make up micro-batch `index` of `count` (torch.chunk's rule; possibly 0). The samples of the
 * whole step stay in global_count, which losses are divided by. `row_nbytes`: bytes of an input; `answer`: labels of
 * a sample, or floats of its target. */
ls_batch ls_micro_batch(const ls_batch *batch, int index, int count, size_t row_nbytes, size_t answer);

/* The most rows that a micro-batch has if a step has `rows`. */
size_t ls_micro_batch_rows(size_t rows, int count);

/* Samples of micro-batch `micro_batch` of a full step on replica `replica` of all (torch.chunk's rule; possibly 0):
 * without a mesh, a replica is a device. Ranks take their parts of the step's batch and cut those into micro-batches; a
 * process with several devices cuts each micro-batch for them. */
size_t ls_parallel_rows(const ls_parallel *p, struct ls_step_size size, int replica, int micro_batch);

/* For forward_backward: enqueues the loss of the micro-batch, from the outputs y, and its gradient dy (which may be y),
 * times the loss scale. In the gradient each sample counts gradient_weight / (samples of the step over all devices); in
 * the loss data_size takes gradient_weight's place. The loss is added to those of the micro-batches before. */
void ls_parallel_take_loss(ls_parallel *p, ls_stream *compute, float *dy, const float *y, int gradient_weight);

/* For apply: the optimizer's step, except for the parameters in `skip` (NULL: none). A failure of enqueued work poisons
 * the device; other failures are returned. The parameters count as changed. */
ls_status ls_parallel_update(ls_parallel *p, const bool *skip);

/* The address of the step's loss: its entry of the ring; while a step is captured, the entry after the ring. */
float *ls_parallel_step_loss(ls_parallel *p);
float *ls_parallel_ring_slot(ls_parallel *p);

/* Called by forward_backward when the loss of this process has been enqueued, before backward: a NaN or an infinity
 * ends the run here, before it reaches a gradient, the optimizer or another rank. Waits for the loss device's compute
 * stream; without p->check_each_loss it only checks whether the device has failed. LS_ERR_DIVERGED, or what
 * ls_loss_diverged returns. (divergence.c) */
ls_status ls_check_loss(ls_parallel *p);

/* Ends a run whose loss is not finite: reports the step and, if `search`, the first tensor that is not finite; the
 * other ranks get the reason. Never LS_OK: LS_ERR_DIVERGED, or LS_ERR_PEER if another rank reported first.
 * (divergence.c) */
ls_status ls_loss_diverged(ls_parallel *p, uint64_t step, double loss, bool search);

/* Waits for all devices of this process; after a failure (`status`) calls ops->abandon first. Returns `status`, or else
 * the devices' first failure; failures that follow one already reported are not reported again. Afterwards nothing
 * reads the loader's batches any more. */
ls_status ls_parallel_synchronize(ls_parallel *p, ls_status status);

/* Sets the mode and its tables. Call first, so that destroy can be called. */
void ls_parallel_set_mode(ls_parallel *p, const struct ls_mode *mode);

/* Creates and destroys the members that every mode has: batch_copied and losses (on loss_device, which is set
 * before), and the position on the axes, unless a mesh's mode has set it; release also frees alloc_places' memory. */
ls_status ls_parallel_init(ls_parallel *p);
void ls_parallel_release(ls_parallel *p);

extern const struct ls_mode ls_single_mode;

/* The plain single-device mode: no process group, no replicas, nothing between backward and the optimizer. Borrows
 * device and model; the model must be initialised, and gets its gradients here. `max_batch` samples a micro-batch. */
ls_status ls_single_create(ls_parallel **out, ls_device *device, ls_model *model, const ls_optimizer_options *optimizer,
                           size_t max_batch);

#endif
