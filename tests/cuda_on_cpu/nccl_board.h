/* The shared memory of the ranks of a communicator of the fake NCCL: an unlinked file that rank 0's process creates and
 * the others open under /proc/PID/fd, so that no file is left behind when a process is killed. It is created zeroed. */
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

/* A rank's operation. Ranks that run different ones wait for one another for ever, as they do in NCCL. */
struct Call {
    int32_t kind, type, reduction, root;
    uint64_t count;
    bool operator==(const Call &other) const {
        return kind == other.kind && type == other.type && reduction == other.reduction && root == other.root &&
               count == other.count;
    }
};

/* A rank's entry, written by that rank. */
struct BoardRank {
    std::atomic<uint32_t> joined, finalized;
    int32_t process;
    char host[64], bus_id[16];
    /* collectives: contributions that this rank has put in its slot; collectives for which it has read all slots */
    std::atomic<uint64_t> posted, done;
    Call call; /* the one posted last */
};

/* From one rank to another: `posted` messages were sent, and `taken` of them received. */
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
    /* Creates an id in this process; false if a system call fails. */
    static bool make_id(ncclUniqueId *id);
    /* NULL if this is not an id, or its process has ended. */
    static std::shared_ptr<BoardMap> open(const ncclUniqueId &id);
    ~BoardMap();
    BoardMap(const BoardMap &) = delete;
    BoardMap &operator=(const BoardMap &) = delete;

    Board &board() const { return *static_cast<Board *>(base); }
    char *slot(int rank) const;
    char *message(int from, int to) const;
    /* Call when all ranks have opened the board: closes the descriptor that /proc/PID/fd shows. */
    void close_id() const;

  private:
    explicit BoardMap(void *base_, int own_fd_) : base(base_), own_fd(own_fd_) {}
    void *base;
    int own_fd; /* of the process that made the id; -1 elsewhere */
};

} // namespace cuda_on_cpu

#endif
