/* The groups of a rank of ddp_train: of all ranks, and of a grid's axes; each of them perhaps twice, since a group's operations
 * run on one stream. */
#ifndef DDP_GROUPS_H
#define DDP_GROUPS_H

#include "common/comm/mesh.h"
#include "ddp_procs/backend.h"
#include "ddp_procs/hosts.h"

typedef struct ddp_groups_options {
    int rank, world_size, local_ranks;
    int sizes[LS_MESH_AXES];       /* whose product is world_size; without a grid 1 x world_size x 1 */
    const ls_bootstrap *bootstrap; /* NULL: there is one rank */
    int64_t run;                   /* of the store's (agree.h) */
    int64_t meeting;               /* of the run's, after which these groups form; 0: there is none (elastic.h) */
    double timeout_s;
    const char *allreduce; /* NULL: none is named */
    ls_device *device;
    ddp_backend backend;
    const char *flight; /* ls_comm_options.flight, .debug */
    bool debug;
    int gpus; /* that this machine's ranks were given between them */
    const ddp_hosts *hosts;
} ddp_groups_options;

/* Fields are constant after their join; zero-filled: there is none. */
typedef struct ddp_groups {
    ls_comm *job; /* all ranks */
    ls_mesh mesh; /* has it, where there is a grid; else zero-filled */
    ls_comm *beside
        [LS_MESH_AXES]; /* a second group of an axis, for the compute stream; without a grid the data axis is the job */
    ls_comm *
        all; /* likewise a group of a grid's ranks that have the same place on the tensor axis: of the job, without one */
    const struct ls_carrier *carrier; /* of operations on host memory; NULL: shared memory, or NCCL, does without */
    ddp_attachment attachment;        /* of GPUs to the groups */
} ddp_groups;

/* Whether ranks are on other axes than the data's. */
bool ddp_has_grid(const int sizes[LS_MESH_AXES]);

/* Open files of a rank; `beside`: which axes have a second group; `all`: whether the job has. */
int ddp_groups_descriptors(const int sizes[LS_MESH_AXES], const bool beside[LS_MESH_AXES], bool all);

/* Collective: the job's group, and a grid's; GPUs are attached. On failure ddp_groups_leave is to be called. */
ls_status ddp_groups_join(ddp_groups *groups, const ddp_groups_options *options);

/* Collective, after it: groups->beside[axis]; groups->all. Whoever breaks one of the two breaks both. */
ls_status ddp_groups_join_beside(ddp_groups *groups, ls_mesh_axis axis, const ddp_groups_options *options);
ls_status ddp_groups_join_all(ddp_groups *groups, const ddp_groups_options *options);

/* The grid, or NULL. */
static inline const ls_mesh *ddp_groups_mesh(const ddp_groups *groups) {
    return groups->mesh.job ? &groups->mesh : NULL;
}

/* The ranks that average gradients. */
static inline ls_comm *ddp_groups_data(const ddp_groups *groups) {
    return groups->mesh.job ? groups->mesh.axis[LS_MESH_DATA] : groups->job;
}

void ddp_groups_leave(ddp_groups *groups);

#endif
