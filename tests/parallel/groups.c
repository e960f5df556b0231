#include "tests/parallel/groups.h"

#include "tests/parallel/plan.h"

enum { WANTED = LS_MESH_AXES + 3 };

/* A group of a plan in addition to that of all ranks. */
struct wanted {
    ls_comm **group;
    ls_comm_options options;
    char name[LS_MESH_NAME_CAPACITY];
};

static void get_sizes(const struct plan *plan, int sizes[LS_MESH_AXES]) {
    int parts = plan_parts(plan);
    sizes[LS_MESH_TENSOR] = plan->mode == MODE_TENSOR ? parts : 1;
    sizes[LS_MESH_DATA] = plan->devices / parts;
    sizes[LS_MESH_PIPELINE] = plan->mode == MODE_PIPELINE ? parts : 1;
}

static struct wanted *want(struct wanted *list, int *count, ls_comm **group, const ls_comm_options *options) {
    list[*count].group = group;
    list[*count].options = *options;
    return &list[(*count)++];
}

static void want_axis(struct wanted *list, int *count, ls_comm **group, const struct plan_groups *g, ls_mesh_axis axis,
                      const int sizes[LS_MESH_AXES], const ls_comm_options *options) {
    struct wanted *wanted = want(list, count, group, options);
    wanted->options = ls_mesh_options(&g->mesh, axis, sizes, options, wanted->name);
}

static int list_groups(struct plan_groups *g, const struct plan *plan, const ls_comm_options *job,
                       struct wanted list[WANTED]) {
    bool is_grid = g->mesh.job != NULL, is_pipeline = plan->mode == MODE_PIPELINE;
    bool shards = plan->sharded || (plan->mode >= MODE_ZERO1 && plan->mode <= MODE_ZERO3);
    int sizes[LS_MESH_AXES], count = 0;
    get_sizes(plan, sizes);
    for (int a = 0; is_grid && a < LS_MESH_AXES; a++)
        want_axis(list, &count, &g->mesh.axis[a], g, (ls_mesh_axis)a, sizes, job);
    ls_comm_options beside = *job;
    beside.allreduce = "direct";
    beside.group = "beside";
    beside.job = g->job;
    bool second = plan->sync_bn || (shards && !is_pipeline);
    if (second && is_grid) want_axis(list, &count, &g->second, g, LS_MESH_DATA, sizes, &beside);
    if (second && !is_grid) want(list, &count, &g->second, &beside);
    if (is_pipeline) want_axis(list, &count, &g->stages, g, LS_MESH_PIPELINE, sizes, &beside);
    beside.group = "all";
    if (is_pipeline && shards) want(list, &count, &g->all, &beside);
    return count;
}

ls_status group_open(ls_comm **out, const struct rank *rank, const char *allreduce) {
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = PLAN_TIMEOUT_S,
                               .allreduce = allreduce ? allreduce : "naive",
                               .bootstrap = &rank->bootstrap};
    return ls_comm_create_shm(out, &options);
}

/* The groups of the axes exist already. */
static ls_status open_others(struct plan_groups *g, const struct plan *plan, const ls_comm_options *job) {
    struct wanted list[WANTED];
    int count = list_groups(g, plan, job, list);
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < count; i++)
        if (!*list[i].group) status = ls_comm_create_shm(list[i].group, &list[i].options);
    return status;
}

ls_status plan_groups_open(struct plan *plan, const struct rank *rank, ls_comm *job) {
    struct plan_groups *g = &plan->groups;
    ls_comm_options options = {.rank = rank->rank,
                               .world_size = rank->world_size,
                               .timeout_s = PLAN_TIMEOUT_S,
                               .allreduce = plan->allreduce ? plan->allreduce : "naive",
                               .bootstrap = &rank->bootstrap};
    *g = (struct plan_groups){.job = job, .is_borrowed = job != NULL};
    if (!plan_has_group(plan)) return LS_OK;
    ls_status status = LS_OK;
    if (plan->mode >= MODE_SPLIT) {
        int sizes[LS_MESH_AXES];
        get_sizes(plan, sizes);
        status = ls_mesh_create_shm(&g->mesh, sizes, &options);
        g->job = g->mesh.job;
    } else if (!job) {
        status = ls_comm_create_shm(&g->job, &options);
    }
    return status == LS_OK ? open_others(g, plan, &options) : status;
}

ls_status plan_groups_attach(struct plan_groups *g, const struct plan *plan, ls_device *device) {
    struct wanted list[WANTED];
    ls_comm_options options = {.timeout_s = PLAN_TIMEOUT_S, .bootstrap = plan->bootstrap};
    if (!g->job) return LS_OK;
    options.rank = ls_comm_rank(g->job);
    options.world_size = ls_comm_world_size(g->job);
    ls_comm_path path = plan->nccl ? LS_COMM_NCCL : LS_COMM_STAGED;
    ls_status status = ls_comm_attach_device(g->job, device, path, &options);
    int count = list_groups(g, plan, &options, list);
    for (int i = 0; status == LS_OK && i < count; i++)
        status = ls_comm_attach_device(*list[i].group, device, path, &list[i].options);
    return status;
}

void plan_groups_close(struct plan_groups *g) {
    ls_comm_destroy(g->all);
    ls_comm_destroy(g->stages);
    ls_comm_destroy(g->second);
    if (g->mesh.job)
        ls_mesh_destroy(&g->mesh);
    else if (!g->is_borrowed)
        ls_comm_destroy(g->job);
    *g = (struct plan_groups){0};
}
