/* A step of a real network: the code of dp_train or ddp_train builds the mode for its options, on meta devices, and its
 * steps are recorded with all samples. It allocates as much as a run, to the byte; its operations have their own flops
 * and bytes, which ls_recost prices (ls_plan's whole_rows).
 *
 * Identical ranks are recorded once. Stages of a pipeline differ: the first rank of each is recorded. Only one
 * recording at a time: probes belong to the process. */
#ifndef LABS_REPLAY_RECORD_REAL_H
#define LABS_REPLAY_RECORD_REAL_H

#include "ddp_procs/settings.h"
#include "dp_threads/dp_run.h"
#include "labs/replay/engine/plan.h"

/* The settings of a program. */
struct record_program {
    ls_plan_mode mode; /* LS_PLAN_DP: dp_train; LS_PLAN_DDP: ddp_train */
    int devices;
    struct dp_settings dp; /* of the mode's program; the other is unused */
    ddp_settings ddp;
};

/* Reads the words after the program's name, as the program does; they must outlive `program`. LS_ERR_USAGE with one
 * line. */
ls_status record_program_parse(struct record_program *program, ls_plan_mode mode, int devices, char *const *words,
                               int count);

/* Checks the combination of options, as the program does before it opens a model; and sets the plan to be replayed.
 * LS_ERR_USAGE with one line. */
ls_status record_program_plan(struct ls_plan *plan, const struct record_program *program);

/* The peak memory of the recorded device that holds most, and its number. */
struct record_held {
    int device;
    ls_memory_report report;
};

/* Builds, runs and destroys the mode. *plan is the program's (record_program_plan); sets its rows. *recorded is sealed,
 * without times, and owned by the caller; on failure it is NULL. Fails as the program does, in one line, and with
 * LS_ERR_INVALID if the node has fewer devices, and no network to others like it. */
ls_status record_real(ls_trace **recorded, struct record_held *held, struct ls_plan *plan,
                      const struct record_program *program, const ls_node *node);

/* The workload by which an operation of such a recording is priced: it has one sample, which stands for all. Borrows
 * `name`. */
ls_workload record_real_workload(const char *name, const struct record_program *program, const struct ls_plan *plan);

#endif
