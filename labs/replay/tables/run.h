/* A run of a table's row: a step that is replayed, trained or published, and what columns it gives. */
#ifndef LABS_REPLAY_TABLES_RUN_H
#define LABS_REPLAY_TABLES_RUN_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "labs/replay/engine/plan.h"

/* X(NAME, name in files, what it is): of a run on N devices. */
#define TABLES_COLUMN_MAP(X)                                                                                           \
    X(STEP, "step", "its step, ms")                                                                                    \
    X(COLLECTIVES, "collectives", "a collective is in progress, hidden or not; share of the step")                     \
    X(EXPOSED, "exposed", "communication during which no kernel runs; share of the step, mean over the devices")       \
    X(BUSY, "busy", "kernels; share of the step, mean over the devices")                                               \
    X(BUSY_FIRST, "busy_first", "the same of device 0")                                                                \
    X(BUSY_OTHERS, "busy_others", "the mean of the others")                                                            \
    X(T1_DDP, "t1_ddp", "the input t1_ddp_ms")                                                                         \
    X(EPOCH, "epoch", "seconds of pictures_of_epoch")                                                                  \
    X(SPEED_UP, "speed_up", "T1 / T_N")                                                                                \
    X(BEYOND_IDEAL, "beyond_ideal", "T_N - T1 / N, of T_N")                                                            \
    X(GROWN_T1, "grown_t1", "t1_ms times T_N / T1")                                                                    \
    X(DP_OVER_DDP, "dp_over_ddp", "T_N by that of DDP")                                                                \
    X(ALL_REDUCE_US, "all_reduce_us", "an all-reduce of 8 bytes, by the node's formula")
#define TABLES_COLUMN_ENUM(name, text, what) TABLES_##name,
enum tables_column { TABLES_NO_COLUMN, TABLES_COLUMN_MAP(TABLES_COLUMN_ENUM) TABLES_COLUMNS };
#undef TABLES_COLUMN_ENUM

/* The members of a table's file that say how a run is made; 0, NULL or false where the file has none. */
struct tables_run {
    int number;                  /* of the runs of a file: the same where all is the same but plan and course_times */
    int plan;                    /* 1 + ls_plan_mode */
    const char *node, *workload; /* their names */
    const char *train;           /* or the arguments of a training run on this machine's CPU devices */
    bool course_times;           /* or the step times that the course publishes (course.h) */
    /* A step's samples: over all devices, or of each; or pictures of each, of side x side pixels for a workload of
     * 224 x 224 */
    double batch, samples, pictures, side;
    double pictures_of_epoch;
    double parameters; /* the workload's number of parameters is scaled to this */
    double bucket_MB;  /* NAN: ls_plan_defaults'; 0: each tensor is a bucket */
    double variation;  /* of GPUs of one kind: the range of their times, as a share (run.c) */
    /* Published figures of one device: its step, in ms, or its epoch, in s; and its step with DDP */
    double t1_ms, t1_epoch_s, t1_ddp_ms;
    int calibrated_by; /* what T1 is of, to scale the node's rates: 1 the step, 2 forward and backward; 0: none */
    const cJSON *all_reduce_ms; /* pairs of MB and ms, of two ranks, in place of the node's formula */
    const cJSON *latencies_us;  /* of an all-reduce of two and of three ranks */
    bool fp16, lock, by_collectives, after_backward, links_of_device_0;
};

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

/* The runs that a table has made: rows of one run show columns of one and the same. */
typedef struct tables_runs tables_runs;
ls_status tables_runs_create(tables_runs **out, double timeout_s); /* of a training run */
void tables_runs_destroy(tables_runs *runs);                       /* NULL is a no-op */

/* The column of a run on n devices. */
ls_status tables_column(double *value, tables_runs *runs, const struct tables_run *run, enum tables_column column,
                        int n);

/* The column on n devices if communication were free: that of the run on one rank; of one device, without the mode's
 * own costs; or t1_epoch_s / n. */
enum tables_free { TABLES_FREE_ONE_RANK = 1, TABLES_FREE_SINGLE, TABLES_FREE_T1_BY_N };
ls_status tables_free_column(double *value, tables_runs *runs, const struct tables_run *run, enum tables_column column,
                             enum tables_free free, int n);

#endif
