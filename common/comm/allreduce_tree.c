/* all_reduce "tree" — sums are sent up a binary tree to rank 0, and the result down again, segment by segment.
 *   idea  : rank r's children are ranks 2 r + 1 and 2 r + 2. Going up, a rank adds its children's segments to its own as
 *           soon as both have them; going down, it takes its parent's. While a segment is at one level, the one before
 *           it is a level further: after the tree has filled, all levels work at the same time
 *   terms : W = world size, n = bytes of the message, D = floor(log2 W) levels below the root, S = segments of up to
 *           64 KiB
 *   cost  : 2 (D + S - 1) steps of a segment each; for a message of one segment 2 D, the fewest of all that use single
 *           ranks' links. An inner rank sends and receives 3 n (2 n from its children's sums or to them, n with its
 *           parent), the root 2 n, a leaf n. No memory besides the views
 *   order : a rank's own value, + its first child's sum, + its second child's; for W = 5
 *           (rank 0 + ((rank 1 + rank 3) + rank 4)) + rank 2. The same for every element, summed once and then copied:
 *           the same bits on all ranks. fp16 and bf16 round at every inner rank: up to D times
 *   safe  : going down, a rank overwrites a segment once its parent has that segment's result, for which the parent
 *           has read the rank's sum on the way up. The children read it once it is final. No rank writes to another
 *           rank's view
 *   fails : a rank that does not arrive is named by its parent or its children, whose report reaches all others;
 *           buffers are then undefined */
#include "common/comm/allreduce_steps.h"

#define LS_TREE_SEGMENT_BYTES ((size_t)64 << 10)

/* Fills in this rank and its children; returns the number of ranks. */
static int family_of(int rank, int world_size, int family[3]) {
    int count = 0;
    family[count++] = rank;
    for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < world_size; child++) family[count++] = child;
    return count;
}

static size_t segments_of(size_t count, size_t element_nbytes) {
    size_t segment_count = LS_TREE_SEGMENT_BYTES / element_nbytes;
    return (count + segment_count - 1) / segment_count;
}

static ls_range segment_at(const ls_exchange *x, uint32_t segment) {
    size_t segment_count = LS_TREE_SEGMENT_BYTES / x->element_nbytes, begin = segment * segment_count;
    size_t left = x->slice_count - begin;
    return (ls_range){.begin = begin, .end = begin + (left < segment_count ? left : segment_count)};
}

/* Step i + 1 brings segment i up. */
static ls_status go_up(ls_exchange *x, const int *family, int nfamily, uint32_t segments) {
    for (uint32_t i = 0; i < segments; i++) {
        for (int k = 1; k < nfamily; k++) {
            ls_status status = ls_comm_await_step(x->comm, family[k], i + 1, &x->operation->what);
            if (status != LS_OK) return status;
        }
        if (nfamily > 1) ls_steps_reduce(x, segment_at(x, i), family, nfamily);
        if (x->comm->rank > 0) ls_steps_sent(x, segment_at(x, i), 1);
        ls_comm_step_done(x->comm, i + 1);
    }
    return LS_OK;
}

/* Step segments + i + 1 brings segment i down. */
static ls_status go_down(ls_exchange *x, int nfamily, uint32_t segments) {
    int rank = x->comm->rank, parent = (rank - 1) / 2;
    for (uint32_t i = 0; i < segments; i++) {
        if (rank > 0) {
            ls_status status = ls_comm_await_step(x->comm, parent, segments + i + 1, &x->operation->what);
            if (status != LS_OK) return status;
            ls_steps_copy(x, segment_at(x, i), parent);
        }
        ls_steps_sent(x, segment_at(x, i), nfamily - 1);
        ls_comm_step_done(x->comm, segments + i + 1);
    }
    return LS_OK;
}

ls_status ls_allreduce_tree(ls_exchange *x) {
    int family[3], nfamily = family_of(x->comm->rank, x->comm->world_size, family);
    uint32_t segments = (uint32_t)segments_of(x->slice_count, x->element_nbytes);
    ls_status status = go_up(x, family, nfamily, segments);
    if (status == LS_OK) status = go_down(x, nfamily, segments);
    if (status == LS_OK) ls_comm_steps_end(x->comm, 2 * segments);
    return status;
}

void ls_allreduce_tree_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,
                            size_t element_nbytes) {
    int family[3];
    size_t links = (size_t)family_of(rank, world_size, family) - 1 + (rank > 0), depth = 0;
    size_t segments = segments_of(count, element_nbytes);
    while ((size_t)world_size >> (depth + 1) > 0) depth++;
    cost->steps = depth > 0 ? 2 * (depth + segments - 1) : 0;
    cost->sent_messages = cost->received_messages = links * segments;
    cost->sent_bytes = cost->received_bytes = links * count * element_nbytes;
}
