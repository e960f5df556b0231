/* all_reduce "halving-doubling" — Rabenseifner's algorithm: a reduce-scatter by recursive halving, then an all-gather
 * by recursive doubling.
 *   idea  : P is the largest power of two up to W; the ranks from P on are extra. The message is cut into P chunks.
 *             fold in   rank i < W - P adds the whole message of rank P + i to its own
 *             halving   for d = P/2, P/4, ..., 1: ranks r and r ^ d, which hold partial sums of the same 2 d chunks,
 *                       share them: each adds the other's values to the half that it keeps. At the end rank r holds the
 *                       sum of chunk r
 *             doubling  for d = 1, 2, ..., P/2: each takes the d chunks that the other has
 *             fold out  rank P + i takes the result from rank i
 *   terms : W = world size, n = bytes of the message, chunk = n / P, cut at cache lines (share.h); chunks at the end may
 *           be short or empty
 *   cost  : 2 log2 P steps; about 2 n (P - 1) / P sent and received: as few bytes as the ring in far fewer steps, but
 *           half of them go to the most distant rank. With extra ranks 2 steps more, which cost those and their
 *           partners n each way and leave the others waiting. No memory besides the views
 *   order : ranks P apart, then P/2 apart, and so on to neighbours; for W = 7
 *           ((rank 0 + rank 4) + (rank 2 + rank 6)) + ((rank 1 + rank 5) + rank 3). The same for every element, wherever
 *           it lies, summed once and then copied: the same bits on all ranks. fp16 and bf16 round once per level: up to
 *           log2 P + 1 times
 *   safe  : in the halving, rank r writes to the half that it keeps, and only rank r ^ d reads its other half. In
 *           the doubling rank r overwrites that half after it has seen rank r ^ d behind the step in which it read
 *           it. A rank's own chunks are read by others only once they are final. An extra rank overwrites its view
 *           after its partner's last step. No rank writes to another rank's view
 *   fails : a rank that does not arrive is named by the partner that waits for it, whose report reaches all others;
 *           buffers are then undefined */
#include "common/comm/allreduce_steps.h"

/* The largest power of two that is at most the world size. */
static int core_of(int world_size) {
    int core = 1;
    while (2 * core <= world_size) core *= 2;
    return core;
}

/* The d chunks, out of `core`, of the group of d ranks that this rank belongs to. */
static ls_range group_of(size_t count, size_t element_nbytes, int core, int rank, int d) {
    int first = rank / d * d;
    return ls_share(count, element_nbytes, core, first, first + d);
}

static ls_range whole(const ls_exchange *x) { return (ls_range){.begin = 0, .end = x->slice_count}; }

/* The reduction of this rank's range and the peer's, the lower rank first. */
static void reduce_pair(ls_exchange *x, ls_range range, int peer) {
    int rank = x->comm->rank;
    const int both[] = {rank < peer ? rank : peer, rank < peer ? peer : rank};
    ls_steps_reduce(x, range, both, 2);
}

/* A step with rank r ^ d: this rank takes its own group's half of their chunks (halving) or the other's (doubling). */
static ls_status swap_halves(ls_exchange *x, int core, int d, bool halving, uint32_t step) {
    int rank = x->comm->rank, peer = rank ^ d;
    ls_range own = group_of(x->slice_count, x->element_nbytes, core, rank, d);
    ls_range other = group_of(x->slice_count, x->element_nbytes, core, peer, d);
    ls_status status = ls_comm_await_step(x->comm, peer, step - 1, &x->operation->what);
    if (status != LS_OK) return status;
    if (halving) reduce_pair(x, own, peer);
    if (!halving) ls_steps_copy(x, other, peer);
    ls_steps_sent(x, halving ? other : own, 1);
    ls_comm_step_done(x->comm, step);
    return LS_OK;
}

/* Takes the result of step `last` from the partner. */
static ls_status run_extra(ls_exchange *x, int partner, uint32_t last) {
    ls_steps_sent(x, whole(x), 1);
    ls_status status = ls_comm_await_step(x->comm, partner, last, &x->operation->what);
    if (status == LS_OK) ls_steps_copy(x, whole(x), partner);
    return status;
}

static ls_status run_core(ls_exchange *x, int core) {
    int rank = x->comm->rank;
    bool has_extra = rank + core < x->comm->world_size;
    ls_status status = LS_OK;
    uint32_t step = 1;
    if (has_extra) reduce_pair(x, whole(x), rank + core);
    ls_comm_step_done(x->comm, step);
    for (int d = core / 2; d >= 1 && status == LS_OK; d /= 2) status = swap_halves(x, core, d, true, ++step);
    for (int d = 1; d < core && status == LS_OK; d *= 2) status = swap_halves(x, core, d, false, ++step);
    if (has_extra) ls_steps_sent(x, whole(x), 1);
    return status;
}

/* Step 1 is the fold, even if there is nothing to fold. */
static uint32_t last_step(int core) {
    uint32_t steps = 1;
    for (int d = 1; d < core; d *= 2) steps += 2;
    return steps;
}

ls_status ls_allreduce_halving_doubling(ls_exchange *x) {
    int core = core_of(x->comm->world_size), rank = x->comm->rank;
    ls_status status = rank < core ? run_core(x, core) : run_extra(x, rank - core, last_step(core));
    if (status == LS_OK) ls_comm_steps_end(x->comm, last_step(core));
    return status;
}

void ls_allreduce_halving_doubling_cost(struct ls_allreduce_cost *cost, int world_size, int rank, size_t count,
                                        size_t element_nbytes) {
    int core = core_of(world_size);
    bool folds = rank >= core || rank + core < world_size;
    size_t messages = folds && count > 0, moved = folds ? count : 0;
    for (int d = 1; d < core && rank < core; d *= 2) { /* one half in the halving, the other in the doubling */
        size_t own = ls_range_count(group_of(count, element_nbytes, core, rank, d));
        size_t other = ls_range_count(group_of(count, element_nbytes, core, rank ^ d, d));
        messages += (own > 0) + (other > 0);
        moved += own + other;
    }
    cost->steps = last_step(core) - 1 + (world_size > core ? 2 : 0);
    cost->sent_messages = cost->received_messages = messages;
    cost->sent_bytes = cost->received_bytes = moved * element_nbytes;
}
