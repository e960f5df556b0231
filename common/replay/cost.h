/* What an operation costs on a node: kernels by a roofline, collective operations by table or formula. */
#ifndef LS_REPLAY_COST_H
#define LS_REPLAY_COST_H

#include "common/replay/node.h"
#include "common/replay/workload.h"

/* Seconds of a kernel are floor + max(flops / rate, bytes / memory bandwidth) (roofline). Without measured time that is its
 * cost; with one, the measured time is scaled by the ratio of the roofline's values for `samples` and for the workload's own number
 * of samples (both of the node that it was measured on, which must then be `node`). Microseconds. */
double ls_cost_work_us(const ls_node *node, const struct ls_work *work, const ls_workload *workload, double samples,
                       ls_dtype precision);

/* The roofline alone. */
double ls_cost_kernel_us(const ls_node *node, double flops, double bytes, bool is_product, ls_dtype precision);

/* What T1, one device's measured step, says about the node: the factor by which its rates (GFLOPs and memory) must be
 * multiplied so that the workload's step of `samples` samples takes t1_us. The only calibration of published machines.
 * LS_ERR_INVALID if no factor does (the launches alone take longer). */
ls_status ls_cost_calibrate(double *factor, const ls_node *node, const ls_workload *workload, double samples,
                            ls_dtype precision, double t1_us);

/* Collective operations, in terms of W ranks and n bytes of each rank's buffer; from the moment when all have come. */
typedef enum ls_collective { LS_COLLECTIVE_ALL_REDUCE, LS_COLLECTIVE_BROADCAST, LS_COLLECTIVE_REDUCE } ls_collective;

/* By the node's measured table where it has W (between two lines: a straight line in log bytes, log us; beyond its ends the rate
 * of the last line, the latency of the first), otherwise by its formula. */
double ls_cost_collective_us(const ls_node *node, ls_collective what, int ranks, double bytes);

/* The textbook's formulas (anchors.md 2.2), for comparison with counted messages and for exercises:
 * alpha_us per message, GBps of a link, gamma_GBps of the summing (INFINITY: free). */
typedef struct ls_hockney {
    double alpha_us, GBps, gamma_GBps;
} ls_hockney;

/* X(NAME, text, what it is) */
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

/* Steps that follow one another, and the most messages and bytes that a rank sends (on a duplex link). */
struct ls_pattern_cost {
    int steps;
    double messages, bytes;
    double us; /* by Hockney's model, the messages of a step at the same time but on one link one after another */
};
struct ls_pattern_cost ls_cost_pattern(ls_pattern pattern, int ranks, double bytes, const ls_hockney *link);

#endif
