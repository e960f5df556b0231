/* all_reduce "hierarchical" — in two levels, for links between nodes that are slower than a node's memory: a
 * reduce-scatter inside the node, an all-reduce of each share across the nodes, an all-gather inside.
 *   terms : W = world size, m = ranks of a node (LS_RANKS_PER_NODE of the environment, or all), h = W / m nodes, n = bytes of
 *           the buffer, share = n / m, part = share / h, both cut at cache lines (share.h)
 *   cost  : 4 steps; 2 with one node, or one rank on each. Between nodes each rank sends and receives about
 *           2 share (h - 1) / h, so a node 2 n (h - 1) / h, as if it were one rank of a ring. Inside, each rank sends and
 *           receives 2 n (m - 1) / m. Small messages are sent as by direct
 *   hosts : over several hosts a group of each host's ranks runs this, as one node, and comm->across does the
 *           all-reduce across the nodes (mpi/mpi_operations.c)
 *   order : inside a node in the order of its ranks, then in the order of the nodes; all ranks get the same bits. fp16 and bf16
 *           are rounded once in the node and once between nodes
 *   safe  : a range of a view is written by its own rank only, after all ranks that read it have read it: those of the
 *           node before step 1, those of other nodes before their step 2
 *   fails : the ranks that wait for a rank that misses a step name it; buffers are then undefined */
#include <stdlib.h>

#include "common/comm/allreduce_steps.h"

int ls_ranks_per_node(int world_size) {
    const char *text = getenv("LS_RANKS_PER_NODE");
    int size = text ? atoi(text) : world_size;
    return size > 0 && world_size % size == 0 ? size : world_size;
}

/* The ranks of a node are first .. first + size - 1; `place` is this rank's index among them. */
struct place {
    int node, nodes, place, size;
    ls_range share;
};

static struct place place_of(int world_size, int size, int rank, size_t count, size_t element_nbytes) {
    struct place at = {.node = rank / size, .nodes = world_size / size, .place = rank % size, .size = size};
    at.share = ls_share(count, element_nbytes, size, at.place, at.place + 1);
    return at;
}

/* The part of the share that a node reduces for all. */
static ls_range part_of(const struct place *at, size_t element_nbytes, int node) {
    ls_range part = ls_share(ls_range_count(at->share), element_nbytes, at->nodes, node, node + 1);
    return (ls_range){.begin = at->share.begin + part.begin, .end = at->share.begin + part.end};
}

static ls_range share_of(const ls_exchange *x, const struct place *at, int place) {
    return ls_share(x->slice_count, x->element_nbytes, at->size, place, place + 1);
}

static void reduce_inside(ls_exchange *x, const struct place *at) {
    int ranks[LS_COMM_MAX_RANKS];
    for (int i = 0; i < at->size; i++) ranks[i] = at->node * at->size + i;
    ls_steps_reduce(x, at->share, ranks, at->size);
    for (int i = 0; i < at->size; i++)
        if (i != at->place) ls_steps_sent(x, share_of(x, at, i), 1);
    ls_comm_step_done(x->comm, 1);
}

static ls_status reduce_across(ls_exchange *x, const struct place *at) {
    int ranks[LS_COMM_MAX_RANKS];
    ls_status status = LS_OK;
    for (int h = 0; status == LS_OK && h < at->nodes; h++) {
        ranks[h] = h * at->size + at->place;
        if (h != at->node) status = ls_comm_await_step(x->comm, ranks[h], 1, &x->operation->what);
        if (h != at->node) ls_steps_sent(x, part_of(at, x->element_nbytes, h), 1);
    }
    if (status != LS_OK) return status;
    ls_range own = part_of(at, x->element_nbytes, at->node);
    ls_steps_reduce(x, own, ranks, at->nodes);
    ls_steps_sent(x, own, at->nodes - 1);
    ls_comm_step_done(x->comm, 2);
    for (int h = 0; status == LS_OK && h < at->nodes; h++) {
        if (h == at->node) continue;
        status = ls_comm_await_step(x->comm, ranks[h], 2, &x->operation->what);
        if (status == LS_OK) ls_steps_copy(x, part_of(at, x->element_nbytes, h), ranks[h]);
    }
    return status;
}

static ls_status gather_inside(ls_exchange *x, const struct place *at) {
    ls_status status = LS_OK;
    ls_steps_sent(x, at->share, at->size - 1);
    ls_comm_step_done(x->comm, 3);
    for (int i = 0; status == LS_OK && i < at->size; i++) {
        int peer = at->node * at->size + i;
        if (i == at->place) continue;
        status = ls_comm_await_step(x->comm, peer, 3, &x->operation->what);
        if (status == LS_OK) ls_steps_copy(x, share_of(x, at, i), peer);
    }
    return status;
}

ls_status ls_allreduce_hierarchical(ls_exchange *x) {
    ls_comm *comm = x->comm;
    if (x->one_round) return ls_allreduce_direct(x);
    struct place at = place_of(comm->world_size, comm->ranks_per_node, comm->rank, x->slice_count, x->element_nbytes);
    reduce_inside(x, &at);
    ls_status status = comm->across ? comm->across(x, at.share.begin, ls_range_count(at.share)) : LS_OK;
    if (status == LS_OK && at.nodes > 1) status = reduce_across(x, &at);
    if (status == LS_OK) status = gather_inside(x, &at);
    if (status == LS_OK) ls_comm_steps_end(comm, 3);
    return status;
}

/* Adds the data that this rank sends in a reduce-scatter and an all-gather with `peers` other ranks: `own` of the
 * `total` elements are this rank's share. */
static void add_level(struct ls_allreduce_cost *cost, int peers, int used, size_t total, size_t own,
                      size_t element_nbytes) {
    size_t others = (size_t)peers, messages = (size_t)used - (own > 0) + (own > 0 ? others : 0);
    cost->steps += peers > 0 ? 2 : 0;
    cost->sent_messages += messages;
    cost->sent_bytes += (total - own + others * own) * element_nbytes;
}

void ls_allreduce_hierarchical_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,
                                    size_t element_nbytes) {
    if (count * element_nbytes <= LS_EAGER_BYTES) {
        ls_allreduce_direct_cost(cost, world_size, rank, count, element_nbytes);
        return;
    }
    struct place at = place_of(world_size, ls_ranks_per_node(world_size), rank, count, element_nbytes);
    size_t share = ls_range_count(at.share), part = ls_range_count(part_of(&at, element_nbytes, at.node));
    *cost = (struct ls_allreduce_cost){0};
    add_level(cost, at.size - 1, (int)ls_shares_used(count, element_nbytes, at.size), count, share, element_nbytes);
    add_level(cost, at.nodes - 1, (int)ls_shares_used(share, element_nbytes, at.nodes), share, part, element_nbytes);
    cost->received_messages = cost->sent_messages; /* on each level a rank receives as much as it sends */
    cost->received_bytes = cost->sent_bytes;
}
