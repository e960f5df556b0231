/* hand_over — runs a part of the step in every replica's thread, and returns its status.
 *   idea  : a replica's enqueue calls return no status; a failure in them sticks to its device
 *           (common/device/device.h). So the status of a replica's device is read once, at the hand-off: otherwise
 *           device 0 would compute the loss of outputs that were never sent, or add up such gradients
 *   fails : the replica's status becomes the step's (parallel_apply.c chooses which). Replicas that communicate inside
 *           of a part, by sync_bn or nccl, must not wait for one that has failed: it aborts their groups */
#include "dp_threads/dp.h"

/* Aborts this replica's groups, so that replicas which wait for it return. */
static void abort_groups(const struct dp_replica *r, const char *reason) {
    if (r->sync_bn) ls_comm_abort(r->sync_bn, reason);
    if (r->nccl) ls_comm_abort(r->nccl, reason);
}

static ls_status run_part(void *context, int i) {
    struct dp *dp = context;
    struct dp_replica *r = &dp->replicas[i];
    dp->part(dp, r);
    ls_phase_enter(r->clock, LS_PHASE_OTHER);
    ls_status status = ls_device_status(r->device);
    if (status != LS_OK) abort_groups(r, "its replica failed");
    return status;
}

ls_status dp_on_replicas(struct dp *dp, dp_part_fn part) {
    dp->part = part;
    ls_status status = dp_parallel_apply(dp->workers, dp->active, run_part, dp);
    dp->base.stuck = dp_workers_stuck(dp->workers);
    return status;
}

void dp_abandon(ls_parallel *p) {
    for (int i = 0; i < p->device_count; i++) abort_groups(&dp_of(p)->replicas[i], "the step failed");
}
