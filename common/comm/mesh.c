/* mesh — the groups of a job's axes.
 *   idea  : on each axis the ranks of a group are a first one and others at equal distances (the stride), the product of
 *           the sizes of the axes inside. So two numbers define a group's ranks, and messages can name them by their
 *           ranks in the job. Each axis' group is a part of the job's (comm.h): it has memory, keys and numbers of its
 *           own, but shares the job's broken state
 *   cost  : four groups; a group of size 1 is an endpoint without memory
 *   fails : a rank that cannot form one of its groups breaks the job's, so that ranks that wait for it in other groups
 *           fail, too */
#include "common/comm/mesh.h"

#include <stdio.h>

#include "common/base/log.h"

static int ranks_of(const int sizes[LS_MESH_AXES]) {
    int ranks = 1;
    for (int a = 0; a < LS_MESH_AXES; a++) {
        if (sizes[a] < 1 || sizes[a] > LS_COMM_MAX_RANKS) return 0;
        ranks *= sizes[a];
    }
    return ranks;
}

static ls_status check(const int sizes[LS_MESH_AXES], const ls_comm_options *options) {
    int ranks = ranks_of(sizes);
    if (ranks > 0 && ranks == options->world_size && options->rank >= 0 && options->rank < ranks) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "rank %d of %d does not fit a mesh of %d x %d x %d (tensor x data x pipeline)",
                   options->rank, options->world_size, sizes[LS_MESH_TENSOR], sizes[LS_MESH_DATA],
                   sizes[LS_MESH_PIPELINE]);
}

/* The options for the group of a job's rank on an axis. */
static ls_comm_options options_on(ls_mesh_axis axis, const ls_comm *job, int rank, const int sizes[LS_MESH_AXES],
                                  const ls_comm_options *options, char name[LS_MESH_NAME_CAPACITY]) {
    static const char *const names[] = {"tensor", "data", "pipeline"};
    ls_comm_options of_axis = *options;
    of_axis.stride = 1;
    for (int inside = 0; inside < (int)axis; inside++) of_axis.stride *= sizes[inside];
    of_axis.world_size = sizes[axis];
    of_axis.rank = rank / of_axis.stride % sizes[axis];
    of_axis.first = rank - of_axis.rank * of_axis.stride;
    of_axis.job = job;
    snprintf(name, LS_MESH_NAME_CAPACITY, "%s/%s%d", options->group ? options->group : "group0", names[axis],
             of_axis.first);
    of_axis.group = name;
    return of_axis;
}

ls_comm_options ls_mesh_options(const ls_mesh *mesh, ls_mesh_axis axis, const int sizes[LS_MESH_AXES],
                                const ls_comm_options *options, char name[LS_MESH_NAME_CAPACITY]) {
    return options_on(axis, mesh->job, options->rank, sizes, options, name);
}

static ls_status create(ls_comm **out, const ls_comm_options *options, ls_device *meta,
                        const struct ls_carrier *carrier) {
    return meta ? ls_comm_create_meta(out, options, meta) : ls_comm_create_hosts(out, options, carrier);
}

/* `meta`: the device of a meta group; NULL for a group of all its ranks. */
static ls_status create_one(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                            ls_device *meta, const struct ls_carrier *carrier) {
    *out = (ls_mesh){0};
    ls_status status = check(sizes, options);
    if (status == LS_OK) status = create(&out->job, options, meta, carrier);
    for (int a = 0; a < LS_MESH_AXES && status == LS_OK; a++) {
        char name[LS_MESH_NAME_CAPACITY];
        ls_comm_options of_axis = options_on((ls_mesh_axis)a, out->job, options->rank, sizes, options, name);
        status = create(&out->axis[a], &of_axis, meta, carrier);
    }
    if (status == LS_OK) return LS_OK;
    if (out->job) (void)ls_comm_abort(out->job, "the rank could not form its groups of the mesh");
    ls_mesh_destroy(out);
    return status;
}

ls_status ls_mesh_create_shm(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options) {
    return create_one(out, sizes, options, NULL, NULL);
}

ls_status ls_mesh_create_hosts(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                               const struct ls_carrier *carrier) {
    return create_one(out, sizes, options, NULL, carrier);
}

ls_status ls_mesh_create_meta(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options,
                              ls_device *device) {
    return create_one(out, sizes, options, device, NULL);
}

/* The group on an axis whose first rank is `first`. */
static ls_status create_threads_on(ls_mesh_axis axis, ls_mesh *out, int first, const int sizes[LS_MESH_AXES],
                                   const ls_comm_options *options) {
    ls_comm *endpoints[LS_COMM_MAX_RANKS];
    char name[LS_MESH_NAME_CAPACITY];
    ls_comm_options of_axis = options_on(axis, out[first].job, first, sizes, options, name);
    if (of_axis.rank > 0) return LS_OK; /* not the group's first rank */
    ls_status status = ls_comm_create_threads(endpoints, &of_axis);
    for (int r = 0; r < sizes[axis]; r++) out[first + r * of_axis.stride].axis[axis] = endpoints[r];
    return status;
}

ls_status ls_mesh_create_threads(ls_mesh *out, const int sizes[LS_MESH_AXES], const ls_comm_options *options) {
    ls_comm *endpoints[LS_COMM_MAX_RANKS];
    ls_status status = check(sizes, options);
    int ranks = status == LS_OK ? options->world_size : 0;
    if (status == LS_OK) status = ls_comm_create_threads(endpoints, options);
    for (int r = 0; r < ranks; r++) out[r] = (ls_mesh){.job = endpoints[r]};
    for (int a = 0; a < LS_MESH_AXES; a++)
        for (int r = 0; r < ranks && status == LS_OK; r++)
            status = create_threads_on((ls_mesh_axis)a, out, r, sizes, options);
    for (int r = 0; r < ranks && status != LS_OK; r++) ls_mesh_destroy(&out[r]);
    return status;
}

void ls_mesh_destroy(ls_mesh *mesh) {
    for (int a = 0; a < LS_MESH_AXES; a++) ls_comm_destroy(mesh->axis[a]);
    ls_comm_destroy(mesh->job);
    *mesh = (ls_mesh){0};
}

int ls_mesh_descriptors(const int sizes[LS_MESH_AXES]) {
    int count = ls_comm_descriptors(ranks_of(sizes));
    for (int a = 0; a < LS_MESH_AXES; a++) count += ls_comm_descriptors(sizes[a]);
    return count;
}
