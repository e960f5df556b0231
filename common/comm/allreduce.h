/* The all-reduce algorithms, in one table that the command line, the tests and the benchmarks iterate over. To add an
 * algorithm, add a file with a `run` and a `cost` function, and a row here. */
#ifndef LS_COMM_ALLREDUCE_H
#define LS_COMM_ALLREDUCE_H

#include <stddef.h>

#include "common/base/status.h"

struct ls_exchange;

/* The data that one rank moves in one all_reduce of a single slice (buffers in shared memory, or threads). */
struct ls_allreduce_cost {
    /* Sequential rounds of data movement in the whole group, each of which costs one latency. Not counted: the barrier
     * before the first and the one after the last, which every algorithm has. */
    size_t steps;
    size_t sent_messages, sent_bytes, received_messages, received_bytes;
};

typedef struct ls_allreduce_algorithm {
    const char *name, *description;
    /* Reduces one slice (exchange.h says what a slice is and what must hold at the end). */
    ls_status (*run)(struct ls_exchange *exchange);
    /* Messages of at most so many bytes are sent with the first barrier itself: exchange->one_round is then set, and
     * `run` only reads the views and writes the result to exchange->buffer. 0: never. */
    size_t one_round_bytes;
    /* The cost formula: exactly what ls_comm_traffic_read counts on `rank` for `count` elements in one slice. */
    void (*cost)(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count, size_t element_nbytes);
} ls_allreduce_algorithm;

/* Ends with a row whose name is NULL. */
extern const ls_allreduce_algorithm ls_allreduce_algorithms[];

/* The default algorithm: the fastest in one machine's memory with up to two ranks per core (measured:
 * allreduce_direct.c). */
#define LS_ALLREDUCE_AUTO "direct"

/* The row of that name, or NULL if there is none. */
const ls_allreduce_algorithm *ls_allreduce_find(const char *name);

/* "direct, ring, ..." of all rows. */
void ls_allreduce_names(char *text, size_t capacity);

/* For hierarchical: LS_RANKS_PER_NODE of the environment if it divides the world size, else the world size (one
 * node). */
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
