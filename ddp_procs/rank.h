/* Who am I among the processes of this job: read from the environment that a launcher sets.
 *
 *     RANK              this process, 0 <= RANK < WORLD_SIZE
 *     WORLD_SIZE        processes in the job, 1 to LS_COMM_MAX_RANKS
 *     LOCAL_RANK        this process among those of this machine: the number of its device
 *     LOCAL_WORLD_SIZE  processes on this machine
 *     MASTER_ADDR       where the key-value store is (store.h)
 *     MASTER_PORT       its port
 *     LS_STORE          "launcher": the launcher hosts the store; not set: rank 0 hosts it
 *
 * ddprun and torchrun set the first six. None of them set: the process is alone. Some of them set is an error, never a
 * silent world of one. */
#ifndef DDP_RANK_H
#define DDP_RANK_H

#include <stdbool.h>

#include "common/base/status.h"

#define DDP_HOST_CAPACITY 256

typedef struct ddp_rank {
    int rank, world_size;
    int local_rank, local_world_size;
    bool launched;    /* false: no launcher's variables; rank 0 of 1, and there is no store */
    bool hosts_store; /* this rank is to host the store; ddp_store_open does */
    char master_host[DDP_HOST_CAPACITY];
    int master_port;
} ddp_rank;

/* LS_ERR_INVALID names the variable that is missing, is no number, or contradicts another; *out is then zero-filled. */
ls_status ddp_rank_discover(ddp_rank *out);

#endif
