/* regions — ls_comm_alloc_shared: the agreement between ranks; the transport provides the memory.
 *   GPUs  : with an attached device the caller gets memory of that device. The staged path keeps a pinned companion of
 *           it in the group's memory, through which operations are staged; the NCCL path needs nothing on the host
 *   order : the calls are collective and meet in the host's channel, so they may run while the stream is busy
 *   fails : a rank that gets no memory announces that in a vote; all ranks then undo the allocation and return the
 *           failure, and the group remains usable */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/comm/comm_internal.h"
#include "common/comm/wait.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* --- memory of this process alone --------------------------------------------------------------------------------- */

ls_status ls_region_fill_private(ls_comm *comm, ls_region *region) {
    void *memory =
        mmap(NULL, region->stride_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return ls_fail(LS_ERR_NO_MEMORY, "rank %d cannot allocate %zu bytes: %s", ls_job_rank(comm, comm->rank),
                       region->stride_bytes, strerror(errno));
    region->memory = region->seen = memory;
    region->seen_bytes = region->stride_bytes;
    return LS_OK;
}

void ls_region_empty_private(ls_comm *comm, ls_region *region) {
    (void)comm;
    if (region->seen) munmap(region->seen, region->seen_bytes);
}

/* --- agreement ---------------------------------------------------------------------------------------------------- */

static ls_status meet_hosts(ls_comm *comm, ls_operation_kind kind, uint64_t count, ls_status vote) {
    ls_announcement what = {.count = count, .offset = (uint64_t)vote, .kind = (int32_t)kind, .root = -1};
    ls_status status = ls_comm_check(comm, &what);
    if (status != LS_OK || !comm->segment) return status; /* no other ranks: a group of one, or on a meta device */
    return ls_comm_meet(comm, LS_CHANNEL_HOST, &what);
}

/* All ranks learn the others' status. A rank that has memory while another has none fails, too, with LS_ERR_PEER. */
static ls_status agree_on_status(ls_comm *comm, ls_status mine) {
    ls_status status = meet_hosts(comm, LS_OPERATION_ALLOC_VOTE, 0, mine);
    if (status != LS_OK || mine != LS_OK || !comm->segment) return status != LS_OK ? status : mine;
    for (int r = 0; r < comm->world_size; r++) {
        ls_status theirs = (ls_status)ls_comm_announced(comm, LS_CHANNEL_HOST, r)->offset;
        if (theirs != LS_OK)
            return ls_fail(LS_ERR_PEER, "rank %d could not allocate its part of the shared memory: %s",
                           ls_job_rank(comm, r), ls_status_text(theirs));
    }
    return LS_OK;
}

static bool needs_host(const ls_comm *comm) { return !comm->path || comm->path->mirrors; }

/* The kernel would hand out pages until it runs out of them and kills a process, so impossible sizes are refused
 * first. */
static ls_status check_machine(const ls_comm *comm, size_t nbytes) {
    size_t pages = (size_t)sysconf(_SC_PHYS_PAGES), limit_bytes = pages * (size_t)sysconf(_SC_PAGESIZE);
    int ranks = ls_ranks_on_this_host(comm);
    if (nbytes <= limit_bytes / (size_t)ranks) return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY, "%d x %zu bytes of shared memory are more than this machine has (%zu bytes)",
                   ranks, nbytes, limit_bytes);
}

/* This rank's part is no longer used: its bytes are no longer charged to the device. */
static void release(ls_comm *comm, ls_region *region) {
    ls_device_free(comm->device, region->gpu);
    region->gpu = NULL;
    if (region->charged) ls_device_disown(region->charged, LS_MEMORY_BUCKET, region->nbytes);
    region->charged = NULL;
}

/* Removes the region from the list and frees it. */
static void drop(ls_comm *comm, ls_region *region) {
    ls_region **link = &comm->regions;
    while (*link != region) link = &(*link)->next;
    *link = region->next;
    if (region->pinned) ls_device_unpin_host(comm->device, region->memory);
    comm->transport->empty(comm, region);
    release(comm, region);
    free(region);
}

static ls_status fill_on_host(ls_comm *comm, ls_region *region) {
    ls_status status = comm->transport->fill(comm, region);
    if (status != LS_OK) return status;
    /* Allocates pages and page tables now; if the kernel cannot, the first operation does. */
    (void)madvise(region->seen, region->seen_bytes, MADV_POPULATE_WRITE);
    region->pinned = comm->path != NULL;
    if (region->pinned) ls_device_pin_host(comm->device, region->memory, region->stride_bytes);
    return LS_OK;
}

/* Allocates the memory on the GPU, or charges the group's memory to the CPU device. */
static ls_status allocate_region(ls_comm *comm, ls_region *region, ls_device *device) {
    static const char purpose[] = "buffers of the process group";
    if (comm->path) {
        void *memory;
        ls_status status = ls_device_alloc(comm->device, LS_MEMORY_BUCKET, region->nbytes, purpose, &memory);
        region->gpu = memory;
        return status;
    }
    ls_status status = device ? ls_device_adopt(device, LS_MEMORY_BUCKET, region->nbytes, purpose) : LS_OK;
    if (status == LS_OK) region->charged = device;
    return status;
}

/* This rank's part of an allocation; on failure *out may be set, for drop. */
static ls_status add_region(ls_comm *comm, ls_device *device, size_t nbytes, ls_region **out) {
    size_t pages = nbytes / LS_PAGE_BYTES + (nbytes % LS_PAGE_BYTES > 0 || nbytes == 0);
    ls_status status = needs_host(comm) ? check_machine(comm, nbytes) : LS_OK;
    if (status != LS_OK) return status;
    ls_region *region = *out = calloc(1, sizeof *region);
    if (!region) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for a shared region's record");
    *region = (ls_region){.stride_bytes = pages * LS_PAGE_BYTES, .nbytes = nbytes, .next = comm->regions};
    comm->regions = region;
    status = allocate_region(comm, region, device);
    if (status == LS_OK && needs_host(comm)) status = fill_on_host(comm, region);
    return status;
}

ls_status ls_comm_alloc_shared(ls_comm *comm, ls_device *device, size_t nbytes, void **out) {
    *out = NULL;
    if (comm->path && device && device != comm->device)
        return ls_fail(LS_ERR_INVALID, "alloc_shared: the group's memory belongs to device %d, not to device %d",
                       ls_device_index(comm->device), ls_device_index(device));
    ls_status status = meet_hosts(comm, LS_OPERATION_ALLOC, nbytes, LS_OK);
    if (status != LS_OK) return status;
    ls_region *region = NULL;
    status = agree_on_status(comm, add_region(comm, device, nbytes, &region));
    if (status != LS_OK) {
        if (region) drop(comm, region);
        return status;
    }
    if (needs_host(comm) && comm->transport->keep) comm->transport->keep(comm, region);
    *out = region->handle = region->gpu ? region->gpu : region->memory;
    return LS_OK;
}

void ls_comm_release_shared(ls_comm *comm, void *memory) {
    ls_region *region = comm->regions;
    while (region && region->handle != memory) region = region->next;
    if (memory && region) release(comm, region);
}

const ls_region *ls_region_on_gpu(const ls_comm *comm, const void *address) {
    for (const ls_region *region = comm->regions; region; region = region->next)
        if (region->gpu && (uintptr_t)address - (uintptr_t)region->gpu < region->nbytes) return region;
    return NULL;
}

void ls_regions_destroy(ls_comm *comm) {
    while (comm->regions) drop(comm, comm->regions);
}
