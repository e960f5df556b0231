/* The measurements and predictions of table 6, on this machine; its rows and texts are made elsewhere. */
#ifndef LABS_REPLAY_TABLES_MACHINE_H
#define LABS_REPLAY_TABLES_MACHINE_H

#include "labs/replay/tables/run.h"
#include "labs/replay/tables/tables.h"

/* A network, and how it is trained. */
struct machine_plan {
    const char *model, *optimizer; /* optimizer: the arguments for it */
    int batch;                     /* samples of a step over all devices; even */
    int steps;                     /* of a run, 10 of which are not timed */
};

/* X(NAME, mode, devices, divisor of the batch, text): the runs, each with and without a trace. */
#define MACHINE_RUN_MAP(X)                                                                                             \
    X(SINGLE, LS_PLAN_SINGLE, 1, 1, "single")                                                                          \
    X(HALF, LS_PLAN_SINGLE, 1, 2, "single, half the batch")                                                            \
    X(DP1, LS_PLAN_DP, 1, 1, "DP")                                                                                     \
    X(DDP1, LS_PLAN_DDP, 1, 1, "DDP")                                                                                  \
    X(DP2, LS_PLAN_DP, 2, 1, "DP")                                                                                     \
    X(DDP2, LS_PLAN_DDP, 2, 1, "DDP")                                                                                  \
    X(APART, LS_PLAN_DDP, 2, 1, "DDP --no-overlap")
#define MACHINE_RUN_ENUM(name, mode, devices, part, text) MACHINE_##name,
enum machine_run { MACHINE_RUN_MAP(MACHINE_RUN_ENUM) MACHINE_RUNS };
#undef MACHINE_RUN_ENUM

/* The parameters of each run. */
struct machine_kind {
    ls_plan_mode mode;
    int devices, part; /* part: the divisor of the batch */
    const char *name, *folder;
};
extern const struct machine_kind machine_kinds[MACHINE_RUNS];

/* Of one plan: step times in milliseconds, NAN where they were not measured; traces, NULL where none was recorded. */
struct machine_record {
    double ms[MACHINE_RUNS];
    ls_trace *traces[MACHINE_RUNS];
    int rounds[MACHINE_RUNS]; /* the round of each trace, as in its folder's name */
};

/* Whether the machine has a core for each device; only such kinds are run. */
bool machine_has_cores(enum machine_run run);

/* Runs each kind but DP1 and DDP1 once a round, without --trace: ms is the median over `rounds`. Runs each but APART
 * with --trace, to FOLDER/traces/MODEL_KIND_ROUND: SINGLE and HALF in every round, and returns the trace whose step is
 * nearest to their median; other kinds in the first round. On failure nothing needs to be freed. */
ls_status machine_record(struct machine_record *record, const struct machine_plan *plan, int rounds,
                         const tables_settings *settings);

/* Of the first traces up to a NULL, at most `count`, the one whose step is nearest to `ms`; of NaN, the first. */
int machine_nearest(ls_trace *const *traces, int count, double ms);

void machine_record_free(struct machine_record *record);

/* This machine as two nodes: with figures for networks that fit into caches, and for others. Runs `calibrate` for each,
 * which writes FOLDER/this_machine.json and FOLDER/this_machine_beyond_cache.json, and again, at most twice, while the
 * node says that the machine was busy. For a quick table the first is FOLDER/quick_this_machine.json and the second
 * NULL. The caller closes both. */
ls_status machine_calibrate(ls_node *nodes[2], const tables_settings *settings);
bool machine_is_rough(const ls_node *node); /* by its description, which calibrate wrote */

/* Whether the data that every step reuses (parameters, gradients, the optimizer's states) stays in the last-level
 * cache. */
bool machine_fits_cache(const ls_workload *workload);

/* The step of a kind of run, replayed from a workload, on a node. */
ls_status machine_predict(tables_replayed predicted, const ls_workload *workload, const ls_node *node,
                          const struct machine_plan *plan, enum machine_run run);

#endif
