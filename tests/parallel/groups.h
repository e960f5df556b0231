/* The groups of a plan's ranks. */
#ifndef TESTS_PARALLEL_GROUPS_H
#define TESTS_PARALLEL_GROUPS_H

#include "common/comm/mesh.h"
#include "tests/comm/ranks.h"

struct plan;

/* Zero-filled: none. */
struct plan_groups {
    ls_comm *job; /* all ranks */
    bool is_borrowed;
    ls_mesh mesh;    /* contains the job, if ranks have parts of a network */
    ls_comm *second; /* of the ranks that average gradients: for batch norm, shards */
    ls_comm *stages; /* of the pipeline axis */
    ls_comm *all;    /* of all ranks: for shards of a pipeline's optimizer */
};

/* Creates a group of all ranks, and no other group. */
ls_status group_open(ls_comm **out, const struct rank *rank, const char *allreduce);

/* Creates plan->groups, as the plan requires. Close them even if this fails. `job` (may be NULL) is a group of all
 * ranks, borrowed; a grid creates its own. */
ls_status plan_groups_open(struct plan *plan, const struct rank *rank, ls_comm *job);
/* Attaches the groups to the rank's GPU. */
ls_status plan_groups_attach(struct plan_groups *groups, const struct plan *plan, ls_device *device);
void plan_groups_close(struct plan_groups *groups);

#endif
