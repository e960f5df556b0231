/* How a rank's groups transfer data: --backend. */
#ifndef DDP_BACKEND_H
#define DDP_BACKEND_H

#include "common/comm/comm.h"

typedef enum ddp_backend { DDP_BACKEND_AUTO, DDP_BACKEND_SHM, DDP_BACKEND_NCCL, DDP_BACKEND_MPI } ddp_backend;

/* LS_ERR_USAGE: the options contradict each other. `allreduce` NULL: not given. */
ls_status ddp_backend_check(ddp_backend backend, ls_device_kind kind, const char *allreduce);

/* The same before the ranks are started, given the number of GPUs that they will have together. */
ls_status ddp_backend_check_ranks(ddp_backend backend, ls_device_kind kind, int ranks, int gpus);

/* Chooses the carrier of operations on host memory for ranks on `hosts` hosts; *carrier NULL: none, since shared memory
 * or NCCL suffices. DDP_BACKEND_AUTO: MPI if CPU devices are on several hosts. LS_ERR_USAGE: shared memory was
 * requested for several hosts; LS_ERR_UNSUPPORTED: MPI is not available. */
struct ls_carrier;
ls_status ddp_backend_carrier(ddp_backend backend, ls_device_kind kind, int hosts, const struct ls_carrier **carrier);

typedef struct ddp_backend_options {
    ddp_backend backend;
    const ls_comm_options *group; /* with which the group was created; allreduce: NULL, or the user's choice */
    int local_ranks, gpus;        /* the ranks of this machine, and the number of different GPUs assigned to them */
    int hosts;                    /* number of hosts of the ranks */
} ddp_backend_options;

/* The path that was chosen, the same on all ranks. */
typedef struct ddp_attachment {
    ls_comm_path path;
    int gpus; /* number of different GPUs over all ranks; 0: not known */
} ddp_attachment;

/* Collective, host-blocking: attaches this rank's GPU to the group of all ranks. DDP_BACKEND_AUTO: by NCCL if each rank
 * has a GPU of its own and can use NCCL, and else staged; rank 0 then prints the reason. A named all-reduce algorithm
 * implies staged. If NCCL was requested but cannot be used, every rank fails: with LS_ERR_USAGE if ranks share a GPU,
 * with LS_ERR_UNSUPPORTED if NCCL is not available. */
ls_status ddp_backend_attach(ls_comm *comm, ls_device *device, const ddp_backend_options *options,
                             ddp_attachment *attachment);

#endif
