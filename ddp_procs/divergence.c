/* divergence — what a rank reports, to the user and to its peers, when its loss is not finite.
 *   idea  : each rank checks its own loss before its gradients travel. The others are still finite and wait for it in a
 *           collective operation: they find the reason in the broken group. Where all ranks diverge in the same step,
 *           the first to break the group explains, and the others report what it said
 *   fails : an operation on a broken group fails at once and reports who broke it and why; that is how the others
 *           report */
#include <stdio.h>
#include <string.h>

#include "ddp_procs/ddp.h"

ls_status ddp_find_nonfinite(ls_parallel *p, char *place, size_t capacity) {
    ls_status status = ls_model_find_nonfinite(p->model, place, capacity);
    size_t length = strlen(place);
    if (length > 0) snprintf(place + length, capacity - length, " on rank %d", p->rank);
    return status;
}

bool ddp_give_up(ls_parallel *p, const char *reason, ls_status *status) {
    struct ddp *ddp = ddp_of(p);
    if (ls_comm_abort(ddp->comm, reason)) return true;
    *status = ls_comm_settle(ddp->comm_stream, ls_comm_barrier(ddp->comm, ddp->comm_stream));
    return false;
}

void ddp_abandon(ls_parallel *p) { (void)ls_comm_abort(ddp_of(p)->comm, "this rank failed"); }
