/* The file of a board: sparse, as large as it could ever become. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/cuda_on_cpu/nccl_board.h"

namespace cuda_on_cpu {

namespace {

constexpr char MAGIC[8] = {'c', 'p', 'u', 'n', 'c', 'c', 'l', '1'};
constexpr size_t BOARD_NBYTES = (sizeof(Board) + 4095) / 4096 * 4096;
constexpr size_t MESSAGES_AT = BOARD_NBYTES + BOARD_RANKS * BOARD_SLOT_NBYTES;
constexpr size_t FILE_NBYTES = MESSAGES_AT + BOARD_RANKS * BOARD_RANKS * BOARD_MESSAGE_NBYTES;

/* The contents of an ncclUniqueId. */
struct Id {
    char magic[8];
    int32_t process, fd;
    uint64_t file; /* its inode number, since descriptors are reused */
};
static_assert(sizeof(Id) <= NCCL_UNIQUE_ID_BYTES, "an id fits");

std::mutex own_fds_lock;
std::set<int> own_fds; /* descriptors of ids that are waiting for their ranks */

uint64_t number_of_file(int fd) {
    char path[64], target[128] = "";
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t nbytes = readlink(path, target, sizeof target - 1);
    uint64_t hash = 1469598103934665603U;
    for (ssize_t i = 0; i < nbytes; i++) hash = (hash ^ static_cast<unsigned char>(target[i])) * 1099511628211U;
    return hash;
}

} // namespace

bool BoardMap::make_id(ncclUniqueId *id) {
    static std::atomic<unsigned> count{0};
    char name[64];
    std::snprintf(name, sizeof name, "nccl-on-cpu-%d-%u", static_cast<int>(getpid()), count++);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) return false;
    if (ftruncate(fd, static_cast<off_t>(FILE_NBYTES)) != 0) {
        close(fd);
        return false;
    }
    Id made = {};
    std::memcpy(made.magic, MAGIC, sizeof MAGIC);
    made.process = getpid();
    made.fd = fd;
    made.file = number_of_file(fd);
    std::memset(id, 0, sizeof *id);
    std::memcpy(id, &made, sizeof made);
    std::lock_guard<std::mutex> guard(own_fds_lock);
    own_fds.insert(fd);
    return true;
}

std::shared_ptr<BoardMap> BoardMap::open(const ncclUniqueId &id) {
    Id made = {};
    std::memcpy(&made, &id, sizeof made);
    if (std::memcmp(made.magic, MAGIC, sizeof MAGIC) != 0) return nullptr;
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", made.process, made.fd);
    int fd = ::open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void *base = number_of_file(fd) == made.file
                     ? mmap(nullptr, FILE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0)
                     : MAP_FAILED;
    close(fd);
    if (base == MAP_FAILED) return nullptr;
    madvise(base, FILE_NBYTES, MADV_DONTDUMP);
    return std::shared_ptr<BoardMap>(new BoardMap(base, made.process == getpid() ? made.fd : -1));
}

BoardMap::~BoardMap() {
    close_id();
    munmap(base, FILE_NBYTES);
}

char *BoardMap::slot(int rank) const {
    return static_cast<char *>(base) + BOARD_NBYTES + static_cast<size_t>(rank) * BOARD_SLOT_NBYTES;
}

char *BoardMap::message(int from, int to) const {
    auto number = static_cast<size_t>(from) * BOARD_RANKS + static_cast<size_t>(to);
    return static_cast<char *>(base) + MESSAGES_AT + number * BOARD_MESSAGE_NBYTES;
}

void BoardMap::close_id() const {
    if (own_fd < 0) return;
    std::lock_guard<std::mutex> guard(own_fds_lock);
    if (own_fds.erase(own_fd) > 0) close(own_fd);
}

} // namespace cuda_on_cpu
