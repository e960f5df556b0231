/* Memory that all ranks of a group can access: regions of ls_comm_alloc_shared, and their mappings in this process.
 * Private to common/comm. */
#ifndef LS_COMM_REGIONS_H
#define LS_COMM_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/comm/comm.h"

#define LS_PAGE_BYTES ((size_t)4096)

/* Each window is at least as large as all before it together, so these are enough. */
#define LS_WINDOWS_MAX 32

/* An allocation of ls_comm_alloc_shared: a part of stride_bytes for each rank. */
typedef struct ls_region {
    size_t stride_bytes;
    void *memory; /* this rank's part */
    char *seen;   /* this rank's mapping of all parts, seen_bytes long */
    size_t seen_bytes;
    size_t offset;      /* shm: rank r's part is at offset + r * stride_bytes of the file; 0: not allocated */
    void *handle;       /* returned to the caller: `memory` or `gpu` */
    char *gpu;          /* memory of the attached GPU; `memory` is then its host copy, if the path mirrors */
    size_t nbytes;      /* as asked for */
    ls_device *charged; /* the device that accounts for `memory`; NULL: none */
    bool pinned;
    struct ls_region *next;
} ls_region;

/* A range of the group's memory that this rank has mapped, and where. Groups of threads have one, of all addresses. */
typedef struct ls_window {
    uint64_t offset, nbytes;
    char *base;
} ls_window;

/* --- regions (regions.c) ------------------------------------------------------------------------------------------ */

/* Frees all regions. Not collective. */
void ls_regions_destroy(ls_comm *comm);

/* The region whose GPU memory contains the address; NULL: none. */
const ls_region *ls_region_on_gpu(const ls_comm *comm, const void *address);

/* fill and empty (struct ls_transport) for memory that only this process maps. */
ls_status ls_region_fill_private(ls_comm *comm, ls_region *region);
void ls_region_empty_private(ls_comm *comm, ls_region *region);

/* --- the group's file (shm_memory.c) ------------------------------------------------------------------------------ */

/* Maps the control area of the file comm->fd and registers this process in its slot. */
ls_status ls_shm_map(ls_comm *comm);
void ls_shm_unmap(ls_comm *comm);
ls_status ls_shm_fill(ls_comm *comm, ls_region *region);
void ls_shm_keep(ls_comm *comm, ls_region *region);
void ls_shm_empty(ls_comm *comm, ls_region *region);

#endif
