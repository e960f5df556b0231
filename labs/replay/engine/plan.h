/* A plan: what is to be replayed. A mode, devices, a batch and options; and which plans can be.
 *
 * Its steps are those of dp_threads/dp_step.c and ddp_procs/ddp_step.c, run with a described network and recorded
 * (labs/replay/record). Kernels get their cost (cost.h), host tasks the node's figures for launches. Copies get no
 * duration: the links decide. Collective operations get their cost or go message by message. */
#ifndef LABS_REPLAY_ENGINE_PLAN_H
#define LABS_REPLAY_ENGINE_PLAN_H

#include "common/trace/trace.h"
#include "labs/replay/engine/cost.h"
#include "labs/replay/engine/node.h"
#include "labs/replay/engine/workload.h"

typedef enum ls_plan_mode { LS_PLAN_SINGLE, LS_PLAN_DP, LS_PLAN_DDP } ls_plan_mode;

/* How collective operations are modelled. */
typedef enum ls_plan_collectives {
    LS_PLAN_BY_COST,    /* one task of each rank, which takes ls_cost_collective_us */
    LS_PLAN_BY_MESSAGES /* copies between devices over the node's links, as `pattern` sends them */
} ls_plan_collectives;

struct ls_plan {
    ls_plan_mode mode;
    int devices;
    double batch; /* samples of a step over all devices; cut by torch.chunk's rule, or equally if it is not whole */
    /* of a step, in equal parts, of which each device has at least one sample; that gradients which add up are read,
     * too, is left out */
    int micro_batches;
    int every;  /* activation checkpointing: blocks of a segment; LS_EVERY_SQRT; 0: none (ls_model_create_segments) */
    int tensor; /* DDP: neighbours that share each layer (workload_cut.h); 1: each rank has all of it */
    bool sequence; /* with tensor: rows of their own, where they would have all alike */
    int pipeline;  /* DDP: stages of consecutive blocks, each on as many ranks (ddp_procs/stages.h); 1: none */
    /* Recorded with a real network and all its samples, so that operations have flops and bytes of their own: the rows of a
     * device's micro-batch. 0: with a described network, one sample at a time (labs/replay/record) */
    double whole_rows;
    int shard_state;     /* DDP: ZeRO's stage (ddp_procs/sharded.h); 0: none */
    int prefetch_blocks; /* ZeRO-3: blocks that are gathered ahead, 0 to 2 */
    int steps;           /* the first of them is warm-up: nothing was there before it */
    ls_dtype precision;
    /* batches that a device has room for, 1 or 2; 0: as the mode has it: 1 where the node's host threads run what they
     * launch, else 2, since the host is then a step ahead (common/seam/parallel.c) */
    int batch_places;
    /* DP: parameters and gradients by a broadcast and a reduce (PyTorch over NCCL), rather than copies from and to
     * device 0 */
    bool replicate_by_collectives;
    /* A launch holds its process's one lock, for the node's lock_us, on top of what was measured of the host's own
     * time. */
    bool gil;
    /* Per-device jitter: in each step, a device's kernels take the times of one of the workload's recorded steps;
     * different devices take different steps, as far as there are as many. A device that is late delays those that wait
     * for it. If false, or without such times: medians. Hosts' times are always medians. */
    bool vary;
    /* DDP: buckets are reduced while backward goes on; if false, after it */
    bool overlap;
    bool sync_bn; /* batch norm's statistics over all devices, by collectives on the compute stream */
    bool join;    /* DDP: each step begins with ranks telling how many samples they have */
    /* A captured step: all launches from forward to the update cost the host one, and events nothing. (The gaps between
     * kernels stay as they are, and the copy of the loss is left out.) */
    bool graph;
    /* Devices of one kind are not equally fast: the standard deviation of their kernels' times, as a share of the mean.
     * N devices take what is to be expected of N of them, in ascending order; one alone is the mean. */
    double spread;
    uint64_t first_bucket_bytes, bucket_bytes; /* the first bucket's limit is the smaller of the two */
    double gradient_element_bytes;             /* in buckets: 4, or 2 with compression */
    double
        top_k; /* DDP: the share of each gradient's elements that is sent, as lists (ddp_procs/topk.h); 0: all, uncompressed */
    bool feedback; /* with top_k: elements not sent are kept, and added to the next gradient */
    /* DDP: what each gradient costs the device when it becomes ready, also on one device: PyTorch's hook, and its copy
     * to the bucket and back. 0: ours, whose gradients lie in the buckets */
    double tensor_us;
    ls_plan_collectives collectives;
    ls_pattern pattern;
    bool
        hierarchical; /* all-reduces beyond a node: reduce-scatter within, all-reduce across, all-gather within (cost.h) */
};

/* DDP with PyTorch's buckets, overlap, fp32, 4 steps, costs. */
struct ls_plan ls_plan_defaults(ls_plan_mode mode, int devices, double batch);

/* `count` floats rounded up to whole 64-byte lines: in the programs' memory each tensor begins at a line, and what
 * sent in one piece is sent with the gaps. */
double ls_plan_aligned(double count);

/* Whether a batch is a whole number of samples, which can be cut. */
bool ls_plan_is_whole(double batch);

/* Ranks that take samples of their own, each with those that share its layers or have other stages. */
int ls_plan_replicas(const struct ls_plan *options);

/* Samples of device d's share, which is that of its replica: torch.chunk's, as DP cuts and as DDP does with --shard contiguous (strided shards are
 * of the same size, and refused where the batch does not divide). A batch that is not whole is shared equally. */
double ls_plan_rows(const struct ls_plan *options, int d);

/* About how many tasks the trace would have: within a factor of 2 (tests/replay), and without making it. */
double ls_plan_estimate(const ls_workload *workload, const struct ls_plan *options);

enum { LS_PLAN_MAX_TASKS = 30000000 }; /* some GiB of trace and timeline */

/* What is refused, without recording anything. LS_ERR_INVALID: more devices than the node has (DDP: ranks, where
 * the node has no network; messages: where it is not repeated), no samples, a rank of DDP without samples, which the program refuses (DP leaves such a
 * device idle), an estimate beyond LS_PLAN_MAX_TASKS. */
ls_status ls_plan_check(const ls_workload *workload, const ls_node *node, const struct ls_plan *options);

/* Adds one all-reduce of `bytes` over `count` devices as messages. lanes[i] is the comm stream of device i. tasks[i] is
 * the task that device i's messages come after (LS_NONE: none), and becomes the last of them. */
void ls_plan_messages(ls_trace *trace, ls_pattern pattern, const int *lanes, int *tasks, int count, double bytes,
                      int step);

#endif
