/* The time of an operation on a node: kernels by a roofline, collective operations by table or formula. */
#ifndef LABS_REPLAY_ENGINE_COST_H
#define LABS_REPLAY_ENGINE_COST_H

#include "labs/replay/engine/node.h"
#include "labs/replay/engine/workload.h"

/* A kernel takes floor + max(flops / rate, bytes / memory bandwidth) microseconds (roofline: Williams, Waterman,
 * Patterson 2009); for kernels that are not matrix multiplies only the bytes count. A multiply's rate is the share of
 * the node's rate that multiplies of as many rows reach (node.h). Its rows are flops / (2 weights); its weights are its
 * fixed bytes (0: unknown, and so the full rate).
 *
 * An operation without a measured time takes that time. A measured time is multiplied by the ratio of two rooflines:
 * that for `samples` in `precision`, over that for the measured case, which has the workload's number of samples, in 16
 * bits if its element_bytes are 2. (`node` must then be the node of the measurement.) All bytes but the optimizer's are
 * of elements of the precision.
 *
 * Work takes longer while several `devices` work at the same time (crowding): by the node's factors for all of its
 * devices, by a part of that for some. A matrix multiply takes product_crowding times as long. Of other operations,
 * only the time of their bytes at the node's memory bandwidth grows, memory_crowding times; neighbours do not disturb
 * computation within a core. */
double ls_cost_work_us(const ls_node *node, const struct ls_work *work, const ls_workload *workload, double samples,
                       ls_dtype precision, int devices);

/* The additional time to write `bytes` that another device has just read (node.h); 0 if there is none. */
double ls_cost_reclaim_us(const ls_node *node, double bytes);

/* The roofline alone, at the full rate. fp16 and bf16 run at fp16_GFLOPs, everything else at fp32_GFLOPs. */
double ls_cost_kernel_us(const ls_node *node, double flops, double bytes, bool is_product, ls_dtype precision);

/* A step on one device: the host's loader_us, then launch after launch (launch_us each), kernels in order after their
 * launches; if the host runs them itself, the sum of both. Copies of the input and waits of the host are not included.
 * (For tests: the equation of ls_cost_calibrate.) */
double ls_cost_step_us(const ls_node *node, const ls_workload *workload, double samples, ls_dtype precision);

/* Calibrates the node by T1, one device's measured step: finds the factor by which its rates (GFLOPs and memory) must
 * be multiplied so that ls_cost_step_us is t1_us. The only calibration of published machines. LS_ERR_INVALID if no
 * factor between 1e-6 and 1e6 does (the launches and floors alone take longer, or all operations are measured). */
ls_status ls_cost_calibrate(double *factor, const ls_node *node, const ls_workload *workload, double samples,
                            ls_dtype precision, double t1_us);

/* Collective operations, in terms of W ranks and n bytes of each rank's buffer; from the arrival of the last rank. */
typedef enum ls_collective {
    LS_COLLECTIVE_ALL_REDUCE,
    LS_COLLECTIVE_BROADCAST,
    LS_COLLECTIVE_REDUCE,
    LS_COLLECTIVE_ALL_GATHER,
    LS_COLLECTIVE_REDUCE_SCATTER
} ls_collective;

/* All-reduce: by the node's measured table if it has W (between two rows: linear in log bytes, log us; beyond its ends
 * the rate of the last row, the time of the first), otherwise by its formula (node.h). One rank: 0.
 *
 * Broadcast and reduce, for which nodes have no figures: n bytes cross each link once, where an all-reduce of n' bytes
 * crosses it 2 (W - 1) / W n' times, at the same bus bandwidth (as NCCL defines it). By formula base + (W - 1) hop + n
 * / bus, one turn of the ring instead of two; by table, the time of an all-reduce of n W / (2 (W - 1)) bytes, whose
 * latency is somewhat too long.
 *
 * All-gather and reduce-scatter of n bytes, all ranks' parts together: by the node's table of the operation if it has
 * W. Otherwise half an all-reduce of n bytes, which is a ring's reduce-scatter and then its all-gather; within a node
 * that has the operation's own bus bandwidth, that bandwidth is used. If the all-reduce is by table, which does not
 * separate latency from bytes, half of its whole time is scaled by the bandwidth of its last row over the
 * operation's. */
double ls_cost_collective_us(const ls_node *node, ls_collective what, int ranks, double bytes);

/* An all-reduce on two levels, of `ranks` on nodes of L devices each, M = ranks / L nodes: a reduce-scatter of n bytes
 * within each node, an all-reduce of n / L across nodes, by L groups in parallel (`across`: the view of such a group,
 * of stride L), and an all-gather of n within: by formula
 *
 *     2 base + 2 (L - 1) hop + 2 (L - 1) / L n / bus  +  2 (M - 1) (hop + network_hop) + 2 (M - 1) / M n / network
 *
 * while a single ring takes 2 (W - 1) hops and carries 2 (W - 1) / W n over each node's network (Jia et al. 2018,
 * https://arxiv.org/abs/1807.11205, section 4.3; Mikami et al. 2018, https://arxiv.org/abs/1811.05233, section 2.2). */
double ls_cost_hierarchical_us(const ls_node *node, const ls_node *across, int ranks, double bytes);

/* The textbook's formulas (docs/published.md#cost-formulas), for comparison with counted messages and for exercises:
 * alpha_us per message, GBps of a link, gamma_GBps of summation (INFINITY: free). */
typedef struct ls_hockney {
    double alpha_us, GBps, gamma_GBps;
} ls_hockney;

/* X(NAME, text, description) */
#define LS_PATTERN_MAP(X)                                                                                              \
    X(RING, "ring", "2 (N - 1) steps of a chunk of 1/N")                                                               \
    X(SERVER, "parameter server", "N - 1 whole messages to rank 0, and N - 1 back")                                    \
    X(TREE, "tree", "a binomial tree, up and down, of whole messages")                                                 \
    X(HALVING_DOUBLING, "halving-doubling", "Rabenseifner: halves, quarters, ..., and back")                           \
    X(DIRECT, "direct", "every rank takes its share of all others and gives it back")
#define LS_PATTERN_ENUM(name, text, description) LS_PATTERN_##name,
typedef enum ls_pattern { LS_PATTERN_MAP(LS_PATTERN_ENUM) LS_PATTERN_COUNT } ls_pattern;
#undef LS_PATTERN_ENUM

const char *ls_pattern_name(ls_pattern pattern);

/* Consecutive steps, and the most messages and bytes that one rank sends. If the number of ranks is not a power of two,
 * halving-doubling folds the extra ranks in before and out after, which costs two steps of whole messages. */
struct ls_pattern_cost {
    int steps; /* rounds of concurrent messages: all that the server receives are one */
    double messages, bytes;
    double us; /* by Hockney's model, the messages of a step at the same time but on one link one after another */
};
struct ls_pattern_cost ls_cost_pattern(ls_pattern pattern, int ranks, double bytes, const ls_hockney *link);

#endif
