/* all_reduce "direct" — each rank reduces its share of the elements straight from all ranks' buffers and writes the
 * result back to all of them: a reduce-scatter and an all-gather in one pass, with no copy and no second pass over the
 * data.
 *   terms : W = world size, n = bytes of the buffer, share = n / W, cut at cache lines (share.h); shares at the end may
 *           be short or empty
 *   cost  : 1 step, in which each rank reads W shares and writes W shares: 2 n in all, however many ranks there are,
 *           and all ranks work at the same time. Of that, (W - 1) shares each way go to other ranks, and the others
 *           read and write as much of this rank's buffer: about 2 n (W - 1) / W sent and received, as for a ring
 *           Small messages take one round: every rank reduces all W messages by itself, n (W - 1) sent and received,
 *           in 1 step: the arrival itself, without a gate after it
 *   auto  : without --allreduce a group runs this one: no other has fewer steps, or fewer bytes at its busiest rank. Measured with
 *           bench_comm on a busy 2-core AMD EPYC, 25 November 2026: sums of fp32, processes and threads, N = 2, 4, 8, 16,
 *           8 B to 64 MiB, 9 to 99 runs in each of 92 cells, against `direct` in the same run. Median cell: ring 2.7
 *           times as long, halving-doubling 2.3, tree 2.0, naive 1.7; `direct` against itself 1.0, in 9 cells of 10
 *           0.84 to 1.16. Only naive came below 1.05, at 8 to 128 KiB where 4 or 8 ranks share a core (least: 0.86)
 *   order : rank 0 + rank 1 + rank 2 + ..., element by element: the same bits as naive, on all ranks
 *   safe  : a share is read and written by one rank only
 *   fails : a rank that misses a step is named by all others; buffers are then undefined */
#include "common/comm/exchange.h"
#include "common/comm/reduce_kernels.h"
#include "common/comm/share.h"

/* As many bytes as are sent for the others' shares return as their results, and likewise for the own share. */
static struct ls_allreduce_cost moved(bool one_round, int world_size, int rank, size_t count, size_t element_nbytes) {
    size_t others = (size_t)world_size - 1, messages = count > 0 ? others : 0, elements = others * count;
    if (!one_round) {
        size_t share = ls_range_count(ls_share(count, element_nbytes, world_size, rank, rank + 1));
        messages = ls_shares_used(count, element_nbytes, world_size) - (share > 0) + (share > 0 ? others : 0);
        elements = count - share + others * share;
    }
    return (struct ls_allreduce_cost){.steps = world_size > 1 ? 1 : 0,
                                      .sent_messages = messages,
                                      .sent_bytes = elements * element_nbytes,
                                      .received_messages = messages,
                                      .received_bytes = elements * element_nbytes};
}

/* Reduces either all messages into this rank's own buffer, or its share of all views into all of them. */
ls_status ls_allreduce_direct(ls_exchange *x) {
    ls_comm *comm = x->comm;
    const ls_announcement *what = &x->operation->what;
    int world_size = comm->world_size;
    ls_range share = {.begin = 0, .end = x->slice_count};
    if (!x->one_round) share = ls_share(x->slice_count, x->element_nbytes, world_size, comm->rank, comm->rank + 1);
    void *views[LS_COMM_MAX_RANKS];
    for (int r = 0; r < world_size; r++) views[r] = x->view[r] + share.begin * x->element_nbytes;
    ls_reduce_inputs(x->one_round ? &x->buffer : views, x->one_round ? 1 : world_size, (const void *const *)views,
                     world_size, ls_range_count(share), (ls_dtype)what->dtype, (ls_reduce_op)what->op);
    struct ls_allreduce_cost cost = moved(x->one_round, world_size, comm->rank, x->slice_count, x->element_nbytes);
    ls_comm_count_sent(comm, cost.sent_messages, cost.sent_bytes);
    ls_comm_count_received(comm, cost.received_messages, cost.received_bytes);
    return LS_OK;
}

void ls_allreduce_direct_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,
                              size_t element_nbytes) {
    *cost = moved(count * element_nbytes <= LS_EAGER_BYTES, world_size, rank, count, element_nbytes);
}
