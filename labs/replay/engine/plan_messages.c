/* plan_messages — all-reduces as sequences of messages.
 *   terms : a round is a set of concurrent messages. A rank sends on its comm stream, message after message; each of
 *           its messages waits for all that it has received in earlier rounds. At the end a task without bytes on each
 *           stream waits for all that the rank has received: after it the sum is complete
 *   cuts  : chunk k of K is bytes k B / K .. (k + 1) B / K, rounded down: pieces of almost equal size that add up to B
 *   cost  : messages; summing takes no time
 *   order : of messages, not of numbers. For their number and bytes see ls_cost_pattern (cost.h) */
#include "labs/replay/engine/plan.h"

enum { MAX = LS_NODE_MAX_DEVICES };

struct network {
    ls_trace *trace;
    const int *lanes;
    int count, step;
    uint64_t bytes;
    const char *name;
    /* messages of the round in progress */
    int sent_count;
    struct {
        int to, task;
    } sent[MAX * MAX];
    /* of each rank: messages received in earlier rounds, for which it has not waited yet */
    int arrived[MAX][MAX], arrived_count[MAX];
};

static uint64_t cut(const struct network *n, int chunk, int chunks) {
    uint64_t whole = n->bytes / (uint64_t)chunks, rest = n->bytes % (uint64_t)chunks;
    return whole * (uint64_t)chunk + rest * (uint64_t)chunk / (uint64_t)chunks;
}

static uint64_t range_bytes(const struct network *n, int first, int end, int chunks) {
    return cut(n, end, chunks) - cut(n, first, chunks);
}

/* A task of a rank's stream after all messages that it has received. */
static int add(struct network *n, int from, int to, uint64_t bytes) {
    struct ls_task task = ls_task_default(LS_TASK_COPY, n->name, n->lanes[from]);
    task.phase = "all-reduce";
    task.step = n->step;
    task.bytes = bytes;
    task.from = from;
    task.to = to;
    if (from == to) task.us = 0;
    int index = ls_trace_add_task(n->trace, &task);
    for (int i = 0; i < n->arrived_count[from]; i++) ls_trace_add_edge(n->trace, n->arrived[from][i], index);
    n->arrived_count[from] = 0;
    return index;
}

static void send(struct network *n, int from, int to, uint64_t bytes) {
    n->sent[n->sent_count].task = add(n, from, to, bytes);
    n->sent[n->sent_count++].to = to;
}

static void end_round(struct network *n) {
    for (int i = 0; i < n->sent_count; i++) {
        int to = n->sent[i].to;
        n->arrived[to][n->arrived_count[to]++] = n->sent[i].task;
    }
    n->sent_count = 0;
}

/* In round s rank r forwards chunk r - s; after N - 1 rounds each rank has one complete sum, which N - 1 further rounds
 * distribute. */
static void ring(struct network *n) {
    int ranks = n->count;
    for (int s = 0; s < 2 * (ranks - 1); s++) {
        for (int r = 0; r < ranks; r++) {
            int chunk = (r - s + 2 * ranks) % ranks;
            send(n, r, (r + 1) % ranks, range_bytes(n, chunk, chunk + 1, ranks));
        }
        end_round(n);
    }
}

static void server(struct network *n) {
    for (int r = 1; r < n->count; r++) send(n, r, 0, n->bytes);
    end_round(n);
    for (int r = 1; r < n->count; r++) send(n, 0, r, n->bytes);
    end_round(n);
}

/* Rank r is the child of r - d, where d is its lowest bit. */
static void tree(struct network *n) {
    int d = 1;
    for (; d < n->count; d *= 2) {
        for (int r = d; r < n->count; r += 2 * d) send(n, r, r - d, n->bytes);
        end_round(n);
    }
    for (d /= 2; d >= 1; d /= 2) {
        for (int r = d; r < n->count; r += 2 * d) send(n, r - d, r, n->bytes);
        end_round(n);
    }
}

/* Ranks r and r ^ d send each other the group of d chunks that the other keeps (halving), or their own (doubling). */
static void swap(struct network *n, int core, int d, bool halving) {
    for (int r = 0; r < core; r++) {
        int first = (halving ? r ^ d : r) / d * d;
        send(n, r, r ^ d, range_bytes(n, first, first + d, core));
    }
    end_round(n);
}

/* Ranks from the largest power of two on send their message before, and receive the result after. */
static void halving_doubling(struct network *n) {
    int core = 1;
    while (2 * core <= n->count) core *= 2;
    for (int extra = core; extra < n->count; extra++) send(n, extra, extra - core, n->bytes);
    end_round(n);
    for (int d = core / 2; d >= 1; d /= 2) swap(n, core, d, true);
    for (int d = 1; d < core; d *= 2) swap(n, core, d, false);
    for (int extra = core; extra < n->count; extra++) send(n, extra - core, extra, n->bytes);
    end_round(n);
}

/* All ranks send share s to rank s, which sends its sum to all; each begins with the next rank. */
static void direct(struct network *n) {
    for (int back = 0; back < 2; back++) {
        for (int k = 1; k < n->count; k++) {
            for (int r = 0; r < n->count; r++) {
                int to = (r + k) % n->count, share = back ? r : to;
                send(n, r, to, range_bytes(n, share, share + 1, n->count));
            }
        }
        end_round(n);
    }
}

void ls_plan_messages(ls_trace *trace, ls_pattern pattern, const int *lanes, int *tasks, int count, double bytes,
                      int step) {
    static void (*const patterns[])(struct network * n) = {[LS_PATTERN_RING] = ring,
                                                           [LS_PATTERN_SERVER] = server,
                                                           [LS_PATTERN_TREE] = tree,
                                                           [LS_PATTERN_HALVING_DOUBLING] = halving_doubling,
                                                           [LS_PATTERN_DIRECT] = direct};
    if (count < 2 || count > MAX) return;
    struct network n = {.trace = trace,
                        .lanes = lanes,
                        .count = count,
                        .step = step,
                        .bytes = (uint64_t)(bytes + 0.5),
                        .name = ls_trace_text(trace, ls_pattern_name(pattern))};
    for (int r = 0; r < count; r++) {
        if (tasks[r] != LS_NONE) n.arrived[r][n.arrived_count[r]++] = tasks[r];
    }
    patterns[pattern](&n);
    for (int r = 0; r < count; r++) tasks[r] = add(&n, r, r, 0);
}
