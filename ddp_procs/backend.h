/* How a rank's GPU memory travels through its groups: --backend. */
#ifndef DDP_BACKEND_H
#define DDP_BACKEND_H

#include "common/comm/comm.h"

typedef enum ddp_backend { DDP_BACKEND_AUTO, DDP_BACKEND_SHM, DDP_BACKEND_NCCL, DDP_BACKEND_MPI } ddp_backend;

/* LS_ERR_USAGE: what the command line asks for cannot be had together. `allreduce` NULL: none is named. */
ls_status ddp_backend_check(ddp_backend backend, ls_device_kind kind, const char *allreduce);

/* The same for ranks that are to be started, and will have so many GPUs between them. */
ls_status ddp_backend_check_ranks(ddp_backend backend, ls_device_kind kind, int ranks, int gpus);

/* What carries operations on host memory of ranks on `hosts` hosts; *carrier NULL: shared memory does, or over NCCL nothing
 * does. DDP_BACKEND_AUTO: MPI where CPU devices are on several hosts. LS_ERR_USAGE: shared memory is asked for there;
 * LS_ERR_UNSUPPORTED: MPI cannot be had. */
struct ls_carrier;
ls_status ddp_backend_carrier(ddp_backend backend, ls_device_kind kind, int hosts, const struct ls_carrier **carrier);

typedef struct ddp_backend_options {
    ddp_backend backend;
    const ls_comm_options *group; /* what the group was created with; allreduce: NULL, or the one that the user names */
    int local_ranks, gpus;        /* the ranks of this machine, and how many GPUs they were given between them */
    int hosts;                    /* that the ranks are on */
} ddp_backend_options;

/* The path that was chosen, the same on all ranks. */
typedef struct ddp_attachment {
    ls_comm_path path;
    int gpus; /* different ones, over all ranks; 0: not known */
} ddp_attachment;

/* Collective, host-blocking: attaches this rank's GPU to the group of all ranks. DDP_BACKEND_AUTO: by NCCL if each rank
 * has a GPU of its own and can use NCCL, and else staged; rank 0 then prints the reason. An algorithm that is named
 * is one of staged operations. Where NCCL is asked for, every rank fails: with LS_ERR_USAGE if ranks share a GPU, with
 * LS_ERR_UNSUPPORTED if NCCL cannot be had. */
ls_status ddp_backend_attach(ls_comm *comm, ls_device *device, const ddp_backend_options *options,
                             ddp_attachment *attachment);

#endif
