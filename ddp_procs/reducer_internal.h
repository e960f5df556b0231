/* The reducer's state, and what its files ask of each other: reducer.c is the step, reducer_launch.c decides when a
 * bucket is reduced and who waits for it, reducer_assign.c says where each gradient lies, reducer_unused.c finds out
 * which parameters any rank has used. */
#ifndef DDP_REDUCER_INTERNAL_H
#define DDP_REDUCER_INTERNAL_H

#include "ddp_procs/buckets.h"
#include "ddp_procs/reducer.h"

struct bucket {
    float *data;
    size_t at;                             /* where it begins in the reducer's memory, in floats */
    void *half;                            /* what travels in its place, `count` halves; NULL: nothing does */
    size_t count;                          /* floats of `data`: the gradients, each padded to its slot */
    size_t gradient_nbytes;                /* without the padding */
    size_t sent_nbytes;                    /* as it travels */
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
    bool buckets_stay; /* as they are assigned first */
    size_t slot_unit;  /* a gradient's slot has a multiple of so many floats */
    size_t parameter_count;
    size_t *nbytes; /* of each parameter */
    /* the present assignment */
    float *memory; /* shared: all buckets */
    size_t memory_nbytes, bucket_count;
    void *half_memory; /* shared: the same in half precision; NULL: gradients travel as they are */
    struct bucket *buckets;
    size_t *bucket_of; /* of each parameter */
    /* the step in progress */
    bool sync, has_samples;
    bool *is_ready;
    size_t launched; /* buckets */
    /* the order of the first reduced backward: this rank's, from the rebuild on rank 0's */
    int64_t *ready_order;
    size_t ready_count;
    bool reduced_once, rebuilt;
    /* find_unused */
    bool *is_used;    /* has been reported since the last reduction, in a backward with or without sync */
    int32_t *used_by; /* so many ranks have used the parameter in the last step */
    bool *is_unused;  /* nobody has */
    bool any_unused;
    int wasted_steps; /* at the start of the run, or -1: find_unused is of use */
};

static inline bool ddp_reducer_compresses(const ddp_reducer *r) { return r->options.compress != LS_FP32; }

/* reducer.c. Enqueues the bucket's reduction on the comm stream, which neither waits for the bucket nor says when it is
 * done. */
void ddp_reducer_sum(ddp_reducer *r, const struct bucket *bucket);

/* reducer_launch.c. The last gradient of the bucket has just been enqueued on the compute stream; and: backward has
 * ended, and with it all buckets are complete. What is enqueued on the compute stream afterwards finds all averages. */
void ddp_reducer_bucket_complete(ddp_reducer *r, struct bucket *bucket);
void ddp_reducer_await_buckets(ddp_reducer *r);

/* reducer_assign.c. The first assignment, with which all buckets get their memory; the one that follows from the ready
 * order, which rank 0 tells the others. Both are collective. */
ls_status ddp_reducer_assign_first(ddp_reducer *r);
ls_status ddp_reducer_rebuild(ddp_reducer *r);
void ddp_reducer_destroy_buckets(ddp_reducer *r);

/* reducer_unused.c. After the last bucket: adds up over the ranks which parameters were used. Host-blocking,
 * collective. */
ls_status ddp_reducer_share_used(ddp_reducer *r);

#endif
