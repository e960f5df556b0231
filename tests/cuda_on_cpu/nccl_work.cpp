/* The operations of the fake NCCL, as work that never blocks the engine.
 *   collective : a rank puts its contribution into its slot once all ranks have read the previous ones, announces it,
 *                waits until all have announced theirs, and computes its result from all slots. Reductions add the
 *                ranks in order 0, 1, ..., fp16 and bf16 in fp32 with one rounding at the end
 *   message    : the sender puts it into the pair's place once that is free, the receiver takes it; a receive of a
 *                different size waits for ever
 *   never      : if ranks run different operations at the same place, or a rank does not arrive: until a rank aborts */
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/dtype.h"
#include "tests/cuda_on_cpu/nccl_work.h"

namespace cuda_on_cpu {

namespace {

/* --- reductions --------------------------------------------------------------------------------------------------- */

float load(const float *from) { return *from; }
int32_t load(const int32_t *from) { return *from; }
int64_t load(const int64_t *from) { return *from; }
double load(const double *from) { return *from; }

struct Half {
    uint16_t bits;
};
struct Bfloat {
    uint16_t bits;
};
float load(const Half *from) { return ls_fp16_to_float(from->bits); }
float load(const Bfloat *from) { return ls_bf16_to_float(from->bits); }

void store(float *to, float value) { *to = value; }
void store(int32_t *to, int32_t value) { *to = value; }
void store(int64_t *to, int64_t value) { *to = value; }
void store(double *to, double value) { *to = value; }
void store(Half *to, float value) { to->bits = ls_fp16_from_float(value); }
void store(Bfloat *to, float value) { to->bits = ls_bf16_from_float(value); }

float sum(float a, float b) { return a + b; }
double sum(double a, double b) { return a + b; }
int32_t sum(int32_t a, int32_t b) { return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }
int64_t sum(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

/* As in NCCL, a NaN next to a number is dropped. */
float least(float a, float b) { return std::fmin(a, b); }
float most(float a, float b) { return std::fmax(a, b); }
double least(double a, double b) { return std::fmin(a, b); }
double most(double a, double b) { return std::fmax(a, b); }
template <typename T> T least(T a, T b) { return std::min(a, b); }
template <typename T> T most(T a, T b) { return std::max(a, b); }

template <typename T> void reduce(const Crew &crew, const Call &call, size_t first, size_t count, void *output) {
    for (size_t i = 0; i < count; i++) {
        auto at = [&](int rank) { return load(reinterpret_cast<const T *>(crew.map->slot(rank)) + first + i); };
        auto value = at(0);
        for (int r = 1; r < crew.size; r++) {
            auto next = at(r);
            if (call.reduction == ncclSum) value = sum(value, next);
            if (call.reduction == ncclMin) value = least(value, next);
            if (call.reduction == ncclMax) value = most(value, next);
        }
        store(static_cast<T *>(output) + i, value);
    }
}

void reduce_any(const Crew &crew, const Call &call, size_t first, void *output) {
    auto count = static_cast<size_t>(call.count);
    switch (call.type) {
    case ncclFloat32: reduce<float>(crew, call, first, count, output); break;
    case ncclFloat16: reduce<Half>(crew, call, first, count, output); break;
    case ncclBfloat16: reduce<Bfloat>(crew, call, first, count, output); break;
    case ncclInt32: reduce<int32_t>(crew, call, first, count, output); break;
    case ncclInt64: reduce<int64_t>(crew, call, first, count, output); break;
    case ncclFloat64: reduce<double>(crew, call, first, count, output); break;
    default: break;
    }
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

size_t part_nbytes(const Call &call) {
    return static_cast<size_t>(call.count) * nbytes_of(static_cast<ncclDataType_t>(call.type));
}

/* Bytes of a rank's contribution. */
size_t contribution_nbytes(const Crew &crew, const Call &call) {
    if (call.kind == BROADCAST && call.root != crew.rank) return 0;
    return part_nbytes(call) * (call.kind == REDUCE_SCATTER ? static_cast<size_t>(crew.size) : 1);
}

void make_result(const Crew &crew, const Collective &c) {
    size_t nbytes = part_nbytes(c.call);
    auto rank = static_cast<size_t>(crew.rank);
    switch (c.call.kind) {
    case ALL_REDUCE: reduce_any(crew, c.call, 0, c.receive); break;
    case REDUCE:
        if (crew.rank == c.call.root) reduce_any(crew, c.call, 0, c.receive);
        break;
    case REDUCE_SCATTER: reduce_any(crew, c.call, rank * static_cast<size_t>(c.call.count), c.receive); break;
    case BROADCAST: std::memcpy(c.receive, crew.map->slot(c.call.root), nbytes); break;
    default:
        for (int r = 0; r < crew.size; r++)
            std::memcpy(static_cast<char *>(c.receive) + static_cast<size_t>(r) * nbytes, crew.map->slot(r), nbytes);
    }
}

Progress run_collective(Crew &crew, const Collective &c, uint64_t *number, bool *posted) {
    Board &board = crew.map->board();
    BoardRank &own = board.rank[crew.rank];
    if (crew.aborted) return Progress::done;
    if (*number == 0) *number = ++crew.collectives;
    for (int r = 0; !*posted && r < crew.size; r++)
        if (board.rank[r].done < *number - 1) return Progress::later;
    if (!*posted) {
        size_t nbytes = contribution_nbytes(crew, c.call);
        if (nbytes > 0) std::memcpy(crew.map->slot(crew.rank), c.send, nbytes);
        own.call = c.call;
        own.posted = *number;
        *posted = true;
    }
    for (int r = 0; r < crew.size; r++)
        if (board.rank[r].posted < *number || !(board.rank[r].call == c.call)) return Progress::later;
    make_result(crew, c);
    own.done = *number;
    return Progress::done;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

void advance_send(const Crew &crew, Message &m) {
    BoardPair &pair = crew.map->board().pair[crew.rank][m.peer];
    if (m.stage == 0 && pair.posted == pair.taken) {
        std::memcpy(crew.map->message(crew.rank, m.peer), m.buffer, m.nbytes);
        pair.nbytes = m.nbytes;
        m.number = ++pair.posted;
        m.stage = 1;
    }
    if (m.stage == 1 && pair.taken >= m.number) m.stage = 2;
}

void advance_receive(const Crew &crew, Message &m) {
    BoardPair &pair = crew.map->board().pair[m.peer][crew.rank];
    if (pair.posted == pair.taken || pair.nbytes != m.nbytes) return;
    std::memcpy(m.buffer, crew.map->message(m.peer, crew.rank), m.nbytes);
    ++pair.taken;
    m.stage = 2;
}

Progress run_messages(const Crew &crew, std::vector<Message> &messages) {
    if (crew.aborted) return Progress::done;
    bool waits[2][BOARD_RANKS] = {};
    bool all_done = true;
    for (Message &m : messages) {
        bool &behind = waits[m.sends][m.peer]; /* an earlier message of the same pair is unfinished */
        if (m.stage < 2 && !behind) m.sends ? advance_send(crew, m) : advance_receive(crew, m);
        behind = behind || m.stage < 2;
        all_done = all_done && m.stage == 2;
    }
    return all_done ? Progress::done : Progress::later;
}

} // namespace

size_t nbytes_of(ncclDataType_t type) {
    switch (type) {
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclFloat64:
    case ncclInt64: return 8;
    default: return 0;
    }
}

Work work_of(const CrewRef &crew, const Collective &collective) {
    return [crew, collective, number = uint64_t{0}, posted = false]() mutable {
        return run_collective(*crew, collective, &number, &posted);
    };
}

Work work_of(const CrewRef &crew, const std::vector<Message> &messages) {
    return [crew, own = std::vector<Message>(messages)]() mutable { return run_messages(*crew, own); };
}

} // namespace cuda_on_cpu
