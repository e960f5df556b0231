/* through_gpu — operations on host memory through NCCL, in a group over hosts without another carrier: the opposite of
 * staged.c.
 *   idea  : an operation's input is copied to GPU memory, NCCL runs it there, and its output is copied back. Operations
 *           of one round are faster through the control areas, and still use them
 *   cost  : the bytes cross the bus twice. The memory grows to the largest operation seen. Rare: gradients are on the GPU
 *   order : everything is enqueued on the stream, which need not wait
 *   fails : as NCCL's operations do */
#include <stdlib.h>

#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"

struct through_gpu {
    const struct ls_path *nccl;
    char *memory; /* of the GPU */
    size_t capacity_bytes;
};

static struct through_gpu *state_of(const ls_comm *comm) { return comm->carrier_state; }

/* The stream may still use the old one. */
static ls_status grow(ls_comm *comm, ls_stream *stream, size_t nbytes) {
    struct through_gpu *t = state_of(comm);
    if (nbytes <= t->capacity_bytes) return LS_OK;
    ls_status status = ls_stream_synchronize(stream);
    if (status != LS_OK) return status;
    ls_device_free(comm->device, t->memory);
    t->memory = NULL;
    t->capacity_bytes = 0;
    void *memory = NULL;
    status = ls_device_alloc(comm->device, LS_MEMORY_WORKSPACE, nbytes + nbytes / 2,
                             "operations on host memory between hosts", &memory);
    if (status != LS_OK) {
        (void)ls_comm_abort(comm, "its GPU has no memory for an operation on host memory");
        return status;
    }
    t->memory = memory;
    t->capacity_bytes = nbytes + nbytes / 2;
    return LS_OK;
}

static ls_status run_on_gpu(const ls_operation *operation, ls_stream *stream) {
    ls_comm *comm = operation->comm;
    struct through_gpu *t = state_of(comm);
    ls_journey journey = ls_journey_of(operation);
    bool in_place = !operation->send;
    size_t read_bytes = (journey.read_bytes + LS_CACHE_LINE_BYTES - 1) / LS_CACHE_LINE_BYTES * LS_CACHE_LINE_BYTES;
    ls_status status = grow(comm, stream, read_bytes + journey.written_bytes);
    if (status != LS_OK) return status;
    ls_operation gpu = *operation;
    gpu.send = operation->send ? t->memory : NULL;
    gpu.receive = operation->receive ? t->memory + (in_place ? 0 : read_bytes) : NULL;
    ls_copy(stream, t->memory, in_place ? operation->receive : operation->send, journey.read_bytes);
    status = t->nccl->enqueue(&gpu, stream);
    if (status != LS_OK) return status;
    ls_copy(stream, operation->receive, gpu.receive, journey.written_bytes);
    return ls_device_status(comm->device);
}

static ls_status enqueue(const ls_operation *operation, ls_stream *stream) {
    const ls_comm *comm = operation->comm;
    if (ls_comm_is_on_gpu(operation, stream)) return state_of(comm)->nccl->enqueue(operation, stream);
    bool travels = ls_is_one_round(operation) || ls_stream_device(stream) != comm->device;
    return travels ? ls_comm_launch_on_host(operation, stream) : run_on_gpu(operation, stream);
}

static void close_path(ls_comm *comm) {
    struct through_gpu *t = state_of(comm);
    t->nccl->close(comm);
    ls_device_free(comm->device, t->memory);
    free(t);
    comm->carrier_state = NULL;
}

static const struct ls_path path = {
    .name = "nccl", .can_be_captured = true, .takes_host = true, .enqueue = enqueue, .close = close_path};

ls_status ls_through_gpu_attach(ls_comm *comm) {
    struct through_gpu *t = comm->carrier_state = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a path to NCCL");
    t->nccl = comm->path;
    comm->path = &path;
    return LS_OK;
}
