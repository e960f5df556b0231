/* meta_group — a group in which one rank exists, and the others are assumed to do the same.
 *   idea  : a recorded job is symmetric, so one rank is enough. Its operations are checked, numbered, enqueued and
 *           counted as in any group, but move no data. The values that ranks exchange through host memory (shapes,
 *           counts, clocks) are returned as if all ranks had sent the same
 *   cost  : an operation is a launch. Messages and bytes are counted by the formulas of the real operations: for
 *           all_reduce its algorithm's (allreduce.h), for the others those of collectives.c, each as if in one slice; a
 *           send or a receive is one message
 *   order : an operation on the host's memory is done when the call returns */
#include <stdlib.h>
#include <string.h>

#include "common/comm/comm_internal.h"
#include "common/comm/reduce_kernels.h"
#include "common/comm/wait.h"

/* --- values that the ranks exchange ------------------------------------------------------------------------------- */

static size_t message_nbytes(const ls_operation *operation) {
    return operation->what.count * ls_dtype_nbytes((ls_dtype)operation->what.dtype);
}

static ls_status reduce_the_same(const ls_operation *operation) {
    const void *inputs[LS_COMM_MAX_RANKS];
    void *output = operation->receive, *said = malloc(message_nbytes(operation) + 1);
    if (!said) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the contributions of all ranks");
    memcpy(said, output, message_nbytes(operation));
    for (int r = 0; r < operation->comm->world_size; r++) inputs[r] = said;
    ls_reduce_inputs(&output, 1, inputs, operation->comm->world_size, operation->what.count,
                     (ls_dtype)operation->what.dtype, (ls_reduce_op)operation->what.op);
    free(said);
    return LS_OK;
}

static ls_status reduce_own_part(const ls_operation *operation) {
    size_t nbytes = message_nbytes(operation);
    memmove(operation->receive, (const char *)operation->send + (size_t)operation->comm->rank * nbytes, nbytes);
    return reduce_the_same(operation);
}

static ls_status gather_the_same(const ls_operation *operation) {
    size_t nbytes = message_nbytes(operation);
    if (operation->what.kind == LS_OPERATION_GATHER && operation->what.root != operation->comm->rank) return LS_OK;
    for (int r = 0; r < operation->comm->world_size; r++) {
        memmove((char *)operation->receive + (size_t)r * nbytes, operation->send, nbytes);
    }
    return LS_OK;
}

/* On a scatter's root, copies its own part; in a send_recv, the data that this rank sends: the peer is assumed to send
 * the same. */
static ls_status take_the_same(const ls_operation *operation) {
    size_t nbytes = message_nbytes(operation), rank = (size_t)operation->comm->rank;
    bool scatters = operation->what.kind == LS_OPERATION_SCATTER;
    if (scatters && operation->what.root != operation->comm->rank) return LS_OK;
    memmove(operation->receive, (const char *)operation->send + (scatters ? rank * nbytes : 0), nbytes);
    return LS_OK;
}

/* Writes the result of an operation on host memory. A broadcast, a receive, and a scatter with another root leave the
 * buffer unchanged. */
static ls_status agree(const ls_operation *operation) {
    const ls_comm *comm = operation->comm;
    if (operation->what.count == 0 || ls_device_is_gpu_memory(comm->device, operation->receive)) return LS_OK;
    switch (operation->what.kind) {
    case LS_OPERATION_ALL_REDUCE: return reduce_the_same(operation);
    case LS_OPERATION_REDUCE: return operation->what.root == comm->rank ? reduce_the_same(operation) : LS_OK;
    case LS_OPERATION_REDUCE_SCATTER: return reduce_own_part(operation);
    case LS_OPERATION_ALL_GATHER:
    case LS_OPERATION_GATHER: return gather_the_same(operation);
    case LS_OPERATION_SCATTER:
    case LS_OPERATION_SEND_RECV: return take_the_same(operation);
    default: return LS_OK;
    }
}

/* --- traffic ------------------------------------------------------------------------------------------------------ */

static void count_all_reduce(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    struct ls_allreduce_cost cost = {0};
    comm->allreduce->cost(&cost, comm->world_size, comm->rank, operation->what.count,
                          ls_dtype_nbytes((ls_dtype)operation->what.dtype));
    ls_comm_count_sent(comm, cost.sent_messages, cost.sent_bytes);
    ls_comm_count_received(comm, cost.received_messages, cost.received_bytes);
}

/* Messages of `nbytes` that this rank sends and receives. */
static void count_messages(ls_comm *comm, size_t sent, size_t received, size_t nbytes) {
    if (sent > 0) ls_comm_count_sent(comm, sent, sent * nbytes);
    if (received > 0) ls_comm_count_received(comm, received, received * nbytes);
}

static void count(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    size_t others = (size_t)comm->world_size - 1, nbytes = message_nbytes(operation);
    bool is_root = operation->what.root == comm->rank;
    ls_comm_count_operation(comm);
    if (others == 0) return;
    switch (operation->what.kind) {
    case LS_OPERATION_ALL_REDUCE: count_all_reduce(operation); break;
    case LS_OPERATION_ALL_GATHER:
    case LS_OPERATION_REDUCE_SCATTER: count_messages(comm, others, others, nbytes); break;
    case LS_OPERATION_BROADCAST:
    case LS_OPERATION_SCATTER: count_messages(comm, is_root ? others : 0, !is_root, nbytes); break;
    case LS_OPERATION_SEND: count_messages(comm, 1, 0, nbytes); break;
    case LS_OPERATION_RECV: count_messages(comm, 0, 1, nbytes); break;
    case LS_OPERATION_SEND_RECV: count_messages(comm, 1, 1, nbytes); break;
    case LS_OPERATION_GATHER:
    case LS_OPERATION_REDUCE: count_messages(comm, !is_root, is_root ? others : 0, nbytes); break;
    default: break;
    }
}

/* --- the path of operations --------------------------------------------------------------------------------------- */

/* The stream calls this in place of the operation. */
static ls_status meet(const void *arguments) {
    const ls_operation *operation = arguments;
    ls_comm *comm = operation->comm;
    ls_status status = agree(operation);
    if (status != LS_OK) return status;
    count(operation);
    bool is_all_reduce = operation->what.kind == LS_OPERATION_ALL_REDUCE;
    if (ls_probing() && comm->world_size > 1) {
        ls_comm_probe_meeting(operation, is_all_reduce ? comm->allreduce->name : NULL);
    }
    return LS_OK;
}

static ls_status enqueue(const ls_operation *operation, ls_stream *stream) {
    ls_comm *comm = operation->comm;
    ls_status status = ls_comm_check(comm, &operation->what);
    if (status != LS_OK) return status;
    if (comm->world_size == 1 && !operation->send) { /* in place and alone: no work, as in other groups */
        ls_comm_count_operation(comm);
        return LS_OK;
    }
    ls_stream_launch_meeting(stream, ls_operation_name(operation->what.kind), meet, operation, sizeof *operation);
    return ls_device_status(comm->device);
}

static void close_nothing(ls_comm *comm) { (void)comm; }

static const struct ls_path path_meta = {
    .name = "meta", .takes_host = true, .enqueue = enqueue, .close = close_nothing};

void ls_meta_attach(ls_comm *comm, ls_device *device) {
    comm->path = &path_meta;
    comm->device = device;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Regions are the attached device's memory, and there are no other ranks. */
static ls_status fill_nothing(ls_comm *comm, ls_region *region) {
    (void)comm, (void)region;
    return LS_OK;
}

static void empty_nothing(ls_comm *comm, ls_region *region) { (void)comm, (void)region; }

static const struct ls_transport transport_meta = {
    .name = "meta", .fill = fill_nothing, .empty = empty_nothing, .leave = close_nothing};

ls_status ls_comm_create_meta(ls_comm **out, const ls_comm_options *options, ls_device *device) {
    *out = NULL;
    ls_status status = ls_group_check_options(options);
    if (status != LS_OK) return status;
    ls_comm *comm = *out = ls_group_endpoint(&transport_meta, options, options->rank);
    if (!comm) return LS_ERR_NO_MEMORY;
    ls_meta_attach(comm, device);
    return LS_OK;
}
