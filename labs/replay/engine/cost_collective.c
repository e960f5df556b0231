/* cost_collective — what collective operations cost on a node (cost.h says by which rules).
 *   why a table : one latency and one rate do not describe an all-reduce. On eight H200s a line through its ends is up
 *                 to 40 % too fast between 1 and 32 MiB, since protocols and algorithms change on the way. Times over
 *                 bytes are close to straight lines in logarithms between measured points a factor of four apart
 *   formula     : a ring. 2 (W - 1) steps, each a hop and a chunk of 1/W; over several nodes, the ring enters each of
 *                 them once in each of its two turns */
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

/* The rows of the table with so many ranks; NULL: there are none. */
static const struct ls_node_measured *find_rows(const struct ls_node_collectives *figures, int ranks, int *count) {
    int first = 0, end;
    while (first < figures->table_count && figures->table[first].ranks != ranks) first++;
    for (end = first; end < figures->table_count && figures->table[end].ranks == ranks;) end++;
    *count = end - first;
    return *count > 0 ? &figures->table[first] : NULL;
}

/* `turns`: how often the ring is gone round; `crossed_bytes`: what each link carries. */
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

double ls_cost_collective_us(const ls_node *node, ls_collective what, int ranks, double bytes) {
    int count;
    if (ranks < 2) return 0;
    bool both_ways = what == LS_COLLECTIVE_ALL_REDUCE;
    double factor = 2 * (ranks - 1.0) / ranks; /* of an all-reduce's bytes, what each link carries */
    const struct ls_node_measured *rows = find_rows(ls_node_collectives(node), ranks, &count);
    if (rows) return interpolate_us(rows, count, both_ways ? bytes : bytes / factor);
    return formula_us(node, ranks, both_ways ? 2 : 1, both_ways ? bytes * factor : bytes);
}
