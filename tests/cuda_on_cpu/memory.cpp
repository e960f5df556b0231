/* CUDA's calls for device memory and page-locked host memory. Device memory is allocated from the arena (arena.h).
 *
 * As in CUDA, cudaMalloc(0) returns NULL, and cudaFree and cudaFreeHost wait for all work of all devices (so memory
 * that an enqueued copy still needs cannot be freed before the copy). While a context is broken, memory is still freed,
 * and the error is returned. */
#include <cstdlib>
#include <cstring>

#include "tests/cuda_on_cpu/include/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

bool in_device_memory(const void *address, size_t nbytes, int *device) {
    State &s = state();
    Guard guard(s.lock);
    uintptr_t start = 0;
    size_t allocated = 0;
    if (!s.arena->find(address, device, &start, &allocated)) return false;
    return nbytes <= allocated - (reinterpret_cast<uintptr_t>(address) - start);
}

/* The registered range that begins at or before the address. */
static bool pinned_range(const State &s, uintptr_t address, uintptr_t *start, size_t *nbytes) {
    auto above = s.pinned.upper_bound(address);
    if (above == s.pinned.begin()) return false;
    const auto &range = *std::prev(above);
    *start = range.first;
    *nbytes = range.second;
    return true;
}

bool is_pinned(State &s, const void *address, size_t nbytes) {
    auto a = reinterpret_cast<uintptr_t>(address);
    uintptr_t start = 0;
    size_t range = 0;
    return pinned_range(s, a, &start, &range) && a < start + range && nbytes <= start + range - a;
}

bool touches_pinned(State &s, const void *address) { return is_pinned(s, address, 1); }

bool in_pinned_memory(const void *address, size_t nbytes) {
    State &s = state();
    Guard guard(s.lock);
    return is_pinned(s, address, nbytes);
}

static void wait_for_all(State &s, Guard &guard) {
    s.host_waits++;
    for (size_t device = 0; device < s.devices.size(); device++) wait_for_device(s, guard, static_cast<int>(device));
}

static cudaError_t allocate_pinned(void **out, size_t nbytes) {
    if (!out) return cudaErrorInvalidValue;
    State &s = state();
    Guard guard(s.lock);
    *out = nullptr;
    cudaError_t error = refuse_while_capturing(s);
    if (error != cudaSuccess || nbytes == 0) return error;
    if (posix_memalign(out, 4096, nbytes) != 0) return cudaErrorMemoryAllocation;
    std::memset(*out, 0xFF, nbytes);
    s.pinned[reinterpret_cast<uintptr_t>(*out)] = nbytes;
    s.pinned_own.insert(*out);
    return cudaSuccess;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    cudaError_t error = enter("cudaMemGetInfo");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    size_t used = s.devices[static_cast<size_t>(current_device())].direct_nbytes;
    for (const auto &pools : {s.pools, s.dying}) {
        for (cudaMemPool_t pool : pools) {
            if (pool->device == current_device()) used += pool->reserved_nbytes;
        }
    }
    if (total) *total = s.arena->capacity_nbytes();
    if (free) *free = used < s.arena->capacity_nbytes() ? s.arena->capacity_nbytes() - used : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **devPtr, size_t size) {
    cudaError_t error = enter("cudaMalloc");
    if (error != cudaSuccess) return error;
    if (!devPtr) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    error = refuse_while_capturing(s);
    *devPtr = nullptr;
    if (error != cudaSuccess || size == 0) return fail(error);
    *devPtr = allocate_device_memory(s, guard, current_device(), size);
    if (!*devPtr) return fail(cudaErrorMemoryAllocation);
    s.devices[static_cast<size_t>(current_device())].direct_nbytes += Arena::rounded_nbytes(size);
    s.allocations++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *devPtr) {
    cudaError_t error = enter("cudaFree");
    if (forked_too_late()) return error;
    if (!devPtr) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaError_t refused = refuse_while_capturing(s);
    if (refused != cudaSuccess) return fail(refused);
    int device = 0;
    size_t nbytes = 0;
    if (!begins_allocation(s, devPtr, &device, &nbytes)) {
        return fail(error != cudaSuccess ? error : cudaErrorInvalidValue);
    }
    wait_for_all(s, guard);
    release_device_memory(s, devPtr);
    return error;
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags) {
    cudaError_t error = enter("cudaHostAlloc");
    if (error != cudaSuccess) return error;
    if (flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return fail(cudaErrorInvalidValue);
    return fail(allocate_pinned(pHost, size));
}

cudaError_t cudaFreeHost(void *ptr) {
    cudaError_t error = enter("cudaFreeHost");
    if (forked_too_late()) return error;
    if (!ptr) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaError_t refused = refuse_while_capturing(s);
    if (refused != cudaSuccess) return fail(refused);
    if (!s.pinned_own.count(ptr)) return fail(error != cudaSuccess ? error : cudaErrorInvalidValue);
    wait_for_all(s, guard);
    s.pinned_own.erase(ptr);
    s.pinned.erase(reinterpret_cast<uintptr_t>(ptr));
    std::free(ptr);
    return error;
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
    (void)flags;
    cudaError_t error = enter("cudaHostRegister");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    error = refuse_while_capturing(s);
    if (error != cudaSuccess) return fail(error);
    if (!ptr || size == 0 || s.arena->covers(ptr)) return fail(cudaErrorInvalidValue);
    auto address = reinterpret_cast<uintptr_t>(ptr);
    uintptr_t start = 0;
    size_t nbytes = 0;
    if (pinned_range(s, address + size - 1, &start, &nbytes) && start + nbytes > address) {
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    }
    s.pinned[address] = size;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *ptr) {
    cudaError_t error = enter("cudaHostUnregister");
    if (forked_too_late()) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaError_t refused = refuse_while_capturing(s);
    if (refused != cudaSuccess) return fail(refused);
    if (s.pinned_own.count(ptr) || !s.pinned.erase(reinterpret_cast<uintptr_t>(ptr))) {
        return fail(error != cudaSuccess ? error : cudaErrorHostMemoryNotRegistered);
    }
    return error;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
    cudaError_t error = enter("cudaPointerGetAttributes");
    if (error != cudaSuccess) return error;
    if (!attributes) return fail(cudaErrorInvalidValue);
    State &s = state();
    Guard guard(s.lock);
    void *address = const_cast<void *>(ptr);
    int device = cudaInvalidDeviceId;
    if (s.arena->find(ptr, &device, nullptr, nullptr)) {
        *attributes = {cudaMemoryTypeDevice, device, address, nullptr};
    } else if (touches_pinned(s, ptr)) {
        *attributes = {cudaMemoryTypeHost, current_device(), address, address};
    } else {
        *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, address};
    }
    return cudaSuccess;
}

} // extern "C"
