/* What the parts of replay share: the settings, the inputs, and the rows that are assembled from replays.
 *
 *     settings.c   command line -> replay_settings        inputs.c     node, workload, trace -> replay_inputs
 *     runs.c       one replay -> replay_row               rows.c       all of them, and T1 and T1(b/N) beside them
 *     columns.c    a row in text, CSV and JSON
 *     tables.c     rows -> stdout                         files.c      rows -> CSV and JSON
 *     recorded.c   a trace replayed as it was recorded
 *     pictures.c   a replayed timeline -> a trace file, or a CSV for a Gantt chart
 *
 * Everything here is computed from files: no time is measured, and every title says "replayed" and on which node. Times
 * are in milliseconds per step. */
#ifndef LABS_REPLAY_REPLAY_REPLAY_H
#define LABS_REPLAY_REPLAY_REPLAY_H

#include <stdio.h>

#include "common/base/options.h"
#include "common/device/device.h"
#include "common/seam/phase.h"
#include "ddp_procs/compression.h"
#include "labs/bench/shared/columns.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/engine/account.h"
#include "labs/replay/engine/plan.h"

enum { REPLAY_CAPS_MAX = 32, REPLAY_TITLE = 400, REPLAY_WAITING = LS_PHASE_COUNT, REPLAY_PHASES };

/* --- settings ---------------------------------------------------------------------------------------------------- */

typedef struct replay_settings {
    const char *node, *trace, *workload; /* NULL: not given */
    bool as_recorded;
    bool modes[LS_PLAN_DDP + 1];    /* which are replayed */
    ls_int_list n;                  /* ascending, each once; none: 1, 2, 4, ... up to the node's devices */
    double batch, per_device_batch; /* one of them, or none: the trace's */
    ls_dtype precision;
    int devices_per_node; /* number of devices used on each node; 0: all */
    int steps, accumulate, tensor, shard_state, prefetch_blocks;
    bool sequence_parallel;
    const char *checkpoint_activations; /* as given, or NULL; and its value (common/seam/options.h) */
    int every;
    double caps_mb[REPLAY_CAPS_MAX]; /* each is a row of DDP */
    int cap_count;
    bool overlap, vary, sync_bn, join, graph, hierarchical;
    ddp_compression compression; /* of gradients */
    double spread_percent;
    ls_plan_collectives collectives;
    ls_pattern pattern;
    bool precision_given;
    bool by_copies, by_collectives; /* how DP transfers parameters and gradients; none: the workload's default */
    double host_lock_us;            /* < 0: the node's */
    double calibrate_t1_ms;         /* 0: the node's rates are not calibrated */
    const char *folder, *json, *timeline, *gantt; /* NULL: none */
    bool quiet;
} replay_settings;

/* *help: the usage page was printed, and nothing else is to be done. LS_ERR_USAGE after one line. */
ls_status replay_parse(replay_settings *settings, int argc, char **argv, bool *help);

/* --- inputs ------------------------------------------------------------------------------------------------------ */

typedef struct replay_inputs {
    ls_node *node;         /* NULL: a trace is replayed as it was recorded */
    ls_workload *workload; /* NULL: likewise */
    ls_trace *trace;       /* NULL: none was given */
    double factor;         /* of the node's rates, by --calibrate-t1; 1 */
    char on[REPLAY_TITLE]; /* "replayed on dgx1-v100 (figures from its file), workload resnet50" */
} replay_inputs;

/* Opens the inputs that the settings name, fills in settings->n and the batch if they were not given, and applies the
 * settings to the node. On failure everything is closed. */
ls_status replay_open(replay_inputs *inputs, replay_settings *settings);
void replay_close(replay_inputs *inputs);

/* --- replays ----------------------------------------------------------------------------------------------------- */

/* The result of a replay, for tables and pictures. */
typedef struct replay_run {
    ls_trace *trace;
    ls_timeline *timeline;
    struct ls_account *account;
} replay_run;

/* The step of a device, or the mean of several devices. */
typedef struct replay_share {
    struct ls_device_account account; /* microseconds per step */
    double phase_ms[REPLAY_PHASES];   /* they add up to the step */
    double memory_bytes[LS_MEMORY_COUNT],
        memory_total_bytes; /* peaks, which need not coincide; the peak of the total */
} replay_share;

typedef struct replay_row {
    ls_plan_mode mode;
    int n, per_node;                          /* devices; of a node */
    bool by_collectives;                      /* DP: parameters and gradients are transferred by collectives */
    double batch, cap_mb;                     /* samples over all devices; cap_mb: DDP's buckets, otherwise NAN */
    int tasks;                                /* that were replayed */
    double memory_bytes, device_memory_bytes; /* of the device that needs most; a device's memory, NAN: unknown */
    double step_ms;
    double t1_ms, alone_ms; /* one device's step with the batch of N = 1, and with one device's share of this row's */
    double speedup, efficiency, ideal_ms, over_ms; /* under weak scaling: see rows.c */
    double overlap, communication_share, busy_share;
    double links[LS_NODE_MAX_LINKS];  /* the used share of each link's bandwidth */
    double link_use;                  /* of the busiest; NAN: no link is used */
    char link[64];                    /* its name */
    double recorded_ms;               /* the time of the trace's own run, if it is this one; otherwise NAN */
    replay_share mean, first, others; /* all devices; device 0; the rest (memory: each one's) */
} replay_row;

typedef struct replay_rows {
    const replay_inputs *inputs;
    const replay_settings *settings;
    int count, capacity;
    replay_row *rows;
} replay_rows;

/* The options of a row's program. */
struct ls_plan replay_options(const replay_settings *settings, const replay_inputs *inputs, const replay_row *row);

/* Builds, replays and accounts row->mode on row->n devices; fills in all of the row that needs no other row. *run is
 * the replay from which the row was made; the caller frees it. */
ls_status replay_run_row(replay_row *row, replay_run *run, const replay_inputs *inputs,
                         const replay_settings *settings);
void replay_run_free(replay_run *run);

/* All rows, and the pictures of the last N's. */
ls_status replay_make_rows(replay_rows *rows);
void replay_rows_free(replay_rows *rows);

/* "forward", ..., "waiting" */
const char *replay_phase_name(int phase);

/* A trace replayed as it was recorded: its tables. */
ls_status replay_recorded(const replay_inputs *inputs, const replay_settings *settings);

/* --- output ------------------------------------------------------------------------------------------------------ */

const char *replay_mode_name(ls_plan_mode mode); /* "single", "DP", "DDP" */

/* The same for a row; "DP by collectives" if there are rows by copies, too. */
const char *replay_row_name(const replay_row *row, const replay_settings *settings);

bool replay_fits(const replay_row *row, double bytes); /* true also if the device's memory is unknown */
const char *replay_fit_text(char cell[BENCH_CELL], const replay_row *row, double bytes); /* "": it fits */

/* The columns of a replay_row; those of a replay_share: its account, and its memory by category. */
extern const bench_column replay_row_columns[], replay_device_columns[], replay_memory_columns[];

/* The columns of the first text table, of a replay_row: there are more with several bucket sizes, with a trace, with
 * several nodes, and unless all rows fit. */
enum { REPLAY_TIMES = 24 };
void replay_times_columns(bench_column columns[REPLAY_TIMES], const replay_settings *settings, bool fit, bool several);

ls_status replay_print(const replay_rows *rows);

/* Refuses, with LS_ERR_USAGE, an output that names an input or another output; creates the folder of results, and
 * checks that all files can be written: replay.csv, replay_devices.csv and replay.json in it, and those that options
 * name. */
ls_status replay_prepare_files(const replay_settings *settings);
ls_status replay_write_files(const replay_rows *rows);

/* The Gantt chart's CSV: opened, extended by runs, and closed; file NULL: not requested. */
ls_status replay_gantt_open(bench_text *gantt);
void replay_gantt_add(bench_text *gantt, const replay_run *run, const replay_row *row, const char *on);
ls_status replay_gantt_close(bench_text *gantt, const char *path); /* path NULL: drops it */

/* Writes the replayed timeline as a trace that Perfetto opens. Sets the times of the run's trace. */
ls_status replay_write_timeline(replay_run *run, const char *path);

#endif
