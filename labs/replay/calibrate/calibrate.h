/* calibrate — the performance of this machine's CPU devices, as a node file for replay (labs/replay/nodes/README.md).
 *
 * Everything is measured through the functions that training uses: ls_gemm and ls_scale on a device's compute stream,
 * ls_copy between device pools, events, flags, and collectives of processes over shared memory. Other work on the
 * machine disturbs runs, so a figure is the median of its runs (estimate.c), as a step's time is. Quartiles and the
 * fastest tenth are printed beside it. */
#ifndef LABS_REPLAY_CALIBRATE_CALIBRATE_H
#define LABS_REPLAY_CALIBRATE_CALIBRATE_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/device/device.h"
#include "labs/bench/shared/machine.h"
#include "labs/replay/engine/node.h"

enum { CALIBRATE_BATCHES = 8, CALIBRATE_PASSES = 3, CALIBRATE_ROWS_MAX = 64, CALIBRATE_RUNS_MAX = 101 };

/* Indices of sizes.
 *   MAIN_BATCH  matrix multiplies of 256 samples, whose spread shows whether the machine was busy
 *   NODE_PASS   the node's memory rate: a pass over 8 MiB. A small network's step goes through a few megabytes: more
 *               than a core's own caches hold, less than the cache that cores share
 *   FAR_PASS    the same with --beyond-cache, over 128 MiB: parameters, gradients and optimizer states fit into no
 *               cache, and a step reads each once, so all are read from memory */
enum { CALIBRATE_MAIN_BATCH = 6, CALIBRATE_NODE_PASS = 1, CALIBRATE_FAR_PASS = 2 };

enum { CALIBRATE_SHARED_SAMPLES = 64 }; /* samples of matrix multiplies that run beside other work */

typedef struct calibrate_settings {
    const char *out;   /* the node file */
    bool beyond_cache; /* sizes beyond any cache: for networks whose parameters do not fit into one */
    bool quick;        /* a tenth of the time, for tests: figures are rough */
    bool quiet;
    bool hosts;       /* only the network between the hosts of a job, into the existing file */
    double timeout_s; /* of waits for other hosts */
} calibrate_settings;

/* The spread of the runs of one measurement. */
typedef struct calibrate_spread {
    double median, low, high, fast; /* median: the figure; low, high: quartiles; fast: the fastest tenth */
    int runs;
} calibrate_spread;

typedef struct calibrate_row { /* a collective operation */
    int ranks;
    uint64_t bytes; /* of all parts */
    calibrate_spread us;
    double written_us; /* calibrate_straighten */
} calibrate_row;

typedef struct calibrate_table {
    calibrate_row rows[CALIBRATE_ROWS_MAX]; /* by ranks, then bytes */
    int row_count;
    int straightened; /* rows */
} calibrate_table;

typedef struct calibrate_figures {
    int devices; /* that train at the same time: one per core, at least two */
    int cores;
    /* device */
    int batch_count, batches[CALIBRATE_BATCHES];                             /* rows of the multiplies' left matrix */
    calibrate_spread fp32_us[CALIBRATE_BATCHES], bf16_us[CALIBRATE_BATCHES]; /* three multiplies of a layer */
    double gemm_flops[CALIBRATE_BATCHES];                                    /* of the three */
    int width;                                                               /* of the layers: inputs and outputs */
    bool beyond_cache; /* each multiply reads its weights from memory */
    int node_pass;     /* the index of the pass that the node has */
    calibrate_spread pass_us[CALIBRATE_PASSES];
    double pass_bytes[CALIBRATE_PASSES];    /* read and written by a call */
    double pass_of_bytes[CALIBRATE_PASSES]; /* size of the array that the calls go through, piece by piece */
    calibrate_spread launch_us, smallest_us, event_us, sync_us, hand_over_us, awake_us, collective_us;
    double spin_us; /* for which threads spin before they sleep */
    /* relative to running alone: one device's multiplies, and its passes over memory, while all others do the same;
     * multiplies while another device copies; copies while the other device copies back */
    double products_crowded, passes_crowded, products_beside_copies, copies_both;
    int shared_runs;
    /* writes of lines that another core has just read, and of lines that none has; 0 bytes: not measured */
    double taken_bytes;
    calibrate_spread taken_us, kept_us;
    double cache_bytes; /* of a core's own cache; 0: unknown */
    /* copies between device pools */
    double copy_bytes;
    calibrate_spread copy_us, copy_both_us, copy_smallest_us;
    calibrate_table tables[LS_NODE_OPERATIONS];
} calibrate_figures;

/* --- estimates (estimate.c) --- */

calibrate_spread calibrate_spread_of(double *values, int count); /* sorts them */

/* The time of work beside other work, relative to its time alone: the median over pairs of consecutive runs, at most
 * CALIBRATE_RUNS_MAX. */
double calibrate_factor(const double *beside_us, const double *alone_us, int rounds);

/* Sets each row's written_us: its median, or less if a larger message of the same number of ranks took less, since then
 * the row was disturbed. Rows are sorted by ranks, then bytes. Returns how many were lowered. */
int calibrate_straighten(calibrate_row *rows, int count);

/* Whether the machine was busy, so that the figures are rough: a quarter of the runs took more than 1.5 times as long
 * as the fastest tenth (multiplies of 256 samples, copies), or more than 3 times (hand-offs). */
bool calibrate_is_rough(const calibrate_figures *figures);

/* --- measurements --- */

/* All-reduces, all-gathers and reduce-scatters of forked ranks. Call it first: while the process has no other threads
 * and is not pinned. */
ls_status calibrate_collectives(calibrate_figures *figures, const calibrate_settings *settings);

/* All other measurements. */
ls_status calibrate_devices(calibrate_figures *figures, const calibrate_settings *settings);
ls_status calibrate_hand_over(calibrate_figures *figures, ls_device *const *devices,
                              const calibrate_settings *settings);

/* Called by every rank of a job on several hosts: measures the network between them; rank 0 prints it and writes it
 * into the node file settings->out. LS_ERR_USAGE: there is only one host; otherwise as groups and files fail. */
ls_status calibrate_hosts(const calibrate_settings *settings, const bench_machine *machine);

/* Sets network_hop_us and network_GBps from all-reduces of all ranks on that many hosts, by bytes; base_us and hop_us
 * are already set. LS_ERR_INVALID: the largest takes no longer than the smallest. */
ls_status calibrate_network(struct ls_node_collectives *network, const calibrate_row *rows, int count, int hosts);

/* The figures of the node file that are derived from those measured. */
struct calibrate_node {
    struct ls_node_device device;
    struct ls_node_host host;
    struct ls_node_collectives collectives;
    struct ls_node_link link; /* each device's to the host */
};
double calibrate_rate(double amount, double us); /* 1e9 per second */
struct calibrate_node calibrate_conclude(const calibrate_figures *figures);

double calibrate_bus_bytes(enum ls_node_operation operation, const calibrate_row *row); /* bytes over each link */

ls_status calibrate_print(const calibrate_figures *figures, const bench_machine *machine);

double calibrate_digits(double value); /* rounds to four: more than the spreads justify */

/* Replaces the file, after its text was read back as a node. The second function frees the text, of cJSON_Print, which
 * is NULL if memory ran out. */
ls_status calibrate_write(const calibrate_figures *figures, const bench_machine *machine, const char *path);
ls_status calibrate_write_text(const char *path, char *text);

#endif
