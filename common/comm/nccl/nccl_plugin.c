/* nccl_plugin — creates NCCL communicators for groups that exist on the host.
 *   idea  : communicators are non-blocking: a call returns, and the host polls until NCCL is done with it, watching the
 *           group and the deadline meanwhile. A first all-reduce, of one number, shows before the training begins that
 *           the ranks reach one another
 *   cost  : a second or so for two GPUs, many seconds for eight or on a slow machine: NCCL loads its kernels, examines
 *           the machine and connects every rank. All of it counts against the group's deadline. Some hundred megabytes
 *           of each GPU are NCCL's own
 *   order : the ranks of one process are initialised in one ncclGroup, since one thread does it
 *   fails : an error aborts this rank's communicator and breaks the group; nccl_leave.c takes it down */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/nccl/nccl_group.h"
#include "common/device/plugin.h"

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

static const struct ls_path nccl_path = {
    .name = "nccl", .can_be_captured = true, .enqueue = ls_nccl_enqueue, .close = ls_nccl_close};

/* --- initialising ------------------------------------------------------------------------------------------------- */

static struct ls_nccl_group *make_group(ls_comm *comm, ls_device *device, struct ls_nccl_crew *crew, int place) {
    struct ls_nccl_group *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    *g = (struct ls_nccl_group){.comm = comm, .device = device, .gpu = gpu_of(device), .crew = crew, .place = place};
    crew->gpu[place] = g->gpu;
    atomic_fetch_add(&crew->open, 1);
    ls_nccl_enrol(g);
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

/* One thread makes the calls of all ranks of the process: without a group NCCL would wait for the second one inside of
 * the first call. */
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

/* Waits for a call that was made for all groups and returned `result`. */
static ls_status await_calls(struct ls_nccl_group **groups, int count, ncclResult_t result) {
    ls_status status = LS_OK;
    for (int p = 0; status == LS_OK && p < count; p++) status = ls_nccl_await_call(groups[p], result, &coming_up);
    return status;
}

/* Waits for the first operation, which is on the comm streams. If it does not complete, the watcher ends the wait. */
static ls_status await_first(struct ls_nccl_group **groups, int count) {
    const ls_operation first = {.what = coming_up};
    ls_status status = LS_OK;
    for (int p = 0; status == LS_OK && p < count; p++) {
        ls_stream *stream = ls_device_stream(groups[p]->device, LS_STREAM_COMM);
        status = ls_device_watch(groups[p]->device, ls_nccl_watch, groups[p]);
        if (status == LS_OK) status = ls_nccl_remember(groups[p], &first, stream);
    }
    for (int p = 0; status == LS_OK && p < count; p++)
        status = ls_stream_synchronize(ls_device_stream(groups[p]->device, LS_STREAM_COMM));
    return status;
}

static void undo(struct ls_nccl_group **groups, int count) {
    for (int p = 0; p < count && groups[p]; p++) {
        (void)ls_comm_abort(groups[p]->comm, "NCCL did not initialize");
        ls_device_unwatch(groups[p]->device, groups[p]);
        ls_nccl_abort(groups[p]);
    }
    for (int p = 0; p < count && groups[p]; p++) ls_nccl_destroy(groups[p]);
}

static ls_status attach(ls_comm *const *comms, ls_device *const *devices, int count,
                        const unsigned char id[LS_NCCL_ID_NBYTES]) {
    struct ls_nccl_group *groups[LS_COMM_MAX_RANKS] = {NULL};
    ncclUniqueId unique;
    memcpy(&unique, id, sizeof unique);
    ls_status status = make_all(groups, comms, devices, count);
    if (status == LS_OK) status = await_calls(groups, count, begin_all(groups, count, &unique));
    if (status == LS_OK) status = await_calls(groups, count, try_all(groups, count));
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
