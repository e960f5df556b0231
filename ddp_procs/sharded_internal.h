/* The state of ZeRO's stages, and the functions shared by their files: sharded.c has the step and the ownership,
 * sharded_gradients.c the additions of stage 2, units.c those of stage 3. */
#ifndef DDP_SHARDED_INTERNAL_H
#define DDP_SHARDED_INTERNAL_H

#include "ddp_procs/ddp.h"
#include "ddp_procs/reducer_internal.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/units.h"

/* How buckets share a buffer in turn. */
struct turn {
    size_t born;   /* the number of buckets launched before backward may write this bucket's first gradient */
    size_t before; /* the previous bucket in the same buffer; itself: none */
    size_t begin;  /* of its slice in the shard, in floats */
};

struct sharded {
    struct ddp ddp;     /* first: ops receive a pointer to it */
    float **parameters; /* the beginning of each bucket's parameters */
    ls_event *updated, *gathered;
    /* stage 2 */
    struct turn *turns;       /* of each bucket */
    float *shard;             /* this rank's slices of the sums, concatenated; NULL in stage 1 */
    bool adds;                /* the shard holds sums, to which the next micro-batch adds */
    struct ls_hooks reducers; /* the hooks that the reducer has set */
    ddp_units *units;         /* stage 3: the parameters; NULL: not sharded */
    size_t claimed; /* buckets launched in this backward whose buffers have been claimed for their successors */
};

static inline struct sharded *sharded_of(ls_parallel *p) { return (struct sharded *)p; }

/* The size, and the offset, of a rank's slice of a bucket with `count` elements. */
static inline size_t slice_of(const struct sharded *s, size_t count) { return count / (size_t)s->ddp.base.data_size; }
static inline size_t slice_begin(const struct sharded *s, size_t count) {
    return slice_of(s, count) * (size_t)s->ddp.base.data_rank;
}

/* The phase of a step that waits for the last sums. */
ls_status ddp_sharded_reduce(ls_parallel *p);

/* sharded_gradients.c. Sets the reducer's options for stage 2; and, after its creation, allocates the shard. */
void ddp_shard_gradients(ddp_reducer_options *reducer);
ls_status ddp_alloc_shard(struct sharded *s);
void ddp_free_shard(struct sharded *s);
/* Sets the addresses of the rank's part of parameter p, if they differ from the tensor's and its gradient's. */
void ddp_place_own(const struct sharded *s, size_t p, ls_optimizer_range *own);
ls_status ddp_sharded_forward_backward(ls_parallel *p);

#endif
