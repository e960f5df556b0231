/* shm_memory — the group's file: maps it, and allocates regions inside it.
 *   idea  : the file begins with the control area; windows follow, ranges that each rank maps once and keeps. A region
 *           is a range of a window. Every rank chooses it by the same rule (after the others in the first window with
 *           enough space, or else in a new one), so no address and no file descriptor has to be sent. The file is
 *           sparse: pages exist once they are used. Outside of regions, windows are inaccessible (PROT_NONE)
 *   cost  : a window has the size of its first region, or of all earlier windows together if that is more: at most
 *           twice the address space that the group needs, and the unused ends of windows
 *   order : a window is kept once all ranks have got the region that it was made for (ls_shm_keep); otherwise all drop
 *           it. So the ranks' windows are the same ranges
 *   fails : a full machine or a limit (ulimit -v, a container's) shows when a window is mapped or a part is filled */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/comm/comm_internal.h"

/* A range of the file; NULL, with a message, if it cannot be mapped. */
static void *map_range(const ls_comm *comm, size_t offset, size_t nbytes, int protection) {
    void *base = mmap(NULL, nbytes, protection, MAP_SHARED | MAP_NORESERVE, comm->fd, (off_t)offset);
    if (base == MAP_FAILED) {
        ls_report_error(
            "cannot reserve %.1f MiB of address space for the group's shared memory: %s (is ulimit -v set?)",
            (double)nbytes / (1 << 20), strerror(errno));
        return NULL;
    }
    /* A crashing rank must not write the whole space into its core file. */
    (void)madvise(base, nbytes, MADV_DONTDUMP);
    return base;
}

ls_status ls_shm_map(ls_comm *comm) {
    void *base = map_range(comm, 0, ls_control_nbytes(comm->world_size), PROT_READ | PROT_WRITE);
    if (!base) return LS_ERR_NO_MEMORY;
    ls_segment_attach(comm, base);
    atomic_store(&comm->segment->slot[comm->rank].pid, (int32_t)getpid());
    return LS_OK;
}

void ls_shm_unmap(ls_comm *comm) {
    if (comm->base) munmap(comm->base, comm->control_nbytes);
    for (int i = 0; i < atomic_load(&comm->window_count); i++) munmap(comm->windows[i].base, comm->windows[i].nbytes);
}

/* --- placing regions -------------------------------------------------------------------------------------------------- */

static size_t region_nbytes(const ls_comm *comm, const ls_region *region) {
    return region->stride_bytes * (size_t)comm->world_size;
}

/* Places the region after those in the window; false if there is not enough space left. */
static bool place_in(const ls_comm *comm, const ls_window *window, ls_region *region) {
    size_t nbytes = region_nbytes(comm, region), used = 0;
    for (const ls_region *other = comm->regions; other; other = other->next) {
        if (other->offset < window->offset || other->offset >= window->offset + window->nbytes) continue;
        size_t end = other->offset - window->offset + region_nbytes(comm, other);
        if (end > used) used = end;
    }
    if (nbytes > window->nbytes - used) return false;
    region->offset = window->offset + used;
    return true;
}

/* Gives the region an offset, on all ranks alike, since they hold the same regions and windows. Until then its own
 * offset is 0: it has no place yet. Returns its window, which may be a new one that is not kept yet. */
static ls_window *place(ls_comm *comm, ls_region *region) {
    int count = atomic_load(&comm->window_count);
    for (int i = 0; i < count; i++)
        if (place_in(comm, &comm->windows[i], region)) return &comm->windows[i];
    if (count == LS_WINDOWS_MAX) return NULL;
    size_t offset = comm->control_nbytes, nbytes = region_nbytes(comm, region);
    if (count > 0) offset = comm->windows[count - 1].offset + comm->windows[count - 1].nbytes;
    region->offset = offset;
    comm->windows[count] = (ls_window){.offset = offset, .nbytes = nbytes > offset ? nbytes : offset};
    return &comm->windows[count];
}

static ls_window *find_window(ls_comm *comm, const ls_region *region) {
    int last = atomic_load(&comm->window_count), i = 0;
    while (i < last && region->offset - comm->windows[i].offset >= comm->windows[i].nbytes) i++;
    return &comm->windows[i];
}

void ls_shm_keep(ls_comm *comm, ls_region *region) {
    int count = atomic_load(&comm->window_count);
    if (comm->world_size > 1 && find_window(comm, region) == &comm->windows[count])
        atomic_store_explicit(&comm->window_count, count + 1, memory_order_release);
}

/* --- filling and emptying them ---------------------------------------------------------------------------------------- */

static off_t own_offset(const ls_comm *comm, const ls_region *region) {
    return (off_t)(region->offset + (size_t)comm->rank * region->stride_bytes);
}

/* Extends the file to the region's end and allocates this rank's part; false on failure. The file only grows: all ranks
 * allocate the same region. Each allocates its own part, so that on NUMA machines it lies near that rank. */
static bool allocate_part(const ls_comm *comm, const ls_region *region) {
    struct stat info;
    off_t end = (off_t)(region->offset + region_nbytes(comm, region));
    if (fstat(comm->fd, &info) != 0 || (info.st_size < end && ftruncate(comm->fd, end) != 0)) return false;
    int result;
    do result = fallocate(comm->fd, 0, own_offset(comm, region), (off_t)region->stride_bytes);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

ls_status ls_shm_fill(ls_comm *comm, ls_region *region) {
    if (comm->world_size == 1) return ls_region_fill_private(comm, region); /* a group of one has no file */
    ls_window *window = place(comm, region);
    if (!window)
        return ls_fail(LS_ERR_NO_MEMORY, "the group's address space has no room for %zu bytes per rank",
                       region->stride_bytes);
    if (!window->base) window->base = map_range(comm, window->offset, window->nbytes, PROT_NONE);
    if (!window->base) return LS_ERR_NO_MEMORY;
    bool allocated = allocate_part(comm, region);
    region->seen = window->base + (region->offset - window->offset);
    region->seen_bytes = region_nbytes(comm, region);
    if (!allocated || mprotect(region->seen, region->seen_bytes, PROT_READ | PROT_WRITE) != 0)
        return ls_fail(LS_ERR_NO_MEMORY, "rank %d cannot allocate %zu bytes of shared memory: %s",
                       ls_job_rank(comm, comm->rank), region->stride_bytes, strerror(errno));
    region->memory = region->seen + (size_t)comm->rank * region->stride_bytes;
    return LS_OK;
}

/* The window that was made for a region which not all ranks have got. */
static void forget_window(ls_comm *comm, const ls_region *region) {
    ls_window *window = find_window(comm, region);
    if (window < comm->windows + atomic_load(&comm->window_count) || !window->base) return;
    munmap(window->base, window->nbytes);
    window->base = NULL;
}

void ls_shm_empty(ls_comm *comm, ls_region *region) {
    if (comm->world_size == 1) {
        ls_region_empty_private(comm, region);
        return;
    }
    if (region->seen) {
        (void)mprotect(region->seen, region->seen_bytes, PROT_NONE);
        (void)fallocate(comm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, own_offset(comm, region),
                        (off_t)region->stride_bytes);
    }
    if (region->offset > 0) forget_window(comm, region);
}
