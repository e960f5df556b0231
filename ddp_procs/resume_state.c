/* resume_state — DDP's own part of a checkpoint: the order in which gradients became ready in the first step, from
 * which the buckets follow. */
#include "ddp_procs/ddp.h"

void ddp_get_resume_state(const ls_parallel *p, const int64_t **values, size_t *count) {
    *count = ddp_reducer_get_order(((const struct ddp *)p)->reducer, values);
}

ls_status ddp_set_resume_state(ls_parallel *p, const int64_t *values, size_t count) {
    return ddp_reducer_set_order(ddp_of(p)->reducer, values, count);
}
