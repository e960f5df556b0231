/* all_reduce "direct" — each rank reduces its share of the elements straight from all ranks' buffers and writes the
 * result back to all of them: a reduce-scatter and an all-gather in one pass, with no copy and no second look at the
 * data.
 *   terms : W = world size, n = bytes of the buffer, share = n / W
 *   cost  : each rank reads W shares and writes W shares: 2 n in all, however many ranks there are, and all ranks work
 *           at the same time. Of that, (W - 1) shares each way go to other ranks, and as much is done by others on this
 *           rank's buffer: 2 n (W - 1) / W sent and received, as for a ring. 2 steps
 *           Small messages take one round: every rank reduces all W messages by itself, n (W - 1) sent and received, 1
 *           step
 *   order : rank 0 + rank 1 + rank 2 + ..., element by element: the same bits as naive, on all ranks
 *   fails : a rank that misses a step is named by all others; buffers are then undefined */
#include "common/comm/exchange.h"
#include "common/comm/reduce_kernels.h"

static void reduce_one_round(ls_exchange *x) {
    const ls_announcement *what = &x->operation->what;
    size_t nbytes = x->slice_count * x->element_nbytes, others = (size_t)x->comm->world_size - 1;
    ls_reduce_inputs(&x->buffer, 1, (const void *const *)x->view, x->comm->world_size, x->slice_count,
                     (ls_dtype)what->dtype, (ls_reduce_op)what->op);
    ls_comm_count_sent(x->comm, others, others * nbytes);
    ls_comm_count_received(x->comm, others, others * nbytes);
}

ls_status ls_allreduce_direct(ls_exchange *x) {
    if (x->one_round) {
        reduce_one_round(x);
        return LS_OK;
    }
    const ls_announcement *what = &x->operation->what;
    int world_size = x->comm->world_size;
    size_t first, count;
    ls_exchange_share(x, x->slice_count, x->comm->rank, &first, &count);
    void *shares[LS_COMM_MAX_RANKS];
    for (int r = 0; r < world_size; r++) shares[r] = x->view[r] + first * x->element_nbytes;
    ls_reduce_inputs(shares, world_size, (const void *const *)shares, world_size, count, (ls_dtype)what->dtype,
                     (ls_reduce_op)what->op);
    size_t nbytes = ((size_t)(world_size - 2) * count + x->slice_count) * x->element_nbytes;
    size_t messages = 2 * (size_t)(world_size - 1);
    ls_comm_count_sent(x->comm, messages, nbytes);
    ls_comm_count_received(x->comm, messages, nbytes);
    return LS_OK;
}
