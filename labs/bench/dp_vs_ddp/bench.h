/* What the parts of bench_dp_vs_ddp share: the settings, and the rows that are assembled from runs.
 *
 *     settings.c   command line -> bench_settings            runs.c      one training run -> bench_run
 *     rows.c       runs -> rows, and the parts of T_N        columns.c   a row in text, CSV and JSON
 *     answers.c    rows -> the first lines: the faster mode  tables.c    rows -> one table per model: the first screen
 *     details.c    rows -> all other tables                  files.c     all of these -> stdout, text, CSV and JSON
 *     locked.c     the same runs with each launch under its process's one lock, as in Python: measured
 *     virtual.c    the same runs with a core for each device, on a machine that has fewer: virtual time
 *     replayed.c   the same steps on GPUs, replayed on any machine, with a separate table and CSV
 *
 * Words: T1 is the step time of the plain single-device path; b the global batch; T1(b/N) that path's step time with
 * the batch of one of N devices. Times are in milliseconds per step.
 *
 * Strong scaling: b is the same for every N. The speed-up is T1 / T_N. Weak scaling (--per-device-batch): a device's
 * batch is the same for every N, T1 is one device's step with it, and N devices do N times as much per step. So the
 * speed-up is N T1 / T_N, of samples per second. In both the efficiency is the speed-up / N: weak, it is T1 / T_N. */
#ifndef LABS_BENCH_DP_VS_DDP_BENCH_H
#define LABS_BENCH_DP_VS_DDP_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/options.h"
#include "common/base/status.h"
#include "common/trace/trace.h"
#include "labs/bench/shared/child.h"
#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/engine/node.h"

enum {
    BENCH_MODELS_MAX = 8,
    BENCH_N_MAX = 16, /* different N */
    BENCH_ROUNDS_MAX = 99,
    BENCH_ROWS_MAX = 1 + 3 * BENCH_N_MAX,
    BENCH_LOCKED_MAX = 3,
    BENCH_VIRTUAL_MAX = 1 + 2 * (BENCH_N_MAX + 1),
    BENCH_VIRTUAL_N = 8, /* devices in virtual time, if no N is given */
    BENCH_NAME_CAPACITY = 128,
    BENCH_RECIPE_MAX = 4, /* arguments of a model's recipe, with the NULL at the end */
    BENCH_WEIGHTS_CAPACITY = 20,
    BENCH_BACKEND_CAPACITY = 32,
    BENCH_WAYS = 2, /* ways to launch on GPUs in a replay: from C, from Python */
    BENCH_REPLAYED_MAX = 7 * BENCH_WAYS
};

typedef enum bench_mode { BENCH_SINGLE, BENCH_DP, BENCH_DDP } bench_mode;

/* "single", "DP", "DDP" */
const char *bench_mode_name(bench_mode mode);

/* --- settings ---------------------------------------------------------------------------------------------------- */

/* A model and how it is trained. */
typedef struct bench_plan {
    char model[BENCH_NAME_CAPACITY];
    const char *data;
    int64_t samples;                      /* training samples in the data; 0: as many as are requested */
    const char *recipe[BENCH_RECIPE_MAX]; /* training options: "--optimizer=adam"; ended by NULL */
    int64_t batch;                        /* samples per step: of all devices together; weak: of each device */
    int steps;                            /* per run */
    bool weak;                            /* scaling */
} bench_plan;

/* Samples per step when n devices run the plan: of each device, and of all. */
int64_t bench_device_batch(const bench_plan *plan, int n);
int64_t bench_global_batch(const bench_plan *plan, int n);

typedef struct bench_settings {
    ls_int_list n; /* ascending, each once */
    bool n_chosen; /* by the command line */
    int rounds;
    int processors;     /* cores, or GPUs: more devices than this are oversubscribed */
    double timeout_s;   /* of a run */
    bool gpus;          /* a device is a GPU, else a core */
    const char *device; /* the value of the programs' --device-kind */
    int least_steps;    /* of a run that is to have a step time */
    const char *folder; /* results go there */
    bool all;           /* details go to stdout, too */
    bool quiet;
    int plan_count;
    bench_plan plans[BENCH_MODELS_MAX];
} bench_settings;

/* Fills in the settings. *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one
 * line. */
ls_status bench_parse(bench_settings *settings, int argc, char **argv, bool *help);

/* --- runs -------------------------------------------------------------------------------------------------------- */

/* One training run: its configuration, then its results. */
typedef struct bench_run {
    bench_mode mode;
    int n;               /* devices */
    int64_t batch;       /* samples per step over all devices */
    double host_lock_us; /* of each launch; 0: no lock */
    const char *trace;   /* the folder that a run in virtual time is recorded to; NULL: measured */
    double step_ms;      /* median over the run's steps after the warm-up */
    double exposed_ms;   /* of step_ms: communication that the step waits for (see runs.c); NAN on GPUs */
    double busy;         /* virtual time: share of the step in which a kernel runs, mean of devices; else 0 */
    double final_loss;
    char weights[BENCH_WEIGHTS_CAPACITY]; /* hash of the trained weights */
    char backend
        [BENCH_BACKEND_CAPACITY]; /* how the devices exchanged data: "copies", "shm", "nccl"; "" for one device */
    char device_name[BENCH_NAME_CAPACITY]; /* "NVIDIA H200" */
} bench_run;

/* Runs run->mode on run->n devices as a child process and fills in the results. LS_ERR_USAGE if the child refused its
 * command line; else LS_ERR_SYSTEM, LS_ERR_TIMEOUT, LS_ERR_IO; reported with the child's command and its message. No
 * process is left. */
ls_status bench_train(bench_run *run, const bench_plan *plan, const bench_settings *settings);

/* Reads the run's results from the summary that dp_train and ddp_train write. LS_ERR_FORMAT if it is another run's, or
 * not a summary. */
ls_status bench_read_summary(bench_run *run, const char *json);

/* --- traces (virtual.c) ------------------------------------------------------------------------------------------ */

/* SETTINGS->FOLDER/dp_vs_ddp_WHAT_MODEL, without characters that do not belong in a file name. LS_ERR_USAGE: too
 * long. */
ls_status bench_trace_folder(char path[BENCH_PATH_CAPACITY], const bench_settings *settings, const char *what,
                             const char *model);

/* The figures of a step, from a trace that was replayed on the node (NULL: with the trace's own durations). */
struct bench_replay {
    double step_ms, busy;       /* busy: share of the step in which a kernel runs, mean of devices */
    double exposed_ms, lock_ms; /* communication not hidden; waiting for the process's lock: mean of devices */
};
ls_status bench_replay_trace(struct bench_replay *replay, const ls_trace *trace, const ls_node *node);

/* --- rows -------------------------------------------------------------------------------------------------------- */

typedef struct bench_row {
    bench_mode mode;
    int n;
    int64_t per_device_batch;
    bool oversubscribed;

    /* the runs, one per round */
    bool failed; /* a run failed; then all derived figures are NAN, and the row is not run again */
    int run_count;
    double run_ms[BENCH_ROUNDS_MAX], run_exposed_ms[BENCH_ROUNDS_MAX], run_busy[BENCH_ROUNDS_MAX];
    double final_loss;
    char weights[BENCH_WEIGHTS_CAPACITY], backend[BENCH_BACKEND_CAPACITY];
    bool repeats; /* all runs ended with the same weights */

    /* derived by bench_assemble. NAN in the rows of T1(b/N), except for the step times */
    double step_ms, step_ms_min, step_ms_max;      /* median, least and greatest of run_ms */
    double speedup, speedup_min, speedup_max;      /* relative to T1 (see above); least and greatest speed-up */
    double efficiency;                             /* speedup / n */
    double ideal_ms;                               /* T1 / n; weak: T1 */
    double over_ms;                                /* step_ms - ideal_ms, the sum of the three below */
    double smaller_batch_ms, exposed_ms, fixed_ms; /* see rows.c; the last two are NAN on GPUs */
    double busy;                                   /* median of run_busy */
} bench_row;

/* A step on a modelled node. */
struct bench_replayed {
    bench_mode mode;
    int n, way; /* the way to launch, 0 .. BENCH_WAYS - 1 */
    double speedup;
    struct bench_replay step;
};

typedef struct bench_model {
    const bench_plan *plan;
    int row_count;
    bench_row rows[BENCH_ROWS_MAX]; /* T1; T1(b/N) for each N > 1, if not weak; DP for each N; DDP for each N */
    bench_plan locked_plan;         /* the plan with the steps of a run under the lock */
    int locked_count;               /* 0: no N > 1 has a core for each device */
    bench_row locked_rows[BENCH_LOCKED_MAX];   /* T1; DP and DDP for the greatest such N */
    bench_plan virtual_plan;                   /* the plan with the steps of a run in virtual time */
    int virtual_count;                         /* 0: no virtual rows */
    bench_row virtual_rows[BENCH_VIRTUAL_MAX]; /* T1; DP for each N > 1; DDP for each N > 1 */
    int replayed_count;
    struct bench_replayed replayed[BENCH_REPLAYED_MAX];
    double replayed_launch_us[BENCH_WAYS]; /* the cost of a launch */
} bench_model;

/* Sets up the rows of a model, without runs. */
void bench_plan_rows(bench_model *model, const bench_plan *plan, const bench_settings *settings);

/* Adds a run to its row. */
void bench_add_run(bench_row *row, const bench_run *run);

/* Computes the derived figures; every row has at least one run, or has failed. Virtual rows: smaller_batch_ms and
 * fixed_ms are NAN, and the speed-up is over the virtual T1. Rows under the lock: exposed_ms is NAN, too, and the
 * speed-up is over the T1 under the lock. */
void bench_assemble(bench_model *model);

/* The model's row, or NULL. For BENCH_SINGLE, n divides the batch: 1 is T1, 4 is T1(b/4). */
const bench_row *bench_find(const bench_model *model, bench_mode mode, int n);

/* The same for the virtual rows. */
const bench_row *bench_find_virtual(const bench_model *model, bench_mode mode, int n);

/* Whether DP and DDP on n devices both ran to the end, so that their weights can be compared. */
bool bench_have_weights(const bench_model *model, int n);

/* Whether they ended with the same weights in all runs. */
bool bench_same_weights(const bench_model *model, int n);

/* Whether they must: n is a power of two and divides the batch, so that all sums have the same order and every scaling
 * is exact; and NCCL, whose order differs, is not used. */
bool bench_must_agree(const bench_model *model, int n);

/* Two rows of one N side by side. */
typedef struct bench_pair {
    const bench_row *dp, *ddp;
    bool failed;                  /* a run of one of them failed, so nothing is compared */
    const bench_row *fast, *slow; /* by their medians */
    double ratio;                 /* of slow to fast; NAN if failed */
    double spread;                /* the greater (slowest - fastest run) / the fast one's median; NAN: one run each */
    bool is_more_than_spread;     /* whether their difference is */
} bench_pair;
bench_pair bench_compare(const bench_row *dp, const bench_row *ddp);

/* --- the lock ---------------------------------------------------------------------------------------------------- */

#define BENCH_LOCK_US 10.0 /* of a launch: about as long as in Python (labs/replay/nodes/README.md) */

/* Sets up the rows under the emulated interpreter's lock. */
void bench_plan_locked(bench_model *model, const bench_settings *settings);

/* As bench_train, with the lock. */
ls_status bench_train_locked(bench_run *run, const bench_plan *plan, const bench_settings *settings);

/* Prints nothing if there are no such rows. */
ls_status bench_print_locked(FILE *file, const bench_model *model, const bench_settings *settings);

/* --- virtual time ------------------------------------------------------------------------------------------------ */

/* Sets up the virtual rows: T1, and both modes for every N > 1. None on GPUs, nor if N was chosen and every N has a
 * core for each device. If N was not chosen, also BENCH_VIRTUAL_N devices, or the most below that which share the batch
 * equally. */
void bench_plan_virtual(bench_model *model, const bench_settings *settings);

/* As bench_train, in virtual time: devices take turns on one core, and step_ms, busy and exposed_ms come from the
 * trace's replay with a core for each. The trace of the row's last run is kept in the results' folder, each of its
 * files complete. */
ls_status bench_train_virtual(bench_run *run, const bench_plan *plan, const bench_settings *settings);

/* Prints nothing if there are no virtual rows. */
ls_status bench_print_virtual(FILE *file, const bench_model *model, const bench_settings *settings);

/* Writes how much longer virtual times are than measured ones, for every N that has a core for each device: "single
 * +1.2 %; N = 2: DP -3.4 %, DDP -5.6 %". Call it only if there are virtual rows. */
void bench_put_comparison(FILE *file, const bench_model *model);

/* --- output ------------------------------------------------------------------------------------------------------ */

typedef struct bench_results {
    const bench_machine *machine;
    const bench_settings *settings;
    const char *device_name; /* of the GPUs; "" for CPU devices */
    int model_count;
    const bench_model *models;
} bench_results;

/* The columns of a row in tables and files: measured, under the lock, in virtual time. */
extern const bench_column bench_measured_columns[], bench_locked_columns[], bench_virtual_columns[];

/* The parts of T_N - T1/N, or of T_N - T1 under weak scaling; text only. */
extern const bench_column bench_strong_parts[], bench_weak_parts[];

/* The first lines; each answers a question in a sentence. For each model: which mode is faster, by how much, and
 * whether that exceeds the spread. For all models: same weights; what the gap consists of; what GPUs would show, and
 * why Python differs. */
void bench_put_answers(FILE *file, const bench_results *results);

/* One table: the measured rows, and virtual times beside them. */
ls_status bench_print_table(FILE *file, const bench_model *model, const bench_settings *settings);
void bench_print_notes(FILE *file, const bench_results *results);

/* All other tables of a model, and the meaning of their columns. */
ls_status bench_print_details(FILE *file, const bench_model *model, const bench_settings *settings);
void bench_print_legend(FILE *file, const bench_settings *settings, bool has_virtual);

#define BENCH_REPORT_FILE "dp_vs_ddp.txt"

/* The first screen to stdout, with settings->all the details, too. */
ls_status bench_report(const bench_results *results, const char *folder);

/* --- replayed ---------------------------------------------------------------------------------------------------- */

#define BENCH_REPLAYED_NODE "dgx1-v100"

/* Records the model's step on a meta device (a child process; the trace is kept in the results' folder) and replays it
 * on eight GPUs. After a failure nothing is replayed. */
ls_status bench_replay_model(bench_model *model, const bench_settings *settings);
ls_status bench_print_replayed(FILE *file, const bench_model *model);

/* The row of a mode (N = 1: BENCH_SINGLE), or NULL. WAY 0: launched from C; 1: from Python. */
const struct bench_replayed *bench_find_replayed(const bench_model *model, bench_mode mode, int n, int way);
ls_status bench_put_replayed(FILE *file, const void *results); /* CSV */

/* --- files ------------------------------------------------------------------------------------------------------- */

/* Creates the folder if necessary, and checks that all files can be written. */
ls_status bench_prepare_files(const char *folder);

/* Writes dp_vs_ddp.csv, dp_vs_ddp_locked.csv and dp_vs_ddp_virtual.csv (their heads alone, if there are no such rows),
 * dp_vs_ddp_replayed.csv, dp_vs_ddp.json and dp_vs_ddp.txt, each completely or not at all. */
ls_status bench_write_files(const bench_results *results, const char *folder);

#endif
