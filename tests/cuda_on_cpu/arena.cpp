/* Device memory: first fit among the holes of a device, lowest address first; adjacent holes are joined. arena.h
 * describes its purpose and layout.
 *   cost  : one pass over the holes per allocation, and one over the memory to fill it
 *   fails : NULL if there is no room; a changed red zone aborts the process. A device has twice as many addresses as
 *           bytes, so addresses run out before capacity only if holes are very unlucky; that is also "no room" */
#include "tests/cuda_on_cpu/arena.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, nbytes) ((void)(address), (void)(nbytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, nbytes) ((void)(address), (void)(nbytes))
#endif

namespace cuda_on_cpu {

namespace {

constexpr size_t ALIGNMENT = 256, RED_ZONE = 256, HUGE_PAGE = static_cast<size_t>(2) << 20;
constexpr int FRESH = 0xFF, RED = 0xA5;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

void *at(uintptr_t address) { return reinterpret_cast<void *>(address); }

} // namespace

size_t Arena::rounded_nbytes(size_t nbytes) { return round_up(nbytes, ALIGNMENT); }

void Arena::make_zero(void *memory, size_t nbytes) {
    uintptr_t start = reinterpret_cast<uintptr_t>(memory), end = start + nbytes;
    uintptr_t from = round_up(start, HUGE_PAGE), to = end / HUGE_PAGE * HUGE_PAGE;
    if (to <= from || madvise(at(from), to - from, MADV_DONTNEED)) from = to = end;
    std::memset(memory, 0, from - start);
    std::memset(at(to), 0, end - to);
}

Arena::Arena(int devices, size_t capacity_nbytes)
    : span(round_up(2 * capacity_nbytes + 32 * HUGE_PAGE, HUGE_PAGE)), capacity(capacity_nbytes) {
    auto count = static_cast<size_t>(devices);
    size_t nbytes = count * span + HUGE_PAGE;
    void *memory = mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::fprintf(stderr, "cuda_on_cpu: no %zu bytes of addresses for device memory: lower CUDA_ON_CPU_MEMORY\n",
                     nbytes);
        std::abort();
    }
    uintptr_t start = reinterpret_cast<uintptr_t>(memory);
    base = round_up(start, HUGE_PAGE);
    munmap(memory, base - start);
    munmap(at(base + count * span), start + nbytes - (base + count * span));
    (void)madvise(at(base), count * span, MADV_HUGEPAGE);
    (void)madvise(at(base), count * span, MADV_DONTDUMP);
    used.assign(count, 0);
    reach.assign(count, 0);
    holes.resize(count);
    for (size_t d = 0; d < count; d++) holes[d][base + d * span + RED_ZONE] = span - RED_ZONE;
}

Arena::~Arena() {
    size_t nbytes = used.size() * span;
    for (const auto &entry : live) ASAN_UNPOISON_MEMORY_REGION(at(entry.first), entry.second.room_nbytes);
    for (size_t d = 0; d < used.size(); d++) ASAN_UNPOISON_MEMORY_REGION(at(base + d * span), reach[d]);
    munmap(at(base), nbytes);
}

void Arena::give_rights(size_t from_nbytes, size_t to_nbytes, int device) const {
    uintptr_t start = base + static_cast<size_t>(device) * span;
    if (to_nbytes > from_nbytes && mprotect(at(start + from_nbytes), to_nbytes - from_nbytes, PROT_READ | PROT_WRITE)) {
        std::perror("cuda_on_cpu: mprotect");
        std::abort();
    }
}

void Arena::open() {
    if (opened) return;
    for (size_t d = 0; d < reach.size(); d++) give_rights(0, reach[d], static_cast<int>(d));
    opened = true;
}

void Arena::close() {
    if (!opened) return;
    for (size_t d = 0; d < reach.size(); d++) {
        if (reach[d] > 0) (void)mprotect(at(base + d * span), reach[d], PROT_NONE);
    }
    opened = false;
}

void *Arena::allocate(int device, size_t nbytes) {
    auto d = static_cast<size_t>(device);
    size_t rounded = rounded_nbytes(nbytes), room = rounded + RED_ZONE;
    if (nbytes > capacity || used[d] + rounded > capacity) return nullptr;
    for (auto hole = holes[d].begin(); hole != holes[d].end(); ++hole) {
        uintptr_t start = hole->first;
        if (hole->second < room) continue;
        if (hole->second > room) holes[d][start + room] = hole->second - room;
        holes[d].erase(hole);
        size_t end = round_up(start + room - (base + d * span), HUGE_PAGE);
        if (end > reach[d]) {
            if (opened) give_rights(reach[d], end, device);
            reach[d] = end;
        }
        bool was_open = opened;
        open();
        ASAN_UNPOISON_MEMORY_REGION(at(start), room);
        std::memset(at(start), FRESH, nbytes);
        std::memset(at(start + nbytes), RED, room - nbytes);
        ASAN_POISON_MEMORY_REGION(at(start), room);
        ASAN_UNPOISON_MEMORY_REGION(at(start), nbytes);
        if (!was_open) close();
        live[start] = {nbytes, room};
        used[d] += rounded;
        return at(start);
    }
    return nullptr;
}

void Arena::check_red_zone(uintptr_t start, const Block &block, int device) const {
    const auto *red = static_cast<const unsigned char *>(at(start));
    for (size_t i = block.nbytes; i < block.room_nbytes; i++) {
        if (red[i] == RED) continue;
        std::fprintf(
            stderr,
            "cuda_on_cpu: device memory of GPU %d was written %zu bytes beyond the end of an allocation of %zu bytes\n",
            device, i - block.nbytes, block.nbytes);
        std::abort();
    }
}

bool Arena::release(void *memory) {
    auto start = reinterpret_cast<uintptr_t>(memory);
    auto found = live.find(start);
    if (found == live.end()) return false;
    Block block = found->second;
    size_t d = (start - base) / span;
    bool was_open = opened;
    open();
    ASAN_UNPOISON_MEMORY_REGION(memory, block.room_nbytes);
    check_red_zone(start, block, static_cast<int>(d));
    uintptr_t from = round_up(start, HUGE_PAGE), to = (start + block.nbytes) / HUGE_PAGE * HUGE_PAGE;
    if (to > from) {
        (void)madvise(at(from), to - from, MADV_DONTNEED);
    } else {
        std::memset(memory, FRESH, block.nbytes);
    }
    ASAN_POISON_MEMORY_REGION(memory, block.room_nbytes);
    if (!was_open) close();
    live.erase(found);
    used[d] -= rounded_nbytes(block.nbytes);

    auto hole = holes[d].emplace(start, block.room_nbytes).first;
    auto next = std::next(hole);
    if (next != holes[d].end() && hole->first + hole->second == next->first) {
        hole->second += next->second;
        holes[d].erase(next);
    }
    if (hole != holes[d].begin()) {
        auto previous = std::prev(hole);
        if (previous->first + previous->second == hole->first) {
            previous->second += hole->second;
            holes[d].erase(hole);
        }
    }
    return true;
}

bool Arena::covers(const void *address) const {
    auto a = reinterpret_cast<uintptr_t>(address);
    return a >= base && a < base + used.size() * span;
}

bool Arena::find(const void *address, int *device, uintptr_t *start, size_t *nbytes) const {
    if (!covers(address)) return false;
    auto a = reinterpret_cast<uintptr_t>(address);
    auto above = live.upper_bound(a);
    if (above == live.begin()) return false;
    const auto &entry = *std::prev(above);
    if (a >= entry.first + entry.second.nbytes) return false;
    if (device) *device = static_cast<int>((a - base) / span);
    if (start) *start = entry.first;
    if (nbytes) *nbytes = entry.second.nbytes;
    return true;
}

} // namespace cuda_on_cpu
