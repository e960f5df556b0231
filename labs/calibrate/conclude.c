/* conclude — from what was measured to the figures of a node.
 *   idea  : every figure is that of fastest tenths (estimate.c). A figure that follows from a difference of two times
 *           is bounded by direct ones, so that no disturbance can make nonsense of it
 *   limits: factors below 1 and times below 0 are chance: the file has 1, and the least time that there is */
#include <math.h>

#include "labs/calibrate/calibrate.h"

#define LEAST_KERNEL_US 0.01
#define MOST_OPERAND_GBPS 1e4
#define SHARED 1.5 /* two copies at once that take so many times as long as one share what they cross */

double calibrate_rate(double amount, double us) { return amount / us * 1e-3; }

/* Least squares of the shortest message's time over 2 (ranks - 1) hops; neither below 0. One number of ranks: all of it
 * is hops. */
static void fit_latency(const calibrate_figures *f, struct ls_node_collectives *node) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < f->row_count; i++) {
        if (i > 0 && f->rows[i].ranks == f->rows[i - 1].ranks) continue;
        double hops = 2.0 * (f->rows[i].ranks - 1), us = f->rows[i].written_us;
        n += 1, x += hops, y += us, xx += hops * hops, xy += hops * us;
    }
    node->hop_us = n > 1 ? (n * xy - x * y) / (n * xx - x * x) : xy / xx;
    if (node->hop_us < 0) node->hop_us = 0;
    node->base_us = n > 1 ? (y - node->hop_us * x) / n : 0;
    if (node->base_us >= 0) return;
    node->base_us = 0;
    node->hop_us = xy / xx;
}

/* The best direct rate of all numbers of samples. What does not grow with the samples is in it, a percent or two of the
 * largest: the price for not subtracting one disturbed time from another. */
static double products_GFLOPs(const calibrate_figures *f, const calibrate_spread *us) {
    double best = 0;
    for (int i = 0; i < f->batch_count; i++) best = fmax(best, calibrate_rate(f->gemm_flops[i], us[i].fast));
    return best;
}

/* What a product takes beyond its arithmetic, for what does not grow with the samples: weights are packed, gradients of
 * weights written. That is most in a product of few samples, and so it is what such a one takes more than its
 * arithmetic at the best rate: not below 0, since no direct rate is better, and not above a time that was measured. */
static double operand_GBps(const calibrate_figures *f, double best_GFLOPs) {
    double fixed_us = f->fp32_us[CALIBRATE_FEW].fast - f->gemm_flops[CALIBRATE_FEW] / best_GFLOPs * 1e-3;
    double bytes = 3.0 * sizeof(float) * f->width * f->width;
    return calibrate_rate(bytes, fmax(fixed_us, bytes * 1e-3 / MOST_OPERAND_GBPS));
}

struct calibrate_node calibrate_conclude(const calibrate_figures *f) {
    const calibrate_row *largest = &f->rows[f->row_count - 1];
    double crossed = 2.0 * (largest->ranks - 1) / largest->ranks * (double)largest->bytes;
    struct calibrate_node node = {
        .device = {.name = "CPU device",
                   .fp32_GFLOPs = products_GFLOPs(f, f->fp32_us),
                   .fp16_GFLOPs = products_GFLOPs(f, f->bf16_us),
                   .memory_GBps = calibrate_rate(f->pass_bytes[f->node_pass], f->pass_us[f->node_pass].fast),
                   .operand_GBps = operand_GBps(f, products_GFLOPs(f, f->fp32_us)),
                   .product_crowding = fmax(f->products_crowded, 1),
                   .memory_crowding = fmax(f->passes_crowded, 1),
                   .kernel_us = fmax(f->smallest_us.fast - f->launch_us.fast, LEAST_KERNEL_US)},
        .host = {.launch_us = f->launch_us.fast,
                 .event_us = f->event_us.fast,
                 .sync_us = f->sync_us.fast,
                 .hand_over_us = f->hand_over_us.fast,
                 .collective_us = f->collective_us.fast,
                 .runs_compute = true},
        .collectives = {.bus_GBps = calibrate_rate(crossed, largest->written_us),
                        .slow_down = fmax(f->products_beside_copies, 1)},
        .link = {.GBps = calibrate_rate(f->copy_bytes, f->copy_us.fast),
                 .latency_us = f->copy_smallest_us.fast / 2,
                 .duplex = f->cores > 1 && f->copy_both_us.fast < SHARED * f->copy_us.fast}};
    fit_latency(f, &node.collectives);
    return node;
}
