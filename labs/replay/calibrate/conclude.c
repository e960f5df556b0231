/* conclude — derives the figures of a node from the measurements.
 *   idea  : every figure is a median (estimate.c), and most are measured directly: a difference of two times, each with
 *           its disturbances, is unreliable. Two are differences: a kernel's floor, which has a least value, and the
 *           cost of taking lines back, which counts only if the two times differ clearly
 *   limits: factors below 1 and times below 0 are noise: the file has 1, and the least possible time */
#include <math.h>

#include "labs/replay/calibrate/calibrate.h"

#define LEAST_KERNEL_US 0.01
#define LESS 0.998
#define CACHE_BYTES (1 << 20) /* if the system does not report it: [K] common for a core's own */
#define SHARED 1.5            /* two copies at once share a link if they take this many times as long as one */

double calibrate_rate(double amount, double us) { return amount / us * 1e-3; }

/* Least squares of the shortest message's time over 2 (ranks - 1) hops; neither below 0. With one number of ranks, hops
 * account for all of it. */
static void fit_latency(const calibrate_table *table, struct ls_node_collectives *node) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < table->row_count; i++) {
        if (i > 0 && table->rows[i].ranks == table->rows[i - 1].ranks) continue;
        double hops = 2.0 * (table->rows[i].ranks - 1), us = table->rows[i].written_us;
        n += 1, x += hops, y += us, xx += hops * hops, xy += hops * us;
    }
    node->hop_us = n > 1 ? (n * xy - x * y) / (n * xx - x * x) : xy / xx;
    if (node->hop_us < 0) node->hop_us = 0;
    node->base_us = n > 1 ? (y - node->hop_us * x) / n : 0;
    if (node->base_us >= 0) return;
    node->base_us = 0;
    node->hop_us = xy / xx;
}

/* The best rate of all numbers of samples. */
static double products_GFLOPs(const calibrate_figures *f, const calibrate_spread *us) {
    double best = 0;
    for (int i = 0; i < f->batch_count; i++) best = fmax(best, calibrate_rate(f->gemm_flops[i], us[i].median));
    return best;
}

/* The share of the best rate that each number of samples reaches. Numbers that took longer than larger ones were
 * disturbed, and get LESS times the larger one's time: four digits keep that difference. */
static void fill_shares(const calibrate_figures *f, struct ls_node_device *device) {
    double us = INFINITY;
    device->product_count = f->batch_count;
    for (int i = f->batch_count - 1; i >= 0; i--) {
        us = fmin(f->fp32_us[i].median, LESS * us);
        device->products[i] = (struct ls_node_product){
            f->batches[i], fmin(1, calibrate_rate(f->gemm_flops[i], us) / device->fp32_GFLOPs)};
    }
}

/* INFINITY: nothing to take back, or the two times do not differ clearly. */
static void fill_reclaim(const calibrate_figures *f, struct ls_node_device *device) {
    bool apart = f->taken_bytes > 0 && f->taken_us.low > f->kept_us.high;
    double more_us = apart ? f->taken_us.median - f->kept_us.median : 0;
    device->reclaim_GBps = more_us > 0 ? calibrate_rate(f->taken_bytes, more_us) : INFINITY;
    device->reclaim_bytes = more_us > 0 ? (uint64_t)(f->cache_bytes > 0 ? f->cache_bytes : CACHE_BYTES) : 0;
}

double calibrate_bus_bytes(enum ls_node_operation operation, const calibrate_row *row) {
    double turns = operation == LS_NODE_ALL_REDUCE ? 2 : 1;
    return turns * (row->ranks - 1) / row->ranks * (double)row->bytes;
}

/* The bus bandwidth of the largest message. 0: none was measured. */
static double bus_GBps(const calibrate_figures *f, enum ls_node_operation operation) {
    const calibrate_table *table = &f->tables[operation];
    if (table->row_count == 0) return 0;
    const calibrate_row *largest = &table->rows[table->row_count - 1];
    return calibrate_rate(calibrate_bus_bytes(operation, largest), largest->written_us);
}

struct calibrate_node calibrate_conclude(const calibrate_figures *f) {
    struct calibrate_node node = {
        .device = {.name = "CPU device",
                   .fp32_GFLOPs = products_GFLOPs(f, f->fp32_us),
                   .fp16_GFLOPs = products_GFLOPs(f, f->bf16_us),
                   .memory_GBps = calibrate_rate(f->pass_bytes[f->node_pass], f->pass_us[f->node_pass].median),
                   .product_crowding = fmax(f->products_crowded, 1),
                   .memory_crowding = fmax(f->passes_crowded, 1),
                   .kernel_us = fmax(f->smallest_us.median - f->launch_us.median, LEAST_KERNEL_US)},
        .host = {.launch_us = f->launch_us.median,
                 .event_us = f->event_us.median,
                 .sync_us = f->sync_us.median,
                 .hand_over_us = f->hand_over_us.median,
                 .spin_us = f->spin_us,
                 .awake_us = f->awake_us.median,
                 .collective_us = f->collective_us.median,
                 .runs_compute = true,
                 .cores = (uint64_t)f->cores},
        .collectives = {.bus_GBps = bus_GBps(f, LS_NODE_ALL_REDUCE),
                        .all_gather_GBps = bus_GBps(f, LS_NODE_ALL_GATHER),
                        .reduce_scatter_GBps = bus_GBps(f, LS_NODE_REDUCE_SCATTER),
                        .slow_down = fmax(f->products_beside_copies, 1)},
        .link = {.GBps = calibrate_rate(f->copy_bytes, f->copy_us.median),
                 .latency_us = f->copy_smallest_us.median / 2,
                 .duplex = f->cores > 1 && f->copies_both < SHARED}};
    fill_shares(f, &node.device);
    fill_reclaim(f, &node.device);
    fit_latency(&f->tables[LS_NODE_ALL_REDUCE], &node.collectives);
    return node;
}
