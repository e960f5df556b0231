/* cost — the times of kernels on a node, and the calibration of its rates by a measured step.
 *   idea  : roofline. A kernel does `flops` and moves `bytes`; the slower of the two decides, and a floor is added. A
 *           measured time is more accurate than the roofline, so it is kept and only scaled by it
 *   fit   : the time of a step falls as the rates grow, so the one factor that fits a measured step is found by
 *           bisection, in the logarithm
 *   cost  : of the fit, some 60 passes over the workload */
#include "labs/replay/engine/cost.h"

#include <math.h>
#include <string.h>

#include "common/base/log.h"

#define LS_US_PER_G 1e-3 /* microseconds of one operation at 1e9 per second */
#define LS_FACTOR_LIMIT 1e6
#define LS_BISECTIONS 60 /* from 2 ln 1e6 to below a double's rounding */

static bool is_half(ls_dtype precision) { return precision == LS_FP16 || precision == LS_BF16; }

/* The number of rows that would take as long at the full rate: constant below the curve's first point, proportional
 * beyond its last. */
static double rows_that_count(const struct ls_node_device *device, double rows) {
    const struct ls_node_product *points = device->products;
    int next = 0, count = device->product_count;
    while (next < count && points[next].rows <= rows) next++;
    if (count == 0) return rows;
    if (next == 0) return points[0].rows / points[0].share;
    if (next == count) return rows / points[count - 1].share;
    double before = points[next - 1].rows / points[next - 1].share, after = points[next].rows / points[next].share;
    double along = (rows - points[next - 1].rows) / (points[next].rows - points[next - 1].rows);
    return before + along * (after - before);
}

/* A matrix multiply of a matrix of samples and one of `weights` elements. 0: unknown, taken as one with many rows. */
static double product_us(const struct ls_node_device *device, double flops, double weights, ls_dtype precision) {
    double us = flops / (is_half(precision) ? device->fp16_GFLOPs : device->fp32_GFLOPs) * LS_US_PER_G;
    if (!(weights > 0) || !(flops > 0)) return us;
    double rows = flops / (2 * weights);
    return us * rows_that_count(device, rows) / rows;
}

static double roofline_us(const struct ls_node_device *device, double flops, double bytes, bool is_product,
                          ls_dtype precision, double weights) {
    double compute_us = is_product ? product_us(device, flops, weights, precision) : 0;
    double memory_us = bytes / device->memory_GBps * LS_US_PER_G;
    return device->kernel_us + fmax(compute_us, memory_us);
}

double ls_cost_kernel_us(const ls_node *node, double flops, double bytes, bool is_product, ls_dtype precision) {
    return roofline_us(ls_node_device(node), flops, bytes, is_product, precision, 0);
}

/* The bytes of all but the optimizer's operations: scaled with the samples, and with the precision's element size. */
static double scaled_bytes(const struct ls_work *work, const ls_workload *workload, double samples,
                           ls_dtype precision) {
    if (strcmp(work->phase, "optimizer") == 0) return work->bytes;
    double bytes = work->fixed_bytes + (work->bytes - work->fixed_bytes) * samples / workload->samples;
    return bytes * (is_half(precision) ? 2.0 : 4.0) / workload->element_bytes;
}

/* The roofline of an operation of the workload with that many samples in a precision. */
static double scaled_us(const struct ls_node_device *device, const struct ls_work *work, const ls_workload *workload,
                        double samples, ls_dtype precision) {
    double bytes = scaled_bytes(work, workload, samples, precision);
    if (strcmp(work->phase, "optimizer") == 0)
        return roofline_us(device, work->flops, bytes, work->is_product, LS_FP32, 0);
    return roofline_us(device, work->flops * samples / workload->samples, bytes, work->is_product, precision,
                       work->fixed_bytes / workload->element_bytes);
}

static double work_us(const struct ls_node_device *device, const struct ls_work *work, const ls_workload *workload,
                      double samples, ls_dtype precision) {
    double us = scaled_us(device, work, workload, samples, precision);
    if (work->us < 0) return us;
    ls_dtype own = workload->element_bytes == 2 ? LS_FP16 : LS_FP32;
    double measured_as_us = scaled_us(device, work, workload, workload->samples, own);
    return measured_as_us > 0 ? work->us * us / measured_as_us
                              : work->us; /* neither flops, bytes nor floor: not scaled */
}

/* As a fraction of all neighbours that a device of the node can have. */
static double neighbours(const ls_node *node, int devices) {
    int count = ls_node_device_count(node);
    return devices < 2 || count < 2 ? 0 : fmin(1, (double)(devices - 1) / (count - 1));
}

double ls_cost_work_us(const ls_node *node, const struct ls_work *work, const ls_workload *workload, double samples,
                       ls_dtype precision, int devices) {
    const struct ls_node_device *device = ls_node_device(node);
    double us = work_us(device, work, workload, samples, precision);
    if (work->is_product) return us * (1 + (device->product_crowding - 1) * neighbours(node, devices));
    double memory_us = scaled_bytes(work, workload, samples, precision) / device->memory_GBps * LS_US_PER_G;
    return us + fmin(us, memory_us) * (device->memory_crowding - 1) * neighbours(node, devices);
}

double ls_cost_reclaim_us(const ls_node *node, double bytes) {
    const struct ls_node_device *device = ls_node_device(node);
    return fmin(bytes, (double)device->reclaim_bytes) / device->reclaim_GBps * LS_US_PER_G;
}

/* The step with all rates of the node's device multiplied by `factor`. */
static double step_us(const ls_node *node, double factor, const ls_workload *workload, double samples,
                      ls_dtype precision) {
    const struct ls_node_host *host = ls_node_host(node);
    struct ls_node_device device = *ls_node_device(node);
    device.fp32_GFLOPs *= factor;
    device.fp16_GFLOPs *= factor;
    device.memory_GBps *= factor;
    double host_us = workload->loader_us, device_us = 0; /* when each finishes its work so far */
    for (int i = 0; i < workload->work_count; i++) {
        host_us += host->launch_us;
        device_us = fmax(device_us, host_us) + work_us(&device, &workload->work[i], workload, samples, precision);
        if (host->runs_compute) host_us = device_us;
    }
    return fmax(host_us, device_us);
}

double ls_cost_step_us(const ls_node *node, const ls_workload *workload, double samples, ls_dtype precision) {
    return step_us(node, 1, workload, samples, precision);
}

ls_status ls_cost_calibrate(double *factor, const ls_node *node, const ls_workload *workload, double samples,
                            ls_dtype precision, double t1_us) {
    double slow = -log(LS_FACTOR_LIMIT), fast = log(LS_FACTOR_LIMIT);
    double longest_us = step_us(node, exp(slow), workload, samples, precision);
    double shortest_us = step_us(node, exp(fast), workload, samples, precision);
    *factor = NAN;
    if (!(t1_us >= shortest_us && t1_us <= longest_us && shortest_us < longest_us))
        return ls_fail(LS_ERR_INVALID,
                       "no rates of the node %s make a step of %s take %g us: launches and floors alone take %g us, "
                       "and everything at a millionth of the rates %g us",
                       ls_node_name(node), workload->name, t1_us, shortest_us, longest_us);
    for (int i = 0; i < LS_BISECTIONS; i++) {
        double middle = (slow + fast) / 2;
        bool too_slow = step_us(node, exp(middle), workload, samples, precision) > t1_us;
        *(too_slow ? &slow : &fast) = middle;
    }
    *factor = exp((slow + fast) / 2);
    return LS_OK;
}
