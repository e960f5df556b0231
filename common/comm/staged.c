/* staged — operations on GPU memory through host memory.
 *   idea  : an operation's input is copied to pinned host memory, the group's own algorithms run on it there, and their
 *           output is copied back. Memory of ls_comm_alloc_shared has a companion in the group's shared memory, so that
 *           ranks reduce one another's data in place; other buffers go through private memory that grows to the largest
 *           operation seen, and from there through the group's staging buffers
 *   cost  : sent bytes cross the bus once to the host, received bytes once back; in between, the enqueueing call waits
 *           for the stream and for the other ranks. Nothing overlaps within an operation
 *   order : the copies are in stream order. The host accesses the memory only when the stream has reached the
 *           operation, and the next operation's copy follows on the same stream, so no event is needed. The order of
 *           summation is the algorithm's: the same bits as on CPU devices
 *   fails : as the group's operations do; on failure nothing is copied back */
#include <stdlib.h>

#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

struct staged {
    char *memory; /* pinned */
    size_t capacity_bytes;
};

ls_journey ls_journey_of(const ls_operation *operation) {
    const ls_comm *comm = operation->comm;
    const ls_announcement *what = &operation->what;
    size_t part = what->count * ls_dtype_nbytes((ls_dtype)what->dtype), whole = part * (size_t)comm->world_size;
    bool root = what->root == comm->rank;
    switch (what->kind) {
    case LS_OPERATION_ALL_REDUCE: return (ls_journey){part, part};
    case LS_OPERATION_BROADCAST: return (ls_journey){root ? part : 0, root ? 0 : part};
    case LS_OPERATION_REDUCE: return (ls_journey){part, root ? part : 0};
    case LS_OPERATION_ALL_GATHER: return (ls_journey){part, whole};
    case LS_OPERATION_REDUCE_SCATTER: return (ls_journey){whole, part};
    case LS_OPERATION_GATHER: return (ls_journey){part, root ? whole : 0};
    case LS_OPERATION_SCATTER: return (ls_journey){root ? whole : 0, part};
    case LS_OPERATION_SEND: return (ls_journey){part, 0};
    case LS_OPERATION_RECV: return (ls_journey){0, part};
    case LS_OPERATION_SEND_RECV: return (ls_journey){part, part};
    default: return (ls_journey){0};
    }
}

/* Grows the private memory to `nbytes`. The stream may still copy from the old one. */
static ls_status grow(ls_comm *comm, ls_stream *stream, size_t nbytes) {
    struct staged *staged = comm->path_state;
    if (nbytes <= staged->capacity_bytes) return LS_OK;
    ls_status status = ls_stream_synchronize(stream);
    if (status != LS_OK) return status;
    ls_device_unpin_host(comm->device, staged->memory);
    free(staged->memory);
    size_t capacity_bytes = (nbytes + nbytes / 2 + LS_PAGE_BYTES) / LS_PAGE_BYTES * LS_PAGE_BYTES;
    void *memory = NULL;
    int failed = posix_memalign(&memory, LS_PAGE_BYTES, capacity_bytes);
    *staged = (struct staged){.memory = failed ? NULL : memory, .capacity_bytes = failed ? 0 : capacity_bytes};
    if (failed)
        return ls_comm_break(comm, LS_ERR_NO_MEMORY, NULL, "rank %d has no memory to stage %zu bytes of a GPU's",
                             ls_job_rank(comm, comm->rank), nbytes);
    ls_device_pin_host(comm->device, memory, capacity_bytes);
    return LS_OK;
}

/* The place on the host of a buffer on the GPU: its companion, or else the private memory from `offset` on. */
static char *on_host(const ls_comm *comm, const void *buffer, size_t offset) {
    const struct staged *staged = comm->path_state;
    const ls_region *region = ls_region_on_gpu(comm, buffer);
    if (!region) return staged->memory + offset;
    return (char *)region->memory + ((const char *)buffer - region->gpu);
}

static size_t private_bytes(const ls_comm *comm, const void *buffer, size_t nbytes) {
    return buffer && !ls_region_on_gpu(comm, buffer)
               ? (nbytes + LS_CACHE_LINE_BYTES - 1) / LS_CACHE_LINE_BYTES * LS_CACHE_LINE_BYTES
               : 0;
}

static ls_status move_to_itself(const ls_operation *operation, ls_stream *stream) {
    size_t nbytes = operation->what.count * ls_dtype_nbytes((ls_dtype)operation->what.dtype);
    ls_status status = ls_comm_check(operation->comm, &operation->what);
    bool moves = operation->send && operation->receive && operation->send != operation->receive;
    if (status == LS_OK && moves) {
        ls_copy(stream, operation->receive, operation->send, nbytes);
        status = ls_device_status(operation->comm->device);
    }
    if (status == LS_OK) ls_comm_count_operation(operation->comm);
    return status;
}

static ls_status run_on_host(const ls_operation *operation, ls_stream *stream) {
    ls_comm *comm = operation->comm;
    ls_journey journey = ls_journey_of(operation);
    const void *send = operation->send ? operation->send : operation->receive;
    bool in_place = !operation->send;
    size_t send_bytes = private_bytes(comm, operation->send, journey.read_bytes);
    size_t in_place_bytes = journey.read_bytes > journey.written_bytes ? journey.read_bytes : journey.written_bytes;
    size_t receive_bytes = private_bytes(comm, operation->receive, in_place ? in_place_bytes : journey.written_bytes);
    ls_status status = grow(comm, stream, send_bytes + receive_bytes);
    if (status != LS_OK) return status;
    ls_operation host = *operation;
    if (operation->receive) host.receive = on_host(comm, operation->receive, send_bytes);
    if (operation->send) host.send = on_host(comm, operation->send, 0);
    void *sent = in_place ? host.receive : (void *)(uintptr_t)host.send;
    ls_copy(stream, sent, send, journey.read_bytes);
    status = ls_comm_launch_on_host(&host, stream);
    if (status != LS_OK) return status;
    ls_copy(stream, operation->receive, host.receive, journey.written_bytes);
    return ls_device_status(comm->device);
}

static ls_status enqueue(const ls_operation *operation, ls_stream *stream) {
    bool alone = operation->comm->world_size == 1;
    return alone ? move_to_itself(operation, stream) : run_on_host(operation, stream);
}

static void close_staged(ls_comm *comm) {
    struct staged *staged = comm->path_state;
    ls_device_unpin_host(comm->device, staged->memory);
    free(staged->memory);
    free(staged);
}

static const struct ls_path staged_path = {.mirrors = true, .enqueue = enqueue, .close = close_staged};

ls_status ls_staged_attach(ls_comm *comm, ls_device *device) {
    comm->path_state = calloc(1, sizeof(struct staged));
    if (!comm->path_state) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a group's staging");
    comm->device = device;
    comm->path = &staged_path;
    return LS_OK;
}
