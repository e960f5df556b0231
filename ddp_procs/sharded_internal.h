/* The state of ZeRO's stages, and what their files ask of each other: sharded.c is the step and who owns what,
 * sharded_gradients.c what stage 2 has more than stage 1, units.c what stage 3 has more than stage 2. */
#ifndef DDP_SHARDED_INTERNAL_H
#define DDP_SHARDED_INTERNAL_H

#include "ddp_procs/ddp.h"
#include "ddp_procs/reducer_internal.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/units.h"

/* How a bucket takes its turn with a buffer. */
struct turn {
    size_t born;   /* so many buckets have been launched when backward may write its first gradient */
    size_t before; /* the bucket that had the buffer before it; itself: none had */
    size_t begin;  /* of its slice in the shard, in floats */
};

struct sharded {
    struct ddp ddp;     /* first: ops receive a pointer to it */
    float **parameters; /* where those of each bucket begin */
    ls_event *updated, *gathered;
    /* stage 2 */
    struct turn *turns;       /* of each bucket */
    float *shard;             /* this rank's slices of the sums, one behind the other; NULL in stage 1 */
    bool adds;                /* there is something in it, to which the next micro-batch is to add */
    struct ls_hooks reducers; /* the hooks that the reducer has set */
    ddp_units *units;         /* stage 3: the values; NULL: they are whole */
    size_t claimed;           /* buckets launched in this backward, for whose successors buffers have been claimed */
};

static inline struct sharded *sharded_of(ls_parallel *p) { return (struct sharded *)p; }

/* A rank's slice of so many elements of a bucket, and where it begins. */
static inline size_t slice_of(const struct sharded *s, size_t count) { return count / (size_t)s->ddp.base.data_size; }
static inline size_t slice_begin(const struct sharded *s, size_t count) {
    return slice_of(s, count) * (size_t)s->ddp.base.data_rank;
}

/* The phase of a step that waits for the last sums. */
ls_status ddp_sharded_reduce(ls_parallel *p);

/* sharded_gradients.c. What the reducer is to do differently in stage 2; behind its creation, the memory of the shard. */
void ddp_shard_gradients(ddp_reducer_options *reducer);
ls_status ddp_alloc_shard(struct sharded *s);
void ddp_free_shard(struct sharded *s);
/* Where the rank's part of parameter p lies, if it is not kept in the tensor and its gradient. */
void ddp_place_own(const struct sharded *s, size_t p, ls_optimizer_range *own);
ls_status ddp_sharded_forward_backward(ls_parallel *p);

#endif
