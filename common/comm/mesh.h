/* A mesh: the ranks of a job laid out on three axes, tensor x data x pipeline, with a group for each axis.
 *
 * The tensor axis is innermost, then data, then pipeline, as Megatron orders them by default: the ranks that talk most
 * are neighbours. With sizes T, D, P the rank at (t, d, p) is
 *
 *     rank = t + T * (d + D * p)
 *
 * so 2 x 2 x 2 has the tensor groups {0,1} {2,3} {4,5} {6,7}, the data groups {0,2} {1,3} {4,6} {5,7} and the pipeline
 * groups {0,4} {1,5} {2,6} {3,7}. A rank's group on an axis is that of the ranks that differ from it on this axis only.
 * "Rank" alone is the job's. On an axis a rank has a rank of its own, its place there: ls_comm_rank(mesh.axis[A]) of
 * ls_comm_world_size(mesh.axis[A]); roots and peers of the operations are those. Which one is meant:
 *
 *     samples (the sampler's rank and world size), average of gradients    data
 *     partial sums of a layer's output and of its input's gradient         tensor
 *     activations and their gradients, from block to block                 pipeline
 *     stop, loss, found_inf, norms of all gradients; seeds; messages       job
 *
 * The groups have streams of operations of their own and fail together: whoever breaks one of them (ls_comm_abort, a
 * missed deadline, a death that is noticed) breaks all groups of the job, and every rank reports the same reason, which
 * names the job's ranks. A rank that waits for another rank which waits itself, in any group, waits for up to half a
 * deadline more, so that the last rank of such a chain is named (NCCL: the rank that did not come to the group at hand). On
 * meta devices there are no other ranks, and each group is aborted by itself. */
#ifndef LS_COMM_MESH_H
#define LS_COMM_MESH_H

#include "common/comm/comm.h"

typedef enum ls_mesh_axis { LS_MESH_TENSOR, LS_MESH_DATA, LS_MESH_PIPELINE, LS_MESH_AXES } ls_mesh_axis;

/* One rank's endpoints. The caller owns the struct; plain fields, constant after create. */
typedef struct ls_mesh {
    ls_comm *job;                /* all ranks */
    ls_comm *axis[LS_MESH_AXES]; /* of size 1 where the axis is */
} ls_mesh;

/* As ls_comm_create_shm for each of the groups, in the same order on all ranks; `options` are the job's, whose world
 * size is the product of the sizes. The axes' keys are "<group>/tensor4" and so on: the group's axis and first rank.
 * On failure *out is zero-filled, nothing is left behind, and the job's other ranks find it broken. */
ls_status ls_mesh_create_shm(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options);

/* The same over several hosts, as ls_comm_create_hosts: an axis' group whose ranks are on one host is shared memory. */
ls_status ls_mesh_create_hosts(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                               const struct ls_carrier *carrier);

/* As ls_comm_create_threads: out[r] becomes rank r's mesh. */
ls_status ls_mesh_create_threads(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options);

/* As ls_comm_create_meta: the mesh of options->rank, the only one that exists. */
ls_status ls_mesh_create_meta(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                              ls_device *device);

/* What ls_mesh_create_shm gives the axis' group for options: of `options`, which may name another group, rank, size, job and
 * key are the axis'. For a second group of its ranks, and to attach devices to the first. The key lies in `name`. */
enum { LS_MESH_NAME_CAPACITY = 96 };
ls_comm_options ls_mesh_options(const ls_mesh *mesh, ls_mesh_axis axis, const int sizes[LS_MESH_AXES],
                                const ls_comm_options *options, char name[LS_MESH_NAME_CAPACITY]);

/* ls_comm_destroy of all of them; *mesh is zero-filled then. A zero-filled mesh is a no-op. */
void ls_mesh_destroy(ls_mesh *mesh);

/* Open files of one rank's endpoints over shared memory: ls_comm_descriptors of each. */
int ls_mesh_descriptors(const int sizes[LS_MESH_AXES]);

#endif
