/* What the parts of the planner share: which combinations of options fit into a device's memory, and how fast they would be.
 *
 *     settings.c       command line -> planner_settings      combinations.c   the combinations: tables
 *     run.c            a combination -> a row                judge.c          rows -> their order, and the answers
 *     present.c        rows -> stdout                        files.c          rows -> CSV and JSON
 *
 * A combination is a list of options of dp_train or ddp_train, as typed. The program's own code checks whether they can
 * be combined, builds its objects and runs its steps, on meta devices (labs/replay/record): so bytes are counted, and
 * times are replayed. The planner knows nothing about the modes. */
#ifndef LABS_REPLAY_PLAN_PLANNER_H
#define LABS_REPLAY_PLAN_PLANNER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/device/device.h"
#include "labs/bench/shared/columns.h"
#include "labs/replay/engine/plan.h"

enum { PLANNER_OPTIONS = 160, PLANNER_REASON = 600, PLANNER_MOST_DEVICES = 64 };

/* --- settings ---------------------------------------------------------------------------------------------------- */

typedef struct planner_settings {
    const char *model, *workload; /* one of them; the other is NULL */
    int devices;
    size_t memory_bytes; /* of a device; 0: not given, the node's is used */
    int64_t batch;       /* samples of a step over all devices; 0: the workload's, or ddp_train's default */
    const char *node, *data;
    bool node_is_default;
    double host_lock_us;      /* < 0: the node's */
    int optimizer, precision; /* ddp_train's values; below 0: its default; all precisions that are planned */
    int top;                  /* lines of a table */
    const char *folder, *json;
    bool quiet;
} planner_settings;

/* The names of ls_optimizer_kind, in its order; NULL ends the list. */
extern const char *const planner_optimizers[];

/* *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one line. */
ls_status planner_parse(planner_settings *settings, int argc, char **argv, bool *help);

/* The options that all combinations have: "--model deep --batch-size 512". */
enum { PLANNER_COMMON = 16 };
typedef struct planner_common {
    int count;
    char words[PLANNER_COMMON][64 + 4096];
} planner_common;
void planner_make_common(planner_common *common, const planner_settings *settings);

/* --- combinations ------------------------------------------------------------------------------------------------ */

typedef enum planner_verdict {
    PLANNER_FITS,
    PLANNER_TOO_LARGE,
    PLANNER_REFUSED,  /* the program refuses the combination: `reason` is its line */
    PLANNER_UNPLANNED /* it may run, but cannot be replayed: `reason` says why */
} planner_verdict;

typedef struct planner_row {
    ls_plan_mode mode;
    char options[PLANNER_OPTIONS]; /* beyond the common ones; "": none */
    planner_verdict verdict;
    char reason[PLANNER_REASON];
    /* of the device that holds most, counted: the peak of each category, and of all together */
    int device;
    double bytes[LS_MEMORY_COUNT], total_bytes;
    double over_bytes; /* beyond the limit; at most 0 if it fits */
    /* replayed; NAN unless it fits */
    double step_ms, samples_per_s;
    double compute, communication, host, idle; /* parts of the step, mean of the devices */
} planner_row;

typedef struct planner_results {
    const planner_settings *settings;
    ls_node *node;
    struct ls_workload *workload; /* NULL: a model */
    double memory_bytes;          /* the limit */
    double batch;
    char on[200]; /* "replayed on hgx-h200" */
    int count, capacity;
    planner_row *rows;
} planner_results;

/* Appends a row for each combination on the given devices, the plainest first. LS_ERR_NO_MEMORY. */
ls_status planner_list(planner_results *results);

/* An option that is never planned, and why; the list ends with one without options. */
struct planner_omission {
    const char *options, *reason;
};
extern const struct planner_omission planner_omissions[];

/* "dp_train", "ddp_train"; and its option for the number of devices. */
const char *planner_program(const planner_row *row);
const char *planner_devices_option(const planner_row *row);

/* --- a run, and the judgement ------------------------------------------------------------------------------------- */

/* Fills the row in. Fails only if all further rows would, for instance without memory: a refusal is a verdict. */
ls_status planner_run(planner_row *row, const planner_results *results);

/* Sorts the best first: rows that fit, by step time; then those that do not, by the missing memory; then the others, in
 * their order. */
ls_status planner_sort(planner_results *results);

/* The first row that fits; NULL: none does. The row that holds least, of those with figures; NULL: there is none. */
const planner_row *planner_fastest(const planner_results *results);
const planner_row *planner_smallest(const planner_results *results);
int planner_count(const planner_results *results, planner_verdict verdict);

/* The category that is largest, gradients with their buckets. */
const char *planner_largest(const planner_row *row);
double planner_gradients(const planner_row *row);
double planner_others(const planner_row *row);

/* --- output ------------------------------------------------------------------------------------------------------ */

extern const bench_column planner_columns[], planner_fitting_columns[], planner_too_large_columns[]; /* files; tables */

ls_status planner_print(const planner_results *results);

/* Checks, before any run, that the outputs can be written, and name no input. */
ls_status planner_prepare_files(const planner_settings *settings);
ls_status planner_write_files(const planner_results *results);

#endif
