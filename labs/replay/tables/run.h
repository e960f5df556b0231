/* A run of a table's row: a step that is replayed, trained or published, and its columns. */
#ifndef LABS_REPLAY_TABLES_RUN_H
#define LABS_REPLAY_TABLES_RUN_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "labs/replay/engine/plan.h"

/* X(NAME, name in files, description): of a run on N devices. Shares are of the step. Columns up to BUSY_OTHERS are
 * read from the run, the others are derived. */
#define TABLES_COLUMN_MAP(X)                                                                                           \
    X(STEP, "step", "ms, the mean of the steps")                                                                       \
    X(MEDIAN, "median", "the median step, ms")                                                                         \
    X(COLLECTIVES, "collectives", "share while a collective is in progress, hidden or not; mean over the devices")     \
    X(COMMUNICATION, "communication", "the same of copies and collectives")                                            \
    X(EXPOSED, "exposed", "the same while no kernel runs")                                                             \
    X(BUSY, "busy", "share of kernels, mean over the devices")                                                         \
    X(HOST, "host", "the same of the host, while nothing else of the device goes on")                                  \
    X(IDLE, "idle", "the rest")                                                                                        \
    X(BUSY_FIRST, "busy_first", "share of kernels on device 0")                                                        \
    X(BUSY_OTHERS, "busy_others", "the mean of the others; one device: device 0")                                      \
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

enum { TABLES_ALL_REDUCES_MAX = 8 };

/* A step in figures: replayed[TABLES_STEP], ... */
typedef double tables_replayed[TABLES_BUSY_OTHERS + 1];

/* X(KIND, name, description): the members of a table's file that specify a run; 0, NULL or false if the file has
 * none. */
#define TABLES_RUN_MAP(X)                                                                                              \
    X(PLAN, plan, "single, dp or ddp")                                                                                 \
    X(TEXT, node, "its name")                                                                                          \
    X(TEXT, workload, "its name")                                                                                      \
    X(TEXT, train, "instead: the arguments of a training run on this machine's CPU devices")                           \
    X(PAIRS, times_ms, "instead: pairs of N and the step time that is published for it")                               \
    X(NUMBER, batch, "samples of a step, over all devices")                                                            \
    X(NUMBER, samples, "of each device")                                                                               \
    X(NUMBER, pictures, "of each device, of side x side pixels, for a workload of 224 x 224")                          \
    X(NUMBER, side, "of these")                                                                                        \
    X(NUMBER, micro_batch, "samples of a micro-batch of each device: of a batch, or of T1; left out: a step is one")   \
    X(NUMBER, pictures_of_epoch, "for the column epoch")                                                               \
    X(NUMBER, parameters, "the workload's number of parameters is scaled to this")                                     \
    X(NUMBER, bucket_MB, "0: each tensor is a bucket; left out, NAN: ls_plan_defaults'")                               \
    X(NUMBER, variation, "of GPUs of one kind: the range of their times, as a share (run.c)")                          \
    X(NUMBER, t1_ms, "published: one device's step")                                                                   \
    X(NUMBER, t1_epoch_s, "published: one device's epoch")                                                             \
    X(NUMBER, t1_ddp_ms, "published: one device's step with DDP")                                                      \
    X(T1, calibrated_by, "T1 is of the step, or of forward and backward, and scales the node's rates")                 \
    X(PAIRS, all_reduce_ms, "pairs of MB and ms, of two ranks, in place of the node's formula")                        \
    X(NUMBERS, latencies_us, "of an all-reduce of two and of three ranks")                                             \
    X(NUMBERS, network, "a hop (us) and a rate (GB/s) between nodes, in place of the node's")                          \
    X(FLAG, fp16, "or bf16, which costs the same; else fp32")                                                          \
    X(FLAG, half_gradients, "in buckets, too")                                                                         \
    X(NUMBER, shard_state, "DDP: ZeRO's stage")                                                                        \
    X(FLAG, lock, "DP's threads share one")                                                                            \
    X(FLAG, by_collectives, "DP's parameters and gradients, else by copies")                                           \
    X(FLAG, after_backward, "buckets wait for its end")                                                                \
    X(FLAG, links_of_device_0, "the collectives' bus is all of its links to the others")

/* The kinds of members: PLAN to COLUMN are one of several texts (file.c), as its number from 1 on. */
#define TABLES_TYPE_TEXT const char *
#define TABLES_TYPE_NUMBER double
#define TABLES_TYPE_FLAG bool
#define TABLES_TYPE_NUMBERS const cJSON * /* an array of numbers */
#define TABLES_TYPE_PAIRS const cJSON *   /* an array of pairs of numbers */
#define TABLES_TYPE_PLAN int              /* 1 + ls_plan_mode */
#define TABLES_TYPE_T1 int
#define TABLES_TYPE_FREE int   /* enum tables_free */
#define TABLES_TYPE_MUST int   /* enum tables_must */
#define TABLES_TYPE_COLUMN int /* enum tables_column */
#define TABLES_FIELD(kind, name, what) TABLES_TYPE_##kind name;
struct tables_run {
    int number; /* of the runs of a file: equal if all members except `plan` are equal */
    TABLES_RUN_MAP(TABLES_FIELD)
};

/* Builds the trace for `options`, replays it on the node and reads its account. */
ls_status tables_replay(tables_replayed replayed, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options);

/* The same with a trace (node NULL: without a node's links), and with a trace's own recorded times. */
ls_status tables_replay_trace(tables_replayed replayed, const ls_trace *trace, const ls_node *node);
ls_status tables_read_recorded(tables_replayed recorded, const ls_trace *trace);

/* The runs of a table: several rows may show columns of the same run. */
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
