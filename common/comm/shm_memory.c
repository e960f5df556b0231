/* shm_memory — the group's file: mapping it, and regions inside of it.
 *   idea  : the file is as large as the address space that each rank reserves for it, and sparse: pages exist once
 *           somebody asks for them. A region is a range of it, chosen by every rank for itself by the same rule (first
 *           fit), so no address and no file descriptor has to travel. Outside of regions the space is closed
 *           (PROT_NONE)
 *   fails : a full machine or a limit (ulimit -v, a container's) shows when a part is filled */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/comm/comm_internal.h"

ls_status ls_shm_map(ls_comm *comm) {
    void *base = mmap(NULL, LS_SEGMENT_SPACE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, comm->fd, 0);
    if (base == MAP_FAILED)
        return ls_fail(LS_ERR_NO_MEMORY,
                       "cannot reserve %zu GiB of address space for the group's shared memory: %s (is ulimit -v set?)",
                       LS_SEGMENT_SPACE_BYTES >> 30, strerror(errno));
    ls_segment_attach(comm, base);
    comm->origin = (uintptr_t)base;
    comm->reach_begin = comm->control_nbytes;
    comm->reach_end = LS_SEGMENT_SPACE_BYTES;
    /* A crashing rank must not write the whole space into its core file. */
    (void)madvise(base, LS_SEGMENT_SPACE_BYTES, MADV_DONTDUMP);
    if (mprotect(base, comm->control_nbytes, PROT_READ | PROT_WRITE) != 0)
        return ls_fail(LS_ERR_NO_MEMORY, "cannot open the control area of the group's shared memory: %s",
                       strerror(errno));
    atomic_store(&comm->segment->slot[comm->rank].pid, (int32_t)getpid());
    return LS_OK;
}

static size_t region_nbytes(const ls_comm *comm, const ls_region *region) {
    return region->stride_bytes * (size_t)comm->world_size;
}

static const ls_region *find_overlapping(const ls_comm *comm, size_t offset, size_t nbytes) {
    for (const ls_region *region = comm->regions; region; region = region->next)
        if (region->offset > 0 && region->offset < offset + nbytes &&
            offset < region->offset + region_nbytes(comm, region))
            return region;
    return NULL;
}

/* Puts the region into the first gap that holds it, on all ranks alike, since they hold the same regions; false if
 * there is none. Until then its own offset is 0, which says that it has no place yet. */
static bool place(const ls_comm *comm, ls_region *region) {
    size_t nbytes = region_nbytes(comm, region), offset = comm->control_nbytes;
    const ls_region *other;
    while ((other = find_overlapping(comm, offset, nbytes))) offset = other->offset + region_nbytes(comm, other);
    if (nbytes > LS_SEGMENT_SPACE_BYTES - offset) return false;
    region->offset = offset;
    return true;
}

static off_t own_offset(const ls_comm *comm, const ls_region *region) {
    return (off_t)(region->offset + (size_t)comm->rank * region->stride_bytes);
}

/* Each rank allocates its own part, so that on NUMA machines it lies near that rank. */
ls_status ls_shm_fill(ls_comm *comm, ls_region *region) {
    if (comm->world_size == 1) return ls_region_fill_private(comm, region); /* a group of one has no file */
    if (!place(comm, region))
        return ls_fail(LS_ERR_NO_MEMORY, "the group's %zu GiB of address space have no room for %zu bytes per rank",
                       LS_SEGMENT_SPACE_BYTES >> 30, region->stride_bytes);
    int result;
    do result = fallocate(comm->fd, 0, own_offset(comm, region), (off_t)region->stride_bytes);
    while (result != 0 && errno == EINTR);
    region->seen = comm->base + region->offset;
    region->seen_bytes = region_nbytes(comm, region);
    if (result != 0 || mprotect(region->seen, region->seen_bytes, PROT_READ | PROT_WRITE) != 0)
        return ls_fail(LS_ERR_NO_MEMORY, "rank %d cannot allocate %zu bytes of shared memory: %s", comm->rank,
                       region->stride_bytes, strerror(errno));
    region->memory = comm->base + own_offset(comm, region);
    return LS_OK;
}

void ls_shm_empty(ls_comm *comm, ls_region *region) {
    if (comm->world_size == 1) {
        ls_region_empty_private(comm, region);
    } else if (region->seen) {
        (void)mprotect(region->seen, region->seen_bytes, PROT_NONE);
        (void)fallocate(comm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, own_offset(comm, region),
                        (off_t)region->stride_bytes);
    }
}
