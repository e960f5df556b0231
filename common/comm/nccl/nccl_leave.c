/* nccl_leave — takes communicators down: in good order, or by force.
 *   idea  : ncclCommAbort ends the operations on the GPU, but then waits: until every graph is destroyed into which
 *           operations of the communicator were captured (as ncclCommDestroy does), and for the whole device when it
 *           frees memory, while operations of another communicator may spin there. But the thread that finds a failure
 *           is usually the one that would destroy the graph and abort the other communicator. So each communicator is
 *           taken down by a thread of its own. A thread that finds a failure starts these threads for all groups of the
 *           GPU, and continues; a rank that leaves waits for them to end
 *   cost  : a thread for each communicator, at its end
 *   order : all are started before one is waited for. The ranks of one process are finalised together, by the one that
 *           leaves last, since NCCL then waits for them all
 *   fails : leaving waits for the other ranks for LS_LEAVE_S at most. It does not wait after a failure, nor for ranks
 *           that have left or that wait for this one. Then it aborts. A communicator that has not been taken down
 *           LS_LEAVE_S later, because its graph still exists or the GPU hangs, is abandoned: it, its memory and its
 *           thread stay until the process ends. That thread uses nothing that is freed meanwhile */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/comm/nccl/nccl_group.h"
#include "common/comm/wait.h"

#define LS_LEAVE_S 5.0
#define LS_IDLE_S 0.2 /* for streams, which have passed all operations, as comm.h demands */
#define LS_POLL_NS 200000

static void pause_between_looks(void) { nanosleep(&(struct timespec){.tv_nsec = LS_POLL_NS}, NULL); }

/* --- a thread that takes one communicator down -------------------------------------------------------------------- */

struct ls_nccl_ending {
    ncclComm_t communicator;
    int gpu;
    bool orderly; /* finalised */
    _Atomic bool ended;
    _Atomic int holders; /* the thread, and the one that started it; the last one frees this */
};

static void release(struct ls_nccl_ending *ending) {
    if (atomic_fetch_sub(&ending->holders, 1) == 1) free(ending);
}

static void end(ncclComm_t communicator, int gpu, bool orderly) {
    (void)ls_cuda_use(gpu);
    (void)(orderly ? ncclCommDestroy(communicator) : ncclCommAbort(communicator));
}

static void *end_in_thread(void *argument) {
    struct ls_nccl_ending *ending = argument;
    end(ending->communicator, ending->gpu, ending->orderly);
    atomic_store(&ending->ended, true);
    release(ending);
    return NULL;
}

/* If no thread can be created, the caller takes the communicator down itself, and waits as long as NCCL does. */
static struct ls_nccl_ending *begin_ending(ncclComm_t communicator, int gpu, bool orderly) {
    pthread_t thread;
    struct ls_nccl_ending *ending = malloc(sizeof *ending);
    if (ending) {
        *ending = (struct ls_nccl_ending){.communicator = communicator, .gpu = gpu, .orderly = orderly, .holders = 2};
        if (pthread_create(&thread, NULL, end_in_thread, ending) == 0) {
            (void)pthread_detach(thread);
            return ending;
        }
        free(ending);
    }
    end(communicator, gpu, orderly);
    return NULL;
}

static void await_ending(struct ls_nccl_ending *ending, double until_us) {
    if (!ending) return;
    while (!atomic_load(&ending->ended) && ls_now_us() < until_us) pause_between_looks();
    release(ending);
}

/* --- by force ----------------------------------------------------------------------------------------------------- */

void ls_nccl_abort(struct ls_nccl_group *g) {
    if (!g->nccl) return;
    atomic_store(&g->crew->aborted, true);
    g->ending = begin_ending(g->nccl, g->gpu, false);
    g->nccl = g->crew->communicator[g->place] = NULL;
}

static pthread_mutex_t enrolled_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ls_nccl_group *enrolled;

void ls_nccl_enrol(struct ls_nccl_group *g) {
    pthread_mutex_lock(&enrolled_lock);
    g->next = enrolled;
    enrolled = g;
    pthread_mutex_unlock(&enrolled_lock);
}

static void unregister_group(const struct ls_nccl_group *g) {
    pthread_mutex_lock(&enrolled_lock);
    struct ls_nccl_group **link = &enrolled;
    while (*link != g) link = &(*link)->next;
    *link = g->next;
    pthread_mutex_unlock(&enrolled_lock);
}

/* Fails only this rank's endpoint: its peers learn of it from the group that failed, or find out themselves. */
static void fail_neighbour(struct ls_nccl_group *g) {
    int intact = LS_OK;
    (void)atomic_compare_exchange_strong(&g->comm->failure, &intact, (int)LS_ERR_PEER);
    atomic_store(&g->doomed, true);
    if (ls_nccl_try_enter(g)) ls_nccl_leave(g);
}

void ls_nccl_abort_neighbours(struct ls_nccl_group *g) {
    pthread_mutex_lock(&enrolled_lock);
    for (struct ls_nccl_group *other = enrolled; other; other = other->next)
        if (other != g && other->device == g->device) fail_neighbour(other);
    pthread_mutex_unlock(&enrolled_lock);
}

/* The lock keeps the other rank's group, and so its device, until it has been queried. */
ls_status ls_nccl_ask_mates(struct ls_nccl_group *g) {
    ls_status status = LS_OK;
    char reason[64];
    pthread_mutex_lock(&enrolled_lock);
    for (struct ls_nccl_group *mate = enrolled; mate && status == LS_OK; mate = mate->next) {
        if (mate == g || mate->crew != g->crew) continue;
        status = ls_nccl_ask_mate(mate);
        snprintf(reason, sizeof reason, "GPU %d, that of rank %d, has failed", mate->gpu,
                 ls_job_rank(mate->comm, mate->comm->rank));
    }
    pthread_mutex_unlock(&enrolled_lock);
    if (status != LS_OK) (void)ls_comm_abort(g->comm, reason);
    return status;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

/* Whether NCCL would wait for the other processes in vain: a rank has left, or waits for this one, which leaves too
 * early. */
static bool is_in_vain(const ls_comm *comm) {
    bool ranks[LS_COMM_MAX_RANKS], died;
    for (int r = 0; r < comm->world_size; r++) ranks[r] = r != comm->rank;
    return comm->world_size > 1 && (ls_comm_only_lost(comm, ranks, &died) || ls_comm_is_awaited(comm));
}

/* Whether NCCL has finalised the communicator, if that was `begun`; otherwise it is taken down by force. */
static bool is_finalized(ncclComm_t communicator, bool begun, const ls_comm *comm, double until_us) {
    ncclResult_t state = begun ? ncclInProgress : ncclInternalError;
    while (state == ncclInProgress && ncclCommGetAsyncError(communicator, &state) == ncclSuccess) {
        if (state != ncclInProgress || ls_now_us() > until_us || (comm && is_in_vain(comm))) break;
        pause_between_looks();
    }
    return state == ncclSuccess;
}

static double leave_us(const ls_comm *comm) {
    return (comm->timeout_s < LS_LEAVE_S ? comm->timeout_s : LS_LEAVE_S) * 1e6;
}

/* The last one of the crew takes down all communicators that are left. `comm` is its own. */
static void take_down(struct ls_nccl_crew *crew, const ls_comm *comm) {
    struct ls_nccl_ending *endings[LS_COMM_MAX_RANKS] = {NULL};
    double until_us = ls_now_us() + leave_us(comm);
    bool orderly = !atomic_load(&crew->aborted);
    for (int p = 0; orderly && p < crew->size; p++) {
        ncclResult_t result = ncclCommFinalize(crew->communicator[p]);
        orderly = result == ncclSuccess || result == ncclInProgress;
    }
    for (int p = 0; p < crew->size; p++) {
        if (!crew->communicator[p]) continue;
        /* The endpoints of a crew of threads leave one after the other, which is no failure of NCCL. */
        bool finalized = is_finalized(crew->communicator[p], orderly, crew->size == 1 ? comm : NULL, until_us);
        endings[p] = begin_ending(crew->communicator[p], crew->gpu[p], finalized);
    }
    until_us = ls_now_us() + leave_us(comm);
    for (int p = 0; p < crew->size; p++) await_ending(endings[p], until_us);
    free(crew);
}

void ls_nccl_destroy(struct ls_nccl_group *g) {
    unregister_group(g);
    await_ending(g->ending, ls_now_us() + leave_us(g->comm));
    if (atomic_fetch_sub(&g->crew->open, 1) == 1) take_down(g->crew, g->comm);
    for (size_t p = 0; p < LS_NCCL_PENDING && g->pending[p].event; p++) (void)cudaEventDestroy(g->pending[p].event);
    ls_device_free(g->device, g->scratch);
    free(g);
}

/* Gives the streams a moment: an event that was recorded just now may not have completed yet. */
static bool stays_busy(struct ls_nccl_group *g) {
    for (double until_us = ls_now_us() + LS_IDLE_S * 1e6; ls_nccl_is_busy(g) && g->nccl; pause_between_looks())
        if (ls_now_us() > until_us) return true;
    return false;
}

void ls_nccl_close(ls_comm *comm) {
    struct ls_nccl_group *g = comm->path_state;
    ls_device_unwatch(g->device, g);
    (void)ls_cuda_use(g->gpu);
    ls_nccl_enter(g);
    bool failed = atomic_load(&comm->failure) != LS_OK || ls_comm_is_broken(comm);
    if (!failed && stays_busy(g)) {
        (void)ls_comm_abort(comm, "the rank left with operations in flight");
        failed = true;
    }
    if (failed) ls_nccl_abort(g);
    if (failed) ls_nccl_abort_neighbours(g);
    ls_nccl_destroy(g);
}
