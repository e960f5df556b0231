/* Access to internals of DistributedDataParallel, for tests only. */
#ifndef TESTS_DDP_PROCS_INSIDE_H
#define TESTS_DDP_PROCS_INSIDE_H

#include "ddp_procs/ddp.h"
#include "ddp_procs/reducer_internal.h"

static inline ddp_reducer *reducer_of(ls_parallel *p) { return ddp_of(p)->reducer; }

/* The buckets, in launch order: their number, and the bytes of gradients in each. */
static inline size_t bucket_count(const ddp_reducer *r) { return r->bucket_count; }
static inline size_t bucket_nbytes(const ddp_reducer *r, size_t bucket) { return r->buckets[bucket].gradient_nbytes; }

#endif
