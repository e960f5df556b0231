/* nccl_watch — finds out that an operation will not end, and ends it.
 *   idea  : on the GPU a collective operation waits for its peers without a deadline, and NCCL on one machine does not
 *           notice that a process has died. So the threads that wait for the device ask here meanwhile
 *           (ls_device_watch): which operation is the oldest that has not ended (an event after each shows it), does
 *           NCCL report an error, has the group been broken, has a rank died, has the GPU of another rank of this
 *           process failed (no other thread may be waiting for it), is another operation enqueued there, is the
 *           deadline over? A thread that finds a failure breaks the group for all and aborts its own communicator,
 *           after which its operations end; the other ranks find the group broken when they poll
 *   cost  : while a thread waits, a poll every millisecond, and one of the other ranks every 50 ms. Nothing while no
 *           thread waits
 *   order : the deadline counts from when a wait first found the operation unfinished, so that the time a rank spends
 *           elsewhere before it waits is not counted
 *   fails : the launches of a graph are not seen one by one. If operations were captured and no other is in progress,
 *           the deadline counts from the beginning of the wait, and the last one captured is named for all of them */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/comm/nccl/nccl_group.h"
#include "common/comm/wait.h"

#define LS_LOOK_US 1e3
#define LS_SETTLE_SPIN_US 2e3 /* the time of a call in NCCL's thread, unless ranks have to be connected */
#define LS_SETTLE_NS 100000

/* --- one at a time ------------------------------------------------------------------------------------------------ */

bool ls_nccl_try_enter(struct ls_nccl_group *g) { return atomic_exchange(&g->inside, 1) == 0; }

void ls_nccl_enter(struct ls_nccl_group *g) {
    while (!ls_nccl_try_enter(g)) sched_yield(); /* for one poll, some microseconds */
}

/* A thread that dooms a group while another is inside leaves the abort to that one. Both write first and then read the
 * other's flag, so one of them sees it. */
void ls_nccl_leave(struct ls_nccl_group *g) {
    atomic_store(&g->inside, 0);
    if (!atomic_load(&g->doomed) || !ls_nccl_try_enter(g)) return;
    ls_nccl_abort(g);
    atomic_store(&g->inside, 0);
}

/* --- operations in progress --------------------------------------------------------------------------------------- */

static struct ls_nccl_pending *entry(struct ls_nccl_group *g, size_t number) {
    return &g->pending[(g->first + number) % LS_NCCL_PENDING];
}

/* A broken GPU is reported by the thread that waits for it; here it only counts as busy. */
bool ls_nccl_is_busy(struct ls_nccl_group *g) {
    while (g->pending_count > 0 && cudaEventQuery(entry(g, 0)->event) == cudaSuccess) {
        ls_flight_end(entry(g, 0)->mark, &entry(g, 0)->what);
        g->first = (g->first + 1) % LS_NCCL_PENDING;
        g->pending_count--;
    }
    if (g->pending_count > 0) (void)cudaGetLastError(); /* CUDA keeps "not ready" as the last error */
    return g->pending_count > 0;
}

ls_status ls_nccl_remember(struct ls_nccl_group *g, const ls_operation *operation, ls_stream *stream) {
    if (ls_cuda_is_capturing(stream)) {
        g->captured = true;
        g->last_captured = operation->what;
        ls_flight_stamp(operation->mark, LS_STAMP_DONE, LS_FLIGHT_CAPTURED_TIME);
        return LS_OK;
    }
    /* With so many in progress, this one is not recorded: those before and after it are. */
    if (g->pending_count == LS_NCCL_PENDING && ls_nccl_is_busy(g) && g->pending_count == LS_NCCL_PENDING) return LS_OK;
    struct ls_nccl_pending *next = entry(g, g->pending_count);
    cudaStream_t native = ls_cuda_lane_of(stream)->stream; /* its GPU is now current, as events need */
    ls_status status = LS_OK;
    if (!next->event) status = LS_CUDA(g->gpu, cudaEventCreateWithFlags(&next->event, cudaEventDisableTiming));
    if (status == LS_OK) status = LS_CUDA(g->gpu, cudaEventRecord(next->event, native));
    if (status != LS_OK) return status;
    next->what = operation->what;
    next->mark = operation->mark;
    next->seen_us = 0;
    g->pending_count++;
    return LS_OK;
}

/* --- finding failures --------------------------------------------------------------------------------------------- */

/* "unhandled system error: Error while creating shared memory segment ..." in one line. */
static void describe(char *text, size_t capacity, const struct ls_nccl_group *g, ncclResult_t result) {
    const char *details = ncclGetLastError(g->nccl);
    bool has_details = details && details[0];
    snprintf(text, capacity, "%s%s%.200s", ncclGetErrorString(result), has_details ? ": " : "",
             has_details ? details : "");
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    for (size_t length = strlen(text); length > 0 && text[length - 1] == ' ';) text[--length] = '\0';
}

static ls_status break_with(struct ls_nccl_group *g, ncclResult_t result, const ls_announcement *what) {
    char details[LS_REASON_CAPACITY];
    bool coming_up = what->kind == LS_OPERATION_ATTACH_NCCL;
    bool peers = result == ncclRemoteError || (result == ncclSystemError && !coming_up);
    describe(details, sizeof details, g, result);
    return ls_comm_break(g->comm, peers ? LS_ERR_PEER : LS_ERR_SYSTEM, what,
                         "NCCL on rank %d: %s (NCCL_DEBUG=INFO says more)", ls_job_rank(g->comm, g->comm->rank),
                         details);
}

/* NCCL's own state: LS_OK unless it has an error. */
static ls_status query_nccl(struct ls_nccl_group *g, const ls_announcement *what, ncclResult_t *state) {
    ncclResult_t result = ncclCommGetAsyncError(g->nccl, state);
    if (result == ncclSuccess) result = *state;
    if (result == ncclSuccess || result == ncclInProgress) return LS_OK;
    return break_with(g, result, what);
}

/* Sets `ranks` to those lost to the operation: they died, or left without having enqueued it. */
static bool find_lost(const struct ls_nccl_group *g, const ls_announcement *what, const bool *missing, bool *ranks,
                      bool *died) {
    const ls_comm *comm = g->comm;
    for (int r = 0; r < comm->world_size; r++)
        ranks[r] = r != comm->rank && (!ls_is_point_to_point(what) || r == what->root);
    if (!ls_comm_only_lost(comm, ranks, died)) return false;
    bool any = false;
    for (int r = 0; r < comm->world_size; r++) {
        ranks[r] = ranks[r] && (*died || missing[r]);
        any = any || ranks[r];
    }
    return any;
}

/* Another rank's group that is in use by its thread is queried the next time. */
ls_status ls_nccl_ask_mate(struct ls_nccl_group *mate) {
    if (!ls_nccl_try_enter(mate)) return LS_OK;
    cudaError_t error = mate->pending_count > 0 ? cudaEventQuery(entry(mate, 0)->event) : cudaSuccess;
    ls_nccl_leave(mate);
    if (error != cudaErrorNotReady) return ls_cuda_check(error, mate->gpu, "a collective operation");
    (void)cudaGetLastError(); /* CUDA keeps "not ready" as the last error */
    return LS_OK;
}

static ls_status check_peers(struct ls_nccl_group *g, const ls_announcement *what, bool *missing) {
    ls_comm *comm = g->comm;
    char ranks_text[LS_RANKS_TEXT_CAPACITY];
    bool ranks[LS_COMM_MAX_RANKS], died;
    memset(missing, 0, LS_COMM_MAX_RANKS * sizeof *missing);
    if (comm->world_size == 1) return LS_OK;
    ls_status status = what->kind == LS_OPERATION_ATTACH_NCCL ? LS_OK : ls_comm_compare_enqueued(comm, what, missing);
    if (status != LS_OK || !find_lost(g, what, missing, ranks, &died)) return status;
    status = ls_comm_check(comm, what); /* a rank that left after a failure has reported it before */
    if (status != LS_OK) return status;
    return ls_comm_break(comm, LS_ERR_PEER, what, "%s %s", ls_comm_ranks_text(ranks_text, ranks, comm),
                         died ? "died" : "left the group without taking part");
}

static ls_status break_late(struct ls_nccl_group *g, const ls_announcement *what, const bool *missing) {
    ls_comm *comm = g->comm;
    char text[LS_TEXT_CAPACITY], ranks[LS_RANKS_TEXT_CAPACITY];
    bool anybody = false;
    for (int r = 0; r < comm->world_size; r++) anybody = anybody || missing[r];
    if (what->kind == LS_OPERATION_ATTACH_NCCL)
        return ls_comm_break(
            comm, LS_ERR_TIMEOUT, NULL,
            "NCCL did not initialize within %g s, though all %d ranks began: check the firewall (NCCL_SOCKET_IFNAME "
            "chooses the network) and a container's /dev/shm (docker --shm-size); see NCCL_DEBUG=INFO",
            comm->timeout_s, comm->world_size);
    if (anybody)
        return ls_comm_break(comm, LS_ERR_TIMEOUT, what, "%s did not arrive within %g s",
                             ls_comm_ranks_text(ranks, missing, comm), comm->timeout_s);
    if (g->pending_count == 0)
        return ls_comm_break(comm, LS_ERR_TIMEOUT, NULL,
                             "%s, or another operation of the same graph, did not end within %g s: a rank is late, or "
                             "has launched another graph",
                             ls_announcement_text(comm, text, what, true), comm->timeout_s);
    return ls_comm_break(
        comm, LS_ERR_TIMEOUT, what,
        "all ranks have enqueued the operation, but no result arrived within %g s (NCCL_DEBUG=INFO says more)",
        comm->timeout_s);
}

/* --- polling ------------------------------------------------------------------------------------------------------ */

/* Checks whether the group is broken, and NCCL's own state. */
static ls_status examine(struct ls_nccl_group *g, const ls_announcement *what, ncclResult_t *state) {
    ls_status status = ls_comm_check(g->comm, what);
    return status == LS_OK ? query_nccl(g, what, state) : status;
}

/* Checks the other ranks' state for an operation that has been awaited since `since_us`. */
static ls_status check_late_operation(struct ls_nccl_group *g, const ls_announcement *what, double since_us,
                                      double now_us) {
    bool missing[LS_COMM_MAX_RANKS];
    bool late = now_us - since_us > g->comm->timeout_s * 1e6;
    if (now_us < g->patrol_us && !late) return LS_OK;
    g->patrol_us = now_us + LS_PATROL_US;
    ls_flight_look(g->comm);
    ls_status status = ls_nccl_ask_mates(g);
    if (status == LS_OK) status = check_peers(g, what, missing);
    return status == LS_OK && late ? break_late(g, what, missing) : status;
}

ls_status ls_nccl_await_call(struct ls_nccl_group *g, ncclResult_t result, const ls_announcement *what) {
    double begin_us = ls_now_us();
    if (result != ncclSuccess && result != ncclInProgress) return break_with(g, result, what);
    g->patrol_us = begin_us + LS_PATROL_US;
    for (;;) {
        if (atomic_load(&g->doomed)) return LS_ERR_PEER; /* another group of the GPU has reported it */
        ls_status status = examine(g, what, &result);
        if (status != LS_OK || result == ncclSuccess) return status;
        double now_us = ls_now_us();
        status = check_late_operation(g, what, begin_us, now_us);
        if (status != LS_OK) return status;
        if (now_us - begin_us < LS_SETTLE_SPIN_US)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = LS_SETTLE_NS}, NULL);
    }
}

/* The oldest operation has failed, and with it all others. */
static ls_status give_up(struct ls_nccl_group *g, ls_status status) {
    ls_nccl_abort(g);
    if (status != LS_OK) ls_nccl_abort_neighbours(g);
    g->pending_count = 0;
    return status;
}

/* The start of captured operations is unknown, so the wait's beginning is used. */
static ls_status check_group(struct ls_nccl_group *g, double now_us, double waited_us) {
    ncclResult_t state;
    bool busy = ls_nccl_is_busy(g);
    if (busy && !g->nccl)
        return give_up(g, (ls_status)atomic_load(&g->comm->failure)); /* the failed call has reported it */
    if (!g->nccl || (!busy && !g->captured)) return LS_OK;
    ls_status known = (ls_status)atomic_load(&g->comm->failure);
    if (!busy && known != LS_OK) return give_up(g, known); /* nothing may be pending, and the call has reported it */
    struct ls_nccl_pending *oldest = busy ? entry(g, 0) : NULL;
    if (busy && oldest->seen_us <= 0) oldest->seen_us = now_us;
    const ls_announcement *what = busy ? &oldest->what : &g->last_captured;
    ls_status status = examine(g, what, &state);
    if (status == LS_OK) status = check_late_operation(g, what, busy ? oldest->seen_us : now_us - waited_us, now_us);
    return status == LS_OK ? LS_OK : give_up(g, status);
}

ls_status ls_nccl_watch(void *context, double waited_us) {
    struct ls_nccl_group *g = context;
    if (!ls_nccl_try_enter(g)) return LS_OK; /* another thread is polling or enqueueing */
    double now_us = ls_now_us();
    ls_status status = LS_OK;
    if (now_us >= g->look_us) {
        status = check_group(g, now_us, waited_us);
        g->look_us = now_us + LS_LOOK_US;
    }
    ls_nccl_leave(g);
    return status;
}
