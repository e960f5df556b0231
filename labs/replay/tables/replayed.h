/* A step that is replayed, in a few figures. */
#ifndef LABS_REPLAY_TABLES_REPLAYED_H
#define LABS_REPLAY_TABLES_REPLAYED_H

#include "labs/replay/engine/account.h"
#include "labs/replay/engine/plan.h"

/* Of a device, as shares of the step. */
struct tables_shares {
    double compute;       /* a kernel runs */
    double communication; /* a copy (the input's, too) or a collective is in progress, hidden behind kernels or not */
    double exposed;       /* the same while no kernel runs */
};

struct tables_replayed {
    double step_ms;
    double collectives; /* a collective is in progress, hidden or not; share of the step, mean over the devices */
    struct tables_shares first, others, mean; /* device 0; the mean of the others (one device: device 0); of all */
};

/* Builds the trace that `options` ask for, runs it on the node and reads its account. */
ls_status tables_replay(struct tables_replayed *replayed, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options);

#endif
