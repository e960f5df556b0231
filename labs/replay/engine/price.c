/* price — the time of a recorded task on a node.
 *   times : operations of the workload by cost.h, once for each number of samples that occurs; host tasks by the node,
 *           or by measured times of the workload; copies between devices by the links they cross, and within one by its
 *           memory
 *   nodes : ranks beyond the node's devices are on further nodes, each identical to it. Their batches arrive as if no
 *           other batch used the links
 *   grids : if ranks share layers, collectives within a pass are those of the tensor axis, with T ranks; the others are
 *           the replicas'. Groups that run at the same time are priced as if each had the links within a node to
 *           itself; they share the network between nodes (ls_node_view)
 *   real  : operations of a real network (ls_plan's whole_rows) have their own flops and bytes, of all samples; a
 *           multiply's weights follow from its rows. Messages between stages use the links between two of their ranks
 *   cost  : one pass over the tasks, and one over the workload for each number of samples */
#include "labs/replay/engine/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/engine/workload_parts.h"

/* A CPU device's host thread runs smaller copies itself: waking the copy stream's thread takes longer
 * (device_cpu.c). */
static const uint64_t brief_copy_bytes = 256 << 10;

static bool is(const struct ls_task *task, const char *phase) { return strcmp(task->phase, phase) == 0; }

/* --- operations -------------------------------------------------------------------------------------------------- */

/* Devices that work at the same time: with DP the first one computes the loss and the update while the others wait. */
static int devices_at_work(const struct ls_price *p, const char *phase) {
    bool alone = strcmp(phase, "loss") == 0 || strcmp(phase, "optimizer") == 0;
    return p->options->mode == LS_PLAN_DP && alone ? 1 : p->active;
}

/* Computed at the first use of a number of samples. */
/* If an owner updates 1/N of the parameters: the factor of the whole update's bytes and flops. */
static double owned_share(const struct ls_price *p, const struct ls_work *work) {
    bool shared = p->options->shard_state > 0 && strcmp(work->phase, "optimizer") == 0;
    return shared ? 1.0 / ls_plan_replicas(p->options) : 1;
}

static const double *costs_of(struct ls_price *p, double samples) {
    struct ls_price_costs *c = p->costs, *end = p->costs + LS_PRICE_MAX_COSTS - 1;
    while (c < end && c->used && c->samples != samples) c++;
    if (c->used && c->samples == samples) return c->us;
    c->used = true;
    c->samples = samples;
    for (int w = 0; w < p->workload->work_count; w++) {
        struct ls_work work = p->workload->work[w];
        work.flops *= owned_share(p, &p->workload->work[w]);
        work.bytes *= owned_share(p, &p->workload->work[w]);
        c->us[w] = ls_cost_work_us(p->node, &work, p->workload, samples, p->options->precision,
                                   devices_at_work(p, work.phase));
    }
    return c->us;
}

/* The time of a recorded step's operation, relative to the median. Devices begin at evenly spread steps; more devices
 * than steps share them. It is a factor, so half of the batch has half of a step's disturbance. */
static double variation(const struct ls_price *p, const struct ls_task *task, int device) {
    const ls_workload *w = p->workload;
    if (!p->options->vary || w->step_count == 0 || !(w->work[task->work].us > 0)) return 1;
    int64_t first = (int64_t)device * w->step_count / p->options->devices;
    int64_t step = (task->step + first) % w->step_count;
    return w->step_us[step * w->work_count + task->work] / w->work[task->work].us;
}

/* Samples of a micro-batch. DP computes the loss of all devices' samples at once. */
static double samples_of(const struct ls_price *p, const struct ls_task *task, int device) {
    bool all = p->options->mode == LS_PLAN_DP && (is(task, "loss") || is(task, "optimizer"));
    return (all ? p->options->batch : ls_plan_rows(p->options, device)) / p->options->micro_batches;
}

static void price_work(struct ls_price *p, struct ls_task *task, int device) {
    const struct ls_work *work = &p->workload->work[task->work];
    bool fixed = strcmp(work->phase, "optimizer") == 0;
    double samples = samples_of(p, task, device), share = fixed ? owned_share(p, work) : samples / p->workload->samples;
    task->us = costs_of(p, samples)[task->work] * variation(p, task, device) * p->slowness[device];
    if (fixed && p->update_bytes > 0) task->us += p->reclaim_us * work->bytes / p->update_bytes;
    task->flops = ls_workload_whole(work->flops * share);
    task->bytes =
        ls_workload_whole(fixed ? work->bytes * share : work->fixed_bytes + (work->bytes - work->fixed_bytes) * share);
    task->fixed_bytes = work->fixed_bytes;
}

/* An operation of a real network, or of its mode: priced as a workload of its own, whose only sample has all flops and
 * bytes. */
static void price_real(struct ls_price *p, struct ls_task *task, int device) {
    bool updates = is(task, "optimizer");
    struct ls_work work = {.name = task->name,
                           .phase = task->phase,
                           .flops = (double)task->flops,
                           .bytes = (double)task->bytes,
                           .is_product = ls_workload_kernel_is_product(task->name),
                           .us = -1};
    if (ls_workload_kernel_is(task->name, "gemm"))
        work.fixed_bytes = fmin(work.bytes, p->workload->element_bytes * work.flops / (2 * p->options->whole_rows));
    task->us = ls_cost_work_us(p->node, &work, p->workload, p->workload->samples, p->options->precision,
                               devices_at_work(p, task->phase)) *
               p->slowness[device];
    if (updates && p->update_bytes > 0) task->us += p->reclaim_us * work.bytes / p->update_bytes;
}

/* --- copies and collectives ---------------------------------------------------------------------------------------- */

/* A copy that uses no link of the node in the trace: within a device (it reads and writes), or to one of another
 * node. */
static double unshared_copy_us(const struct ls_price *p, double bytes, int from, int to) {
    if (from == to) return ls_cost_kernel_us(p->node, 0, 2 * bytes, false, LS_FP32);
    int devices = ls_node_device_count(p->node);
    const struct ls_route *route = ls_node_route(p->node, from < 0 ? from : from % devices, to < 0 ? to : to % devices);
    double GBps = INFINITY;
    for (int i = 0; route && i < route->count; i++) GBps = fmin(GBps, ls_node_link(p->node, route->link[i])->GBps);
    return route ? route->latency_us + bytes / (GBps * 1e3) : 0;
}

/* Samples, outputs, activations (kept by checkpointing) and their gradients grow with the samples, of which one was
 * recorded. */
static double samples_in_copy(const struct ls_price *p, const struct ls_task *task, int device) {
    if (p->options->whole_rows > 0) return 1;
    bool all = p->options->mode == LS_PLAN_DP && is(task, "input");
    bool kept = task->from == task->to && (is(task, "forward") || is(task, "backward"));
    if (!is(task, "input") && !is(task, "scatter") && !is(task, "gather") && !kept) return 1;
    return (all ? p->options->batch / p->active : ls_plan_rows(p->options, device)) / p->options->micro_batches;
}

static void price_copy(const struct ls_price *p, struct ls_task *task, int device) {
    double bytes = (double)task->bytes * samples_in_copy(p, task, device);
    task->bytes = ls_workload_whole(bytes);
    if (task->from == task->to || !ls_node_route(p->node, task->from, task->to))
        task->us = unshared_copy_us(p, bytes, task->from, task->to);
}

/* Collectives within a pass; gradients, shards and buffers have phases of their own. */
bool ls_price_of_tensor_axis(const struct ls_price *p, const struct ls_task *task) {
    return p->options->tensor > 1 && (is(task, "forward") || is(task, "loss") || is(task, "backward"));
}

bool ls_price_between_stages(const struct ls_price *p, const struct ls_task *task) {
    return p->options->pipeline > 1 && is(task, "stages");
}

/* A message between two neighbouring stages, whose ranks are as far apart as a stage has ranks. */
static double message_us(const struct ls_price *p, double bytes, int device) {
    int stride = p->options->devices / p->options->pipeline, devices = ls_node_device_count(p->node);
    int other = device + stride < p->options->devices ? device + stride : device - stride;
    const struct ls_node_collectives *between = ls_node_collectives(p->node);
    if (device / devices == other / devices) return unshared_copy_us(p, bytes, device, other);
    return between->network_hop_us + bytes / (between->network_GBps * 1e3);
}

/* Activations grow with the samples, sums of a layer's gradients do not: the latter are recognized by their bytes. */
static double samples_in_meeting(const struct ls_price *p, const struct ls_meeting *meeting, int device) {
    if (p->options->whole_rows > 0) return 1;
    for (int i = 0; i < p->workload->work_count; i++) {
        const struct ls_work_meeting *known = &p->workload->work[i].meeting;
        if (known->fixed && ls_workload_whole(known->elements * sizeof(float)) == meeting->bytes) return 1;
    }
    return ls_plan_rows(p->options, device) / p->options->micro_batches;
}

static double collective_us(const struct ls_price *p, const struct ls_task *task, int device,
                            const struct ls_meeting *meeting) {
    static const struct {
        const char *name;
        ls_collective what;
    } known[] = {
        {"all_reduce", LS_COLLECTIVE_ALL_REDUCE},
        {"broadcast", LS_COLLECTIVE_BROADCAST},
        {"reduce", LS_COLLECTIVE_REDUCE},
        {"reduce_scatter", LS_COLLECTIVE_REDUCE_SCATTER},
    };
    if (ls_price_between_stages(p, task)) return message_us(p, (double)meeting->bytes, device);
    bool on_tensor_axis = ls_price_of_tensor_axis(p, task);
    int ranks = on_tensor_axis ? p->options->tensor : ls_plan_replicas(p->options);
    double bytes = (double)meeting->bytes * (on_tensor_axis ? samples_in_meeting(p, meeting, device) : 1);
    ls_collective what = LS_COLLECTIVE_ALL_GATHER; /* others gather or scatter parts, too */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(meeting->operation, known[i].name) == 0) what = known[i].what;
    /* of parts, the bytes are those of one recorded rank */
    bool parts = what == LS_COLLECTIVE_ALL_GATHER || what == LS_COLLECTIVE_REDUCE_SCATTER;
    if (what == LS_COLLECTIVE_ALL_REDUCE && !on_tensor_axis && p->across)
        return ls_cost_hierarchical_us(p->replicas, p->across, ranks, bytes);
    const ls_node *view = on_tensor_axis ? p->neighbours : p->replicas;
    return ls_cost_collective_us(view, what, ranks, parts ? bytes * meeting->ranks : bytes);
}

/* --- tasks ------------------------------------------------------------------------------------------------------- */

void ls_price_task(struct ls_price *p, struct ls_task *task, int device, const struct ls_meeting *meeting) {
    if (task->kind == LS_TASK_COLLECTIVE) {
        task->us = collective_us(p, task, device, meeting);
    } else if (task->kind == LS_TASK_COPY) {
        price_copy(p, task, device);
    } else if (p->options->whole_rows > 0) {
        price_real(p, task, device);
    } else if (task->work == p->workload->work_count) {
        task->us = p->options->tensor_us * p->slowness[device];
    } else if (task->work != LS_NONE) {
        price_work(p, task, device);
    } else {
        /* kernels that are not operations of the workload (averaging, casts, DP's sum) read data that has just been
         * written, from caches, so other devices do not slow them down */
        task->us = ls_cost_kernel_us(p->node, (double)task->flops, (double)task->bytes, false, LS_FP32);
        task->us *= p->slowness[device];
    }
}

/* For an operation its measured time, or the node's; with a GIL, the lock's time plus the measured one. */
double ls_price_launch_us(const struct ls_price *p, const struct ls_task *launched) {
    bool gil = p->options->gil;
    if (launched->kind == LS_TASK_COLLECTIVE) return p->host->collective_us;
    if (launched->work == p->workload->work_count) return p->host->launch_us;
    if (launched->work == LS_NONE) return gil ? p->host->lock_us : p->host->launch_us;
    double measured_us = p->workload->work[launched->work].host_us;
    if (gil) return p->host->lock_us + fmax(measured_us, 0);
    return measured_us >= 0 ? measured_us : p->host->launch_us;
}

bool ls_price_runs_on_host(const struct ls_price *p, const struct ls_task *task, ls_lane_kind lane) {
    bool brief = task->kind == LS_TASK_COPY && task->bytes <= brief_copy_bytes;
    if (lane == LS_LANE_COMPUTE) return p->host->runs_compute;
    return p->in_line || (lane == LS_LANE_COPY && brief && p->host->runs_compute);
}

/* --- devices that are not equally fast ------------------------------------------------------------------------------ */

/* The quantile of a normal distribution, in standard deviations. */
static double normal_quantile(double part) {
    double low = -10, high = 10;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(erfc(-middle / sqrt(2)) / 2 < part ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

/* The i-th smallest of N normal values is expected near this quantile (Blom 1958, Statistical Estimates and Transformed
 * Beta-Variables). */
static ls_status spread_devices(struct ls_price *p) {
    int count = p->options->devices;
    p->slowness = malloc((size_t)count * sizeof *p->slowness);
    if (!p->slowness) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the times of %d devices", count);
    for (int d = 0; d < count; d++)
        p->slowness[d] = 1 + p->options->spread * normal_quantile((d + 1 - 0.375) / (count + 0.25));
    return LS_OK;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* Whether a node has no free core; further nodes are the same. (The programs count devices with and without samples,
 * too.) */
static bool has_no_free_core(const struct ls_price *p) {
    int devices = ls_node_device_count(p->node);
    if (p->options->devices < devices) devices = p->options->devices;
    return p->host->runs_compute && p->host->cores > 0 && (uint64_t)devices >= p->host->cores;
}

/* The replicas have copied the parameters that the update writes. */
static double reclaim_us(const struct ls_price *p) {
    double bytes = 0;
    if (p->options->mode != LS_PLAN_DP || p->options->replicate_by_collectives || p->active < 2) return 0;
    for (int i = 0; i < p->workload->parameter_count; i++)
        bytes += sizeof(float) * ls_plan_aligned((double)p->workload->parameter_counts[i]);
    return ls_cost_reclaim_us(p->node, bytes);
}

static ls_status open_views(struct ls_price *p) {
    const struct ls_plan *o = p->options;
    int devices = ls_node_device_count(p->node), nodes = (o->devices + devices - 1) / devices;
    int replicas = ls_plan_replicas(o);
    ls_status status = ls_node_view(&p->neighbours, p->node, o->tensor, 1, nodes);
    if (status == LS_OK) status = ls_node_view(&p->replicas, p->node, replicas, o->tensor, nodes);
    if (status != LS_OK || !o->hierarchical || o->devices <= devices) return status;
    int own = ls_node_device_count(p->replicas);
    return ls_node_view(&p->across, p->node, replicas / own, o->tensor * own, nodes);
}

ls_status ls_price_open(struct ls_price *p, const ls_workload *workload, const ls_node *node,
                        const struct ls_plan *options) {
    *p = (struct ls_price){.workload = workload, .node = node, .host = ls_node_host(node), .options = options};
    for (int d = 0; d < options->devices; d++) p->active += ls_plan_rows(options, d) > 0;
    ls_status status = spread_devices(p);
    if (status == LS_OK) status = open_views(p);
    if (status != LS_OK) {
        ls_price_close(p);
        return status;
    }
    p->in_line = has_no_free_core(p);
    p->reclaim_us = reclaim_us(p);
    for (int w = 0; w < workload->work_count; w++)
        if (strcmp(workload->work[w].phase, "optimizer") == 0) p->update_bytes += workload->work[w].bytes;
    for (int i = 0; i < LS_PRICE_MAX_COSTS; i++) {
        p->costs[i].us = calloc((size_t)workload->work_count + 1, sizeof(double));
        if (p->costs[i].us) continue;
        ls_price_close(p);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the times of %d operations", workload->work_count);
    }
    return LS_OK;
}

void ls_price_close(struct ls_price *p) {
    ls_node_close(p->neighbours);
    ls_node_close(p->replicas);
    ls_node_close(p->across);
    p->neighbours = p->replicas = p->across = NULL;
    free(p->slowness);
    p->slowness = NULL;
    for (int i = 0; i < LS_PRICE_MAX_COSTS; i++) {
        free(p->costs[i].us);
        p->costs[i].us = NULL;
    }
}
