/* Who am I among the processes of this job: read from the environment that a launcher sets.
 *
 *     RANK              this process, 0 <= RANK < WORLD_SIZE
 *     WORLD_SIZE        processes in the job, 1 to LS_COMM_MAX_RANKS
 *     LOCAL_RANK        this process among those of this machine: the number of its device
 *     LOCAL_WORLD_SIZE  processes on this machine
 *     MASTER_ADDR       where the key-value store is (store.h)
 *     MASTER_PORT       its port
 *     LS_STORE          "unix:NAME", "tcp:HOST:PORT": the store is there, and the launcher hosts it; not set: rank 0
 *                       hosts it
 *     LS_JOB            (optional) the job's name; not set: what the launcher calls it
 *
 * ddprun and torchrun set the first six. mpirun, mpiexec and srun have variables of their own for the first four
 * (common/base/launcher.h); where all their ranks run on one machine, they need no MASTER_ADDR and MASTER_PORT: the
 * ranks work out a port from the job's name. torchrun's agent often listens on MASTER_PORT itself
 * (TORCHELASTIC_USE_AGENT_STORE); the store is then DDP_AGENT_PORT_OFFSET ports above it, or below where there is none.
 *
 * Where MASTER_ADDR is this machine's loopback and neither LOCAL_RANK nor LOCAL_WORLD_SIZE is known, all ranks are here.
 *
 * No launcher, and none of the six set: the process is alone. Some of them set is an error, and so is a launcher's rank
 * of several without a place to meet: a process never takes itself for the only rank by mistake. */
#ifndef DDP_LAUNCH_RANK_H
#define DDP_LAUNCH_RANK_H

#include <stdbool.h>

#include "common/base/launcher.h"
#include "common/base/status.h"
#include "ddp_procs/launch/store_address.h"

#define DDP_AGENT_PORT_OFFSET 1000

typedef struct ddp_rank {
    int rank, world_size;
    int local_rank, local_world_size;
    bool launched;                       /* false: no launcher's variables; rank 0 of 1, and there is no store */
    bool hosts_store;                    /* this rank is to host the store; ddp_store_open does */
    char master_host[DDP_HOST_CAPACITY]; /* MASTER_ADDR, or LS_STORE where that is set */
    int master_port;
    char job[LS_JOB_CAPACITY]; /* the launcher's name for this job, the same on all ranks; "": it has given none */
} ddp_rank;

/* LS_ERR_INVALID names the variable that is missing, is no number, or contradicts another; *out is then zero-filled. */
ls_status ddp_rank_discover(ddp_rank *out);

#endif
