/* The table of ls_nccl.so (plugin.h): NCCL communicators for groups whose ranks have met already. attach.c calls it;
 * what it needs of the group it finds in comm_internal.h. */
#ifndef LS_COMM_NCCL_PLUGIN_H
#define LS_COMM_NCCL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "common/comm/comm.h"

#define LS_NCCL_ID_NBYTES 128

/* What ranks compare before they begin. */
struct ls_nccl_identity {
    uint64_t gpu; /* where on the machine's bus the GPU is: the same exactly for devices that share it */
    int index;    /* CUDA's number of it, in this process */
    int version;  /* of the NCCL library, as it codes it: 22809 is 2.28.9 */
};

struct ls_nccl_plugin {
    unsigned version; /* LS_PLUGIN_VERSION */
    /* Failures are not reported, but said in `why`. */
    ls_status (*identify)(const ls_device *device, struct ls_nccl_identity *out, char *why, size_t capacity);
    /* Rank 0: makes the id by which NCCL's ranks find each other. On failure the reason is in `why`. */
    ls_status (*make_id)(unsigned char id[LS_NCCL_ID_NBYTES], char *why, size_t capacity);
    /* Host-blocking, with the group's deadline: makes the communicators of `count` ranks of this process (1, or all of
     * a group of threads), and sets their comms' device, path and path_state. On failure the groups are broken. */
    ls_status (*attach)(ls_comm *const *comms, ls_device *const *devices, int count,
                        const unsigned char id[LS_NCCL_ID_NBYTES]);
};

#endif
