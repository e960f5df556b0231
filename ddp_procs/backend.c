/* backend — NCCL or staged, for a job whose ranks have GPUs.
 *   idea  : NCCL needs a GPU for each rank, and its library on each. The ranks decide together, over the group on
 *           host memory that they already have, so that all reach the same answer
 *   cost  : a collective operation of all ranks at the start of a run
 *   fails : an impossible choice is refused on every rank; "auto" takes the staged path instead and reports why */
#include "ddp_procs/backend.h"

#include <stdio.h>

#include "common/base/log.h"
#include "common/comm/mpi_plugin.h"

ls_status ddp_backend_check(ddp_backend backend, ls_device_kind kind, const char *allreduce) {
    if (backend != DDP_BACKEND_NCCL) return LS_OK;
    if (kind != LS_DEVICE_CUDA) {
        return ls_fail(LS_ERR_USAGE,
                       "--backend nccl works between GPUs, but the devices are %s devices; give --backend shm",
                       kind == LS_DEVICE_CPU ? "CPU" : "meta");
    }
    if (!allreduce) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--allreduce %s is an algorithm of --backend shm; NCCL has its own, so leave one of the two out",
                   allreduce);
}

static void describe_sharing(int ranks, int gpus, char *text, size_t capacity) {
    snprintf(text, capacity, "%d ranks share %d GPU%s", ranks, gpus, gpus == 1 ? "" : "s");
}

/* MPI is looked for only if it is named or needed, so a machine without MPI can run. */
ls_status ddp_backend_carrier(ddp_backend backend, ls_device_kind kind, int hosts, const struct ls_carrier **carrier) {
    char why[512];
    bool needed = hosts > 1 && kind == LS_DEVICE_CPU, named = backend == DDP_BACKEND_MPI;
    *carrier = NULL;
    if (kind == LS_DEVICE_META || (!needed && !named && !(hosts > 1 && backend == DDP_BACKEND_SHM))) return LS_OK;
    if (backend == DDP_BACKEND_SHM)
        return ls_fail(LS_ERR_USAGE,
                       "--backend shm needs all ranks on one host, but they are on %d: leave --backend shm out, or use "
                       "--backend %s",
                       hosts, kind == LS_DEVICE_CPU ? "mpi" : "nccl");
    *carrier = ls_mpi_carrier(why, sizeof why);
    if (*carrier) return LS_OK;
    if (named) return ls_fail(LS_ERR_UNSUPPORTED, "--backend mpi cannot be used: %s", why);
    return ls_fail(LS_ERR_UNSUPPORTED, "CPU devices on %d hosts need --backend mpi, which cannot be used: %s", hosts,
                   why);
}

/* Ranks that share a GPU are a usage error; a missing library is not. */
static ls_status refuse_nccl(ls_status obstacle, const char *text, int hosts) {
    return ls_fail(obstacle, "--backend nccl needs %s, but %s; use --backend %s instead",
                   obstacle == LS_ERR_USAGE ? "a GPU per rank" : "NCCL", text, hosts > 1 ? "mpi" : "shm");
}

ls_status ddp_backend_check_ranks(ddp_backend backend, ls_device_kind kind, int ranks, int gpus) {
    if (backend != DDP_BACKEND_NCCL || kind != LS_DEVICE_CUDA || gpus >= ranks) return LS_OK;
    char obstacle[64];
    describe_sharing(ranks, gpus, obstacle, sizeof obstacle);
    return refuse_nccl(LS_ERR_USAGE, obstacle, 1);
}

/* For auto: NCCL if it can be used; if not, rank 0 prints the reason. */
static ls_comm_path choose(const ls_comm *comm, const ddp_backend_options *o, ls_status obstacle, const char *text) {
    if (ls_comm_world_size(comm) == 1) return LS_COMM_STAGED; /* nothing is communicated */
    if (obstacle == LS_OK && !o->group->allreduce) return LS_COMM_NCCL;
    if (ls_comm_rank(comm) > 0) return LS_COMM_STAGED;
    if (obstacle == LS_OK) {
        ls_note("--allreduce %s: gradients are staged through host memory (NCCL has algorithms of its own)",
                o->group->allreduce);
    } else if (obstacle == LS_ERR_USAGE) {
        ls_note("%s: gradients are staged through host memory (NCCL needs a GPU per rank)", text);
    } else {
        ls_note("gradients are staged through host memory, without NCCL: %s", text);
    }
    return LS_COMM_STAGED;
}

ls_status ddp_backend_attach(ls_comm *comm, ls_device *device, const ddp_backend_options *o, ddp_attachment *a) {
    static const ls_comm_path paths[] = {
        [DDP_BACKEND_SHM] = LS_COMM_STAGED, [DDP_BACKEND_NCCL] = LS_COMM_NCCL, [DDP_BACKEND_MPI] = LS_COMM_STAGED};
    ls_status obstacle;
    char text[512];
    ls_status status = ls_comm_find_nccl_obstacle(comm, device, &obstacle, text, sizeof text);
    if (status != LS_OK) return status;
    /* with numbers, if this machine has fewer GPUs than ranks */
    if (obstacle == LS_ERR_USAGE && o->gpus < o->local_ranks) {
        describe_sharing(o->local_ranks, o->gpus, text, sizeof text);
    }
    a->gpus = obstacle == LS_OK ? ls_comm_world_size(comm) : o->hosts > 1 ? 0 : o->gpus;
    bool needs_nccl = o->backend == DDP_BACKEND_NCCL || (o->backend == DDP_BACKEND_AUTO && o->hosts > 1);
    if (needs_nccl && obstacle != LS_OK) return refuse_nccl(obstacle, text, o->hosts);
    if (needs_nccl && o->group->allreduce)
        return ddp_backend_check(DDP_BACKEND_NCCL, LS_DEVICE_CUDA, o->group->allreduce);
    a->path = o->backend == DDP_BACKEND_AUTO ? choose(comm, o, obstacle, text) : paths[o->backend];
    return ls_comm_attach_device(comm, device, a->path, o->group);
}
