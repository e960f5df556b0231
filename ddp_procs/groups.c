/* groups — which ranks form which groups.
 *   idea  : without a grid there is one group, the job's; a grid has one more for each axis (common/comm/mesh.h).
 *           Operations on the compute stream, which overlap with those on the comm stream, have a second group of the
 *           same ranks
 *   cost  : collective connections at the start; memory and open files for each group
 *   fails : a rank that cannot form a group breaks the job's group, so that no other rank waits for it */
#include "ddp_procs/groups.h"

#include <inttypes.h>
#include <stdio.h>

enum { GROUP_CAPACITY = 64 };

bool ddp_has_grid(const int sizes[LS_MESH_AXES]) { return sizes[LS_MESH_TENSOR] * sizes[LS_MESH_PIPELINE] > 1; }

int ddp_groups_descriptors(const int sizes[LS_MESH_AXES], const bool beside[LS_MESH_AXES], bool all) {
    int count = ddp_has_grid(sizes) ? ls_mesh_descriptors(sizes) : ls_comm_descriptors(sizes[LS_MESH_DATA]);
    for (int a = 0; a < LS_MESH_AXES; a++)
        if (beside[a]) count += ls_comm_descriptors(sizes[a]);
    return all ? count + ls_comm_descriptors(sizes[LS_MESH_DATA] * sizes[LS_MESH_PIPELINE]) : count;
}

/* The job's options with a group name whose keys belong to this use of the store and this meeting, not to an earlier
 * one. */
static ls_comm_options options_of(const ddp_groups_options *o, const char *name, char group[GROUP_CAPACITY]) {
    if (o->meeting > 0)
        snprintf(group, GROUP_CAPACITY, "run%" PRId64 ".%" PRId64 "/%s", o->run, o->meeting, name);
    else
        snprintf(group, GROUP_CAPACITY, "run%" PRId64 "/%s", o->run, name);
    return (ls_comm_options){.rank = o->rank,
                             .world_size = o->world_size,
                             .timeout_s = o->timeout_s,
                             .allreduce = o->allreduce,
                             .bootstrap = o->bootstrap,
                             .flight = o->flight,
                             .debug = o->debug,
                             .host = o->hosts->count > 1 ? o->hosts->of : NULL,
                             .address = o->hosts->count > 1 ? o->hosts->address : NULL,
                             .group = group};
}

static ls_status create(ddp_groups *groups, const ddp_groups_options *o, const ls_comm_options *options) {
    ls_device_kind kind = ls_device_kind_of(o->device);
    bool is_meta = kind == LS_DEVICE_META;
    ls_status status = ddp_backend_carrier(o->backend, kind, o->hosts->count, &groups->carrier);
    if (status != LS_OK) return status;
    if (!ddp_has_grid(o->sizes))
        return is_meta ? ls_comm_create_meta(&groups->job, options, o->device)
                       : ls_comm_create_hosts(&groups->job, options, groups->carrier);
    status = is_meta ? ls_mesh_create_meta(&groups->mesh, o->sizes, options, o->device)
                     : ls_mesh_create_hosts(&groups->mesh, o->sizes, options, groups->carrier);
    groups->job = groups->mesh.job;
    return status;
}

/* Attaches GPUs to the groups of all axes, as to the job's. */
static ls_status attach_axes(const ddp_groups *groups, const ddp_groups_options *o, const ls_comm_options *options) {
    ls_status status = LS_OK;
    for (int a = 0; groups->mesh.job && status == LS_OK && a < LS_MESH_AXES; a++) {
        char name[LS_MESH_NAME_CAPACITY];
        ls_comm_options of_axis = ls_mesh_options(&groups->mesh, (ls_mesh_axis)a, o->sizes, options, name);
        status = ls_comm_attach_device(groups->mesh.axis[a], o->device, groups->attachment.path, &of_axis);
    }
    return status;
}

ls_status ddp_groups_join(ddp_groups *groups, const ddp_groups_options *o) {
    char group[GROUP_CAPACITY];
    ls_comm_options options = options_of(o, "group0", group);
    ls_status status = create(groups, o, &options);
    if (status != LS_OK || ls_device_kind_of(o->device) != LS_DEVICE_CUDA) return status;
    ddp_backend_options backend = {.backend = o->backend,
                                   .group = &options,
                                   .local_ranks = o->local_ranks,
                                   .gpus = o->gpus,
                                   .hosts = o->hosts->count};
    status = ddp_backend_attach(groups->job, o->device, &backend, &groups->attachment);
    return status == LS_OK ? attach_axes(groups, o, &options) : status;
}

/* Forms a second group. It reduces a few hundred bytes, in rank order like DataParallel; with NCCL in NCCL's order. */
static ls_status join_second(ls_comm **out, const ddp_groups *groups, ls_comm_options *options,
                             const ddp_groups_options *o) {
    ls_device_kind kind = ls_device_kind_of(o->device);
    options->allreduce = "direct";
    options->job = groups->job;
    ls_status status = kind == LS_DEVICE_META ? ls_comm_create_meta(out, options, o->device)
                                              : ls_comm_create_hosts(out, options, groups->carrier);
    if (status != LS_OK || kind != LS_DEVICE_CUDA) return status;
    return ls_comm_attach_device(*out, o->device, groups->attachment.path, options);
}

ls_status ddp_groups_join_beside(ddp_groups *groups, ls_mesh_axis axis, const ddp_groups_options *o) {
    char group[GROUP_CAPACITY], name[LS_MESH_NAME_CAPACITY];
    ls_comm_options options = options_of(o, "beside", group);
    if (groups->mesh.job) options = ls_mesh_options(&groups->mesh, axis, o->sizes, &options, name);
    return join_second(&groups->beside[axis], groups, &options, o);
}

ls_status ddp_groups_join_all(ddp_groups *groups, const ddp_groups_options *o) {
    char group[GROUP_CAPACITY];
    char name[24];
    int tensor = o->sizes[LS_MESH_TENSOR], place = o->rank % tensor;
    snprintf(name, sizeof name, "all%d", place);
    ls_comm_options options = options_of(o, name, group);
    options.rank = o->rank / tensor; /* the tensor axis varies fastest */
    options.world_size = o->world_size / tensor;
    options.first = place;
    options.stride = tensor;
    return join_second(&groups->all, groups, &options, o);
}

void ddp_groups_leave(ddp_groups *groups) {
    for (int a = 0; a < LS_MESH_AXES; a++) ls_comm_destroy(groups->beside[a]);
    ls_comm_destroy(groups->all);
    if (groups->mesh.job)
        ls_mesh_destroy(&groups->mesh);
    else
        ls_comm_destroy(groups->job);
    *groups = (ddp_groups){0};
}
