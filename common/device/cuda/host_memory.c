/* host_memory — tells host addresses from device addresses, and pins host memory.
 *
 * Pinning costs time per page and may be refused (ulimit -l, memory that is pinned already); copies then go through the
 * staging memory of copies.c, so refusals are not reported. Pinned ranges are kept in a list, since unpinning any other
 * is an error. Unpinning may wait for the GPU, so it is skipped if that hangs or is broken: the pages stay locked until
 * the process ends. */
#include "common/device/cuda/cuda_device.h"

#include <stdlib.h>

bool ls_cuda_is_gpu_memory(const ls_device *device, const void *address) {
    struct cudaPointerAttributes attributes;
    /* in a thread without a current device, the query would start CUDA on GPU 0 */
    if (ls_cuda_use(ls_cuda_device_of(device)->gpu) != LS_OK) return false;
    if (cudaPointerGetAttributes(&attributes, address) == cudaSuccess) {
        return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    }
    (void)cudaGetLastError();
    return false;
}

struct pinned {
    struct pinned *next;
    void *memory;
    const ls_device *device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pinned *pinned_list; /* guarded by lock */

bool ls_cuda_pin_host(ls_device *device, void *memory, size_t nbytes) {
    struct pinned *pinned = calloc(1, sizeof *pinned);
    if (!pinned) return false;
    *pinned = (struct pinned){.memory = memory, .device = device};
    if (ls_cuda_use(ls_cuda_device_of(device)->gpu) != LS_OK ||
        cudaHostRegister(memory, nbytes, cudaHostRegisterPortable) != cudaSuccess) {
        (void)cudaGetLastError();
        free(pinned);
        return false;
    }
    pthread_mutex_lock(&lock);
    pinned->next = pinned_list;
    pinned_list = pinned;
    pthread_mutex_unlock(&lock);
    return true;
}

/* Removes an entry from the list: that of the address, or any if it is NULL. Returns NULL if there is none. */
static struct pinned *take_pinned(const ls_device *device, const void *memory) {
    pthread_mutex_lock(&lock);
    struct pinned **link = &pinned_list, *found;
    while (*link && ((*link)->device != device || (memory && (*link)->memory != memory))) link = &(*link)->next;
    found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static bool unpin(const ls_device *device, const void *memory) {
    struct pinned *pinned = take_pinned(device, memory);
    if (!pinned) return false;
    if (!ls_cuda_must_be_left_alone(device)) {
        (void)cudaHostUnregister(pinned->memory);
        (void)cudaGetLastError();
    }
    free(pinned);
    return true;
}

void ls_cuda_unpin_host(ls_device *device, void *memory) { (void)unpin(device, memory); }

void ls_cuda_unpin_all(const ls_device *device) {
    while (unpin(device, NULL)) continue;
}
