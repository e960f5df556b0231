/* setup — the order in which a rank creates and destroys its objects.
 *   order : objects that need no other rank; the ranks compare their settings; each opens its own device, model and
 *           data; they compare their data; the groups form; then the parallel mode
 *   fails : a rank that fails reports so to the others, which then do not wait */
#include "ddp_procs/setup.h"

#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/checkpoint/weights.h"
#include "common/comm/values.h"
#include "ddp_procs/compared.h"
#include "ddp_procs/distributed.h"
#include "ddp_procs/launch/open_files.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/pipeline.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/stages.h"
#include "ddp_procs/topk.h"

static const char *named_allreduce(const ddp_settings *s) {
    return s->allreduce > 0 ? s->algorithms[s->allreduce] : NULL;
}

static bool has_stages(const ddp_settings *s) { return s->pipeline > 1; }

/* The axes that may have a second group. */
static void find_beside(const ddp_settings *s, bool beside[LS_MESH_AXES]) {
    for (int a = 0; a < LS_MESH_AXES; a++) beside[a] = false;
    beside[LS_MESH_DATA] = s->train.sync_bn || (s->shard_state > 0 && !has_stages(s));
    beside[LS_MESH_PIPELINE] = has_stages(s);
}

/* Whether the optimizer's state is sharded over all ranks of a grid, each with a part of its stage's. */
static bool shares_stages(const ddp_settings *s) { return has_stages(s) && s->shard_state > 0; }

/* Checks the limit of open files: for connections to the store, which rank 0 may serve, and for the groups. */
static ls_status check_open_files(const ddp_setup *setup, const ddp_settings *s) {
    const ddp_rank *self = &setup->self;
    bool beside[LS_MESH_AXES];
    find_beside(s, beside);
    int count = 1 + ddp_groups_descriptors(setup->sizes, beside, shares_stages(s));
    if (self->hosts_store) count += self->world_size + 3;
    return ddp_check_open_files(count, self->rank == 0 ? "rank 0" : "a rank");
}

/* Finds the other ranks, and fails if any rank's settings differ from rank 0's. */
static ls_status find_ranks(ddp_setup *setup, ddp_settings *s) {
    ls_option rows[DDP_OPTION_ROWS];
    setup->hosts.count = 1;
    if (!setup->self.launched) return LS_OK;
    double timeout_s = s->train.timeout_s;
    ls_status status = check_open_files(setup, s);
    if (status == LS_OK) status = ddp_store_open(&setup->store, &setup->self, timeout_s);
    if (status == LS_OK) status = ddp_agree_begin(&setup->agreement, setup->store, &setup->self, timeout_s);
    if (status != LS_OK) return status;
    if (s->limits.least > 0) ddp_agree_late(&setup->agreement);
    status = ddp_agree_on_settings(&setup->agreement, rows, ddp_option_rows(s, rows));
    if (status != LS_OK) return status;
    return ddp_hosts_find(&setup->hosts, setup->store, &setup->self, setup->agreement.run);
}

/* Test samples are compared only if they will be used. */
static ls_status compare_data(const ddp_setup *setup, bool evaluate, ls_status so_far) {
    ddp_found found = {setup->choice.kind, setup->train, evaluate ? setup->test : NULL};
    if (!setup->self.launched) return so_far;
    return ddp_agree_on_data(&setup->agreement, &found, so_far);
}

/* Describes the groups to form; `bootstrap` is storage for the rendezvous. */
static ddp_groups_options describe_groups(const ddp_setup *setup, const ddp_settings *s, ls_bootstrap *bootstrap) {
    const ddp_rank *self = &setup->self;
    ddp_groups_options options = {.rank = self->rank,
                                  .world_size = self->world_size,
                                  .local_ranks = self->local_world_size,
                                  .run = setup->agreement.run,
                                  .meeting = setup->meeting,
                                  .timeout_s = s->train.timeout_s,
                                  .allreduce = named_allreduce(s),
                                  .flight = s->flight,
                                  .debug = s->debug_collectives,
                                  .device = setup->device,
                                  .backend = (ddp_backend)s->backend,
                                  .gpus = ls_devices_gpus(&setup->choice),
                                  .hosts = &setup->hosts};
    memcpy(options.sizes, setup->sizes, sizeof options.sizes);
    if (setup->store) *bootstrap = ddp_store_bootstrap(setup->store);
    options.bootstrap = setup->store ? bootstrap : NULL;
    return options;
}

static ls_status begin_values(const ddp_setup *setup) {
    ls_comm *groups[LS_MESH_AXES] = {[LS_MESH_DATA] = setup->groups.job};
    if (setup->groups.mesh.job) memcpy(groups, setup->groups.mesh.axis, sizeof groups);
    return ls_values_begin(setup->sizes, groups);
}

ls_status ddp_setup_join_groups(ddp_setup *setup, const ddp_settings *s) {
    ls_bootstrap bootstrap;
    ddp_groups *groups = &setup->groups;
    const ddp_groups_options options = describe_groups(setup, s, &bootstrap);
    ls_status status = ddp_groups_join(groups, &options);
    if (status != LS_OK) return status;
    if (s->tensor > 1) ls_tensor_meet(setup->model, groups->mesh.axis[LS_MESH_TENSOR]);
    bool staged = setup->choice.kind == LS_DEVICE_CUDA && groups->attachment.path == LS_COMM_STAGED;
    if (setup->self.rank == 0)
        ls_detail("backend: %s%s", ls_comm_backend(groups->job), staged ? ", without overlap" : "");
    if (s->debug_values && (status = begin_values(setup)) != LS_OK) return status;
    setup->sync_bn = ls_train_sync_bn(&s->train, setup->model, setup->self.rank == 0);
    bool beside[LS_MESH_AXES];
    find_beside(s, beside);
    beside[LS_MESH_DATA] = beside[LS_MESH_DATA] && (setup->sync_bn || s->shard_state > 0);
    for (int a = 0; a < LS_MESH_AXES && status == LS_OK; a++)
        if (beside[a]) status = ddp_groups_join_beside(groups, (ls_mesh_axis)a, &options);
    return status == LS_OK && shares_stages(s) ? ddp_groups_join_all(groups, &options) : status;
}

ls_status ddp_setup_choose_devices(ddp_setup *setup, const ddp_settings *s, int flags) {
    ls_status status = ls_devices_find(&setup->choice, &s->train, flags);
    if (status == LS_OK && s->limits.least > 0 && setup->choice.kind == LS_DEVICE_CUDA)
        status = ls_fail(LS_ERR_USAGE, "--elastic cannot be combined with GPUs, where an update may be under way when "
                                       "ranks part: use --device-kind cpu");
    if (status == LS_OK) status = ddp_backend_check((ddp_backend)s->backend, setup->choice.kind, named_allreduce(s));
    return status == LS_OK ? ls_devices_for_ranks(&setup->choice, &s->device_ids, setup->self.local_world_size)
                           : status;
}

/* The largest number of samples of a micro-batch on this rank. */
static size_t micro_batch(const ddp_setup *setup, const ddp_settings *s) {
    size_t replicas = (size_t)setup->sizes[LS_MESH_DATA];
    return ls_micro_batch_rows(((size_t)s->train.batch_size + replicas - 1) / replicas, s->train.accumulate);
}

/* Whether parameters are filled block by block: they have no memory yet when the model is opened. */
static bool comes_in_blocks(const ddp_settings *s) { return s->shard_state == 3 || has_stages(s); }

ls_status ddp_setup_fill_model(ddp_setup *setup, const ddp_settings *s, bool tell) {
    if (s->train.init) return ls_weights_load(setup->model, s->train.init, tell);
    return ls_model_init(setup->model, (uint64_t)s->train.seed);
}

static ls_status check_stages(const ddp_setup *setup, const ddp_settings *s) {
    struct ddp_cut cut;
    return has_stages(s) ? ddp_cut_network(&cut, ls_model_network(setup->model), s->pipeline) : LS_OK;
}

ls_status ddp_setup_open_model(ddp_setup *setup, ddp_settings *s, int flags) {
    bool no_data = !setup->train;
    ls_status status = no_data ? ls_train_open_first(&s->train, &setup->train, &setup->test) : LS_OK;
    if (status == LS_OK)
        status = ls_train_open_model(&setup->model, &s->train, setup->device, micro_batch(setup, s), flags);
    if (status == LS_OK) status = check_stages(setup, s);
    if (status == LS_OK && no_data) status = ls_train_open_data(&s->train, setup->model, &setup->train, &setup->test);
    return status;
}

/* The part of the setup that needs no other rank. */
static ls_status open_own(ddp_setup *setup, ddp_settings *s) {
    ls_status status = ddp_setup_choose_devices(setup, s, setup->self.rank == 0 ? LS_DEVICES_TELL : 0);
    if (status == LS_OK) {
        status = ls_devices_open(&setup->device, &setup->choice, setup->self.local_rank, &s->train);
    }
    if (status == LS_OK) status = ls_device_bind_thread(setup->device);
    bool tell = setup->self.rank == 0, placed = comes_in_blocks(s);
    int flags = (tell ? LS_OPEN_TELL : 0) | (placed ? LS_OPEN_PLACED : 0) | (has_stages(s) ? LS_OPEN_FORWARD_ONLY : 0);
    if (status == LS_OK) status = ddp_setup_open_model(setup, s, flags);
    return status == LS_OK && !placed ? ddp_setup_fill_model(setup, s, tell) : status;
}

#define LAST_MEETING_S 5.0 /* the others may not have been started at all */

/* This rank's options are invalid, which has been reported. The others receive the differences from theirs, or the
 * message that this rank has given up, instead of waiting for it. */
static void meet_once_more(ddp_setup *setup, ddp_settings *s) {
    char unsaid[1024];
    ls_log_sink before = ls_log_capture(unsaid, sizeof unsaid);
    s->train.timeout_s = fmin(s->train.timeout_s, LAST_MEETING_S);
    if (setup->self.launched && find_ranks(setup, s) == LS_OK) ddp_agree_give_up(&setup->agreement, "data");
    ls_log_restore(before);
}

typedef ls_status (*create_fn)(ls_parallel **out, ls_model *model, const ddp_options *options);

static create_fn create_of(const ddp_settings *s) {
    static const create_fn by_stage[] = {ddp_create, ddp_create_zero1, ddp_create_zero2, ddp_create_zero3};
    if (has_stages(s)) return ddp_create_pipeline;
    return s->compression.fraction > 0 ? ddp_create_topk : by_stage[s->shard_state];
}

ls_status ddp_setup_check(ddp_setup *setup, ddp_settings *s) {
    ls_status status = ddp_settings_sizes(s, setup->self.world_size, setup->sizes);
    if (s->tensor > 1)
        s->train.tensor = (ls_tensor_options){setup->self.rank % s->tensor, s->tensor, s->sequence_parallel};
    if (status == LS_OK) status = ls_train_options_check(&s->train, setup->sizes[LS_MESH_DATA]);
    return status == LS_OK ? ddp_settings_check(s) : status;
}

ls_status ddp_setup_begin(ddp_setup *setup, ddp_settings *s) {
    ls_status status = ddp_setup_check(setup, s);
    if (status != LS_OK) meet_once_more(setup, s);
    if (status == LS_OK) status = find_ranks(setup, s);
    return status == LS_OK ? compare_data(setup, s->train.evaluate, open_own(setup, s)) : status;
}

ls_status ddp_setup_form_parallel(ddp_setup *setup, const ddp_settings *s) {
    const ddp_groups *groups = &setup->groups;
    ddp_options options = {.comm = ddp_groups_data(groups),
                           .mesh = ddp_groups_mesh(groups),
                           .sync_bn = setup->sync_bn ? groups->beside[LS_MESH_DATA] : NULL,
                           .shards = shares_stages(s) ? groups->all : groups->beside[LS_MESH_DATA],
                           .stages = groups->beside[LS_MESH_PIPELINE],
                           .schedule = (ddp_schedule_kind)s->schedule,
                           .micro_batches = s->train.accumulate,
                           .prefetch_blocks = s->prefetch_blocks,
                           .max_batch = micro_batch(setup, s),
                           .gpu_count = groups->attachment.gpus,
                           .optimizer = ls_train_optimizer(&s->train),
                           .join = {.enable = s->join,
                                    .divide_by_initial_world_size = s->join_divide == 0,
                                    .throw_on_early_termination = s->join_throw},
                           .compare_each_step = s->debug_ranks,
                           .reducer = {.bucket_cap_mb = s->bucket_cap_mb,
                                       .overlap = s->overlap,
                                       .find_unused = s->find_unused,
                                       .compress = s->compression.half},
                           .compression = s->compression};
    ls_status status = create_of(s)(&setup->parallel, setup->model, &options);
    return status == LS_OK && comes_in_blocks(s) ? ddp_setup_fill_model(setup, s, setup->self.rank == 0) : status;
}

void ddp_setup_part(ddp_setup *setup, ls_status status) {
    if (setup->groups.job && status != LS_OK) ls_comm_abort(setup->groups.job, "this rank failed");
    if (setup->parallel) setup->parallel->ops->destroy(setup->parallel);
    setup->parallel = NULL;
    ls_values_end();
    ddp_groups_leave(&setup->groups);
}

void ddp_setup_end(ddp_setup *setup, ls_status status) {
    ddp_setup_part(setup, status);
    ddp_store_close(setup->store);
    ls_dataset_close(setup->train);
    ls_dataset_close(setup->test);
    ls_model_destroy(setup->model);
    ls_device_close(setup->device);
}
