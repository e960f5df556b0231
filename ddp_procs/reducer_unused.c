/* reducer_unused — which parameters no rank has used in a step: --find-unused (docs/pytorch.md#unused-parameters).
 *   idea  : when backward ends, parameters that it has not reported count as ready, with gradients of zero (or those
 *           left by no_sync). Their buckets wait until then, so there is less overlap. After the buckets, the ranks sum
 *           how many of them have used each parameter. The optimizer skips parameters that no rank has used, as
 *           PyTorch's skips a gradient of None. PyTorch finds them before backward, from its autograd graph, which does
 *           not exist here. The buckets keep the order of definition, since the order of readiness may change from step
 *           to step
 *   cost  : 4 bytes more per parameter and step, in an all-reduce for which the host waits */
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/reducer_internal.h"

/* Steps in which every rank uses every parameter, before a warning that find_unused is not needed. */
enum { STEPS_UNTIL_WASTE = 10 };

static void warn_if_unneeded(ddp_reducer *r, bool all_used) {
    if (r->wasted_steps < 0) return;
    r->wasted_steps = all_used ? r->wasted_steps + 1 : -1;
    if (r->wasted_steps < STEPS_UNTIL_WASTE) return;
    r->wasted_steps = -1;
    if (ls_comm_rank(r->comm) != 0) return;
    ls_warn("all parameters were used on all ranks in the first %d steps: leave --find-unused out to shorten the steps",
            STEPS_UNTIL_WASTE);
}

ls_status ddp_reducer_share_used(ddp_reducer *r) {
    for (size_t p = 0; p < r->parameter_count; p++) r->used_by[p] = r->is_used[p];
    ls_comm_label(r->comm, "used parameters", -1);
    ls_status status = ls_comm_settle(r->comm_stream, ls_comm_all_reduce(r->comm, r->comm_stream, r->used_by,
                                                                         r->parameter_count, LS_INT32, LS_REDUCE_SUM));
    if (status != LS_OK) return status;
    bool all_used = true;
    r->any_unused = false;
    for (size_t p = 0; p < r->parameter_count; p++) {
        r->is_unused[p] = r->used_by[p] == 0;
        r->any_unused = r->any_unused || r->is_unused[p];
        all_used = all_used && r->used_by[p] == ls_comm_world_size(r->comm);
    }
    warn_if_unneeded(r, all_used);
    memset(r->is_used, 0, r->parameter_count * sizeof *r->is_used);
    return LS_OK;
}

const bool *ddp_reducer_unused(const ddp_reducer *r) { return r->any_unused ? r->is_unused : NULL; }
