/* A plan: the step to be replayed. A mode, devices, a batch and options; and a check of plans.
 *
 * Its steps are those of dp_threads/dp_step.c and ddp_procs/ddp_step.c, run with a described network and recorded
 * (labs/replay/record). Kernels get their cost (cost.h), host tasks the node's figures for launches. Copies get no
 * duration, which depends on the links. Collective operations get their cost or are sent message by message. */
#ifndef LABS_REPLAY_ENGINE_PLAN_H
#define LABS_REPLAY_ENGINE_PLAN_H

#include "common/trace/trace.h"
#include "labs/replay/engine/cost.h"
#include "labs/replay/engine/node.h"
#include "labs/replay/engine/workload.h"

typedef enum ls_plan_mode { LS_PLAN_SINGLE, LS_PLAN_DP, LS_PLAN_DDP } ls_plan_mode;

/* How collective operations are modelled. */
typedef enum ls_plan_collectives {
    LS_PLAN_BY_COST,    /* one task per rank, which takes ls_cost_collective_us */
    LS_PLAN_BY_MESSAGES /* copies between devices over the node's links, as `pattern` sends them */
} ls_plan_collectives;

struct ls_plan {
    ls_plan_mode mode;
    int devices;
    double batch; /* samples of a step over all devices; split by torch.chunk's rule, or equally if it is not whole */
    /* of a step, in equal parts, of which each device has at least one sample; the reads of gradients that are
     * accumulated are left out */
    int micro_batches;
    int every;  /* activation checkpointing: blocks of a segment; LS_EVERY_SQRT; 0: none (ls_model_create_segments) */
    int tensor; /* DDP: neighbours that share each layer (workload_cut.h); 1: each rank has whole layers */
    bool sequence; /* with tensor: ranks have different rows where they would all have the same */
    int pipeline;  /* DDP: stages of consecutive blocks, each on as many ranks (ddp_procs/stages.h); 1: none */
    /* The rows of a device's micro-batch, if it was recorded with a real network and all its samples, so that
     * operations have their own flops and bytes. 0: with a described network, one sample at a time
     * (labs/replay/record) */
    double whole_rows;
    int shard_state;     /* DDP: ZeRO's stage (ddp_procs/sharded.h); 0: none */
    int prefetch_blocks; /* ZeRO-3: blocks that are gathered ahead, 0 to 2 */
    int steps;           /* the first of them is warm-up, since no step precedes it */
    ls_dtype precision;
    /* batches that a device has room for, 1 or 2; 0: the mode's default: 1 if the node's host threads run the work that
     * they launch, else 2, since the host is then a step ahead (common/seam/parallel.c) */
    int batch_places;
    /* DP: parameters and gradients by a broadcast and a reduce (PyTorch over NCCL), rather than copies from and to
     * device 0 */
    bool replicate_by_collectives;
    /* A launch holds its process's one lock, for the node's lock_us, in addition to the host's measured time. */
    bool gil;
    /* Per-device jitter: in each step, a device's kernels take the times of one of the workload's recorded steps;
     * different devices take different steps, if there are enough. A late device delays those that wait for it. If
     * false, or without such times: medians. Hosts' times are always medians. */
    bool vary;
    /* DDP: buckets are reduced while backward runs; if false, after it */
    bool overlap;
    bool sync_bn; /* batch norm's statistics over all devices, by collectives on the compute stream */
    bool join;    /* DDP: at the beginning of each step, ranks exchange their numbers of samples */
    /* A captured step: all launches from forward to the update cost the host a single one, and events nothing. (The
     * gaps between kernels are not changed, and the copy of the loss is left out.) */
    bool graph;
    /* Devices of one kind are not equally fast: the standard deviation of their kernels' times, as a share of the mean.
     * N devices get the expected order statistics of N values, in ascending order; a single one gets the mean. */
    double spread;
    uint64_t first_bucket_bytes, bucket_bytes; /* the first bucket's limit is the smaller of the two */
    double gradient_element_bytes;             /* in buckets: 4, or 2 with compression */
    double
        top_k; /* DDP: the share of each gradient's elements that is sent, as lists (ddp_procs/topk.h); 0: all, uncompressed */
    bool feedback; /* with top_k: elements not sent are kept, and added to the next gradient */
    /* DDP: the device time of each gradient when it becomes ready, also on one device: PyTorch's hook, and its copy to
     * the bucket and back. 0: ours, whose gradients are in the buckets */
    double tensor_us;
    ls_plan_collectives collectives;
    ls_pattern pattern;
    bool
        hierarchical; /* all-reduces beyond a node: reduce-scatter within, all-reduce across, all-gather within (cost.h) */
};

/* DDP with PyTorch's buckets, overlap, fp32, 4 steps, costs. */
struct ls_plan ls_plan_defaults(ls_plan_mode mode, int devices, double batch);

/* `count` floats rounded up to whole 64-byte lines: in the programs' memory each tensor begins at a line, and tensors
 * that are sent in one piece are sent with the gaps. */
double ls_plan_aligned(double count);

/* Whether a batch is a whole number of samples, which can be split. */
bool ls_plan_is_whole(double batch);

/* The number of replicas: ranks, or groups of ranks that share layers or have other stages, each with its own
 * samples. */
int ls_plan_replicas(const struct ls_plan *options);

/* Samples of device d's share, which is that of its replica: torch.chunk's, as DP splits and as DDP does with --shard
 * contiguous (strided shards have the same size, and are refused if the batch does not divide). A batch that is not
 * whole is split equally. */
double ls_plan_rows(const struct ls_plan *options, int d);

/* An estimate of the trace's number of tasks: within a factor of 2 (tests/replay), and without making the trace. */
double ls_plan_estimate(const ls_workload *workload, const struct ls_plan *options);

enum { LS_PLAN_MAX_TASKS = 30000000 }; /* some GiB of trace and timeline */

/* Checks a plan without recording it. LS_ERR_INVALID: more devices than the node has (DDP: ranks, if the node has no
 * network; messages: if the node is not repeated), no samples, a rank of DDP without samples, which the program refuses
 * (DP leaves such a device idle), an estimate above LS_PLAN_MAX_TASKS. */
ls_status ls_plan_check(const ls_workload *workload, const ls_node *node, const struct ls_plan *options);

/* Adds one all-reduce of `bytes` over `count` devices as messages. lanes[i] is the comm stream of device i. tasks[i] is
 * the task that device i's messages follow (LS_NONE: none), and becomes the last of them. */
void ls_plan_messages(ls_trace *trace, ls_pattern pattern, const int *lanes, int *tasks, int count, double bytes,
                      int step);

#endif
