/* nccl_operations — the operations of comm.h as calls of NCCL.
 *   idea  : all_reduce, broadcast, reduce, all_gather and reduce_scatter are NCCL's own. gather, scatter and send_recv
 *           are sends and receives in one ncclGroup, so that they run at the same time. barrier is an all-reduce of one
 *           number. An operation without elements is skipped
 *   cost  : a call of NCCL, an event, and the flight record. The host does not wait for the GPU or for other ranks,
 *           but it waits for NCCL: where the communicator is non-blocking, NCCL (2.28, say) hands every call to a new
 *           thread, and the host polls, yielding its core, until that thread has enqueued the operation: tens of
 *           microseconds for each, and much longer at the first operation of its kind, when NCCL connects ranks
 *   graphs: during a capture, NCCL's thread then enqueues the operation on the captured stream. The thread-local mode
 *           of capture (graph.c) allows other threads to do that, and tests/cuda_on_cpu does the same; on real GPUs
 *           this is the first thing to verify
 *   order : that of the stream. NCCL chooses the order of additions; fp16 and bf16 sums are rounded at each addition,
 *           and min and max may drop a NaN
 *   fails : an error that NCCL returns at once breaks the group; nccl_watch.c finds later ones */
#include "common/comm/nccl/nccl_group.h"
#include "common/comm/wait.h"
#include "common/device/host_lock.h"

static ncclDataType_t type_of(int32_t dtype) {
    static const ncclDataType_t types[] = {[LS_FP32] = ncclFloat32, [LS_FP16] = ncclFloat16, [LS_BF16] = ncclBfloat16,
                                           [LS_INT32] = ncclInt32,  [LS_INT64] = ncclInt64,  [LS_FP64] = ncclFloat64};
    _Static_assert(sizeof types / sizeof *types == LS_DTYPE_COUNT, "a type of NCCL for each dtype");
    return types[dtype];
}

static ncclRedOp_t reduction_of(int32_t op) {
    static const ncclRedOp_t reductions[] = {
        [LS_REDUCE_SUM] = ncclSum, [LS_REDUCE_MIN] = ncclMin, [LS_REDUCE_MAX] = ncclMax};
    _Static_assert(sizeof reductions / sizeof *reductions == LS_REDUCE_OP_COUNT, "a reduction of NCCL for each");
    return reductions[op];
}

static ncclResult_t first_of(ncclResult_t first, ncclResult_t then) { return first != ncclSuccess ? first : then; }

/* gather and scatter: each rank passes its own `part`; root has all parts, concatenated, in `parts`. */
static ncclResult_t run_with_root(const struct ls_nccl_group *g, const ls_operation *operation, cudaStream_t stream) {
    const ls_announcement *what = &operation->what;
    bool gathers = what->kind == LS_OPERATION_GATHER;
    ncclDataType_t type = type_of(what->dtype);
    size_t nbytes = what->count * ls_dtype_nbytes((ls_dtype)what->dtype);
    char *parts = gathers ? operation->receive : (char *)(uintptr_t)operation->send;
    char *part = gathers ? (char *)(uintptr_t)operation->send : operation->receive;
    bool root = g->comm->rank == what->root;
    bool in_place = root && part == parts + (size_t)g->comm->rank * nbytes;
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    if (!in_place) {
        result = gathers ? ncclSend(part, what->count, type, what->root, g->nccl, stream)
                         : ncclRecv(part, what->count, type, what->root, g->nccl, stream);
    }
    for (int r = 0; root && r < g->comm->world_size; r++) {
        if (r == g->comm->rank && in_place) continue;
        char *theirs = parts + (size_t)r * nbytes;
        result = first_of(result, gathers ? ncclRecv(theirs, what->count, type, r, g->nccl, stream)
                                          : ncclSend(theirs, what->count, type, r, g->nccl, stream));
    }
    return first_of(result, ncclGroupEnd());
}

static ncclResult_t run_both_ways(const struct ls_nccl_group *g, const ls_operation *operation, cudaStream_t stream) {
    const ls_announcement *what = &operation->what;
    ncclDataType_t type = type_of(what->dtype);
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    result = ncclSend(operation->send, what->count, type, what->root, g->nccl, stream);
    result = first_of(result, ncclRecv(operation->receive, what->count, type, what->root, g->nccl, stream));
    return first_of(result, ncclGroupEnd());
}

static ncclResult_t run(const struct ls_nccl_group *g, const ls_operation *operation, cudaStream_t stream) {
    const ls_announcement *what = &operation->what;
    const void *send = operation->send;
    void *receive = operation->receive;
    size_t count = what->count;
    ncclDataType_t type = type_of(what->dtype);
    ncclRedOp_t reduction = reduction_of(what->op);
    bool root = g->comm->rank == what->root;
    switch (what->kind) {
    case LS_OPERATION_ALL_REDUCE: return ncclAllReduce(receive, receive, count, type, reduction, g->nccl, stream);
    case LS_OPERATION_BROADCAST: return ncclBroadcast(receive, receive, count, type, what->root, g->nccl, stream);
    case LS_OPERATION_REDUCE:
        return ncclReduce(receive, root ? receive : NULL, count, type, reduction, what->root, g->nccl, stream);
    case LS_OPERATION_ALL_GATHER: return ncclAllGather(send, receive, count, type, g->nccl, stream);
    case LS_OPERATION_REDUCE_SCATTER: return ncclReduceScatter(send, receive, count, type, reduction, g->nccl, stream);
    case LS_OPERATION_GATHER:
    case LS_OPERATION_SCATTER: return run_with_root(g, operation, stream);
    case LS_OPERATION_SEND: return ncclSend(send, count, type, what->root, g->nccl, stream);
    case LS_OPERATION_RECV: return ncclRecv(receive, count, type, what->root, g->nccl, stream);
    case LS_OPERATION_SEND_RECV: return run_both_ways(g, operation, stream);
    default: return ncclAllReduce(g->scratch, g->scratch, 1, ncclFloat32, ncclSum, g->nccl, stream);
    }
}

static bool is_nothing(const ls_announcement *what) { return what->count == 0 && what->kind != LS_OPERATION_BARRIER; }

/* Call after ls_nccl_enter. */
static ls_status put_on_stream(struct ls_nccl_group *g, const ls_operation *operation, ls_stream *stream,
                               const struct ls_cuda_lane *lane) {
    const ls_announcement *what = &operation->what;
    ls_status status = ls_comm_check(g->comm, what);
    if (status == LS_OK && !g->nccl) status = LS_ERR_PEER; /* another group of the GPU has reported it */
    if (status == LS_OK && !is_nothing(what)) {
        ls_flight_start(operation->mark, what);
        ncclResult_t result = run(g, operation, lane->stream);
        status = result == ncclSuccess ? LS_OK : ls_nccl_await_call(g, result, what);
        if (status == LS_OK) status = ls_nccl_remember(g, operation, stream);
    } else if (status == LS_OK) {
        ls_flight_end(operation->mark, what);
    }
    if (status != LS_OK) {
        ls_nccl_abort(g);
        ls_nccl_abort_neighbours(g);
        (void)ls_comm_abort(g->comm, "its GPU failed"); /* unless they have been given another reason */
    }
    return status;
}

static ls_status put(const ls_operation *operation, ls_stream *stream) {
    ls_comm *comm = operation->comm;
    struct ls_nccl_group *g = comm->path_state;
    const struct ls_cuda_lane *lane = ls_cuda_lane_of(stream);
    char text[LS_TEXT_CAPACITY];
    if (lane->gpu != g->gpu)
        return ls_fail(LS_ERR_INVALID, "%s: the stream is on GPU %d, but the group has attached GPU %d",
                       ls_announcement_text(comm, text, &operation->what, true), lane->gpu, g->gpu);
    ls_status status = ls_device_status(ls_stream_device(stream));
    if (status == LS_OK) {
        ls_nccl_enter(g);
        status = put_on_stream(g, operation, stream, lane);
        ls_nccl_leave(g);
    }
    if (status != LS_OK) return status;
    ls_comm_count_operation(comm);
    return ls_cuda_check_launch(stream, ls_operation_name(operation->what.kind));
}

/* The GPU does not report when the last rank arrived: its time for the operation includes the wait for that. */
ls_status ls_nccl_enqueue(const ls_operation *operation, ls_stream *stream) {
    ls_status status = ls_host_lock_pass(stream);
    if (status != LS_OK) return status;
    if (!ls_probing()) return put(operation, stream);
    const char *label = ls_operation_name(operation->what.kind);
    struct ls_probe_record record = ls_stream_begin_launch(stream, label);
    bool timed = ls_cuda_time_begin(stream, label);
    status = put(operation, stream);
    if (timed) ls_cuda_time_end(stream);
    if (status == LS_OK && operation->comm->world_size > 1) ls_comm_probe_meeting(operation, NULL);
    ls_probe_end(&record);
    return status;
}
