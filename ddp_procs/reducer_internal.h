/* The reducer's state, and the functions shared by its files: reducer.c has the step, reducer_launch.c launches and
 * awaits the reductions, reducer_assign.c places the gradients, reducer_unused.c determines the parameters that any
 * rank has used. */
#ifndef DDP_REDUCER_INTERNAL_H
#define DDP_REDUCER_INTERNAL_H

#include "ddp_procs/buckets.h"
#include "ddp_procs/reducer.h"

struct bucket {
    float *data;
    size_t at;              /* offset in the reducer's memory, in floats */
    void *half;             /* its compressed copy, `count` fp16 or bf16 elements; NULL: not compressed */
    size_t count;           /* floats of `data`: the gradients, each padded to its slot */
    size_t gradient_nbytes; /* without the padding */
    size_t sent_nbytes;     /* bytes sent */
    size_t parameter_count, pending_count; /* parameters; those whose gradients are not ready yet */
    ls_event *ready;                       /* on the compute stream: all slots are written */
    ls_event *reduced;                     /* on the comm stream: the average has replaced them */
};

struct ddp_reducer {
    /* constant after create */
    ls_comm *comm;
    ls_model *model;
    ls_device *device;
    ls_stream *compute, *comm_stream;
    struct ls_phase_clock *clock;
    ddp_reducer_options options;
    bool buckets_stay; /* the first assignment is final */
    size_t slot_unit;  /* a gradient's slot has a multiple of so many floats */
    size_t parameter_count;
    size_t *nbytes; /* of each parameter */
    /* the present assignment */
    float *memory; /* shared: all buckets */
    size_t memory_nbytes, bucket_count;
    void *half_memory; /* shared: the same in fp16 or bf16; NULL: gradients are sent as fp32 */
    struct bucket *buckets;
    size_t *bucket_of; /* of each parameter */
    /* the step in progress */
    bool sync, has_samples;
    bool *is_ready;
    size_t launched; /* buckets */
    /* the order of the first reduced backward: this rank's; after the rebuild, rank 0's */
    int64_t *ready_order;
    size_t ready_count;
    bool reduced_once, rebuilt;
    /* find_unused */
    bool *is_used;    /* reported since the last reduction, in a backward with or without sync */
    int32_t *used_by; /* the number of ranks that used the parameter in the last step */
    bool *is_unused;  /* no rank has */
    bool any_unused;
    int wasted_steps; /* steps at the start of the run in which find_unused found nothing; -1: it has found something */
};

static inline bool ddp_reducer_compresses(const ddp_reducer *r) { return r->options.compress != LS_FP32; }

/* reducer.c. Enqueues the bucket's reduction on the comm stream, without the waits before it and the event after it. */
void ddp_reducer_sum(ddp_reducer *r, const struct bucket *bucket);

/* reducer_launch.c. bucket_complete: the bucket's last gradient has just been enqueued on the compute stream.
 * await_buckets: backward has ended, and all buckets are complete; later work on the compute stream sees all
 * averages. */
void ddp_reducer_bucket_complete(ddp_reducer *r, struct bucket *bucket);
void ddp_reducer_await_buckets(ddp_reducer *r);

/* reducer_assign.c. assign_first: the first assignment, which allocates the memory of all buckets. rebuild: the
 * assignment from rank 0's ready order, which is broadcast. Both are collective. */
ls_status ddp_reducer_assign_first(ddp_reducer *r);
ls_status ddp_reducer_rebuild(ddp_reducer *r);
void ddp_reducer_destroy_buckets(ddp_reducer *r);

/* reducer_unused.c. After the last bucket: sums over the ranks how many have used each parameter. Host-blocking,
 * collective. */
ls_status ddp_reducer_share_used(ddp_reducer *r);

#endif
