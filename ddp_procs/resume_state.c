/* resume_state — what a resumed run has to know of DDP beyond model and optimizer: in which order gradients became
 * ready in the first step, from which its buckets follow. */
#include "ddp_procs/ddp.h"

void ddp_get_memory(const ls_parallel *p, const int64_t **values, size_t *count) {
    *count = ddp_reducer_get_order(((const struct ddp *)p)->reducer, values);
}

ls_status ddp_set_memory(ls_parallel *p, const int64_t *values, size_t count) {
    return ddp_reducer_set_order(ddp_of(p)->reducer, values, count);
}
