/* The state of top-k on one rank, for topk.c, tests and labs. */
#ifndef DDP_TOPK_INTERNAL_H
#define DDP_TOPK_INTERNAL_H

#include "ddp_procs/ddp.h"
#include "ddp_procs/reducer_internal.h"
#include "ddp_procs/topk.h"
#include "kernels/kernels.h"

struct topk {
    struct ddp ddp; /* first: ops receive a pointer to it */
    char text[DDP_COMPRESSION_CAPACITY];
    size_t *counts;         /* entries sent of each parameter */
    float *errors;          /* residuals: elements not sent; NULL: without feedback */
    size_t *error_at;       /* the offset of each parameter's residuals */
    struct ls_entry *lists; /* of a bucket: each rank's list, concatenated; shared memory */
};

static inline struct topk *topk_of(ls_parallel *p) { return (struct topk *)p; }

#endif
