/* Memory pools, and allocation in stream order. An allocation's address is known at once; the memory is filled with
 * 0xFF (a NaN) when the stream reaches the allocation, so that another stream that uses it without waiting loses its
 * writes. cudaFreeAsync removes it from the accounting at once, as CUDA does, and frees it when the stream reaches the
 * call: until then no other allocation gets the address. If there is no room for an allocation, it waits for pending
 * frees.
 *   reserved : the memory that a pool holds, visible in cudaMemGetInfo: grows with use; above the release threshold it
 *              shrinks when an allocation is freed or the pool is trimmed. Other pools cannot use it; cudaMalloc can,
 *              as if it trimmed them. While a free is pending, trimming does nothing: CUDA need not know that it is
 *              done */
#include <algorithm>
#include <cstring>

#include "tests/cuda_on_cpu/state.h"

namespace cuda_on_cpu {

namespace {

void take_from(CUmemPoolHandle_st &pool, size_t nbytes) {
    pool.used_nbytes += nbytes;
    pool.reserved_nbytes = std::max(pool.reserved_nbytes, pool.used_nbytes);
}

/* Whether a device has room for the additional memory that this pool would need. */
bool has_room(const State &s, const CUmemPoolHandle_st &pool, size_t nbytes) {
    size_t held = s.devices[static_cast<size_t>(pool.device)].direct_nbytes + pool.used_nbytes + nbytes;
    for (const auto &pools : {s.pools, s.dying}) {
        for (cudaMemPool_t other : pools) {
            if (other->device == pool.device && other != &pool) held += other->reserved_nbytes;
        }
    }
    return held <= s.arena->capacity_nbytes();
}

void forget_done(std::vector<ItemRef> &frees) {
    auto done = [](const ItemRef &free) { return free->done; };
    frees.erase(std::remove_if(frees.begin(), frees.end(), done), frees.end());
}

void trim(CUmemPoolHandle_st &pool, size_t keep_nbytes) {
    pool.reserved_nbytes = std::min(pool.reserved_nbytes, std::max(pool.used_nbytes, keep_nbytes));
}

cudaError_t allocate(State &s, Guard &guard, void **out, size_t nbytes, cudaMemPool_t pool, cudaStream_t stream) {
    *out = nullptr;
    if (stream->capture) return invalidate(stream, cudaErrorStreamCaptureUnsupported);
    cudaError_t broken = s.devices[static_cast<size_t>(stream->device)].broken;
    if (broken != cudaSuccess || nbytes == 0) return broken;
    size_t rounded = Arena::rounded_nbytes(nbytes);
    if (!has_room(s, *pool, rounded)) return cudaErrorMemoryAllocation;
    void *memory = allocate_device_memory(s, guard, pool->device, nbytes);
    if (!memory) return cudaErrorMemoryAllocation;
    take_from(*pool, rounded);
    s.pool_of[reinterpret_cast<uintptr_t>(memory)] = pool;
    s.allocations++;
    *out = memory;
    auto fill = [memory, nbytes] {
        std::memset(memory, 0xFF, nbytes);
        return Progress::done;
    };
    return append(s, stream, {"cudaMallocFromPoolAsync", stream->device, Kind::work, fill}, nullptr);
}

} // namespace

/* Removes a live allocation from the accounting of its pool, or of its device. */
static void write_off(State &s, int device, uintptr_t start, size_t nbytes) {
    auto pool = s.pool_of.find(start);
    if (pool == s.pool_of.end()) {
        s.devices[static_cast<size_t>(device)].direct_nbytes -= Arena::rounded_nbytes(nbytes);
        return;
    }
    cudaMemPool_t owner = pool->second;
    s.pool_of.erase(pool);
    owner->used_nbytes -= Arena::rounded_nbytes(nbytes);
    trim(*owner, s.dying.count(owner) ? 0 : owner->release_threshold);
    if (owner->used_nbytes == 0 && s.dying.erase(owner)) delete owner;
}

bool begins_allocation(State &s, const void *memory, int *device, size_t *nbytes) {
    uintptr_t start = 0;
    if (s.freeing.count(memory) || !s.arena->find(memory, device, &start, nbytes)) return false;
    return start == reinterpret_cast<uintptr_t>(memory);
}

void release_device_memory(State &s, void *memory) {
    int device = 0;
    size_t nbytes = 0;
    if (begins_allocation(s, memory, &device, &nbytes)) {
        write_off(s, device, reinterpret_cast<uintptr_t>(memory), nbytes);
    }
    s.freeing.erase(memory);
    (void)s.arena->release(memory);
}

/* Allocates device memory, waiting for pending frees if there is no room. */
void *allocate_device_memory(State &s, Guard &guard, int device, size_t nbytes) {
    void *memory = s.arena->allocate(device, nbytes);
    if (memory) return memory;
    std::vector<ItemRef> frees = std::move(s.devices[static_cast<size_t>(device)].frees);
    s.devices[static_cast<size_t>(device)].frees.clear();
    for (const ItemRef &item : frees) wait_for(s, guard, item);
    return frees.empty() ? nullptr : s.arena->allocate(device, nbytes);
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps) {
    cudaError_t error = enter("cudaMemPoolCreate");
    if (error != cudaSuccess) return error;
    if (!memPool || !poolProps || poolProps->allocType != cudaMemAllocationTypePinned)
        return fail(cudaErrorInvalidValue);
    if (poolProps->location.type != cudaMemLocationTypeDevice) return fail(cudaErrorInvalidValue);
    if (poolProps->location.id < 0 || poolProps->location.id >= device_count()) return fail(cudaErrorInvalidDevice);
    State &s = state();
    Guard guard(s.lock);
    *memPool = *s.pools.insert(new CUmemPoolHandle_st{poolProps->location.id, 0, 0, 0, {}}).first;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t memPool) {
    cudaError_t error = enter("cudaMemPoolDestroy");
    if (forked_too_late()) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.pools.count(memPool)) return fail(cudaErrorInvalidValue);
    s.pools.erase(memPool);
    trim(*memPool, 0);
    if (memPool->used_nbytes > 0) {
        s.dying.insert(memPool);
    } else {
        delete memPool;
    }
    return error;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value) {
    cudaError_t error = enter("cudaMemPoolSetAttribute");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.pools.count(memPool) || !value) return fail(cudaErrorInvalidValue);
    if (attr != cudaMemPoolAttrReleaseThreshold) return fail(cudaErrorInvalidValue);
    uint64_t number = 0;
    std::memcpy(&number, value, sizeof number);
    memPool->release_threshold = number;
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value) {
    cudaError_t error = enter("cudaMemPoolGetAttribute");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.pools.count(memPool) || !value) return fail(cudaErrorInvalidValue);
    uint64_t number = 0;
    switch (attr) {
    case cudaMemPoolAttrReleaseThreshold: number = memPool->release_threshold; break;
    case cudaMemPoolAttrReservedMemCurrent: number = memPool->reserved_nbytes; break;
    case cudaMemPoolAttrUsedMemCurrent: number = memPool->used_nbytes; break;
    default: return fail(cudaErrorInvalidValue);
    }
    std::memcpy(value, &number, sizeof number);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count) {
    cudaError_t error = enter("cudaMemPoolSetAccess");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.pools.count(memPool) || !descList) return fail(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++) {
        const struct cudaMemLocation *where = &descList[i].location;
        if (where->type != cudaMemLocationTypeDevice) return fail(cudaErrorInvalidValue);
        if (where->id < 0 || where->id >= static_cast<int>(s.devices.size())) return fail(cudaErrorInvalidDevice);
    }
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
    cudaError_t error = enter("cudaMemPoolTrimTo");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    if (!s.pools.count(memPool)) return fail(cudaErrorInvalidValue);
    forget_done(memPool->frees);
    if (memPool->frees.empty()) trim(*memPool, minBytesToKeep);
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
    cudaError_t error = enter("cudaMallocFromPoolAsync");
    if (error != cudaSuccess) return error;
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, stream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    if (!ptr || !s.pools.count(memPool)) return fail(cudaErrorInvalidValue);
    return fail(allocate(s, guard, ptr, size, memPool, found));
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream) {
    cudaError_t error = enter("cudaFreeAsync");
    if (forked_too_late()) return error;
    if (!devPtr) return fail(error != cudaSuccess ? error : cudaErrorInvalidValue); /* unlike cudaFree */
    State &s = state();
    Guard guard(s.lock);
    cudaStream_t found = find_stream(s, hStream);
    if (!found) return fail(cudaErrorInvalidResourceHandle);
    int device = 0;
    size_t nbytes = 0;
    if (!begins_allocation(s, devPtr, &device, &nbytes)) return fail(cudaErrorInvalidValue);
    if (found->capture) return fail(invalidate(found, cudaErrorStreamCaptureUnsupported));
    cudaError_t broken = s.devices[static_cast<size_t>(found->device)].broken;
    if (broken != cudaSuccess) {
        release_device_memory(s, devPtr);
        return fail(broken);
    }
    auto release = [&s, devPtr] {
        Guard inner(s.lock);
        release_device_memory(s, devPtr);
        return Progress::done;
    };
    ItemRef item;
    cudaError_t status = append(s, found, {"cudaFreeAsync", found->device, Kind::work, release}, &item);
    if (status != cudaSuccess) return fail(status);
    auto pool = s.pool_of.find(reinterpret_cast<uintptr_t>(devPtr));
    if (pool != s.pool_of.end()) {
        forget_done(pool->second->frees);
        pool->second->frees.push_back(item);
    }
    write_off(s, device, reinterpret_cast<uintptr_t>(devPtr), nbytes);
    s.freeing.insert(devPtr);
    std::vector<ItemRef> &frees = s.devices[static_cast<size_t>(found->device)].frees;
    forget_done(frees);
    frees.push_back(item);
    return fail(error);
}

} // extern "C"
