/* all_reduce "naive" — the parameter server: rank 0 reduces all ranks' buffers into its own, then all ranks copy the
 * result.
 *   terms : W = world size, n = bytes of the buffer
 *   cost  : 2 steps. Rank 0 reads (W - 1) n and is read (W - 1) n times, serially in shared memory; the others idle
 *           meanwhile. Time about 2 (W - 1) n / bandwidth, where direct needs 2 (W - 1) n / (W bandwidth)
 *   order : rank 0 + rank 1 + rank 2 + ..., element by element: as in a serial loop over the ranks. It is the reference
 *           for every other algorithm
 *   safe  : a rank overwrites its buffer after rank 0 has read it
 *   fails : a rank that misses a step is named by the ranks that wait for it; buffers are then undefined */
#include "common/comm/allreduce_steps.h"

ls_status ls_allreduce_naive(ls_exchange *x) {
    ls_comm *comm = x->comm;
    ls_range whole = {.begin = 0, .end = x->slice_count};
    int ranks[LS_COMM_MAX_RANKS];
    for (int r = 0; r < comm->world_size; r++) ranks[r] = r;
    if (comm->rank == 0) {
        ls_steps_reduce(x, whole, ranks, comm->world_size);
        ls_steps_sent(x, whole, comm->world_size - 1);
        ls_comm_step_done(comm, 1);
    } else {
        ls_steps_sent(x, whole, 1);
        ls_status status = ls_comm_await_step(comm, 0, 1, &x->operation->what);
        if (status != LS_OK) return status;
        ls_steps_copy(x, whole, 0);
    }
    ls_comm_steps_end(comm, 1);
    return LS_OK;
}

void ls_allreduce_naive_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,
                             size_t element_nbytes) {
    size_t links = rank > 0 ? 1 : (size_t)world_size - 1;
    cost->steps = world_size > 1 ? 2 : 0;
    cost->sent_messages = cost->received_messages = count > 0 ? links : 0;
    cost->sent_bytes = cost->received_bytes = links * count * element_nbytes;
}
