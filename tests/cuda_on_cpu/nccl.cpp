/* NCCL on the CPU: communicators whose ranks are threads of a process or processes of a machine.
 *
 *   init      ncclCommInitRankConfig enters the rank into the board of the id (nccl_board.h); the communicator is in
 *             progress until all ranks have arrived. Two ranks on one GPU: ncclInvalidUsage, as in NCCL. An id whose
 *             process has ended: in progress for ever
 *   calls     the first call of each kind on a non-blocking communicator is in progress for a few calls of
 *             ncclCommGetAsyncError, and only then put on its stream, so that a caller that does not poll waits for
 *             ever. While one is in progress, others are refused. NCCL_ON_CPU_LOOKS=n: every call is in progress for n
 *             polls, as with NCCL 2.28. Another thread then puts it on its stream
 *   run       on the streams' engine (nccl_work.h). A rank does not detect that another has died, is late or runs a
 *             different operation
 *   end       ncclCommFinalize is in progress until all ranks have called it; ncclCommAbort ends operations in
 *             progress, of this rank only. Then both ncclCommAbort and ncclCommDestroy wait, as NCCL's do: until no
 *             graph holds an operation of the communicator, and for the whole device (the calling thread's current
 *             one), on which another communicator's operations may wait for ever. A communicator that has been
 *             destroyed or aborted is freed, even if the call returns ncclInProgress
 *   faults    CUDA_ON_CPU_FAIL=function:n:code, with NCCL's codes. ncclCommGetAsyncError: from then on the
 *             communicator's state; ncclCommInitRankConfig:n:7: the rank never makes progress, and the others wait for
 *             it
 *   stricter  buffers must be memory of the communicator's GPU, streams its own; sums, minima and maxima of the
 *             project's five types only */
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/cuda_on_cpu/nccl_comm.h"

using namespace cuda_on_cpu;

namespace {

constexpr int LOOKS = 3; /* polls at a first call, before it is done */

int looks_at_each_call() {
    const char *text = std::getenv("NCCL_ON_CPU_LOOKS");
    return text ? std::atoi(text) : 0;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

thread_local std::string last_text;

ncclResult_t say(ncclComm_t comm, ncclResult_t result, const std::string &text) {
    last_text = text;
    if (comm) comm->text = text;
    return result;
}

ncclResult_t begin(const char *function) {
    auto fault = static_cast<ncclResult_t>(injected(function));
    return fault == ncclSuccess ? fault : say(nullptr, fault, std::string("injected into ") + function);
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

struct Messages {
    ncclComm_t comm;
    cudaStream_t stream;
    std::vector<Message> messages;
};

struct Group {
    int depth = 0;
    ncclResult_t error = ncclSuccess;
    bool in_progress = false;
    std::vector<Messages> messages; /* for each communicator and stream */
};
thread_local Group group;

/* --- state -------------------------------------------------------------------------------------------------------- */

void look_for_ranks(ncclComm_t comm) {
    const Crew &crew = *comm->crew;
    if (comm->lost) return;
    Board &board = crew.map->board();
    for (int r = 0; r < crew.size; r++)
        if (!board.rank[r].joined) return;
    crew.map->close_id();
    comm->phase = Phase::up;
    for (int a = 0; a < crew.size; a++) {
        for (int b = a + 1; b < crew.size && comm->error == ncclSuccess; b++) {
            const BoardRank &one = board.rank[a], &other = board.rank[b];
            if (std::strcmp(one.host, other.host) != 0 || std::strcmp(one.bus_id, other.bus_id) != 0) continue;
            comm->error = say(comm, ncclInvalidUsage,
                              "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " + std::to_string(b) +
                                  " both on CUDA device " + one.bus_id);
        }
    }
}

ncclResult_t put_on_stream(ncclComm_t comm, cudaStream_t stream, const Work &work) {
    if (enqueue(stream, "nccl", work, comm->crew.get()) == cudaSuccess) return ncclSuccess;
    return comm->error = say(comm, ncclUnhandledCudaError, "the stream takes no work");
}

void look_for_deferred(ncclComm_t comm) {
    if (comm->deferred.empty() || --comm->looks > 0) return;
    std::thread([comm] {
        for (const Deferred &d : comm->deferred) (void)put_on_stream(comm, d.stream, d.work);
    }).join();
    comm->deferred.clear();
}

void look_for_end(ncclComm_t comm) {
    Board &board = comm->crew->map->board();
    for (int r = 0; r < comm->crew->size; r++)
        if (!board.rank[r].finalized) return;
    comm->phase = Phase::finalized;
}

ncclResult_t state_of(ncclComm_t comm) {
    if (comm->error != ncclSuccess) return comm->error;
    if (comm->phase == Phase::coming_up) look_for_ranks(comm);
    if (comm->phase == Phase::finalizing) look_for_end(comm);
    look_for_deferred(comm);
    if (comm->error != ncclSuccess) return comm->error;
    bool busy = comm->phase == Phase::coming_up || comm->phase == Phase::finalizing || !comm->deferred.empty();
    return busy ? ncclInProgress : ncclSuccess;
}

/* The result of a call that may be in progress. */
ncclResult_t outcome(ncclComm_t comm) {
    ncclResult_t state = comm->error;
    bool busy = comm->phase == Phase::coming_up || comm->phase == Phase::finalizing || !comm->deferred.empty();
    if (state == ncclSuccess && busy) state = ncclInProgress;
    if (group.depth > 0) {
        group.in_progress = group.in_progress || state == ncclInProgress;
        return state == ncclInProgress ? ncclSuccess : state;
    }
    while (comm->blocking && state == ncclInProgress) {
        usleep(100);
        state = state_of(comm);
    }
    return state;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

ncclResult_t defer_or_put(ncclComm_t comm, int kind, cudaStream_t stream, const Work &work) {
    int looks = looks_at_each_call();
    bool first = looks > 0 || !comm->called[static_cast<size_t>(kind)];
    comm->called[static_cast<size_t>(kind)] = true;
    if (comm->blocking || (!first && comm->deferred.empty())) {
        ncclResult_t put = put_on_stream(comm, stream, work);
        return put == ncclSuccess ? outcome(comm) : put;
    }
    comm->deferred.push_back({stream, work});
    comm->looks = looks > 0 ? looks : LOOKS;
    return outcome(comm);
}

bool is_usable(ncclComm_t comm, const void *buffer, size_t nbytes) {
    int device = -1;
    return nbytes == 0 || (in_device_memory(buffer, nbytes, &device) && device == comm->device);
}

ncclResult_t check(ncclComm_t comm, cudaStream_t stream, ncclDataType_t type, int peer, const char *function) {
    ncclResult_t fault = begin(function);
    if (fault != ncclSuccess) return fault;
    int device = -1;
    if (!comm) return say(comm, ncclInvalidArgument, std::string(function) + ": comm is NULL");
    if (comm->error != ncclSuccess) return comm->error;
    if (comm->phase != Phase::up || (group.depth == 0 && !comm->deferred.empty()))
        return say(comm, ncclInvalidArgument, std::string(function) + ": the communicator is in progress");
    if (device_of_stream(stream, &device) != cudaSuccess || device != comm->device)
        return say(comm, ncclInvalidUsage, std::string(function) + ": the stream is not of the communicator's GPU");
    if (nbytes_of(type) == 0) return say(comm, ncclInvalidArgument, std::string(function) + ": invalid type");
    if (peer < 0 || peer >= comm->crew->size)
        return say(comm, ncclInvalidArgument, std::string(function) + ": invalid root or peer");
    return ncclSuccess;
}

ncclResult_t run_messages(const Messages &m) {
    /* The first message between two ranks connects them. */
    return defer_or_put(m.comm, 10, m.stream, work_of(m.comm->crew, m.messages));
}

} // namespace

ncclResult_t cuda_on_cpu::run_collective(const char *function, const Collective &c, const Shape &shape, ncclComm_t comm,
                                         cudaStream_t stream) {
    auto type = static_cast<ncclDataType_t>(c.call.type);
    ncclResult_t checked = check(comm, stream, type, c.call.root, function);
    if (checked != ncclSuccess) return group.depth > 0 ? group.error = checked : checked;
    size_t send_nbytes = shape.send_count * nbytes_of(type), receive_nbytes = shape.receive_count * nbytes_of(type);
    bool reduces = c.call.kind != BROADCAST && c.call.kind != ALL_GATHER;
    bool known = c.call.reduction == ncclSum || c.call.reduction == ncclMin || c.call.reduction == ncclMax;
    ncclResult_t wrong = ncclSuccess;
    if (reduces && !known) wrong = say(comm, ncclInvalidArgument, std::string(function) + ": invalid reduction");
    if (!is_usable(comm, c.send, send_nbytes) || !is_usable(comm, c.receive, receive_nbytes))
        wrong = say(comm, ncclInvalidArgument, std::string(function) + ": a buffer is no memory of the GPU");
    if (send_nbytes > BOARD_SLOT_NBYTES) wrong = say(comm, ncclInternalError, "too large for NCCL on the CPU");
    if (wrong != ncclSuccess) return group.depth > 0 ? group.error = wrong : wrong;
    return defer_or_put(comm, c.call.kind, stream, work_of(comm->crew, c));
}

ncclResult_t cuda_on_cpu::add_message(const char *function, const Message &message, ncclDataType_t type,
                                      ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t wrong = check(comm, stream, type, message.peer, function);
    if (wrong == ncclSuccess && !is_usable(comm, message.buffer, message.nbytes))
        wrong = say(comm, ncclInvalidArgument, std::string(function) + ": the buffer is no memory of the GPU");
    if (wrong == ncclSuccess && message.nbytes > BOARD_MESSAGE_NBYTES)
        wrong = say(comm, ncclInternalError, "too large for NCCL on the CPU");
    if (wrong != ncclSuccess) return group.depth > 0 ? group.error = wrong : wrong;
    if (group.depth == 0) return run_messages({comm, stream, {message}});
    for (Messages &m : group.messages) {
        if (m.comm != comm || m.stream != stream) continue;
        m.messages.push_back(message);
        return ncclSuccess;
    }
    group.messages.push_back({comm, stream, {message}});
    return ncclSuccess;
}

/* --- the entry points: versions, ids, texts ----------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version) {
    ncclResult_t fault = begin("ncclGetVersion");
    if (fault != ncclSuccess) return fault;
    const char *text = std::getenv("NCCL_ON_CPU_VERSION");
    *version = text && *text ? std::atoi(text) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    ncclResult_t fault = begin("ncclGetUniqueId");
    if (fault != ncclSuccess) return fault;
    return BoardMap::make_id(id) ? ncclSuccess : say(nullptr, ncclSystemError, "no file for a board");
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t comm) { return comm ? comm->text.c_str() : last_text.c_str(); }

/* --- communicators ------------------------------------------------------------------------------------------------ */

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    ncclResult_t fault = begin("ncclCommInitRankConfig");
    *comm = nullptr;
    if (fault != ncclSuccess && fault != ncclInProgress) return fault;
    if (nranks < 1 || nranks > BOARD_RANKS || rank < 0 || rank >= nranks)
        return say(nullptr, ncclInvalidArgument, "invalid rank or size");
    auto crew = std::make_shared<Crew>();
    crew->map = BoardMap::open(id);
    crew->rank = rank;
    crew->size = nranks;
    bool lost = fault == ncclInProgress || !crew->map;
    bool blocking = !config || config->blocking != 0;
    auto *made = new ncclComm{crew, current_device(), blocking, lost, {}, {}, {}, {}, {}, {}};
    if (!lost) {
        BoardRank &own = crew->map->board().rank[rank];
        own.process = getpid();
        (void)gethostname(own.host, sizeof own.host - 1);
        (void)cudaDeviceGetPCIBusId(own.bus_id, sizeof own.bus_id, made->device);
        own.joined = 1;
    }
    *comm = made;
    return outcome(made);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    ncclResult_t fault = begin("ncclCommFinalize");
    if (fault != ncclSuccess) return fault;
    if (!comm || comm->phase != Phase::up) return say(comm, ncclInvalidArgument, "the communicator is not up");
    comm->phase = Phase::finalizing;
    comm->crew->map->board().rank[comm->crew->rank].finalized = 1;
    return outcome(comm);
}

static void take_down(ncclComm_t comm) {
    while (is_recorded(comm->crew.get())) usleep(1000);
    (void)cudaDeviceSynchronize();
    delete comm;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    ncclResult_t fault = begin("ncclCommDestroy");
    if (fault != ncclSuccess) return fault;
    if (comm->phase != Phase::finalized) return say(comm, ncclInvalidUsage, "the communicator was not finalized");
    bool blocking = comm->blocking;
    take_down(comm);
    return blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    ncclResult_t fault = begin("ncclCommAbort");
    bool blocking = comm->blocking;
    comm->crew->aborted = true;
    take_down(comm);
    return fault != ncclSuccess || blocking ? fault : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    ncclResult_t fault = begin("ncclCommGetAsyncError");
    if (fault != ncclSuccess) comm->error = say(comm, fault, "injected into the communicator");
    *state = state_of(comm);
    return ncclSuccess;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart() {
    ncclResult_t fault = begin("ncclGroupStart");
    if (fault == ncclSuccess) group.depth++;
    return fault;
}

ncclResult_t ncclGroupEnd() {
    ncclResult_t fault = begin("ncclGroupEnd");
    if (group.depth == 0) return say(nullptr, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0) return fault;
    Group ended;
    std::swap(ended, group);
    if (fault != ncclSuccess || ended.error != ncclSuccess) return fault != ncclSuccess ? fault : ended.error;
    for (const Messages &m : ended.messages) {
        ncclResult_t result = run_messages(m);
        if (result != ncclSuccess && result != ncclInProgress) return result;
        ended.in_progress = ended.in_progress || result == ncclInProgress;
    }
    return ended.in_progress ? ncclInProgress : ncclSuccess;
}
