/* pattern — the textbook's all-reduces by Hockney's model: a message of n bytes takes alpha + n / rate; a rank sends
 * its messages one after another, and different ranks send at the same time; summing n bytes takes n / gamma.
 *
 *     N ranks, n bytes       steps            time (beta = 1 / rate, gamma in time per byte)
 *     ring                   2 (N - 1)        2 (N - 1) alpha + 2 (N - 1) / N n beta + (N - 1) / N n gamma
 *     parameter server       2                2 (N - 1) (alpha + n beta) + (N - 1) n gamma, all of it on rank 0's link
 *     tree (binomial)        2 log2 N         log2 N (2 alpha + 2 n beta + n gamma), log2 rounded up
 *     halving-doubling       2 log2 P         2 log2 P alpha + 2 (P - 1) / P n beta + (P - 1) / P n gamma; P = N, or
 *                                             the largest power of two below it: then 2 steps more, which take
 *                                             2 alpha + 2 n beta + n gamma
 *     direct                 2                2 (N - 1) alpha + 2 (N - 1) / N n beta + (N - 1) / N n gamma
 *
 * Source: Thakur, Rabenseifner, Gropp 2005, https://doi.org/10.1177/1094342005051521. Ring and direct cost the same
 * here; they differ in the links that they use, which depends on the topology (ls_plan_messages on a node). */
#include "labs/replay/engine/cost.h"

#define LS_US_PER_G 1e-3

const char *ls_pattern_name(ls_pattern pattern) {
#define LS_PATTERN_NAME(name, text, description) [LS_PATTERN_##name] = text,
    static const char *const names[] = {LS_PATTERN_MAP(LS_PATTERN_NAME)};
#undef LS_PATTERN_NAME
    return pattern >= 0 && pattern < LS_PATTERN_COUNT ? names[pattern] : "unknown";
}

/* Time of that many consecutive messages with that many bytes in all, of which a part is summed. */
static double hockney_us(const ls_hockney *link, double messages, double bytes, double summed_bytes) {
    return messages * link->alpha_us + bytes / link->GBps * LS_US_PER_G + summed_bytes / link->gamma_GBps * LS_US_PER_G;
}

/* log2 of the largest power of two up to n. */
static int log2_floor(int n) {
    int levels = 0;
    while (n >> (levels + 1) > 0) levels++;
    return levels;
}

/* Each message, except the server's and those of halving-doubling's folding, is sent while its rank receives one, so
 * the time is that of the busiest sender. */
static struct ls_pattern_cost even(int steps, double messages, double bytes, double summed, const ls_hockney *link) {
    return (struct ls_pattern_cost){steps, messages, bytes, hockney_us(link, messages, bytes, summed)};
}

static struct ls_pattern_cost server_cost(int ranks, double bytes, const ls_hockney *link) {
    double others = ranks - 1.0;
    return (struct ls_pattern_cost){2, others, others * bytes,
                                    hockney_us(link, 2 * others, 2 * others * bytes, others * bytes)};
}

/* Up and down: rank 0 receives a whole message from each of its children, one in each round, and sends it back. */
static struct ls_pattern_cost tree_cost(int ranks, double bytes, const ls_hockney *link) {
    int levels = log2_floor(ranks) + (ranks > 1 << log2_floor(ranks));
    return (struct ls_pattern_cost){2 * levels, levels, levels * bytes,
                                    hockney_us(link, 2.0 * levels, 2.0 * levels * bytes, levels * bytes)};
}

static struct ls_pattern_cost halving_doubling_cost(int ranks, double bytes, const ls_hockney *link) {
    int levels = log2_floor(ranks), core = 1 << levels;
    double share = (core - 1.0) / core;
    struct ls_pattern_cost cost = even(2 * levels, 2.0 * levels, 2 * share * bytes, share * bytes, link);
    if (ranks > core) { /* rank i receives rank core + i's message first and sends it the result last */
        cost.steps += 2;
        cost.messages += 1;
        cost.bytes += bytes;
        cost.us += hockney_us(link, 2, 2 * bytes, bytes);
    }
    return cost;
}

struct ls_pattern_cost ls_cost_pattern(ls_pattern pattern, int ranks, double bytes, const ls_hockney *link) {
    struct ls_pattern_cost none = {0};
    if (ranks < 2) return none;
    double others = ranks - 1.0, share = others / ranks;
    switch (pattern) {
    case LS_PATTERN_RING: return even(2 * (ranks - 1), 2 * others, 2 * share * bytes, share * bytes, link);
    case LS_PATTERN_SERVER: return server_cost(ranks, bytes, link);
    case LS_PATTERN_TREE: return tree_cost(ranks, bytes, link);
    case LS_PATTERN_HALVING_DOUBLING: return halving_doubling_cost(ranks, bytes, link);
    case LS_PATTERN_DIRECT: return even(2, 2 * others, 2 * share * bytes, share * bytes, link);
    case LS_PATTERN_COUNT: break;
    }
    return none;
}
