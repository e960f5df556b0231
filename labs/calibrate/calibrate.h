/* calibrate — what this machine's CPU devices reach, as a node file for replay (labs/nodes/README.md).
 *
 * Everything is measured through the functions that training uses: ls_gemm and ls_scale on a device's compute stream,
 * ls_copy between device pools, events, flags, and all_reduce of processes over shared memory. A figure is a median
 * over runs, with quartiles beside it. */
#ifndef LABS_CALIBRATE_CALIBRATE_H
#define LABS_CALIBRATE_CALIBRATE_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/device/device.h"
#include "common/replay/node.h"
#include "labs/bench_shared/machine.h"

enum { CALIBRATE_BATCHES = 6, CALIBRATE_PASSES = 3, CALIBRATE_ROWS_MAX = 64, CALIBRATE_RUNS_MAX = 101 };

/* Which of the measured sizes stand in the node: products of 256 samples, passes over 8 MiB or,
 * beyond caches, 128 MiB. */
enum { CALIBRATE_NODE_BATCH = 4, CALIBRATE_NODE_PASS = 1, CALIBRATE_FAR_PASS = 2 };

typedef struct calibrate_settings {
    const char *out;   /* the node file */
    bool beyond_cache; /* sizes that no cache holds: for networks whose parameters do not fit into one */
    bool quick;        /* a tenth of the time, for tests: figures are rough */
    bool quiet;
} calibrate_settings;

/* Of runs of one measurement. */
typedef struct calibrate_spread {
    double median, low, high; /* low and high: quartiles */
    int runs;
} calibrate_spread;

typedef struct calibrate_row { /* an all-reduce */
    int ranks;
    uint64_t bytes;
    calibrate_spread us;
} calibrate_row;

typedef struct calibrate_figures {
    int devices; /* that train at the same time: one a core, two at least */
    int cores;
    /* device */
    int batch_count, batches[CALIBRATE_BATCHES];                             /* rows of the products' left side */
    calibrate_spread fp32_us[CALIBRATE_BATCHES], bf16_us[CALIBRATE_BATCHES]; /* three products of a layer */
    double gemm_flops[CALIBRATE_BATCHES];                                    /* of the three */
    int width;                                                               /* of the layers, both ways */
    bool beyond_cache; /* each product finds its weights in memory */
    int node_pass;     /* which of the passes stands in the node */
    calibrate_spread pass_us[CALIBRATE_PASSES];
    double pass_bytes[CALIBRATE_PASSES];
    calibrate_spread launch_us, smallest_us, event_us, sync_us, hand_over_us, collective_us;
    /* alone = 1: one device's products, and its passes over memory, while all others do the same; products while
     * another device copies */
    double products_crowded, passes_crowded, products_beside_copies;
    /* copies between device pools */
    double copy_bytes;
    calibrate_spread copy_us, copy_both_us, copy_smallest_us;
    calibrate_row rows[CALIBRATE_ROWS_MAX];
    int row_count;
} calibrate_figures;

calibrate_spread calibrate_spread_of(double *values, int count); /* sorts them */

/* All-reduces of forked ranks. Call it first: while the process has no other threads and is not pinned. */
ls_status calibrate_all_reduce(calibrate_figures *figures, const calibrate_settings *settings);

/* Everything else. */
ls_status calibrate_devices(calibrate_figures *figures, const calibrate_settings *settings);
ls_status calibrate_hand_over(calibrate_figures *figures, ls_device *const *devices,
                              const calibrate_settings *settings);

/* The figures of the node file that follow from those measured. */
struct calibrate_node {
    struct ls_node_device device;
    struct ls_node_host host;
    struct ls_node_collectives collectives;
    struct ls_node_link link; /* each device's to the host */
};
struct calibrate_node calibrate_conclude(const calibrate_figures *figures);

ls_status calibrate_print(const calibrate_figures *figures, const bench_machine *machine);

/* Replaces the file as a whole, after having read its text as a node. */
ls_status calibrate_write(const calibrate_figures *figures, const bench_machine *machine, const char *path);

#endif
