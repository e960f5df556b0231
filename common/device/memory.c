/* memory — accounts for each device's memory: allocations by address, bytes and peaks by category, and the message when
 * memory runs out.
 *   cost  : a tree of allocations and a lock, for allocating and freeing only; a step uses neither */
#define _XOPEN_SOURCE 700 /* tsearch */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/device/device_internal.h"

const char *ls_memory_name(ls_memory_category category) {
    static const char *const names[] = {
#define LS_ROW(name, text) [LS_MEMORY_##name] = (text),
        LS_MEMORY_MAP(LS_ROW)
#undef LS_ROW
    };
    return names[category];
}

/* --- allocations by address, for ls_device_free -------------------------------------------------------------------- */

struct ls_allocation {
    const void *memory;
    size_t nbytes, padding; /* the bytes that are counted, and those allocated besides */
    ls_memory_category category;
};

static int compare_addresses(const void *a, const void *b) {
    uintptr_t left = (uintptr_t)((const struct ls_allocation *)a)->memory;
    uintptr_t right = (uintptr_t)((const struct ls_allocation *)b)->memory;
    return (left > right) - (left < right);
}

static bool remember_allocation(ls_device *device, struct ls_allocation what) {
    struct ls_allocation *allocation = malloc(sizeof *allocation);
    if (!allocation) return false;
    *allocation = what;
    pthread_mutex_lock(&device->memory_lock);
    bool kept = tsearch(allocation, &device->allocations, compare_addresses) != NULL;
    pthread_mutex_unlock(&device->memory_lock);
    if (!kept) free(allocation);
    return kept;
}

static struct ls_allocation forget_allocation(ls_device *device, const void *memory) {
    struct ls_allocation key = {.memory = memory}, found = {0};
    pthread_mutex_lock(&device->memory_lock);
    struct ls_allocation **node = tfind(&key, &device->allocations, compare_addresses);
    struct ls_allocation *allocation = node ? *node : NULL;
    if (allocation) {
        found = *allocation;
        tdelete(&key, &device->allocations, compare_addresses);
    }
    pthread_mutex_unlock(&device->memory_lock);
    free(allocation);
    return found;
}

/* 0, which ends the search, if the key's address is within the allocation. */
static int compare_place(const void *key, const void *node) {
    uintptr_t address = (uintptr_t)((const struct ls_allocation *)key)->memory;
    const struct ls_allocation *allocation = node;
    uintptr_t begin = (uintptr_t)allocation->memory;
    if (address < begin) return -1;
    return address - begin >= allocation->nbytes + allocation->padding;
}

bool ls_device_owns(ls_device *device, const void *address) {
    struct ls_allocation key = {.memory = address};
    pthread_mutex_lock(&device->memory_lock);
    bool owns = tfind(&key, &device->allocations, compare_place) != NULL;
    pthread_mutex_unlock(&device->memory_lock);
    return owns;
}

void ls_device_forget_allocations(ls_device *device) {
    while (device->allocations) {
        struct ls_allocation *allocation = *(struct ls_allocation **)device->allocations;
        tdelete(allocation, &device->allocations, compare_addresses);
        free(allocation);
    }
}

/* --- bytes by category ------------------------------------------------------------------------------------------- */

#define LS_ALIGNMENT_NBYTES 64

size_t ls_aligned_floats(size_t count) {
    const size_t line = LS_ALIGNMENT_NBYTES / sizeof(float);
    return (count + line - 1) / line * line;
}

/* " (parameter 813056, gradient 1024)"; empty if none is in use. */
static void describe_usage(const ls_memory_report *memory, char *text, size_t capacity) {
    size_t length = 0;
    text[0] = '\0';
    for (int c = 0; c < LS_MEMORY_COUNT && length < capacity; c++) {
        if (memory->current_bytes[c] == 0) continue;
        length += (size_t)snprintf(text + length, capacity - length, "%s%s %zu", length ? ", " : " (",
                                   ls_memory_name((ls_memory_category)c), memory->current_bytes[c]);
    }
    if (length > 0 && length < capacity) snprintf(text + length, capacity - length, ")");
}

/* How to make a category smaller, or move it elsewhere. */
static const char *advice(ls_memory_category category) {
    static const char *const texts[] = {
        [LS_MEMORY_PARAMETER] = "use a smaller model",
        [LS_MEMORY_GRADIENT] =
            "use a smaller model; where DataParallel gathers the replicas' gradients, fewer devices or "
            "ddp_train, which gathers none",
        [LS_MEMORY_OPTIMIZER] =
            "use a smaller model, an optimizer with less state (sgd has none without momentum), or --offload optimizer",
        [LS_MEMORY_ACTIVATION] = "lower the batch size, or use a smaller model",
        [LS_MEMORY_INPUT] = "lower the batch size, or use ddp_train, which gives each device its own samples only",
        [LS_MEMORY_GATHERED_OUTPUT] =
            "lower the batch size, name another --output-device, or use ddp_train, which gathers "
            "no outputs",
        [LS_MEMORY_BUCKET] = "use a smaller model: the buckets hold all its gradients",
        [LS_MEMORY_WORKSPACE] = "lower the batch size",
    };
    _Static_assert(sizeof texts / sizeof *texts == LS_MEMORY_COUNT, "an advice for each category");
    return texts[category];
}

static ls_status out_of_memory(const ls_device *device, const ls_memory_report *memory, ls_memory_category category,
                               size_t nbytes, const char *purpose) {
    char usage[400];
    describe_usage(memory, usage, sizeof usage);
    char cap[64] = "";
    if (device->options.memory_capacity_bytes > 0) {
        snprintf(cap, sizeof cap, " of %zu", device->options.memory_capacity_bytes);
    }
    char left[96] = "";
    size_t free_bytes, total_bytes;
    if (ls_device_memory_left(device, &free_bytes, &total_bytes)) {
        snprintf(left, sizeof left, "; %zu of the GPU's %zu bytes are free", free_bytes, total_bytes);
    }
    return ls_fail(LS_ERR_NO_MEMORY,
                   "device %d is out of memory: %zu bytes asked for %s (%s), %zu%s bytes in use%s%s; %s%s",
                   device->options.index, nbytes, purpose, ls_memory_name(category), memory->current_total_bytes, cap,
                   usage, left, advice(category), cap[0] != '\0' ? "; or raise --device-memory" : "");
}

/* Charges the bytes if they fit; the peaks are updated once the memory is allocated. */
static ls_status reserve(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose) {
    size_t capacity = device->options.memory_capacity_bytes > 0 ? device->options.memory_capacity_bytes : SIZE_MAX;
    pthread_mutex_lock(&device->memory_lock);
    ls_memory_report *memory = &device->memory;
    bool fits = nbytes <= capacity - memory->current_total_bytes;
    if (fits) {
        memory->current_bytes[category] += nbytes;
        memory->current_total_bytes += nbytes;
    }
    ls_memory_report seen = *memory;
    pthread_mutex_unlock(&device->memory_lock);
    return fits ? LS_OK : out_of_memory(device, &seen, category, nbytes, purpose);
}

static void raise_peaks(ls_device *device, ls_memory_category category) {
    pthread_mutex_lock(&device->memory_lock);
    ls_memory_report *memory = &device->memory;
    if (memory->current_bytes[category] > memory->peak_bytes[category]) {
        memory->peak_bytes[category] = memory->current_bytes[category];
    }
    if (memory->current_total_bytes > memory->peak_total_bytes) {
        memory->peak_total_bytes = memory->current_total_bytes;
    }
    pthread_mutex_unlock(&device->memory_lock);
}

ls_status ls_device_adopt(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose) {
    ls_status status = reserve(device, category, nbytes, purpose);
    if (status == LS_OK) raise_peaks(device, category);
    return status;
}

void ls_device_disown(ls_device *device, ls_memory_category category, size_t nbytes) {
    pthread_mutex_lock(&device->memory_lock);
    device->memory.current_bytes[category] -= nbytes;
    device->memory.current_total_bytes -= nbytes;
    pthread_mutex_unlock(&device->memory_lock);
}

ls_status ls_device_alloc(ls_device *device, ls_memory_category category, size_t nbytes, const char *purpose,
                          void **out) {
    return ls_device_alloc_padded(device, category, nbytes, 0, purpose, out);
}

ls_status ls_device_alloc_padded(ls_device *device, ls_memory_category category, size_t nbytes, size_t padding,
                                 const char *purpose, void **out) {
    *out = NULL;
    ls_status status = reserve(device, category, nbytes, purpose);
    if (status != LS_OK) return status;
    void *memory = NULL;
    status = device->backend->memory_alloc(device, nbytes + padding, &memory);
    if (status == LS_OK && !remember_allocation(device, (struct ls_allocation){memory, nbytes, padding, category})) {
        device->backend->memory_free(device, memory);
        status = LS_ERR_NO_MEMORY;
    }
    if (status != LS_OK) {
        ls_device_disown(device, category, nbytes);
        if (status != LS_ERR_NO_MEMORY) return status;
        ls_memory_report seen;
        ls_device_memory(device, &seen);
        return out_of_memory(device, &seen, category, nbytes, purpose);
    }
    raise_peaks(device, category);
    *out = memory;
    return LS_OK;
}

void ls_device_free(ls_device *device, void *memory) {
    if (!memory) return;
    struct ls_allocation allocation = forget_allocation(device, memory);
    ls_device_disown(device, allocation.category, allocation.nbytes);
    device->backend->memory_free(device, memory);
}

bool ls_device_is_gpu_memory(const ls_device *device, const void *address) {
    return device->backend->is_gpu_memory && device->backend->is_gpu_memory(device, address);
}

bool ls_device_pin_host(ls_device *device, void *memory, size_t nbytes) {
    return device->backend->pin_host && memory && nbytes > 0 && device->backend->pin_host(device, memory, nbytes);
}

void ls_device_unpin_host(ls_device *device, void *memory) {
    if (device->backend->unpin_host && memory) device->backend->unpin_host(device, memory);
}

size_t ls_device_reserved_bytes(const ls_device *device) {
    return device->backend->memory_reserved ? device->backend->memory_reserved(device) : 0;
}

bool ls_device_memory_left(const ls_device *device, size_t *free_bytes, size_t *total_bytes) {
    return device->backend->memory_free_total && device->backend->memory_free_total(device, free_bytes, total_bytes);
}

void ls_device_memory(const ls_device *device, ls_memory_report *report) {
    pthread_mutex_t *lock = (pthread_mutex_t *)&device->memory_lock;
    pthread_mutex_lock(lock);
    *report = device->memory;
    pthread_mutex_unlock(lock);
}
