/* comm — turns the calls of comm.h into tasks on a stream. Arguments are checked here, once; later stages trust them. */
#include "common/comm/comm.h"

#include <string.h>

#include "common/base/hash.h"
#include "common/comm/carrier.h"
#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

int ls_comm_rank(const ls_comm *comm) { return comm->rank; }
int ls_comm_world_size(const ls_comm *comm) { return comm->world_size; }
int ls_comm_job_rank(const ls_comm *comm, int rank) { return ls_job_rank(comm, rank); }
const char *ls_comm_allreduce(const ls_comm *comm) { return comm->allreduce->name; }

static uint64_t read_total(const _Atomic uint64_t *total) { return atomic_load_explicit(total, memory_order_relaxed); }

/* Only the thread that runs operations adds; others may read meanwhile. */
static void add(_Atomic uint64_t *total, size_t value) {
    atomic_store_explicit(total, read_total(total) + value, memory_order_relaxed);
}

void ls_comm_count_sent(ls_comm *comm, size_t messages, size_t nbytes) {
    add(&comm->sent_messages, messages);
    add(&comm->sent_bytes, nbytes);
}

void ls_comm_count_received(ls_comm *comm, size_t messages, size_t nbytes) {
    add(&comm->received_messages, messages);
    add(&comm->received_bytes, nbytes);
}

/* In a group of one, the thread that enqueues runs some operations itself, while the stream may run others. */
void ls_comm_count_operation(ls_comm *comm) { atomic_fetch_add_explicit(&comm->operations, 1, memory_order_relaxed); }

void ls_comm_traffic_read(const ls_comm *comm, ls_comm_traffic *traffic) {
    *traffic = (ls_comm_traffic){.operations = read_total(&comm->operations),
                                 .sent_messages = read_total(&comm->sent_messages),
                                 .sent_bytes = read_total(&comm->sent_bytes),
                                 .received_messages = read_total(&comm->received_messages),
                                 .received_bytes = read_total(&comm->received_bytes)};
}

/* --- on the stream ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *label;
    ls_status (*run)(const ls_operation *operation);
} operations[] = {
    [LS_OPERATION_ALL_REDUCE] = {"all_reduce", ls_run_all_reduce},
    [LS_OPERATION_BROADCAST] = {"broadcast", ls_run_broadcast},
    [LS_OPERATION_REDUCE] = {"reduce", ls_run_reduce},
    [LS_OPERATION_ALL_GATHER] = {"all_gather", ls_run_all_gather},
    [LS_OPERATION_REDUCE_SCATTER] = {"reduce_scatter", ls_run_reduce_scatter},
    [LS_OPERATION_GATHER] = {"gather", ls_run_gather},
    [LS_OPERATION_SCATTER] = {"scatter", ls_run_scatter},
    [LS_OPERATION_SEND] = {"send", ls_run_send},
    [LS_OPERATION_RECV] = {"recv", ls_run_recv},
    [LS_OPERATION_SEND_RECV] = {"send_recv", ls_run_send_recv},
    [LS_OPERATION_BARRIER] = {"barrier", ls_run_barrier},
};

/* In a group of one, an operation moves its send buffer to its receive buffer, if it has two. */
static void move_to_itself(const ls_operation *operation) {
    size_t nbytes = operation->what.count * ls_dtype_nbytes((ls_dtype)operation->what.dtype);
    if (operation->send && operation->receive && operation->send != operation->receive && nbytes > 0)
        memcpy(operation->receive, operation->send, nbytes);
}

ls_status ls_run_in_shared_memory(const ls_operation *operation) {
    return operations[operation->what.kind].run(operation);
}

static ls_status run_in_group(const ls_operation *operation) {
    ls_comm *comm = operation->comm;
    ls_comm_enter(comm);
    ls_status checked = ls_comm_check(comm, &operation->what), status = checked;
    if (checked == LS_OK) status = comm->carrier ? comm->carrier->run(operation) : ls_run_in_shared_memory(operation);
    ls_comm_leave(comm, checked == LS_OK ? status : LS_OK); /* an operation that was not begun has exposed no buffer */
    return status;
}

static ls_status run_alone(const ls_operation *operation) {
    ls_status status = ls_comm_check(operation->comm, &operation->what);
    if (status == LS_OK) move_to_itself(operation);
    return status;
}

static ls_status run_operation(const void *arguments) {
    const ls_operation *operation = arguments;
    ls_comm *comm = operation->comm;
    ls_flight_start(operation->mark, &operation->what);
    ls_status status = comm->world_size == 1 ? run_alone(operation) : run_in_group(operation);
    if (status != LS_OK) return status;
    ls_comm_count_operation(comm);
    ls_flight_end(operation->mark, &operation->what);
    return LS_OK;
}

ls_status ls_comm_launch_on_host(const ls_operation *operation, ls_stream *stream) {
    _Static_assert(sizeof *operation <= LS_TASK_ARGUMENTS_NBYTES, "an operation must fit into a task's arguments");
    ls_stream_launch_meeting(stream, operations[operation->what.kind].label, run_operation, operation,
                             sizeof *operation);
    return ls_device_status(ls_stream_device(stream));
}

/* For probes, a send and its receive are a meeting in a group of two ranks, with the pair's name and numbers. A
 * send_recv is the meeting of the message from the lower rank to the higher. */
static bool sends(const ls_comm *comm, const ls_announcement *what) {
    return what->kind == LS_OPERATION_SEND || (what->kind == LS_OPERATION_SEND_RECV && comm->rank < what->root);
}

static uint64_t name_pair(const ls_comm *comm, bool sends, const ls_announcement *what) {
    int32_t pair[] = {sends ? comm->rank : what->root, sends ? what->root : comm->rank};
    return ls_hash(comm->name_hash, pair, sizeof pair);
}

void ls_comm_probe_meeting(const ls_operation *operation, const char *algorithm) {
    const ls_comm *comm = operation->comm;
    const ls_announcement *what = &operation->what;
    bool pair = ls_is_point_to_point(what);
    struct ls_probe_record record =
        ls_probe_begin(LS_PROBE_MEETING, what->kind == LS_OPERATION_RECV ? "send" : operations[what->kind].label);
    record.object = (uintptr_t)(pair ? name_pair(comm, sends(comm, what), what) : comm->name_hash);
    bool received = what->kind == LS_OPERATION_SEND_RECV && !sends(comm, what);
    record.number = (uint32_t)(received ? what->offset : what->sequence);
    record.detail = algorithm;
    record.elements = what->count;
    record.bytes = what->count * ls_dtype_nbytes((ls_dtype)what->dtype);
    record.dtype = (uint8_t)what->dtype;
    record.peers = (int16_t)(pair ? 2 : comm->world_size);
    record.root = (int16_t)what->root;
    ls_probe_end(&record);
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

static ls_status check_arguments(const ls_comm *comm, const ls_announcement *what) {
    const char *name = operations[what->kind].label;
    if (what->dtype < 0 || what->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_INVALID, "%s: dtype %d is unknown", name, (int)what->dtype);
    if (what->op < 0 || what->op >= LS_REDUCE_OP_COUNT)
        return ls_fail(LS_ERR_INVALID, "%s: reduction %d is unknown", name, (int)what->op);
    if (what->root < -1 || what->root >= comm->world_size)
        return ls_fail(LS_ERR_INVALID, "%s: rank %d is out of range in a group of %d", name, (int)what->root,
                       comm->world_size);
    if (what->count > SIZE_MAX / 16 / (size_t)comm->world_size)
        return ls_fail(LS_ERR_INVALID, "%s: %zu elements exceed what memory can hold", name, (size_t)what->count);
    return LS_OK;
}

/* The buffer whose memory decides the operation's path: one that every rank has to pass. */
static const void *deciding_buffer(const ls_operation *operation) {
    bool receives = operation->what.kind == LS_OPERATION_SCATTER || !operation->send;
    return receives ? operation->receive : operation->send;
}

/* Whether the operation is on GPU memory. Without elements (or buffers) it takes the GPU's path on a GPU's stream, so
 * that all ranks decide alike. Most buffers are the group's own, which are searched first. */
bool ls_comm_is_on_gpu(const ls_operation *operation, const ls_stream *stream) {
    const ls_device *device = ls_stream_device(stream);
    const void *buffer = deciding_buffer(operation);
    if (ls_device_memory_is_host(device)) return false;
    if (!buffer || operation->what.count == 0) return operation->comm->path != NULL;
    return ls_region_on_gpu(operation->comm, buffer) || ls_device_is_gpu_memory(device, buffer);
}

static ls_status launch(const ls_operation *operation, ls_stream *stream) {
    ls_comm *comm = operation->comm;
    bool gpu = ls_comm_is_on_gpu(operation, stream);
    if (comm->path && (gpu || comm->path->takes_host)) return comm->path->enqueue(operation, stream);
    if (gpu)
        return ls_fail(LS_ERR_INVALID,
                       "%s: rank %d passes GPU memory, but the group has no attached device (ls_comm_attach_device)",
                       operations[operation->what.kind].label, ls_job_rank(comm, comm->rank));
    if (comm->world_size == 1 && !operation->send) return run_operation(operation); /* in place and alone: no work */
    return ls_comm_launch_on_host(operation, stream);
}

_Thread_local ls_status (*ls_operation_check)(const ls_operation *operation);

void ls_comm_label(ls_comm *comm, const char *text, int number) {
    comm->label = text;
    comm->label_number = number;
}

/* Checks, numbers and enqueues. `buffers` says whether this rank has passed its buffers. */
static ls_status enqueue(ls_operation *operation, ls_stream *stream, bool buffers) {
    ls_comm *comm = operation->comm;
    ls_announcement *what = &operation->what;
    const char *name = operations[what->kind].label;
    ls_status status = check_arguments(comm, what);
    if (status != LS_OK) return status;
    if (!buffers && what->count > 0)
        return ls_fail(LS_ERR_INVALID, "%s of %zu elements: rank %d passes a NULL buffer", name, (size_t)what->count,
                       ls_job_rank(comm, comm->rank));
    if (ls_is_point_to_point(what)) {
        if (what->root == comm->rank || what->root < 0)
            return ls_fail(LS_ERR_INVALID, "%s: rank %d cannot be rank %d's peer", name, (int)what->root, comm->rank);
        if (what->kind != LS_OPERATION_SEND) what->sequence = what->offset = ++comm->received[what->root];
        if (what->kind != LS_OPERATION_RECV) what->sequence = ++comm->sent[what->root];
    } else {
        what->sequence = ++comm->collectives;
    }
    if (__builtin_expect(ls_operation_check != NULL, 0)) status = ls_operation_check(operation);
    operation->mark = ls_flight_enqueue(comm, what);
    ls_comm_label(comm, NULL, -1);
    if (status == LS_OK && comm->debug && comm->ring) status = ls_comm_compare_before(comm, what);
    return status == LS_OK ? launch(operation, stream) : status;
}

static ls_operation make_operation(ls_comm *comm, ls_operation_kind kind, const void *send, void *receive, size_t count,
                                   ls_dtype dtype) {
    return (ls_operation){.comm = comm,
                          .send = send,
                          .receive = receive,
                          .what = {.kind = (int32_t)kind, .count = count, .dtype = (int32_t)dtype, .root = -1}};
}

ls_status ls_comm_all_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype,
                             ls_reduce_op op) {
    ls_operation operation = make_operation(comm, LS_OPERATION_ALL_REDUCE, NULL, buffer, count, dtype);
    operation.what.op = (int32_t)op;
    return enqueue(&operation, stream, buffer);
}

/* A root outside of the group must not pass as "no root". */
static int32_t rank_or_invalid(int rank) { return rank >= 0 ? (int32_t)rank : INT32_MIN; }

ls_status ls_comm_broadcast(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int root) {
    ls_operation operation = make_operation(comm, LS_OPERATION_BROADCAST, NULL, buffer, count, dtype);
    operation.what.root = rank_or_invalid(root);
    return enqueue(&operation, stream, buffer);
}

ls_status ls_comm_reduce(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, ls_reduce_op op,
                         int root) {
    ls_operation operation = make_operation(comm, LS_OPERATION_REDUCE, NULL, buffer, count, dtype);
    operation.what.op = (int32_t)op;
    operation.what.root = rank_or_invalid(root);
    return enqueue(&operation, stream, buffer);
}

ls_status ls_comm_all_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                             ls_dtype dtype) {
    ls_operation operation = make_operation(comm, LS_OPERATION_ALL_GATHER, send, receive, count, dtype);
    return enqueue(&operation, stream, send && receive);
}

ls_status ls_comm_reduce_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                                 ls_dtype dtype, ls_reduce_op op) {
    ls_operation operation = make_operation(comm, LS_OPERATION_REDUCE_SCATTER, send, receive, count, dtype);
    operation.what.op = (int32_t)op;
    return enqueue(&operation, stream, send && receive);
}

ls_status ls_comm_gather(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                         ls_dtype dtype, int root) {
    ls_operation operation = make_operation(comm, LS_OPERATION_GATHER, send, receive, count, dtype);
    operation.what.root = rank_or_invalid(root);
    return enqueue(&operation, stream, send && (receive || comm->rank != root));
}

ls_status ls_comm_scatter(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                          ls_dtype dtype, int root) {
    ls_operation operation = make_operation(comm, LS_OPERATION_SCATTER, send, receive, count, dtype);
    operation.what.root = rank_or_invalid(root);
    return enqueue(&operation, stream, receive && (send || comm->rank != root));
}

ls_status ls_comm_send(ls_comm *comm, ls_stream *stream, const void *buffer, size_t count, ls_dtype dtype, int peer) {
    ls_operation operation = make_operation(comm, LS_OPERATION_SEND, buffer, NULL, count, dtype);
    operation.what.root = rank_or_invalid(peer);
    return enqueue(&operation, stream, buffer);
}

ls_status ls_comm_recv(ls_comm *comm, ls_stream *stream, void *buffer, size_t count, ls_dtype dtype, int peer) {
    ls_operation operation = make_operation(comm, LS_OPERATION_RECV, NULL, buffer, count, dtype);
    operation.what.root = rank_or_invalid(peer);
    return enqueue(&operation, stream, buffer);
}

ls_status ls_comm_send_recv(ls_comm *comm, ls_stream *stream, const void *send, void *receive, size_t count,
                            ls_dtype dtype, int peer) {
    ls_operation operation = make_operation(comm, LS_OPERATION_SEND_RECV, send, receive, count, dtype);
    operation.what.root = rank_or_invalid(peer);
    return enqueue(&operation, stream, send && receive);
}

ls_status ls_comm_barrier(ls_comm *comm, ls_stream *stream) {
    ls_operation operation = make_operation(comm, LS_OPERATION_BARRIER, NULL, NULL, 0, LS_FP32);
    return enqueue(&operation, stream, true);
}

ls_status ls_comm_settle(ls_stream *stream, ls_status status) {
    ls_status done = ls_stream_synchronize(stream);
    return status != LS_OK ? status : done;
}
