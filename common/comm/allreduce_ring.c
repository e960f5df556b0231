/* all_reduce "ring" — a reduce-scatter and an all-gather around the ring 0 -> 1 -> ... -> W - 1 -> 0.
 *   idea  : the message is cut into W chunks. In step s = 1 .. 2 (W - 1), rank r takes chunk (r - s) mod W from rank
 *           r - 1. In the first W - 1 steps it adds its own; then rank r holds the sum of chunk r + 1, and in the other
 *           W - 1 steps the sums are passed around unchanged
 *   terms : W = world size, n = bytes of the message, chunk = n / W, cut at cache lines (share.h); chunks at the end may
 *           be short or empty. Slice, view: exchange.h. "Sent" are the data that the right neighbour reads from this
 *           rank's view
 *   cost  : 2 (W - 1) steps of a chunk each; about 2 n (W - 1) / W sent and received: no algorithm that sums in the
 *           ranks themselves moves less. Rank r sends every chunk twice, but r + 1 and r + 2 only once, and receives
 *           every chunk twice, but r and r + 1 only once. No memory besides the views. Each rank communicates only with
 *           its neighbours, which suits links between devices; on one memory, direct does the same work in one step
 *   order : chunk c is ((rank c + rank c + 1) + rank c + 2) + ... + rank c - 1, summed once and then copied: the same
 *           bits on all ranks. The order depends on the chunk, so a sum may differ in its last bits between a message in
 *           one slice and the same message in several (exchange.h). fp16 and bf16 round W - 1 times, once in each step that adds
 *   safe  : rank r writes its partial sum of a chunk in step s - 1, rank r + 1 reads it in step s, and rank r
 *           overwrites it with the result in step s + W - 1. Before that, rank r has waited for step s + W - 2 of
 *           rank r - 1, which had waited for step s + W - 3 of rank r - 2, and so on around the ring to step s of
 *           rank r + 1. No rank writes to another rank's view
 *   fails : a rank that does not arrive is named by its right neighbour, whose report reaches all others; buffers
 *           are then undefined */
#include "common/comm/allreduce_steps.h"

static ls_range chunk_at(const ls_exchange *x, int place) {
    int world_size = x->comm->world_size, chunk = (place % world_size + world_size) % world_size;
    return ls_share(x->slice_count, x->element_nbytes, world_size, chunk, chunk + 1);
}

ls_status ls_allreduce_ring(ls_exchange *x) {
    ls_comm *comm = x->comm;
    int world_size = comm->world_size, rank = comm->rank, left = (rank + world_size - 1) % world_size;
    const int both[] = {left, rank};
    int steps = 2 * (world_size - 1);
    for (int step = 1; step <= steps; step++) {
        ls_status status = ls_comm_await_step(comm, left, (uint32_t)step - 1, &x->operation->what);
        if (status != LS_OK) return status;
        if (step < world_size) ls_steps_reduce(x, chunk_at(x, rank - step), both, 2);
        if (step >= world_size) ls_steps_copy(x, chunk_at(x, rank - step), left);
        ls_steps_sent(x, chunk_at(x, rank + 1 - step), 1);
        ls_comm_step_done(comm, (uint32_t)step);
    }
    ls_comm_steps_end(comm, (uint32_t)steps);
    return LS_OK;
}

/* All chunks twice, but for these two. */
static void all_but(size_t *messages, size_t *nbytes, int world_size, int first, int second, size_t count,
                    size_t element_nbytes) {
    const int omitted[] = {first % world_size, second % world_size};
    *messages = 2 * ls_shares_used(count, element_nbytes, world_size);
    *nbytes = 2 * count * element_nbytes;
    for (int i = 0; i < 2; i++) {
        size_t chunk = ls_range_count(ls_share(count, element_nbytes, world_size, omitted[i], omitted[i] + 1));
        *messages -= chunk > 0;
        *nbytes -= chunk * element_nbytes;
    }
}

void ls_allreduce_ring_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,
                            size_t element_nbytes) {
    cost->steps = 2 * ((size_t)world_size - 1);
    all_but(&cost->sent_messages, &cost->sent_bytes, world_size, rank + 1, rank + 2, count, element_nbytes);
    all_but(&cost->received_messages, &cost->received_bytes, world_size, rank, rank + 1, count, element_nbytes);
}
