/* Memory that all ranks of a group reach: regions of ls_comm_alloc_shared, and where this process has mapped them.
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
    char *seen;   /* what this rank sees of all parts: seen_bytes of them */
    size_t seen_bytes;
    size_t offset; /* shm: rank r's part lies at offset + r * stride_bytes of the file; 0: found no place */
    void *handle;  /* what the caller got: `memory` or */
    char *gpu;     /* memory of the attached GPU; `memory` is then its companion on the host, if the path mirrors */
    size_t nbytes; /* as asked for */
    ls_device *charged; /* pays for `memory`; NULL: nobody */
    bool pinned;
    struct ls_region *next;
} ls_region;

/* A range of the group's memory that this rank has mapped, and where. Groups of threads have one, of all addresses. */
typedef struct ls_window {
    uint64_t offset, nbytes;
    char *base;
} ls_window;

/* --- regions (regions.c) ------------------------------------------------------------------------------------------ */

/* Gives back all regions, without asking the other ranks. */
void ls_regions_destroy(ls_comm *comm);

/* The region of whose memory on the GPU the address is part; NULL: none. */
const ls_region *ls_region_on_gpu(const ls_comm *comm, const void *address);

/* The fill and empty of memory that this process alone maps. */
ls_status ls_region_fill_private(ls_comm *comm, ls_region *region);
void ls_region_empty_private(ls_comm *comm, ls_region *region);

/* --- the group's file (shm_memory.c) ------------------------------------------------------------------------------ */

/* Maps the control area of the file comm->fd and enters this process into its slot. */
ls_status ls_shm_map(ls_comm *comm);
void ls_shm_unmap(ls_comm *comm);
ls_status ls_shm_fill(ls_comm *comm, ls_region *region);
void ls_shm_keep(ls_comm *comm, ls_region *region);
void ls_shm_empty(ls_comm *comm, ls_region *region);

#endif
