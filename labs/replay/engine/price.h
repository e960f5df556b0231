/* The time of a recorded task on a node (recost.h). */
#ifndef LABS_REPLAY_ENGINE_PRICE_H
#define LABS_REPLAY_ENGINE_PRICE_H

#include "labs/replay/engine/plan.h"

enum { LS_PRICE_MAX_COSTS = 4 }; /* whole batch, a large piece, a small piece, the last piece */

/* The time of each operation for one number of samples. */
struct ls_price_costs {
    bool used;
    double samples, *us;
};

struct ls_price {
    const ls_workload *workload;
    const ls_node *node;
    /* the node as groups of ranks see it: ranks that share layers; replicas of one part; and, of these, those with the
     * same position in each node */
    ls_node *neighbours, *replicas, *across;
    const struct ls_node_host *host;
    const struct ls_plan *options;
    int active;          /* devices with samples */
    bool in_line;        /* host threads run the work that they launch, on every stream */
    double reclaim_us;   /* extra time of an update (ls_cost_reclaim_us), and over how many bytes it is spread */
    double update_bytes; /* known when the price is opened, or set by its user (ls_plan's whole_rows) */
    double *slowness;    /* of each device: the time of its kernels, relative to the mean */
    struct ls_price_costs costs[LS_PRICE_MAX_COSTS];
};

ls_status ls_price_open(struct ls_price *price, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options);
void ls_price_close(struct ls_price *price);

/* Fills in the times, and the bytes and flops of `device`'s samples, of a kernel, a copy or a collective of the
 * recording. Copies that share links get no time. */
void ls_price_task(struct ls_price *price, struct ls_task *task, int device, const struct ls_meeting *meeting);

/* Whether a collective of the recording is one of ranks that share layers, or a message between two stages; else it is one of
 * the replicas'. */
bool ls_price_of_tensor_axis(const struct ls_price *price, const struct ls_task *task);
bool ls_price_between_stages(const struct ls_price *price, const struct ls_task *task);

/* The host's own time for the launch of a task of the recording (as it was recorded). */
double ls_price_launch_us(const struct ls_price *price, const struct ls_task *launched);

/* Whether the launching thread runs the (priced) task of such a lane itself. */
bool ls_price_runs_on_host(const struct ls_price *price, const struct ls_task *task, ls_lane_kind lane);

#endif
