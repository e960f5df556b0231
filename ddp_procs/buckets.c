/* buckets — which gradients are reduced together.
 *   idea  : walk through the parameters in order and fill a bucket until its bytes reach the limit; then open the next.
 *           So a bucket may exceed its limit, by less than its last gradient
 *   order : `reverse` reverses the list of buckets, but not the gradients within a bucket. Buckets in order of
 *           definition need that: their last gradients are ready first (docs/pytorch.md#buckets)
 *   cost  : parameters, once */
#include "ddp_procs/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

/* Goes through the parameters in `order` (buckets.h). b->parameter_count is set; both lists are zero, and have that
 * many entries. */
static void fill_buckets(struct ddp_buckets *b, const size_t *nbytes, const int64_t *order, const size_t *limits,
                         size_t limit_count) {
    size_t open_bytes = 0;
    for (size_t i = 0; i < b->parameter_count; i++) {
        size_t limit = limits[b->bucket_count < limit_count ? b->bucket_count : limit_count - 1];
        b->parameters[i] = (size_t)order[i];
        b->sizes[b->bucket_count]++;
        open_bytes += nbytes[b->parameters[i]];
        if (open_bytes >= limit || i + 1 == b->parameter_count) {
            b->bucket_count++;
            open_bytes = 0;
        }
    }
}

/* The last bucket becomes the first; the order within each bucket is kept. `scratch` has room for all parameters. */
static void reverse_buckets(struct ddp_buckets *b, size_t *scratch) {
    size_t end = b->parameter_count;
    memcpy(scratch, b->parameters, end * sizeof *scratch);
    size_t *to = b->parameters + end;
    for (size_t k = 0, from = 0; k < b->bucket_count; from += b->sizes[k++]) {
        to -= b->sizes[k];
        memcpy(to, scratch + from, b->sizes[k] * sizeof *to);
    }
    for (size_t i = 0, j = b->bucket_count; i + 1 < j; i++) {
        size_t size = b->sizes[i];
        b->sizes[i] = b->sizes[--j];
        b->sizes[j] = size;
    }
}

ls_status ddp_assign_buckets(struct ddp_buckets *out, const size_t *nbytes, const int64_t *order,
                             size_t parameter_count, const size_t *limits, size_t limit_count, bool reverse) {
    struct ddp_buckets b = {.parameter_count = parameter_count};
    size_t room = parameter_count > 0 ? parameter_count : 1; /* calloc(0) may return NULL */
    b.parameters = calloc(room, sizeof *b.parameters);
    b.sizes = calloc(room, sizeof *b.sizes);
    size_t *scratch = calloc(room, sizeof *scratch);
    ls_status status = LS_OK;
    if (!b.parameters || !b.sizes || !scratch)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the list of buckets");
    if (status == LS_OK) fill_buckets(&b, nbytes, order, limits, limit_count);
    if (status == LS_OK && reverse) reverse_buckets(&b, scratch);
    free(scratch);
    if (status != LS_OK) ddp_buckets_free(&b);
    *out = b;
    return status;
}

void ddp_buckets_free(struct ddp_buckets *b) {
    free(b->parameters);
    free(b->sizes);
    *b = (struct ddp_buckets){0};
}
