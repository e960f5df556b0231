/* nccl_plugin — making and leaving NCCL communicators for groups that have met on the host.
 *   idea  : communicators are non-blocking: a call returns, and the host polls until NCCL is done with it, watching the
 *           group and the deadline meanwhile. A first all-reduce, of one number, shows before the training begins that
 *           the ranks reach one another
 *   cost  : a second or so; some hundred megabytes of each GPU are NCCL's own
 *   order : the ranks of one process are brought up in one ncclGroup, since one thread does it, and taken down together
 *           by the one that leaves last, since NCCL waits for them all when it goes
 *   fails : what goes wrong aborts this rank's communicator and breaks the group. Leaving waits for the other ranks for
 *           LS_LEAVE_S at most, and not at all after a failure, for ranks that have gone, or for those that wait for
 *           this one; then it aborts */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/comm/nccl/nccl_group.h"
#include "common/device/plugin.h"

#define LS_LEAVE_S 5.0
#define LS_IDLE_S 0.2 /* for streams that have, as comm.h says, passed all operations */
#define LS_POLL_NS 200000

static const ls_announcement coming_up = {.kind = LS_OPERATION_ATTACH_NCCL, .root = -1};

static int gpu_of(const ls_device *device) {
    ls_device *mutable_device = (ls_device *)(uintptr_t)device;
    return ls_cuda_lane_of(ls_device_stream(mutable_device, LS_STREAM_COMM))->gpu;
}

static ls_status identify(const ls_device *device, struct ls_nccl_identity *out, char *why, size_t capacity) {
    int domain = 0, bus = 0, slot = 0;
    *out = (struct ls_nccl_identity){.index = gpu_of(device)};
    ncclResult_t result = ncclGetVersion(&out->version);
    if (result != ncclSuccess) {
        snprintf(why, capacity, "ncclGetVersion failed: %s", ncclGetErrorString(result));
        return LS_ERR_UNSUPPORTED;
    }
    cudaError_t error = cudaDeviceGetAttribute(&domain, cudaDevAttrPciDomainId, out->index);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, out->index);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&slot, cudaDevAttrPciDeviceId, out->index);
    out->gpu = (uint64_t)(uint32_t)domain << 16 | (uint64_t)(bus & 0xff) << 8 | (uint64_t)(slot & 0xff);
    if (error == cudaSuccess) return LS_OK;
    snprintf(why, capacity, "GPU %d does not say where it is: %s", out->index, cudaGetErrorString(error));
    return LS_ERR_SYSTEM;
}

static ls_status make_id(unsigned char id[LS_NCCL_ID_NBYTES], char *why, size_t capacity) {
    ncclUniqueId unique;
    _Static_assert(sizeof unique == LS_NCCL_ID_NBYTES, "NCCL's ids have 128 bytes");
    ncclResult_t result = ncclGetUniqueId(&unique);
    memcpy(id, &unique, sizeof unique);
    if (result == ncclSuccess) return LS_OK;
    const char *details = ncclGetLastError(NULL);
    snprintf(why, capacity, "%s%s%.200s", ncclGetErrorString(result), details && details[0] ? ": " : "",
             details ? details : "");
    return LS_ERR_SYSTEM;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

static void pause_between_looks(void) { nanosleep(&(struct timespec){.tv_nsec = LS_POLL_NS}, NULL); }

/* Whether NCCL would wait for the other processes in vain: a rank has gone, or waits for this one, which leaves too
 * early. */
static bool is_in_vain(const ls_comm *comm) {
    bool ranks[LS_COMM_MAX_RANKS], died;
    for (int r = 0; r < comm->world_size; r++) ranks[r] = r != comm->rank;
    return comm->world_size > 1 && (ls_comm_only_lost(comm, ranks, &died) || ls_comm_is_awaited(comm));
}

/* Takes one communicator down: in good order once NCCL has finalised it, or else by force. */
static void finish(ncclComm_t communicator, bool orderly, const ls_comm *comm, double until_us) {
    ncclResult_t state = orderly ? ncclInProgress : ncclInternalError;
    while (state == ncclInProgress && ncclCommGetAsyncError(communicator, &state) == ncclSuccess) {
        if (state != ncclInProgress || ls_now_us() > until_us || (comm && is_in_vain(comm))) break;
        pause_between_looks();
    }
    (void)(state == ncclSuccess ? ncclCommDestroy(communicator) : ncclCommAbort(communicator));
}

/* The last one of the crew takes all communicators down. `comm` is its own. */
static void take_down(struct ls_nccl_crew *crew, const ls_comm *comm) {
    double leave_s = comm->timeout_s < LS_LEAVE_S ? comm->timeout_s : LS_LEAVE_S,
           until_us = ls_now_us() + leave_s * 1e6;
    bool orderly = !atomic_load(&crew->aborted);
    for (int p = 0; orderly && p < crew->size; p++) {
        ncclResult_t result = ncclCommFinalize(crew->communicator[p]);
        orderly = result == ncclSuccess || result == ncclInProgress;
    }
    for (int p = 0; p < crew->size; p++) {
        /* The endpoints of a crew of threads leave one after the other: that says nothing about NCCL. */
        if (crew->communicator[p]) finish(crew->communicator[p], orderly, crew->size == 1 ? comm : NULL, until_us);
    }
    free(crew);
}

static void destroy(struct ls_nccl_group *g) {
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
        (void)ls_comm_abort(comm, "it left with operations on their way");
        failed = true;
    }
    if (failed) ls_nccl_abort(g);
    destroy(g);
}

static const struct ls_path nccl_path = {
    .name = "nccl", .can_be_recorded = true, .enqueue = ls_nccl_enqueue, .close = ls_nccl_close};

/* --- coming up ---------------------------------------------------------------------------------------------------- */

static struct ls_nccl_group *make_group(ls_comm *comm, ls_device *device, struct ls_nccl_crew *crew, int place) {
    struct ls_nccl_group *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    *g = (struct ls_nccl_group){.comm = comm, .device = device, .gpu = gpu_of(device), .crew = crew, .place = place};
    atomic_fetch_add(&crew->open, 1);
    return g;
}

static ls_status make_all(struct ls_nccl_group **groups, ls_comm *const *comms, ls_device *const *devices, int count) {
    struct ls_nccl_crew *crew = calloc(1, sizeof *crew);
    ls_status status = crew ? LS_OK : LS_ERR_NO_MEMORY;
    if (crew) crew->size = count;
    for (int p = 0; status == LS_OK && p < count; p++) {
        groups[p] = make_group(comms[p], devices[p], crew, p);
        status = groups[p] ? ls_device_alloc(devices[p], LS_MEMORY_WORKSPACE, LS_CACHE_LINE_BYTES, "barriers",
                                             &groups[p]->scratch)
                           : LS_ERR_NO_MEMORY;
    }
    if (crew && !groups[0]) free(crew);
    return status;
}

/* One thread speaks for all ranks of the process: without a group NCCL would wait for the second one inside of the
 * first call. */
static ncclResult_t begin_all(struct ls_nccl_group **groups, int count, const ncclUniqueId *id) {
    ncclResult_t result = ncclGroupStart();
    for (int p = 0; result == ncclSuccess && p < count; p++) {
        struct ls_nccl_group *g = groups[p];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        if (ls_cuda_use(g->gpu) != LS_OK) result = ncclUnhandledCudaError;
        if (result == ncclSuccess)
            result = ncclCommInitRankConfig(&g->nccl, g->comm->world_size, *id, g->comm->rank, &config);
        if (result == ncclInProgress) result = ncclSuccess;
    }
    ncclResult_t ended = ncclGroupEnd();
    for (int p = 0; p < count; p++) groups[p]->crew->communicator[p] = groups[p]->nccl;
    return result == ncclSuccess ? ended : result;
}

static ncclResult_t try_all(struct ls_nccl_group **groups, int count) {
    ncclResult_t result = ncclGroupStart();
    for (int p = 0; result == ncclSuccess && p < count; p++) {
        struct ls_nccl_group *g = groups[p];
        cudaStream_t stream = ls_cuda_lane_of(ls_device_stream(g->device, LS_STREAM_COMM))->stream;
        result = ncclAllReduce(g->scratch, g->scratch, 1, ncclFloat32, ncclSum, g->nccl, stream);
        if (result == ncclInProgress) result = ncclSuccess;
    }
    ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

/* All of them have been given a call that returned `result`. */
static ls_status settle_all(struct ls_nccl_group **groups, int count, ncclResult_t result) {
    ls_status status = LS_OK;
    for (int p = 0; status == LS_OK && p < count; p++) status = ls_nccl_settle(groups[p], result, &coming_up);
    return status;
}

/* The first operation has been put on the comm streams. The watcher ends the wait for it where it does not end by
 * itself. */
static ls_status await_first(struct ls_nccl_group **groups, int count) {
    ls_status status = LS_OK;
    for (int p = 0; status == LS_OK && p < count; p++) {
        ls_stream *stream = ls_device_stream(groups[p]->device, LS_STREAM_COMM);
        status = ls_device_watch(groups[p]->device, ls_nccl_watch, groups[p]);
        if (status == LS_OK) status = ls_nccl_remember(groups[p], &coming_up, 0, stream);
    }
    for (int p = 0; status == LS_OK && p < count; p++)
        status = ls_stream_synchronize(ls_device_stream(groups[p]->device, LS_STREAM_COMM));
    return status;
}

static void undo(struct ls_nccl_group **groups, int count) {
    for (int p = 0; p < count && groups[p]; p++) {
        (void)ls_comm_abort(groups[p]->comm, "NCCL did not come up");
        ls_device_unwatch(groups[p]->device, groups[p]);
        ls_nccl_abort(groups[p]);
    }
    for (int p = 0; p < count && groups[p]; p++) destroy(groups[p]);
}

static ls_status attach(ls_comm *const *comms, ls_device *const *devices, int count,
                        const unsigned char id[LS_NCCL_ID_NBYTES]) {
    struct ls_nccl_group *groups[LS_COMM_MAX_RANKS] = {NULL};
    ncclUniqueId unique;
    memcpy(&unique, id, sizeof unique);
    ls_status status = make_all(groups, comms, devices, count);
    if (status == LS_OK) status = settle_all(groups, count, begin_all(groups, count, &unique));
    if (status == LS_OK) status = settle_all(groups, count, try_all(groups, count));
    if (status == LS_OK) status = await_first(groups, count);
    if (status != LS_OK) {
        undo(groups, count);
        return status;
    }
    for (int p = 0; p < count; p++) {
        comms[p]->device = devices[p];
        comms[p]->path = &nccl_path;
        comms[p]->path_state = groups[p];
    }
    return LS_OK;
}

extern const struct ls_nccl_plugin ls_nccl_plugin;
const struct ls_nccl_plugin ls_nccl_plugin = {
    .version = LS_PLUGIN_VERSION, .identify = identify, .make_id = make_id, .attach = attach};
