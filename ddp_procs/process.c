/* process — communication between ranks outside of steps, and after a failure: the same for DDP and its variants,
 * whose state begins with struct ddp.
 *   idea  : each rank checks its own loss before its gradients are reduced. The other ranks, whose losses are finite,
 *           wait for it in a collective operation, and read the reason from the broken group. If all ranks diverge in
 *           the same step, the first to break the group sets the reason, and the others report that
 *   fails : an operation on a broken group fails at once, and a rank's first such operation reports which rank broke
 *           the group, and why */
#include <stdlib.h>

#include "common/base/log.h"
#include "ddp_procs/ddp.h"

/* Gathered as 8-byte elements: a copy does not depend on their type. */
ls_status ddp_gather_from_ranks(ls_parallel *p, const double *values, size_t count, double *all) {
    struct ddp *ddp = ddp_of(p);
    ls_comm_label(ddp->job, "values between steps", -1);
    return ls_comm_settle(ddp->comm_stream,
                          ls_comm_all_gather(ddp->job, ddp->comm_stream, values, all, count, LS_INT64));
}

/* The values are gathered and added in rank order, so that all ranks get the same bits. */
ls_status ddp_sum_over_ranks(ls_parallel *p, double *values, size_t count) {
    double *all = calloc(count * (size_t)p->world_size, sizeof *all);
    if (!all) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a sum over ranks");
    ls_status status = ddp_gather_from_ranks(p, values, count, all);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        values[i] = 0;
        for (int r = 0; r < p->world_size; r++) values[i] += all[(size_t)r * count + i];
    }
    free(all);
    return status;
}

bool ddp_give_up(ls_parallel *p, const char *reason, ls_status *status) {
    struct ddp *ddp = ddp_of(p);
    if (ls_comm_abort(ddp->job, reason)) return true;
    *status = ls_comm_settle(ddp->comm_stream, ls_comm_barrier(ddp->job, ddp->comm_stream));
    return false;
}

void ddp_abandon(ls_parallel *p) { (void)ls_comm_abort(ddp_of(p)->job, "this rank failed"); }

/* The order in which gradients became ready in the first step, which determines the buckets. */
static void get_resume_state(const ls_parallel *p, const int64_t **values, size_t *count) {
    *count = ddp_reducer_get_order(((const struct ddp *)p)->reducer, values);
}

static ls_status set_resume_state(ls_parallel *p, const int64_t *values, size_t count) {
    return ddp_reducer_set_order(ddp_of(p)->reducer, values, count);
}

const struct ls_process_ops ddp_process_ops = {
    .sum_over_ranks = ddp_sum_over_ranks,
    .gather_from_ranks = ddp_gather_from_ranks,
    .give_up = ddp_give_up,
    .before_evaluation = ddp_before_evaluation,
    .join = ddp_join,
    .get_resume_state = get_resume_state,
    .set_resume_state = set_resume_state,
};
