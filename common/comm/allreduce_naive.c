/* all_reduce "naive" — the parameter server: rank 0 reduces everybody's buffer into its own, then everybody copies it.
 *   terms : W = world size, n = bytes of the buffer
 *   cost  : rank 0 reads (W - 1) n and is read (W - 1) n times, one after the other where the memory is one; the others
 *           idle meanwhile. Time about 2 (W - 1) n / bandwidth, where direct needs 2 (W - 1) n / (W bandwidth). 3 steps
 *   order : rank 0 + rank 1 + rank 2 + ..., element by element: what a serial loop over the ranks does. It is the
 *           reference for every other algorithm
 *   fails : a rank that misses a step is named by all others; buffers are then undefined */
#include <string.h>

#include "common/comm/exchange.h"
#include "common/comm/reduce_kernels.h"

ls_status ls_allreduce_naive(ls_exchange *x) {
    ls_comm *comm = x->comm;
    const ls_announcement *what = &x->operation->what;
    size_t nbytes = x->slice_count * x->element_nbytes, others = (size_t)comm->world_size - 1;
    if (comm->rank == 0) {
        void *sum = x->view[0];
        ls_reduce_inputs(&sum, 1, (const void *const *)x->view, comm->world_size, x->slice_count, (ls_dtype)what->dtype,
                         (ls_reduce_op)what->op);
        ls_comm_count_sent(comm, others, others * nbytes);
        ls_comm_count_received(comm, others, others * nbytes);
    }
    ls_status status = ls_comm_gate(comm, LS_CHANNEL_STREAM, what);
    if (status != LS_OK || comm->rank == 0) return status;
    memcpy(x->view[comm->rank], x->view[0], nbytes);
    ls_comm_count_sent(comm, 1, nbytes);
    ls_comm_count_received(comm, 1, nbytes);
    return LS_OK;
}
