/* NCCL's operations, as entry points: the data that each moves. */
#include "tests/cuda_on_cpu/nccl_comm.h"

using namespace cuda_on_cpu;

static Call call_of(CallKind kind, ncclDataType_t type, ncclRedOp_t reduction, int root, size_t count) {
    return {static_cast<int32_t>(kind), static_cast<int32_t>(type), static_cast<int32_t>(reduction),
            static_cast<int32_t>(root), count};
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return run_collective("ncclAllReduce", {call_of(ALL_REDUCE, type, op, 0, count), send, receive}, {count, count},
                          comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    bool sends = comm && comm->crew->rank == root;
    return run_collective("ncclBroadcast", {call_of(BROADCAST, type, ncclSum, root, count), send, receive},
                          {sends ? count : 0, count}, comm, stream);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    bool receives = comm && comm->crew->rank == root;
    return run_collective("ncclReduce", {call_of(REDUCE, type, op, root, count), send, receive},
                          {count, receives ? count : 0}, comm, stream);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    size_t ranks = comm ? static_cast<size_t>(comm->crew->size) : 1;
    return run_collective("ncclAllGather", {call_of(ALL_GATHER, type, ncclSum, 0, count), send, receive},
                          {count, count * ranks}, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    size_t ranks = comm ? static_cast<size_t>(comm->crew->size) : 1;
    return run_collective("ncclReduceScatter", {call_of(REDUCE_SCATTER, type, op, 0, count), send, receive},
                          {count * ranks, count}, comm, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_message("ncclSend", {true, peer, const_cast<void *>(send), count * nbytes_of(type), 0, 0}, type, comm,
                       stream);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_message("ncclRecv", {false, peer, receive, count * nbytes_of(type), 0, 0}, type, comm, stream);
}
