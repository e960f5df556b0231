/* shm_memory — the layout of the group's file, and ls_comm_alloc_shared.
 *   idea  : the file is as large as the address space that each rank reserves for it, and sparse: pages exist once
 *           somebody asks for them. An allocation is a range of it, chosen by every rank for itself by the same rule
 *           (first fit), so no address and no file descriptor has to travel. Outside of allocations the space is closed
 *           (PROT_NONE)
 *   order : the calls are collective and meet in the host's channel, so they may run while the stream is busy
 *   fails : a rank that gets no memory says so in a vote; all ranks then undo the allocation and return its failure,
 *           and the group goes on */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/comm/comm_internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/* --- the control area: segment, mailboxes, small-message buffers, staging buffers --------------------------------- */

static size_t mailboxes_offset(void) { return round_up(sizeof(ls_segment), LS_PAGE_BYTES); }

static size_t eager_offset(const ls_comm *comm) {
    size_t pairs = (size_t)comm->world_size * (size_t)comm->world_size;
    return mailboxes_offset() + round_up(pairs * sizeof(ls_mailbox), LS_PAGE_BYTES);
}

static size_t stage_offset(const ls_comm *comm) {
    return eager_offset(comm) + (size_t)comm->world_size * 2 * LS_EAGER_BYTES;
}

static size_t control_nbytes(const ls_comm *comm) {
    return round_up(stage_offset(comm) + (size_t)comm->world_size * 2 * LS_STAGE_BYTES, LS_PAGE_BYTES);
}

ls_mailbox *ls_segment_mailbox(const ls_comm *comm, int from, int to) {
    return (ls_mailbox *)(void *)(comm->base + mailboxes_offset()) + (size_t)from * (size_t)comm->world_size +
           (size_t)to;
}

char *ls_segment_eager(const ls_comm *comm, int rank, uint64_t meeting) {
    return comm->base + eager_offset(comm) + ((size_t)rank * 2 + meeting % 2) * LS_EAGER_BYTES;
}

char *ls_segment_stage(const ls_comm *comm, int rank, uint64_t slice) {
    return comm->base + stage_offset(comm) + ((size_t)rank * 2 + slice % 2) * LS_STAGE_BYTES;
}

uint64_t ls_segment_offset(const ls_comm *comm, const void *buffer) {
    uintptr_t distance = (uintptr_t)buffer - (uintptr_t)comm->base; /* wraps to something large for lower addresses */
    return distance >= comm->regions_offset && distance < LS_SEGMENT_SPACE_BYTES ? distance : LS_OFFSET_STAGED;
}

ls_status ls_segment_map(ls_comm *comm) {
    void *base = mmap(NULL, LS_SEGMENT_SPACE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, comm->fd, 0);
    if (base == MAP_FAILED)
        return ls_fail(LS_ERR_NO_MEMORY,
                       "cannot reserve %zu GiB of address space for the group's shared memory: %s (is ulimit -v set?)",
                       LS_SEGMENT_SPACE_BYTES >> 30, strerror(errno));
    comm->base = base;
    comm->segment = base;
    comm->regions_offset = control_nbytes(comm);
    /* A crashing rank must not write the whole space into its core file. */
    (void)madvise(base, LS_SEGMENT_SPACE_BYTES, MADV_DONTDUMP);
    if (mprotect(base, comm->regions_offset, PROT_READ | PROT_WRITE) != 0)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot open the control area of the group's shared memory: %s",
                       strerror(errno));
    atomic_store(&comm->segment->slot[comm->rank].pid, (int32_t)getpid());
    return LS_OK;
}

/* --- regions ------------------------------------------------------------------------------------------------------ */

static size_t region_nbytes(const ls_comm *comm, const ls_region *region) {
    return region->stride_bytes * (size_t)comm->world_size;
}

/* Puts the region into the first gap that holds it; false if there is none. */
static bool place_region(ls_comm *comm, ls_region *region) {
    size_t nbytes = region_nbytes(comm, region);
    region->offset = comm->regions_offset;
    ls_region **link = &comm->regions;
    while (*link && (*link)->offset - region->offset < nbytes) {
        region->offset = (*link)->offset + region_nbytes(comm, *link);
        link = &(*link)->next;
    }
    if (nbytes > LS_SEGMENT_SPACE_BYTES - region->offset) return false;
    region->next = *link;
    *link = region;
    return true;
}

static void remove_region(ls_comm *comm, const ls_region *region) {
    ls_region **link = &comm->regions;
    while (*link != region) link = &(*link)->next;
    *link = region->next;
}

static char *own_part(const ls_comm *comm, const ls_region *region) {
    return comm->base + region->offset + (size_t)comm->rank * region->stride_bytes;
}

/* Each rank allocates its own part, so that on NUMA machines it lies near that rank. */
static ls_status fill_region(const ls_comm *comm, const ls_region *region) {
    off_t own = (off_t)(region->offset + (size_t)comm->rank * region->stride_bytes);
    int result;
    do result = fallocate(comm->fd, 0, own, (off_t)region->stride_bytes);
    while (result != 0 && errno == EINTR);
    if (result == 0 && mprotect(comm->base + region->offset, region_nbytes(comm, region), PROT_READ | PROT_WRITE) == 0)
        return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY, "rank %d cannot allocate %zu bytes of shared memory: %s", comm->rank,
                   region->stride_bytes, strerror(errno));
}

static void empty_region(const ls_comm *comm, const ls_region *region) {
    off_t own = (off_t)(region->offset + (size_t)comm->rank * region->stride_bytes);
    (void)mprotect(comm->base + region->offset, region_nbytes(comm, region), PROT_NONE);
    (void)fallocate(comm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, own, (off_t)region->stride_bytes);
}

static ls_status meet(ls_comm *comm, ls_operation_kind kind, uint64_t count, ls_status vote) {
    ls_announcement what = {.sequence = 0, .count = count, .kind = kind, .root = -1, .vote = vote};
    ls_status status = ls_comm_check(comm, &what);
    return status != LS_OK ? status : ls_comm_meet(comm, LS_CHANNEL_HOST, &what);
}

/* All ranks learn how the others fared; the first failure in rank order is everybody's result. */
static ls_status vote(ls_comm *comm, ls_status mine) {
    ls_status status = meet(comm, LS_OPERATION_ALLOC_VOTE, 0, mine);
    if (status != LS_OK) return status;
    for (int r = 0; r < comm->world_size; r++) {
        ls_status theirs = (ls_status)ls_comm_announced(comm, LS_CHANNEL_HOST, r)->vote;
        if (theirs == LS_OK) continue;
        if (mine != LS_OK) return mine; /* reported already */
        return ls_fail(theirs, "rank %d could not allocate its part of the shared memory: %s", r,
                       ls_status_text(theirs));
    }
    return LS_OK;
}

static ls_status alloc_alone(ls_comm *comm, ls_region *region, void **out) {
    void *memory =
        mmap(NULL, region->stride_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate %zu bytes: %s", region->stride_bytes, strerror(errno));
    region->offset = (size_t)(uintptr_t)memory;
    region->next = comm->regions;
    comm->regions = region;
    *out = memory;
    return LS_OK;
}

/* The kernel would hand out pages until it runs out of them and kills somebody, so absurd wishes are turned down first.
 * All ranks run on one machine and decide alike. */
static ls_status check_machine(const ls_comm *comm, size_t nbytes) {
    size_t pages = (size_t)sysconf(_SC_PHYS_PAGES), limit_bytes = pages * (size_t)sysconf(_SC_PAGESIZE);
    if (nbytes <= limit_bytes / (size_t)comm->world_size) return LS_OK;
    return ls_fail(LS_ERR_NO_MEMORY, "%d x %zu bytes of shared memory are more than this machine has (%zu bytes)",
                   comm->world_size, nbytes, limit_bytes);
}

static ls_status alloc_in_group(ls_comm *comm, ls_region *region, size_t nbytes, void **out) {
    ls_status status = meet(comm, LS_OPERATION_ALLOC, nbytes, LS_OK);
    if (status != LS_OK) return status;
    if (!place_region(comm, region)) /* on all ranks alike, since they hold the same regions */
        return ls_fail(LS_ERR_NO_MEMORY, "the group's %zu GiB of address space have no room for %zu bytes per rank",
                       LS_SEGMENT_SPACE_BYTES >> 30, nbytes);
    status = vote(comm, fill_region(comm, region));
    if (status != LS_OK) {
        empty_region(comm, region);
        remove_region(comm, region);
        return status;
    }
    /* Page tables now rather than in the first operation; where the kernel cannot, the first operation does it. */
    (void)madvise(comm->base + region->offset, region_nbytes(comm, region), MADV_POPULATE_WRITE);
    *out = own_part(comm, region);
    return LS_OK;
}

ls_status ls_comm_alloc_shared(ls_comm *comm, size_t nbytes, void **out) {
    *out = NULL;
    ls_status status = check_machine(comm, nbytes);
    if (status != LS_OK) return status;
    ls_region *region = calloc(1, sizeof *region);
    if (!region) return ls_fail(LS_ERR_NO_MEMORY, "no memory for a shared region's record");
    region->stride_bytes = round_up(nbytes > 0 ? nbytes : 1, LS_PAGE_BYTES);
    status = comm->world_size == 1 ? alloc_alone(comm, region, out) : alloc_in_group(comm, region, nbytes, out);
    if (status != LS_OK) free(region);
    return status;
}

static ls_region *find_region(const ls_comm *comm, const void *memory) {
    for (ls_region *region = comm->regions; region; region = region->next) {
        if (comm->world_size == 1 ? region->offset == (size_t)(uintptr_t)memory : own_part(comm, region) == memory)
            return region;
    }
    return NULL;
}

ls_status ls_comm_free_shared(ls_comm *comm, void *memory) {
    if (!memory) return LS_OK;
    ls_region *region = find_region(comm, memory);
    if (!region) return ls_fail(LS_ERR_INVALID, "free_shared: %p is not memory of this group's alloc_shared", memory);
    ls_status status = LS_OK;
    if (comm->world_size > 1) {
        status = meet(comm, LS_OPERATION_FREE, region->offset, LS_OK);
        if (status == LS_OK) empty_region(comm, region);
    } else {
        munmap(memory, region->stride_bytes);
    }
    if (status != LS_OK) return status;
    remove_region(comm, region);
    free(region);
    return LS_OK;
}

void ls_regions_destroy(ls_comm *comm) {
    while (comm->regions) {
        ls_region *region = comm->regions;
        comm->regions = region->next;
        if (comm->world_size == 1) munmap((void *)(uintptr_t)region->offset, region->stride_bytes);
        free(region);
    }
}
