/* The all-reduce algorithms: one table that the command line, the tests and the benchmarks walk. A new algorithm is a
 * file with a `run` and a `cost` function and a row here. */
#ifndef LS_COMM_ALLREDUCE_H
#define LS_COMM_ALLREDUCE_H

#include <stddef.h>

#include "common/base/status.h"

struct ls_exchange;

/* What one rank moves in one all_reduce that goes through in one slice (buffers in shared memory, or threads). */
struct ls_allreduce_cost {
    /* Rounds of moving data in the whole group, one after the other: what latency multiplies. The meeting before the
     * first and the gate behind the last, which every algorithm has alike, come on top. */
    size_t steps;
    size_t sent_messages, sent_bytes, received_messages, received_bytes;
};

typedef struct ls_allreduce_algorithm {
    const char *name, *description;
    /* Reduces one slice (exchange.h says what a slice is and what must hold at the end). */
    ls_status (*run)(struct ls_exchange *exchange);
    /* Messages up to so many bytes travel with the meeting itself: `run` then finds exchange->one_round set, only
     * reads the views and writes the result to exchange->buffer. 0: never. */
    size_t one_round_bytes;
    /* The cost formula: exactly what ls_comm_traffic_read counts on `rank` for `count` elements in one slice. */
    void (*cost)(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count, size_t element_nbytes);
} ls_allreduce_algorithm;

/* Ends with a row whose name is NULL. */
extern const ls_allreduce_algorithm ls_allreduce_algorithms[];

/* The row that a group takes if none is named: the fastest in one machine's memory where up to two ranks share a core
 * (measured: allreduce_direct.c). */
#define LS_ALLREDUCE_AUTO "direct"

/* The row of that name, or NULL if there is none. */
const ls_allreduce_algorithm *ls_allreduce_find(const char *name);

/* "direct, ring, ..." of all rows. */
void ls_allreduce_names(char *text, size_t capacity);

/* Of hierarchical: LS_RANKS_PER_NODE of the environment, if it divides the ranks; else all are one node. */
int ls_ranks_per_node(int world_size);

/* X(name in C, name, one_round_bytes, description): the table's rows, each a file allreduce_<name in C>.c. */
#define LS_ALLREDUCE_MAP(X)                                                                                            \
    X(direct, "direct", LS_EAGER_BYTES, "each rank reduces its share in shared memory and writes it to all")           \
    X(ring, "ring", 0, "chunks go round from neighbour to neighbour, twice: 2 (W - 1) steps, the least bytes")         \
    X(halving_doubling, "halving-doubling", 0,                                                                         \
      "pairs swap halves, quarters, ... and back: few steps, and the least bytes if W is a power of two")              \
    X(hierarchical, "hierarchical", LS_EAGER_BYTES,                                                                    \
      "reduce-scatter in each node, all-reduce between nodes, all-gather in each: fewest bytes between nodes")         \
    X(tree, "tree", 0, "sums go up a binary tree, the result comes down, in segments")                                 \
    X(naive, "naive", 0, "rank 0 reduces all, then all copy (the reference)")

#define LS_ALLREDUCE_DECLARE(name, text, one_round, description)                                                       \
    ls_status ls_allreduce_##name(struct ls_exchange *exchange);                                                       \
    void ls_allreduce_##name##_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,            \
                                    size_t element_nbytes);
LS_ALLREDUCE_MAP(LS_ALLREDUCE_DECLARE)
#undef LS_ALLREDUCE_DECLARE

#endif
