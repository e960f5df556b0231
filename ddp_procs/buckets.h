/* PyTorch's assignment of parameters to gradient buckets (docs/pytorch.md#buckets), as a pure function. */
#ifndef DDP_BUCKETS_H
#define DDP_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define DDP_FIRST_BUCKET_BYTES ((size_t)1 << 20)
#define DDP_DEFAULT_BUCKET_CAP_MB 25.0

/* Buckets in the order in which they are reduced. */
struct ddp_buckets {
    size_t parameter_count, bucket_count;
    size_t *parameters; /* all parameters, bucket after bucket */
    size_t *sizes;      /* the number of parameters in each bucket */
};

/* Goes through the parameters in `order` (parameter_count indices) and closes the open bucket as soon as its bytes
 * reach its limit: limits[0] for the first, limits[1] for the second, ..., the last limit for all further ones. So a
 * bucket may exceed its limit by almost one tensor. `reverse`: reverses the order of the buckets (not of their
 * parameters); for parameters in order of definition, whose last gradients are ready first. nbytes[p] are the bytes of
 * parameter p. On failure *out is empty. */
ls_status ddp_assign_buckets(struct ddp_buckets *out, const size_t *nbytes, const int64_t *order,
                             size_t parameter_count, const size_t *limits, size_t limit_count, bool reverse);

void ddp_buckets_free(struct ddp_buckets *buckets);

#endif
