/* A mesh: the ranks of a job laid out on three axes, tensor x data x pipeline, with a group for each axis.
 *
 * The tensor axis is innermost, then data, then pipeline, which is Megatron's default order: the ranks that communicate
 * most are neighbours. With sizes T, D, P the rank at (t, d, p) is
 *
 *     rank = t + T * (d + D * p)
 *
 * so 2 x 2 x 2 has the tensor groups {0,1} {2,3} {4,5} {6,7}, the data groups {0,2} {1,3} {4,6} {5,7} and the pipeline
 * groups {0,4} {1,5} {2,6} {3,7}. A rank's group on an axis is that of the ranks that differ from it on this axis only.
 * "Rank" alone is the rank in the job. The rank on an axis is ls_comm_rank(mesh.axis[A]) of
 * ls_comm_world_size(mesh.axis[A]); it is used for roots and peers of operations on that axis. Uses of each axis:
 *
 *     samples (the sampler's rank and world size), average of gradients    data
 *     partial sums of a layer's output and of its input's gradient         tensor
 *     activations and their gradients, from block to block                 pipeline
 *     stop, loss, found_inf, norms of all gradients; seeds; messages       job
 *
 * The groups number their operations separately and fail together: breaking one of them (ls_comm_abort, a missed
 * deadline, a detected death) breaks all groups of the job, and every rank reports the same reason, which names ranks
 * of the job. A rank that waits for a rank which itself waits, in any group, waits for up to half a deadline more, so
 * that the last rank of such a chain is named (with NCCL: the rank missing from the group itself). On meta devices
 * there are no other ranks, and each group is aborted separately. */
#ifndef LS_COMM_MESH_H
#define LS_COMM_MESH_H

#include "common/comm/comm.h"

typedef enum ls_mesh_axis { LS_MESH_TENSOR, LS_MESH_DATA, LS_MESH_PIPELINE, LS_MESH_AXES } ls_mesh_axis;

/* One rank's endpoints. The caller owns the struct; plain fields, constant after create. */
typedef struct ls_mesh {
    ls_comm *job;                /* all ranks */
    ls_comm *axis[LS_MESH_AXES]; /* a group of size 1 if the axis has size 1 */
} ls_mesh;

/* As ls_comm_create_shm for each of the groups, in the same order on all ranks; `options` are the job's, whose world
 * size is the product of the sizes. The axes' keys are "<group>/tensor4" and so on: the group's axis and first rank.
 * On failure *out is zero-filled, nothing is left behind, and the job's group is broken for the other ranks. */
ls_status ls_mesh_create_shm(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options);

/* The same over several hosts, as ls_comm_create_hosts; an axis group whose ranks are on one host uses shared
 * memory. */
ls_status ls_mesh_create_hosts(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                               const struct ls_carrier *carrier);

/* As ls_comm_create_threads: out[r] becomes rank r's mesh. */
ls_status ls_mesh_create_threads(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options);

/* As ls_comm_create_meta: the mesh of options->rank, the only one that exists. */
ls_status ls_mesh_create_meta(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                              ls_device *device);

/* The options with which ls_mesh_create_shm creates an axis group: a copy of `options` with the axis' rank, size, job
 * and key. Use it to create a second group of the same ranks (`options` then names another group), and to attach
 * devices. `name` stores the key. */
enum { LS_MESH_NAME_CAPACITY = 96 };
ls_comm_options ls_mesh_options(const ls_mesh *mesh, ls_mesh_axis axis, const int sizes[LS_MESH_AXES],
                                const ls_comm_options *options, char name[LS_MESH_NAME_CAPACITY]);

/* Destroys all groups and zero-fills *mesh. A zero-filled mesh is a no-op. */
void ls_mesh_destroy(ls_mesh *mesh);

/* Open files of one rank's endpoints over shared memory: ls_comm_descriptors of each. */
int ls_mesh_descriptors(const int sizes[LS_MESH_AXES]);

#endif
