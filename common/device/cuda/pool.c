/* pool — the memory of one device: taken from its GPU once, and kept.
 *
 * cudaMalloc and cudaFree wait for all of the GPU's work, so a training step must call neither. CUDA's own caching
 * pools (cudaMallocFromPoolAsync) keep freed memory when their release threshold is unlimited. Each logical device has
 * a pool of its own, so that its memory can be distinguished from others' on a shared GPU. Where a GPU has no such
 * pools (cudaDevAttrMemoryPoolsSupported), a list of blocks does the same in the simplest way: a freed block is reused
 * for an allocation that fits into it and fills at least half of it. When an allocation of any of a GPU's devices would
 * fail, the pools of that GPU first return their unused memory.
 *
 * Allocations are made, zeroed and freed in the order of a stream of their own, for which the host waits: memory is
 * ready for every stream when ls_device_alloc returns. As on CPU devices, nothing that is still enqueued may refer to
 * freed memory.
 *
 * GPUs of one process may read and write each other's pools where the machine allows it (peer access): copies between
 * them are then direct; otherwise the driver copies through the host. Access is given between the devices that are
 * open, not to all GPUs that the process sees: it costs time and memory on each.
 *   cost  : memset at the GPU's write bandwidth for each allocation; a few microseconds more
 *   fails : LS_ERR_NO_MEMORY, also if the GPU's free memory is fragmented (list only) */
#include "common/device/cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

struct block {
    struct block *next;
    void *memory;
    size_t nbytes;
    bool used;
};

struct ls_cuda_pool {
    ls_device *device;
    int gpu;
    cudaStream_t stream;
    cudaMemPool_t native; /* NULL: the list of blocks */
    /* guarded by lock */
    pthread_mutex_t lock;
    struct block *blocks;
    size_t blocks_nbytes;
    /* guarded by open_lock */
    struct ls_cuda_pool *next_open;
};

/* --- peers ------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ls_cuda_pool *open_pools; /* of all devices of the process */

/* Lets `reader` access `owner`'s memory; if that is impossible, copies go through the host. The reader's GPU becomes
 * current. */
static void give_access(struct ls_cuda_pool *owner, struct ls_cuda_pool *reader) {
    int can = 0;
    if (ls_cuda_use(reader->gpu) != LS_OK) return;
    bool allowed = cudaDeviceCanAccessPeer(&can, reader->gpu, owner->gpu) == cudaSuccess && can != 0;
    if (allowed && owner->native) {
        struct cudaMemAccessDesc access;
        memset(&access, 0, sizeof access);
        access.location.type = cudaMemLocationTypeDevice;
        access.location.id = reader->gpu;
        access.flags = cudaMemAccessFlagsProtReadWrite;
        (void)cudaMemPoolSetAccess(owner->native, &access, 1);
    } else if (allowed) {
        (void)cudaDeviceEnablePeerAccess(owner->gpu, 0);
    }
    (void)cudaGetLastError(); /* not possible, or already granted */
}

static void meet_peers(struct ls_cuda_pool *pool) {
    pthread_mutex_lock(&open_lock);
    for (struct ls_cuda_pool *other = open_pools; other; other = other->next_open) {
        if (other->gpu == pool->gpu) continue;
        give_access(other, pool);
        give_access(pool, other);
    }
    pool->next_open = open_pools;
    open_pools = pool;
    pthread_mutex_unlock(&open_lock);
}

static void leave_peers(struct ls_cuda_pool *pool) {
    pthread_mutex_lock(&open_lock);
    for (struct ls_cuda_pool **link = &open_pools; *link; link = &(*link)->next_open) {
        if (*link != pool) continue;
        *link = pool->next_open;
        break;
    }
    pthread_mutex_unlock(&open_lock);
}

/* --- the list of blocks ------------------------------------------------------------------------------------------ */

#define LS_BLOCK_ROUND_NBYTES ((size_t)512)

/* The smallest block that fits and of which at least half is filled. */
static struct block *find_block(struct ls_cuda_pool *pool, size_t nbytes) {
    struct block *best = NULL;
    for (struct block *block = pool->blocks; block; block = block->next) {
        bool fits = !block->used && block->nbytes >= nbytes && block->nbytes / 2 <= nbytes;
        if (fits && (!best || block->nbytes < best->nbytes)) best = block;
    }
    return best;
}

/* Returns unused blocks to the GPU. */
static void drop_unused_blocks(struct ls_cuda_pool *pool) {
    for (struct block **link = &pool->blocks; *link;) {
        struct block *block = *link;
        if (block->used) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        pool->blocks_nbytes -= block->nbytes;
        (void)cudaFree(block->memory);
        free(block);
    }
}

static cudaError_t new_block(struct ls_cuda_pool *pool, size_t nbytes, struct block **out) {
    struct block *block = calloc(1, sizeof *block);
    if (!block) return cudaErrorMemoryAllocation;
    cudaError_t error = cudaMalloc(&block->memory, nbytes);
    if (error != cudaSuccess) {
        free(block);
        return error;
    }
    block->nbytes = nbytes;
    block->next = pool->blocks;
    pool->blocks = block;
    pool->blocks_nbytes += nbytes;
    *out = block;
    return cudaSuccess;
}

static cudaError_t take_block(struct ls_cuda_pool *pool, size_t nbytes, void **out) {
    size_t rounded = (nbytes + LS_BLOCK_ROUND_NBYTES - 1) / LS_BLOCK_ROUND_NBYTES * LS_BLOCK_ROUND_NBYTES;
    if (rounded < nbytes) return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&pool->lock);
    struct block *block = find_block(pool, rounded);
    cudaError_t error = block ? cudaSuccess : new_block(pool, rounded, &block);
    if (error == cudaSuccess) {
        block->used = true;
        *out = block->memory;
    }
    pthread_mutex_unlock(&pool->lock);
    return error;
}

static void return_block(struct ls_cuda_pool *pool, void *memory) {
    pthread_mutex_lock(&pool->lock);
    for (struct block *block = pool->blocks; block; block = block->next)
        if (block->memory == memory) block->used = false;
    pthread_mutex_unlock(&pool->lock);
}

/* --- the pool ---------------------------------------------------------------------------------------------------- */

static ls_status make_native(struct ls_cuda_pool *pool) {
    int supported = 0;
    ls_status status =
        LS_CUDA(pool->gpu, cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, pool->gpu));
    if (status != LS_OK || !supported) return status;
    struct cudaMemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned; /* as all memory of GPUs is */
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = pool->gpu;
    status = LS_CUDA(pool->gpu, cudaMemPoolCreate(&pool->native, &properties));
    uint64_t keep_all = UINT64_MAX;
    if (status != LS_OK) return status;
    return LS_CUDA(pool->gpu, cudaMemPoolSetAttribute(pool->native, cudaMemPoolAttrReleaseThreshold, &keep_all));
}

ls_status ls_cuda_pool_open(struct ls_cuda_pool **out, ls_device *device, int gpu) {
    *out = NULL;
    struct ls_cuda_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the pool of device %d", ls_device_index(device));
    pool->device = device;
    pool->gpu = gpu;
    pthread_mutex_init(&pool->lock, NULL);
    ls_status status = LS_CUDA(gpu, cudaStreamCreateWithFlags(&pool->stream, cudaStreamNonBlocking));
    if (status == LS_OK) status = make_native(pool);
    if (status != LS_OK) {
        ls_cuda_pool_close(pool, false);
        return status;
    }
    meet_peers(pool);
    status = ls_cuda_use(gpu);
    if (status == LS_OK)
        *out = pool;
    else
        ls_cuda_pool_close(pool, true);
    return status;
}

void ls_cuda_pool_close(struct ls_cuda_pool *pool, bool abandon) {
    if (!pool) return;
    leave_peers(pool);
    struct ls_cuda_awaited freed = {pool->stream, NULL, "stream", "memory"};
    if (!abandon && pool->stream) abandon = ls_cuda_wait(pool->device, &freed) != LS_OK;
    if (!abandon) {
        drop_unused_blocks(pool);
        if (pool->native) (void)cudaMemPoolDestroy(pool->native);
        if (pool->stream) (void)cudaStreamDestroy(pool->stream);
        (void)cudaGetLastError();
    }
    for (struct block *block = pool->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Returns the pool's unused memory to the GPU. A free counts only when the host has seen it complete, so this waits for
 * it. */
static ls_status trim(struct ls_cuda_pool *pool, ls_device *device) {
    if (!pool->native) {
        pthread_mutex_lock(&pool->lock);
        drop_unused_blocks(pool);
        pthread_mutex_unlock(&pool->lock);
        return LS_OK;
    }
    struct ls_cuda_awaited freed = {pool->stream, NULL, "stream", "memory"};
    ls_status status = ls_cuda_wait(device, &freed);
    return status == LS_OK ? LS_CUDA(pool->gpu, cudaMemPoolTrimTo(pool->native, 0)) : status;
}

/* Of all devices on the GPU: under the lock, so that none of them closes meanwhile. */
static ls_status trim_all_of_gpu(struct ls_cuda_pool *for_pool) {
    ls_status status = LS_OK;
    pthread_mutex_lock(&open_lock);
    for (struct ls_cuda_pool *pool = open_pools; pool && status == LS_OK; pool = pool->next_open)
        if (pool->gpu == for_pool->gpu) status = trim(pool, for_pool->device);
    pthread_mutex_unlock(&open_lock);
    return status;
}

static cudaError_t take(struct ls_cuda_pool *pool, size_t nbytes, void **out) {
    if (!pool->native) return take_block(pool, nbytes, out);
    return cudaMallocFromPoolAsync(out, nbytes, pool->native, pool->stream);
}

ls_status ls_cuda_pool_alloc(struct ls_cuda_pool *pool, size_t nbytes, void **out) {
    *out = NULL;
    if (ls_cuda_current_capture()) {
        ls_status refused = ls_fail(LS_ERR_UNSUPPORTED, "device %d: nothing can be allocated while a graph is recorded",
                                    ls_device_index(pool->device));
        return ls_cuda_capture_failed(refused);
    }
    ls_status status = ls_cuda_use(pool->gpu);
    if (status != LS_OK) return status;
    void *memory = NULL;
    size_t at_least_one = nbytes > 0 ? nbytes : 1;
    cudaError_t error = take(pool, at_least_one, &memory);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        status = trim_all_of_gpu(pool);
        if (status != LS_OK) return status;
        error = take(pool, at_least_one, &memory);
    }
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return LS_ERR_NO_MEMORY;
    }
    status = ls_cuda_check(error, pool->gpu, "allocating memory");
    if (status != LS_OK) return status;
    status = LS_CUDA(pool->gpu, cudaMemsetAsync(memory, 0, at_least_one, pool->stream));
    struct ls_cuda_awaited zeroed = {pool->stream, NULL, "stream", "memory"};
    if (status == LS_OK) status = ls_cuda_wait(pool->device, &zeroed);
    if (status == LS_OK)
        *out = memory;
    else
        ls_cuda_pool_free(pool, memory);
    return status;
}

void ls_cuda_pool_free(struct ls_cuda_pool *pool, void *memory) {
    if (!memory) return; /* of a partly opened device */
    if (!pool->native) {
        return_block(pool, memory);
        return;
    }
    if (ls_cuda_is_broken(pool->gpu) || ls_cuda_use(pool->gpu) != LS_OK) return;
    (void)LS_CUDA(pool->gpu, cudaFreeAsync(memory, pool->stream));
}

size_t ls_cuda_pool_reserved(struct ls_cuda_pool *pool) {
    if (!pool->native) {
        pthread_mutex_lock(&pool->lock);
        size_t nbytes = pool->blocks_nbytes;
        pthread_mutex_unlock(&pool->lock);
        return nbytes;
    }
    uint64_t nbytes = 0;
    if (ls_cuda_use(pool->gpu) != LS_OK) return 0;
    (void)LS_CUDA(pool->gpu, cudaMemPoolGetAttribute(pool->native, cudaMemPoolAttrReservedMemCurrent, &nbytes));
    return (size_t)nbytes;
}
