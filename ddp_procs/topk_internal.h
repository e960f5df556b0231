/* The state of top-k on one rank, for topk.c and what looks into it: tests, labs. */
#ifndef DDP_TOPK_INTERNAL_H
#define DDP_TOPK_INTERNAL_H

#include "ddp_procs/ddp.h"
#include "ddp_procs/reducer_internal.h"
#include "ddp_procs/topk.h"
#include "kernels/kernels.h"

struct topk {
    struct ddp ddp; /* first: ops receive a pointer to it */
    char text[DDP_COMPRESSION_CAPACITY];
    size_t *counts;         /* of entries that travel of each parameter */
    float *errors;          /* what has not been sent; NULL: without feedback */
    size_t *error_at;       /* where those of each parameter begin */
    struct ls_entry *lists; /* of a bucket: each rank's, one behind the other; shared */
};

static inline struct topk *topk_of(ls_parallel *p) { return (struct topk *)p; }

#endif
