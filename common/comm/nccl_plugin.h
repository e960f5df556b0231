/* The table of ls_nccl.so (plugin.h): NCCL communicators for groups that are already formed. attach.c calls it; it uses
 * the group through comm_internal.h. */
#ifndef LS_COMM_NCCL_PLUGIN_H
#define LS_COMM_NCCL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "common/comm/comm.h"

#define LS_NCCL_ID_NBYTES 128

/* The data that ranks compare before they create communicators. */
struct ls_nccl_identity {
    uint64_t gpu; /* the GPU's bus address: the same only for devices that share the GPU */
    int index;    /* its CUDA index in this process */
    int version;  /* of the NCCL library, as it codes it: 22809 is 2.28.9 */
};

struct ls_nccl_plugin {
    unsigned version; /* LS_PLUGIN_VERSION */
    /* Failures are not reported; `why` describes them. */
    ls_status (*identify)(const ls_device *device, struct ls_nccl_identity *out, char *why, size_t capacity);
    /* Rank 0: makes the id by which NCCL's ranks find each other. On failure the reason is in `why`. */
    ls_status (*make_id)(unsigned char id[LS_NCCL_ID_NBYTES], char *why, size_t capacity);
    /* Host-blocking, with the group's deadline: makes the communicators of `count` ranks of this process (1, or all of
     * a group of threads), and sets their comms' device, path and path_state. On failure the groups are broken. */
    ls_status (*attach)(ls_comm *const *comms, ls_device *const *devices, int count,
                        const unsigned char id[LS_NCCL_ID_NBYTES]);
};

#endif
