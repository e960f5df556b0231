/* cost_collective — the times of collective operations on a node (rules: cost.h).
 *   why a table : one latency and one rate do not describe an all-reduce. On eight H200s a line through its ends is up
 *                 to 40 % too fast between 1 and 32 MiB, since protocols and algorithms change with the size. Log times
 *                 over log bytes are nearly linear between measured points a factor of four apart
 *   formula     : a ring. 2 (W - 1) steps, each a hop and a chunk of 1/W; over several nodes, the ring enters each node
 *                 once in each of its two turns. The first turn is a reduce-scatter, the second an all-gather
 *   own figures : a switch that reduces (NVLink SHARP) makes an all-reduce faster than its two turns one after the
 *                 other, and does not make a single turn faster: on eight H200s reduce-scatter and all-gather take 1.33 times as long as an all-reduce of as
 *                 many bytes */
#include "labs/replay/engine/cost.h"

#include <math.h>

#define LS_US_PER_G 1e-3

/* Time of an all-reduce between two rows, or beyond the ends of `count` rows of one number of ranks. */
static double interpolate_us(const struct ls_node_measured *rows, int count, double bytes) {
    const struct ls_node_measured *last = &rows[count - 1];
    if (bytes <= (double)rows[0].bytes) return rows[0].us;
    if (bytes >= (double)last->bytes) return last->us * bytes / (double)last->bytes;
    const struct ls_node_measured *right = rows;
    while ((double)right->bytes < bytes) right++;
    const struct ls_node_measured *left = right - 1;
    double share = log(bytes / (double)left->bytes) / log((double)right->bytes / (double)left->bytes);
    return left->us * pow(right->us / left->us, share);
}

/* The rows of a table with that many ranks. */
static struct ls_node_table find_rows(const struct ls_node_table *table, int ranks) {
    int first = 0, end;
    while (first < table->count && table->rows[first].ranks != ranks) first++;
    for (end = first; end < table->count && table->rows[end].ranks == ranks;) end++;
    return (struct ls_node_table){end > first ? &table->rows[first] : NULL, end - first};
}

/* `turns`: of the ring; `crossed_bytes`: over each link. */
static double formula_us(const ls_node *node, int ranks, int turns, double crossed_bytes) {
    const struct ls_node_collectives *figures = ls_node_collectives(node);
    int devices = ls_node_device_count(node), nodes = (ranks + devices - 1) / devices;
    double GBps = figures->bus_GBps;
    double latency_us = figures->base_us + turns * (ranks - 1.0) * figures->hop_us;
    if (nodes > 1 && figures->network_GBps > 0) {
        latency_us += turns * (nodes - 1.0) * figures->network_hop_us;
        GBps = fmin(GBps, figures->network_GBps);
    }
    return latency_us + crossed_bytes / GBps * LS_US_PER_G;
}

/* The multiple of an all-reduce's bytes that each link carries. */
static double ring_factor(int ranks) { return 2 * (ranks - 1.0) / ranks; }

/* An all-reduce, or one turn of its ring that carries `bytes` over each link. */
static double all_reduce_us(const ls_node *node, int ranks, bool both_turns, double bytes) {
    const struct ls_node_table rows = find_rows(&ls_node_collectives(node)->tables[LS_NODE_ALL_REDUCE], ranks);
    double factor = ring_factor(ranks);
    if (rows.count > 0) return interpolate_us(rows.rows, rows.count, both_turns ? bytes : bytes / factor);
    return formula_us(node, ranks, both_turns ? 2 : 1, both_turns ? bytes * factor : bytes);
}

/* Half an all-reduce at the operation's own bus bandwidth. */
static double half_at_us(const ls_node *node, int ranks, double bytes, double own_GBps) {
    const struct ls_node_collectives *figures = ls_node_collectives(node);
    const struct ls_node_table rows = find_rows(&figures->tables[LS_NODE_ALL_REDUCE], ranks);
    double factor = ring_factor(ranks);
    if (rows.count == 0) return formula_us(node, ranks, 2, bytes * factor * figures->bus_GBps / own_GBps) / 2;
    const struct ls_node_measured *last = &rows.rows[rows.count - 1];
    double reached_GBps = factor * (double)last->bytes / last->us * LS_US_PER_G;
    return interpolate_us(rows.rows, rows.count, bytes) / 2 * reached_GBps / own_GBps;
}

/* All-gather, reduce-scatter. */
static double half_us(const ls_node *node, int ranks, double bytes, enum ls_node_operation what, double own_GBps) {
    const struct ls_node_collectives *figures = ls_node_collectives(node);
    const struct ls_node_table rows = find_rows(&figures->tables[what], ranks);
    bool has_own = own_GBps > 0 && ranks <= ls_node_device_count(node);
    if (rows.count > 0) return interpolate_us(rows.rows, rows.count, bytes);
    return has_own ? half_at_us(node, ranks, bytes, own_GBps) : all_reduce_us(node, ranks, true, bytes) / 2;
}

double ls_cost_collective_us(const ls_node *node, ls_collective what, int ranks, double bytes) {
    const struct ls_node_collectives *figures = ls_node_collectives(node);
    if (ranks < 2) return 0;
    if (what == LS_COLLECTIVE_ALL_GATHER)
        return half_us(node, ranks, bytes, LS_NODE_ALL_GATHER, figures->all_gather_GBps);
    if (what == LS_COLLECTIVE_REDUCE_SCATTER)
        return half_us(node, ranks, bytes, LS_NODE_REDUCE_SCATTER, figures->reduce_scatter_GBps);
    return all_reduce_us(node, ranks, what == LS_COLLECTIVE_ALL_REDUCE, bytes);
}

double ls_cost_hierarchical_us(const ls_node *node, const ls_node *across, int ranks, double bytes) {
    int own = ls_node_device_count(node);
    return ls_cost_collective_us(node, LS_COLLECTIVE_REDUCE_SCATTER, own, bytes) +
           ls_cost_collective_us(across, LS_COLLECTIVE_ALL_REDUCE, ranks / own, bytes / own) +
           ls_cost_collective_us(node, LS_COLLECTIVE_ALL_GATHER, own, bytes);
}
