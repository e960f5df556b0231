/* backend — NCCL or staged, for a job whose ranks have GPUs.
 *   idea  : NCCL needs a GPU for each rank, and its library on each. The ranks find that out together, over the group on host memory
 *           that they have already, so that all come to the same answer
 *   cost  : a meeting of all ranks at the start of a run
 *   fails : what cannot be had is refused on every rank; "auto" takes the staged way instead and says why */
#include "ddp_procs/backend.h"

#include <stdio.h>

#include "common/base/log.h"

ls_status ddp_backend_check(ddp_backend backend, ls_device_kind kind, const char *allreduce) {
    if (backend != DDP_BACKEND_NCCL) return LS_OK;
    if (kind != LS_DEVICE_CUDA) {
        return ls_fail(LS_ERR_USAGE,
                       "--backend nccl works between GPUs, and these are CPU devices, for which there is shm");
    }
    if (!allreduce) return LS_OK;
    return ls_fail(LS_ERR_USAGE,
                   "--allreduce %s is one of --backend shm's algorithms; NCCL has its own, so leave one of the two out",
                   allreduce);
}

static void describe_sharing(int ranks, int gpus, char *text, size_t capacity) {
    snprintf(text, capacity, "%d ranks share %d GPU%s", ranks, gpus, gpus == 1 ? "" : "s");
}

static ls_status refuse_nccl(const char *obstacle) {
    return ls_fail(LS_ERR_USAGE, "--backend nccl needs NCCL and a GPU per rank, but %s; --backend shm does without",
                   obstacle);
}

ls_status ddp_backend_check_ranks(ddp_backend backend, ls_device_kind kind, int ranks, int gpus) {
    if (backend != DDP_BACKEND_NCCL || kind != LS_DEVICE_CUDA || gpus >= ranks) return LS_OK;
    char obstacle[64];
    describe_sharing(ranks, gpus, obstacle, sizeof obstacle);
    return refuse_nccl(obstacle);
}

static bool is_shared(const ddp_backend_options *o) { return o->gpus > 0 && o->gpus < o->local_ranks; }

/* Why NCCL cannot be used: "4 ranks share 1 GPU", or what ls_comm_gpus_are_distinct has found. */
static void describe_obstacle(const ddp_backend_options *o, const char *found, char *text, size_t capacity) {
    if (is_shared(o)) {
        describe_sharing(o->local_ranks, o->gpus, text, capacity);
    } else {
        snprintf(text, capacity, "%s", found);
    }
}

/* For auto: NCCL where it can be used; if not, rank 0 says why. */
static ls_comm_path choose(const ls_comm *comm, const ddp_backend_options *o, bool distinct, const char *obstacle) {
    if (ls_comm_world_size(comm) == 1) return LS_COMM_STAGED; /* nothing travels */
    if (distinct && !o->group->allreduce) return LS_COMM_NCCL;
    if (ls_comm_rank(comm) > 0) return LS_COMM_STAGED;
    if (distinct) {
        ls_note("--allreduce %s: gradients are staged through host memory (NCCL has algorithms of its own)",
                o->group->allreduce);
    } else if (is_shared(o)) {
        ls_note("%s: gradients are staged through host memory (NCCL needs a GPU per rank)", obstacle);
    } else {
        ls_note("gradients are staged through host memory, without NCCL: %s", obstacle);
    }
    return LS_COMM_STAGED;
}

ls_status ddp_backend_attach(ls_comm *comm, ls_device *device, const ddp_backend_options *o, ddp_attachment *a) {
    static const ls_comm_path paths[] = {[DDP_BACKEND_SHM] = LS_COMM_STAGED, [DDP_BACKEND_NCCL] = LS_COMM_NCCL};
    bool distinct = false;
    char found[512] = "", obstacle[512];
    ls_status status = ls_comm_gpus_are_distinct(comm, device, &distinct, found, sizeof found);
    if (status != LS_OK) return status;
    describe_obstacle(o, found, obstacle, sizeof obstacle);
    a->gpus = distinct ? ls_comm_world_size(comm) : o->gpus;
    if (o->backend == DDP_BACKEND_NCCL && !distinct) return refuse_nccl(obstacle);
    a->path = o->backend == DDP_BACKEND_AUTO ? choose(comm, o, distinct, obstacle) : paths[o->backend];
    return ls_comm_attach_device(comm, device, a->path, o->group);
}
