/* order — a race detector for algorithms that consist of steps (common/comm/allreduce_steps.h).
 *   idea  : the probe is linked with --wrap, so that the student's calls are recorded here, rank by rank. Afterwards
 *           the recorded calls are simulated with vector clocks: a rank's clock counts its own calls, and awaiting a
 *           peer's step merges the clock that the peer had when it completed the step. A read and a write of one
 *           element by two ranks are ordered if one of them was in the clock of the other's rank when the other took
 *           place
 *   why   : a missing wait gives the right sum on most runs. Here it shows in every run, since the check is not which
 *           access came first but which one had to
 *   cost  : calls x writes of a rank: a few thousand comparisons
 *   fails : accesses other than by ls_steps_reduce and ls_steps_copy are not seen; `reads` counts those that are */
#include "labs/03-allreduce/order.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/comm/allreduce_steps.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

enum { MOST_RANKS = 16, MOST_CALLS = 256 };

struct call {
    enum { CALL_AWAIT, CALL_DONE, CALL_TAKE } kind;
    int peer;      /* AWAIT, TAKE; -1: it takes from itself only */
    uint32_t step; /* AWAIT, DONE */
    ls_range range;
    int clock[MOST_RANKS]; /* the rank's clock, set by the check */
};

static struct {
    struct call call[MOST_CALLS];
    int count, judged;
} ranks[MOST_RANKS];

/* The wait that is made to fail, and how much the rank reads from others afterwards. */
static struct {
    int rank;
    uint32_t step;
    ls_status failure;
    bool failed;
    size_t taken;
} lost = {.rank = -1};

static void note(const ls_comm *comm, struct call call) {
    if (comm->rank < MOST_RANKS && ranks[comm->rank].count < MOST_CALLS)
        ranks[comm->rank].call[ranks[comm->rank].count++] = call;
    if (comm->rank == lost.rank && lost.failed && call.kind == CALL_TAKE) lost.taken += ls_range_count(call.range);
}

/* --- in place of the product's functions (--wrap) ------------------------------------------------------------------ */

void __real_ls_steps_reduce(ls_exchange *x, ls_range range, const int *from, int count);
void __real_ls_steps_copy(ls_exchange *x, ls_range range, int peer);
ls_status __real_ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what);
void __real_ls_comm_step_done(ls_comm *comm, uint32_t step);
void __wrap_ls_steps_reduce(ls_exchange *x, ls_range range, const int *from, int count);
void __wrap_ls_steps_copy(ls_exchange *x, ls_range range, int peer);
ls_status __wrap_ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what);
void __wrap_ls_comm_step_done(ls_comm *comm, uint32_t step);

void __wrap_ls_steps_reduce(ls_exchange *x, ls_range range, const int *from, int count) {
    for (int i = 0; i < count; i++)
        if (from[i] != x->comm->rank) note(x->comm, (struct call){.kind = CALL_TAKE, .peer = from[i], .range = range});
    __real_ls_steps_reduce(x, range, from, count);
}

void __wrap_ls_steps_copy(ls_exchange *x, ls_range range, int peer) {
    note(x->comm, (struct call){.kind = CALL_TAKE, .peer = peer, .range = range});
    __real_ls_steps_copy(x, range, peer);
}

ls_status __wrap_ls_comm_await_step(ls_comm *comm, int peer, uint32_t step, const ls_announcement *what) {
    note(comm, (struct call){.kind = CALL_AWAIT, .peer = peer, .step = step});
    if (comm->rank == lost.rank && step == lost.step && !lost.failed) {
        lost.failed = true;
        ls_comm_abort(comm, "the probe breaks this group"); /* so that the others do not wait for their deadline */
        return lost.failure;
    }
    return __real_ls_comm_await_step(comm, peer, step, what);
}

void __wrap_ls_comm_step_done(ls_comm *comm, uint32_t step) {
    note(comm, (struct call){.kind = CALL_DONE, .step = step});
    __real_ls_comm_step_done(comm, step);
}

/* --- simulation ---------------------------------------------------------------------------------------------------- */

void order_begin(void) {
    memset(ranks, 0, sizeof ranks);
    lost.rank = -1;
    lost.failed = false;
    lost.taken = 0;
}

void order_lose(int rank, uint32_t step, ls_status failure) {
    lost.rank = rank;
    lost.step = step;
    lost.failure = failure;
}

size_t order_taken_after_loss(void) { return lost.taken; }

/* The simulated call by which the peer completed the step; NULL: not yet. Step 0 is the initial barrier. */
static const struct call *find_done(int peer, uint32_t step) {
    for (int i = 0; i < ranks[peer].judged; i++) {
        const struct call *call = &ranks[peer].call[i];
        if (call->kind == CALL_DONE && call->step >= step) return call;
    }
    return NULL;
}

/* False: it has to wait for a peer that has not completed the step. */
static bool judge_call(int rank, struct call *call, int world_size) {
    int at = ranks[rank].judged;
    const struct call *before = at > 0 ? call - 1 : NULL, *done = NULL;
    if (call->kind == CALL_AWAIT && call->step > 0 && call->peer >= 0 && call->peer < world_size) {
        done = find_done(call->peer, call->step);
        if (!done) return false;
    }
    for (int r = 0; r < world_size; r++) {
        int known = before ? before->clock[r] : 0;
        call->clock[r] = done && done->clock[r] > known ? done->clock[r] : known;
    }
    call->clock[rank] = at + 1;
    ranks[rank].judged++;
    return true;
}

static void judge_clocks(int world_size) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < world_size; r++)
            while (ranks[r].judged < ranks[r].count && judge_call(r, &ranks[r].call[ranks[r].judged], world_size))
                moved = true;
    }
}

static bool overlap(ls_range a, ls_range b) { return a.begin < b.end && b.begin < a.end; }

/* Every read from a peer writes the same range in the reader's own buffer. */
static bool is_ordered(int reader, const struct call *read) {
    for (int i = 0; i < ranks[read->peer].count; i++) {
        const struct call *write = &ranks[read->peer].call[i];
        if (write->kind != CALL_TAKE || !overlap(write->range, read->range)) continue;
        bool write_first = read->clock[read->peer] >= i + 1;
        bool read_first = write->clock[reader] >= read->clock[reader];
        if (!write_first && !read_first) return false;
    }
    return true;
}

const char *order_judge(char *text, size_t capacity, int world_size, size_t *reads) {
    *reads = 0;
    snprintf(text, capacity, "every read is ordered");
    judge_clocks(world_size);
    bool found = false;
    for (int r = 0; r < world_size; r++) {
        for (int i = 0; i < ranks[r].count; i++) {
            const struct call *call = &ranks[r].call[i];
            if (call->kind != CALL_TAKE || call->peer < 0 || call->peer >= world_size) continue;
            *reads += ls_range_count(call->range);
            if (found || is_ordered(r, call)) continue;
            found = true;
            snprintf(text, capacity,
                     "rank %d takes elements %zu to %zu from rank %d, which may write there at the same time", r,
                     call->range.begin, call->range.end, call->peer);
        }
    }
    return text;
}
