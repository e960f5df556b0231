/* The groups of a rank of ddp_train: of all ranks, and of the axes of a mesh; each perhaps twice, since a group's
 * operations run on one stream. */
#ifndef DDP_GROUPS_H
#define DDP_GROUPS_H

#include "common/comm/mesh.h"
#include "ddp_procs/backend.h"
#include "ddp_procs/hosts.h"

typedef struct ddp_groups_options {
    int rank, world_size, local_ranks;
    int sizes[LS_MESH_AXES];       /* whose product is world_size; without a mesh 1 x world_size x 1 */
    const ls_bootstrap *bootstrap; /* NULL: there is one rank */
    int64_t run;                   /* number of the run over the store (agree.h) */
    int64_t meeting;               /* the meeting after which these groups form; 0: none (elastic.h) */
    double timeout_s;
    const char *allreduce; /* NULL: none is named */
    ls_device *device;
    ddp_backend backend;
    const char *flight; /* ls_comm_options.flight, .debug */
    bool debug;
    int gpus; /* the number of different GPUs of this machine's ranks */
    const ddp_hosts *hosts;
} ddp_groups_options;

/* Fields are constant after they are joined; zero-filled: not joined. */
typedef struct ddp_groups {
    ls_comm *job; /* all ranks */
    ls_mesh mesh; /* owns `job`, if there is a mesh; else zero-filled */
    ls_comm *beside
        [LS_MESH_AXES]; /* a second group of an axis, for the compute stream; without a mesh the data axis is the job */
    ls_comm *all; /* likewise, a group of all ranks with the same rank on the tensor axis; without a mesh of the job */
    const struct ls_carrier *carrier; /* of operations on host memory; NULL: none is needed */
    ddp_attachment attachment;        /* of GPUs to the groups */
} ddp_groups;

/* Whether an axis other than data has several ranks. */
bool ddp_has_grid(const int sizes[LS_MESH_AXES]);

/* Open files of a rank; `beside`: the axes with a second group; `all`: the job has one. */
int ddp_groups_descriptors(const int sizes[LS_MESH_AXES], const bool beside[LS_MESH_AXES], bool all);

/* Collective: joins the groups of the job and of the mesh, and attaches GPUs. Call ddp_groups_leave on failure, too. */
ls_status ddp_groups_join(ddp_groups *groups, const ddp_groups_options *options);

/* Collective, after it: join groups->beside[axis], and groups->all. Breaking a group also breaks its second group. */
ls_status ddp_groups_join_beside(ddp_groups *groups, ls_mesh_axis axis, const ddp_groups_options *options);
ls_status ddp_groups_join_all(ddp_groups *groups, const ddp_groups_options *options);

/* The mesh, or NULL. */
static inline const ls_mesh *ddp_groups_mesh(const ddp_groups *groups) {
    return groups->mesh.job ? &groups->mesh : NULL;
}

/* The ranks that average gradients. */
static inline ls_comm *ddp_groups_data(const ddp_groups *groups) {
    return groups->mesh.job ? groups->mesh.axis[LS_MESH_DATA] : groups->job;
}

void ddp_groups_leave(ddp_groups *groups);

#endif
