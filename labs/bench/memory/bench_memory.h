/* What the parts of bench_memory share: a step's memory, time and sent bytes under each technique that saves memory.
 *
 *     settings.c    command line -> memory_settings        techniques.c   the techniques, and the networks: tables
 *     measured.c    a run of ddp_train -> a row             replayed.c     a step on a modelled node -> a row
 *     rows.c        the list of rows; runs -> figures       answers.c      rows -> the first lines
 *     tables.c      rows -> the table                       files.c        all of these -> stdout, text, CSV and JSON
 *
 * Plain DDP is the first technique. The others are compared with it: on as many devices, and measured or replayed
 * alike. Times are in milliseconds per step; bytes are those of the device that holds or sends most. */
#ifndef LABS_BENCH_MEMORY_BENCH_MEMORY_H
#define LABS_BENCH_MEMORY_BENCH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/options.h"
#include "common/base/status.h"
#include "common/device/device.h"
#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/output.h"

enum {
    MEMORY_TECHNIQUES_MAX = 12,
    MEMORY_MODELS_MAX = 3,
    MEMORY_N_MAX = 4,
    MEMORY_ROUNDS_MAX = 99,
    MEMORY_ROWS_MAX = MEMORY_MODELS_MAX * MEMORY_TECHNIQUES_MAX * MEMORY_N_MAX,
    MEMORY_HASH_CAPACITY = 20
};

/* --- what is compared (techniques.c) ------------------------------------------------------------------------------- */

typedef struct memory_technique {
    const char *name;   /* in the table */
    const char *option; /* of ddp_train; NULL: none, plain DDP */
    const char
        *split;     /* of ddp_train, followed by "=N": the network is split over all ranks; NULL: each has all of it */
    bool by_blocks; /* the network is split between blocks; else each layer is split */
    int every, shard_state; /* the same for a replay (labs/replay/engine/plan.h) */
    bool is_replayed;       /* replay supports it */
    bool other_bits;        /* sums run in another order than plain DDP's */
} memory_technique;
extern const memory_technique memory_techniques[]; /* ended by one without a name */

typedef struct memory_model {
    const char *name; /* of the network, and of its workload */
    const char *data; /* ddp_train's --data; NULL: the network has no data, and cannot be run */
    const char *optimizer;
    int64_t batch;     /* samples of a step over all devices, the same for every N */
    int steps;         /* of a run */
    int blocks, units; /* parts into which it can be split: as many, or a divisor; 0: unknown */
} memory_model;
extern const memory_model memory_models[]; /* ended by one without a name */

/* --- settings ----------------------------------------------------------------------------------------------------- */

typedef struct memory_settings {
    ls_int_list n; /* ascending, each once */
    int rounds, cores;
    double bucket_cap_mb; /* of DDP's buckets, under every technique */
    double timeout_s;     /* of a run */
    const char *node, *folder;
    int node_devices; /* of one node: split layers are not replayed on several */
    bool all, quiet;
    int model_count;
    memory_model models[MEMORY_MODELS_MAX]; /* those chosen, as the command line changes them */
} memory_settings;

/* *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one line. */
ls_status memory_parse(memory_settings *settings, int argc, char **argv, bool *help);

/* --- rows --------------------------------------------------------------------------------------------------------- */

typedef struct memory_row {
    const memory_model *model;
    const memory_technique *technique;
    int n;
    bool is_measured;    /* else replayed */
    bool oversubscribed; /* measured, with more devices than cores */
    bool failed;         /* a run of the row failed; then its figures are NAN */
    int run_count;
    double run_ms[MEMORY_ROUNDS_MAX];
    char weights[MEMORY_HASH_CAPACITY];         /* hash of the trained weights; "": replayed */
    bool repeats;                               /* all runs ended with the same weights */
    double bytes[LS_MEMORY_COUNT], total_bytes; /* peaks; of all categories together */
    double sent_bytes;                          /* to other devices in a step */
    /* derived by memory_assemble */
    double step_ms, step_ms_min, step_ms_max; /* median, least and greatest of run_ms */
    double step_ratio, total_ratio;           /* to plain DDP's */
} memory_row;

typedef struct memory_results {
    const bench_machine *machine;
    const memory_settings *settings;
    int row_count;
    memory_row rows[MEMORY_ROWS_MAX]; /* by model, then N, then technique */
} memory_results;

/* Sets up the rows for which the network can be split: on two devices, or with a core for each device, measured if the
 * network can be run; else replayed, if replay supports the technique. */
void memory_plan_rows(memory_results *results);

/* The row of a technique (by its index in the table), or NULL. */
const memory_row *memory_find(const memory_results *results, const memory_model *model, int n, size_t technique);

/* Computes the derived figures; each row has at least one run, or has failed. */
void memory_assemble(memory_results *results);

/* Whether all measured rows of the model on n devices, except for those marked as different, ended with plain DDP's
 * weights, in every run. */
bool memory_same_weights(const memory_results *results, const memory_model *model, int n);

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* Adds a run of ddp_train as a child process. Fails as bench_child_run does, or with LS_ERR_FORMAT. */
ls_status memory_measure(memory_row *row, const memory_settings *settings);

/* Adds the run from the summary that ddp_train writes. LS_ERR_FORMAT if it is another run's, or not a summary. */
ls_status memory_read_summary(memory_row *row, const char *json);

/* Reads the summary's device_table: memory of the rank that holds most, bytes of the rank that sends most. False: a
 * figure is missing. */
bool memory_read_ranks(memory_row *row, const cJSON *ranks);

/* The bytes that a rank sends in a step, from its phases of communication, in rings: 2 (N - 1) / N of the bytes that
 * are all-reduced, also by parts of layers, (N - 1) / N of those that are gathered or scattered. Broadcasts count once,
 * and so do messages from stage to stage. If the network is split over all ranks, gradients are not communicated. */
double memory_sent_bytes(const cJSON *bytes_by_phase, int n, bool is_split);

ls_status memory_replay(memory_row *row, const memory_settings *settings);

/* --- output ------------------------------------------------------------------------------------------------------- */

#define MEMORY_REPORT_FILE "memory.txt"

extern const bench_column memory_columns[];

ls_status memory_put_answers(FILE *file, const memory_results *results);

/* With `all`, every N; else the first and the last N of each model. */
ls_status memory_print_table(FILE *file, const memory_results *results, bool all);

ls_status memory_report(const memory_results *results);
ls_status memory_prepare_files(const char *folder);
ls_status memory_write_files(const memory_results *results, const char *folder);

#endif
