/* Device memory: one range of addresses for all devices, which no host thread may touch.
 *
 * Layout: device d owns [base + d * span, base + (d + 1) * span). An allocation begins at a multiple of 256 and is
 * followed by at least 256 bytes of red zone. Fresh memory holds bytes 0xFF (a NaN, whatever the type), the red zone
 * 0xA5. If a red zone has changed when its allocation is freed, the process ends with an error line; under
 * AddressSanitizer red zones and freed memory are poisoned, so that the access itself is reported. Freed memory is
 * returned to the system if it is large, and filled with 0xFF otherwise.
 *
 * Access: the range is mapped without access rights. open() grants read and write access (to the whole process: no
 * finer control exists on every machine), close() revokes it. With huge pages each takes about 10 us. */
#ifndef CUDA_ON_CPU_ARENA_H
#define CUDA_ON_CPU_ARENA_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cuda_on_cpu {

class Arena {
  public:
    Arena(int devices, size_t capacity_nbytes);
    ~Arena();
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    /* NULL if there is no room. Memory that is filled later (in stream order) is left unchanged. */
    void *allocate(int device, size_t nbytes);
    /* False if no live allocation begins there. */
    bool release(void *memory);

    /* The live allocation that contains `address`; false if there is none. */
    bool find(const void *address, int *device, uintptr_t *start, size_t *nbytes) const;
    /* Whether it is an address of device memory at all, live or not. */
    bool covers(const void *address) const;

    size_t capacity_nbytes() const { return capacity; }
    static size_t rounded_nbytes(size_t nbytes);
    /* Fills with zeros; whole huge pages get theirs from the system when they are touched. The arena must be open. */
    static void make_zero(void *memory, size_t nbytes);

    void open();
    void close();
    bool is_open() const { return opened; }

  private:
    struct Block {
        size_t nbytes;      /* as requested */
        size_t room_nbytes; /* including the red zone */
    };
    void give_rights(size_t from_nbytes, size_t to_nbytes, int device) const;
    void check_red_zone(uintptr_t start, const Block &block, int device) const;

    uintptr_t base = 0;
    size_t span = 0, capacity = 0;
    bool opened = false;
    std::map<uintptr_t, Block> live;
    std::vector<std::map<uintptr_t, size_t>> holes; /* of each device: start, bytes */
    std::vector<size_t> used, reach; /* of each device; reach: bytes from its start that were ever allocated */
};

} // namespace cuda_on_cpu

#endif
