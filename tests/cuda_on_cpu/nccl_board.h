/* Where the ranks of a communicator of the fake NCCL meet: a file without a name, which rank 0's process makes and the
 * others find under /proc/PID/fd: whatever kills a process, nothing stays behind. Everything in it is zero when it is
 * made. */
#ifndef CUDA_ON_CPU_NCCL_BOARD_H
#define CUDA_ON_CPU_NCCL_BOARD_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <nccl.h>

namespace cuda_on_cpu {

constexpr int BOARD_RANKS = 16;
constexpr size_t BOARD_SLOT_NBYTES = size_t{1} << 30;    /* of a rank's contribution to a collective */
constexpr size_t BOARD_MESSAGE_NBYTES = size_t{1} << 28; /* of a message from one rank to another */

/* What a rank runs; ranks that run different things wait for one another for ever, as they do in NCCL. */
struct Call {
    int32_t kind, type, reduction, root;
    uint64_t count;
    bool operator==(const Call &other) const {
        return kind == other.kind && type == other.type && reduction == other.reduction && root == other.root &&
               count == other.count;
    }
};

/* A rank's line; written by that rank. */
struct BoardRank {
    std::atomic<uint32_t> joined, finalized;
    int32_t process;
    char host[64], bus_id[16];
    std::atomic<uint64_t> posted,
        done;  /* collectives: so many contributions lie in its slot; it has used those of all */
    Call call; /* the one posted last */
};

/* From one rank to another: `posted` messages were put here, `taken` of them have been taken. */
struct BoardPair {
    std::atomic<uint64_t> posted, taken;
    uint64_t nbytes;
};

struct Board {
    BoardRank rank[BOARD_RANKS];
    BoardPair pair[BOARD_RANKS][BOARD_RANKS]; /* [from][to] */
};

/* A mapped board. */
class BoardMap {
  public:
    /* An id in this process; false: the system said no. */
    static bool make_id(ncclUniqueId *id);
    /* NULL: the id is none, or its process has gone. */
    static std::shared_ptr<BoardMap> open(const ncclUniqueId &id);
    ~BoardMap();
    BoardMap(const BoardMap &) = delete;
    BoardMap &operator=(const BoardMap &) = delete;

    Board &board() const { return *static_cast<Board *>(base); }
    char *slot(int rank) const;
    char *message(int from, int to) const;
    /* All have come: the file needs no name any more. */
    void close_id() const;

  private:
    explicit BoardMap(void *base_, int own_fd_) : base(base_), own_fd(own_fd_) {}
    void *base;
    int own_fd; /* of the process that made the id; -1 elsewhere */
};

} // namespace cuda_on_cpu

#endif
