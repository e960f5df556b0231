/* plan_check — checks whether a plan can be replayed, before any replay.
 *   refuses : plans that the programs refuse (a rank of DDP without samples), that exceed the node, or whose traces are
 *             too large for memory
 *   estimate: launches and kernels of each device, hand-offs, buckets and their messages, counted by formula: within a
 *             factor of 2 (tests/replay). Only a recording is exact
 *   cost    : a pass over all parameters */
#include <math.h>

#include "common/base/chunk.h"
#include "common/base/log.h"
#include "labs/replay/engine/plan.h"
#include "labs/replay/engine/workload_cut.h"

enum { LS_PLAN_MAX_STEPS = 1 << 20, LS_PLAN_MAX_RANKS = 1 << 20 };
static const double max_batch = 1e9;

#define TIB 1099511627776.0
static const double most_held_bytes = 64 * TIB; /* the address space of 64 meta devices */

/* Messages of an all-reduce, all ranks together. */
static double messages_of(ls_pattern pattern, int ranks) {
    bool one_way = pattern == LS_PATTERN_SERVER || pattern == LS_PATTERN_TREE; /* N - 1 in each direction */
    if (one_way) return 2.0 * (ranks - 1);
    return ranks * ls_cost_pattern(pattern, ranks, 1, &(ls_hockney){0, 1, INFINITY}).messages;
}

double ls_plan_estimate(const ls_workload *w, const struct ls_plan *o) {
    double floats = 0, most_bytes = fmax(1, (double)o->bucket_bytes);
    for (int p = 0; p < w->parameter_count; p++) floats += (double)w->parameter_counts[p];
    double buckets = fmin(w->ready_count, 1 + floor(sizeof(float) * floats / most_bytes));
    double of_device = 2.0 * w->work_count + 8, together = 0; /* launches and kernels; the batch, the loader, waits */
    if (o->mode == LS_PLAN_DP) of_device += 12;               /* hand-offs, copies and their launches */
    of_device *= o->micro_batches;
    if (o->mode == LS_PLAN_DDP && o->tensor_us > 0) of_device += 2.0 * w->ready_count; /* hooks and their launches */
    if (o->mode == LS_PLAN_DDP && o->top_k > 0)
        of_device += 8.0 * w->parameter_count; /* launches and kernels of four */
    if (o->mode == LS_PLAN_DDP && o->devices > 1) {
        of_device += 4 * buckets; /* launch and kernel of the division, launch and task of the all-reduce */
        if (o->collectives == LS_PLAN_BY_MESSAGES)
            together = buckets * (messages_of(o->pattern, o->devices) + o->devices);
    }
    return o->steps * (o->devices * of_device + together);
}

/* A graph captures work that is the same in each step, on one device. */
static ls_status check_graph(const ls_node *node, const struct ls_plan *o) {
    if (!o->graph) return LS_OK;
    if (ls_node_host(node)->runs_compute)
        return ls_fail(LS_ERR_INVALID, "a CUDA graph needs GPUs, but %s has CPU devices", ls_node_name(node));
    if (o->mode == LS_PLAN_DP && o->devices > 1)
        return ls_fail(LS_ERR_INVALID,
                       "a CUDA graph cannot hold a step of DataParallel on %d devices, each of which has a "
                       "thread of its own",
                       o->devices);
    if (o->shard_state == 3)
        return ls_fail(
            LS_ERR_INVALID,
            "a CUDA graph cannot hold a step of ZeRO-3, whose gathers depend on what the step before has left");
    return LS_OK;
}

/* Options that shard or recompute memory. */
static ls_status check_memory(const ls_workload *w, const struct ls_plan *o) {
    if (o->every != 0 && w->layer_count == 0)
        return ls_fail(
            LS_ERR_INVALID,
            "%s is a trace, which does not show where the network's blocks begin: no activations can be checkpointed",
            w->name);
    if (o->shard_state > 1 && !o->overlap)
        return ls_fail(LS_ERR_INVALID,
                       "ZeRO-%d reduces buckets during backward, since they take turns with their memory",
                       o->shard_state);
    if (o->top_k > 0 && o->shard_state > 0)
        return ls_fail(LS_ERR_INVALID, "ZeRO-%d adds slices of all elements, but top-k sends only a part of them",
                       o->shard_state);
    if (o->shard_state == 3 && w->layer_count == 0)
        return ls_fail(LS_ERR_INVALID,
                       "%s is a trace, which does not show where the network's blocks begin: no parameters can be "
                       "gathered block by block",
                       w->name);
    return LS_OK;
}

/* Groups of ranks on several nodes must have the same layout on each. */
static ls_status check_nodes(const ls_node *node, const struct ls_plan *o) {
    int devices = ls_node_device_count(node), tensor = o->tensor;
    int own = tensor < devices ? devices / tensor : 1; /* replicas of a node */
    if (o->devices <= devices) return LS_OK;
    if (tensor < devices ? devices % tensor != 0 : tensor % devices != 0)
        return ls_fail(LS_ERR_INVALID, "ranks that share layers (--tensor %d) lie differently on nodes of %d devices",
                       tensor, devices);
    if (o->hierarchical && ls_plan_replicas(o) % own != 0)
        return ls_fail(LS_ERR_INVALID,
                       "a hierarchical all-reduce of %d ranks needs the same number on each node; %d fit",
                       ls_plan_replicas(o), own);
    if (o->hierarchical && o->collectives == LS_PLAN_BY_MESSAGES)
        return ls_fail(LS_ERR_INVALID,
                       "a hierarchical all-reduce has a formula, but no messages; leave --collectives out");
    return LS_OK;
}

/* Options of ranks that share layers. */
static ls_status check_tensor(const ls_workload *w, const struct ls_plan *o) {
    const char *other = o->every != 0                           ? "--checkpoint-activations"
                        : o->graph                              ? "--cuda-graph"
                        : o->sync_bn                            ? "--sync-bn"
                        : o->join                               ? "--join"
                        : o->top_k > 0                          ? "--compress topk"
                        : o->shard_state == 3                   ? "--shard-state 3"
                        : o->collectives == LS_PLAN_BY_MESSAGES ? "--collectives messages"
                        : o->mode != LS_PLAN_DDP                ? "any mode but ddp"
                                                                : NULL;
    if (o->tensor == 1) return LS_OK;
    if (other) return ls_fail(LS_ERR_INVALID, "--tensor is not replayed with %s", other);
    if (o->tensor < 1 || o->devices % o->tensor != 0)
        return ls_fail(LS_ERR_INVALID, "%d ranks do not form a grid of --tensor %d and replicas", o->devices,
                       o->tensor);
    ls_workload *part;
    ls_status status = ls_workload_cut(&part, w, o->tensor, o->sequence);
    ls_workload_close(part);
    return status;
}

ls_status ls_plan_check(const ls_workload *w, const ls_node *node, const struct ls_plan *o) {
    int devices = ls_node_device_count(node);
    if (o->devices < 1 || o->devices > LS_PLAN_MAX_RANKS || o->steps < 1 || o->steps > LS_PLAN_MAX_STEPS) {
        return ls_fail(LS_ERR_INVALID, "%d steps on %d devices are out of range and cannot be replayed", o->steps,
                       o->devices);
    }
    ls_status status = check_tensor(w, o);
    if (status != LS_OK) return status;
    int replicas = ls_plan_replicas(o);
    if (!(o->batch > 0 && o->batch <= max_batch)) {
        return ls_fail(LS_ERR_INVALID, "a batch of %g samples cannot be replayed", o->batch);
    }
    if (ls_plan_is_whole(o->batch) && o->batch < replicas) {
        return ls_fail(LS_ERR_INVALID, "a batch of %g samples cannot be cut for %d devices", o->batch, replicas);
    }
    double held_bytes = (w->activation_bytes + w->exchange_bytes + w->input_bytes) * ls_plan_rows(o, 0);
    if (!(held_bytes <= most_held_bytes)) {
        return ls_fail(LS_ERR_INVALID, "a batch of %g samples cannot be replayed: a device would hold %.2g TiB of it",
                       o->batch, held_bytes / TIB);
    }
    if (o->mode == LS_PLAN_DDP && ls_plan_is_whole(o->batch)) {
        int with_samples = (int)ls_chunk_count((size_t)o->batch, replicas);
        if (with_samples < replicas)
            return ls_fail(LS_ERR_INVALID,
                           "a batch of %g samples leaves %d of %d ranks without any: DDP refuses it; pieces of %g "
                           "samples are enough for %d ranks",
                           o->batch, replicas - with_samples, replicas, ls_plan_rows(o, 0), with_samples);
    }
    if (o->micro_batches < 1 || (o->micro_batches > 1 && o->batch < (double)replicas * o->micro_batches)) {
        return ls_fail(LS_ERR_INVALID, "a batch of %g samples cannot be cut into %d micro-batches for %d devices",
                       o->batch, o->micro_batches, replicas);
    }
    status = check_memory(w, o);
    if (status == LS_OK) status = check_graph(node, o);
    if (status == LS_OK) status = check_nodes(node, o);
    if (status != LS_OK) return status;
    if (o->mode == LS_PLAN_SINGLE && o->devices != 1) {
        return ls_fail(LS_ERR_INVALID, "a program for one device cannot use %d devices", o->devices);
    }
    if (!(o->spread >= 0 && o->spread <= 0.2))
        return ls_fail(LS_ERR_INVALID, "devices whose times spread by %g %% of the mean are not of one kind",
                       100 * o->spread);
    bool several = ls_node_collectives(node)->network_GBps > 0 && o->mode == LS_PLAN_DDP;
    bool routed = o->collectives == LS_PLAN_BY_COST || ls_node_route(node, 0, o->devices - 1);
    if (o->devices > devices && !(several && routed)) {
        return ls_fail(LS_ERR_INVALID, "%s has %d devices%s, not %d", ls_node_name(node), devices,
                       several ? ", between which messages have routes" : "", o->devices);
    }
    if (w->optimizer_states < 0 || w->optimizer_states > 2) {
        return ls_fail(LS_ERR_INVALID, "an optimizer cannot have %d states", w->optimizer_states);
    }
    if (w->work_count == 0) return ls_fail(LS_ERR_INVALID, "the workload %s has no operations", w->name);
    double tasks = ls_plan_estimate(w, o);
    if (tasks > LS_PLAN_MAX_TASKS)
        return ls_fail(LS_ERR_INVALID,
                       "%d steps of %s on %d devices make about %.2g tasks; at most %.0e can be replayed", o->steps,
                       w->name, o->devices, tasks, (double)LS_PLAN_MAX_TASKS);
    return LS_OK;
}
