/* A step of a real network: dp_train's or ddp_train's own options build what they build, on meta devices, and its steps are
 * recorded with all samples. What it allocates is what a run allocates, to the byte; what it enqueues has flops and bytes
 * of its own, which ls_recost prices (ls_plan's whole_rows).
 *
 * Ranks that do alike are recorded as one. Stages of a pipeline do not: of each the first rank is. One recording at a time:
 * probes are the process's. */
#ifndef LABS_REPLAY_RECORD_REAL_H
#define LABS_REPLAY_RECORD_REAL_H

#include "ddp_procs/settings.h"
#include "dp_threads/dp_run.h"
#include "labs/replay/engine/plan.h"

/* What a program was told. */
struct record_program {
    ls_plan_mode mode; /* LS_PLAN_DP: dp_train; LS_PLAN_DDP: ddp_train */
    int devices;
    struct dp_settings dp; /* of the mode's program; the other is not used */
    ddp_settings ddp;
};

/* Reads the words behind the program's name, as it does; they stay in use. LS_ERR_USAGE with one line. */
ls_status record_program_parse(struct record_program *program, ls_plan_mode mode, int devices, char *const *words,
                               int count);

/* Checks what goes together, without a model, as the program does before it opens one; and says what is to be replayed.
 * LS_ERR_USAGE with one line. */
ls_status record_program_plan(struct ls_plan *plan, const struct record_program *program);

/* What a device holds at most, and which one: of all that were recorded the one with the most. */
struct record_held {
    int device;
    ls_memory_report report;
};

/* Builds, runs and takes down. *plan is the program's (record_program_plan), and gets its rows. *recorded is sealed, has no
 * times, and is the caller's; on failure it is NULL. Fails as the program does, in one line, and LS_ERR_INVALID: the node has
 * fewer devices, and no network to others like it. */
ls_status record_real(ls_trace **recorded, struct record_held *held, struct ls_plan *plan,
                      const struct record_program *program, const ls_node *node);

/* What an operation of such a recording is priced as: of one sample, which is all of them. Borrows `name`. */
ls_workload record_real_workload(const char *name, const struct record_program *program, const struct ls_plan *plan);

#endif
