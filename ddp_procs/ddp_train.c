/* ddp_train — trains a model with one process per device: DistributedDataParallel. Started by ddprun (or with its
 * variables in the environment) it is one rank; with --spawn N it starts N ranks of itself; alone it is the only
 * rank. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "common/checkpoint/weights.h"
#include "common/seam/devices.h"
#include "common/seam/virtual_time.h"
#include "common/train/loop.h"
#include "ddp_procs/compared.h"
#include "ddp_procs/debug_ranks.h"
#include "ddp_procs/distributed.h"
#include "ddp_procs/groups.h"
#include "ddp_procs/launch/launch.h"
#include "ddp_procs/launch/open_files.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/pipeline.h"
#include "ddp_procs/schedule_show.h"
#include "ddp_procs/settings.h"
#include "ddp_procs/sharded.h"
#include "ddp_procs/stages.h"
#include "ddp_procs/topk.h"

/* Everything that a rank builds and takes down. */
struct session {
    ddp_rank self;
    ddp_store *store;
    ddp_agreement agreement; /* where there is a store */
    int sizes[LS_MESH_AXES]; /* of the grid's axes */
    ddp_groups groups;
    bool sync_bn;
    ls_device_choice choice; /* of all ranks of this machine */
    ls_device *device;
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
};

static const char *named_allreduce(const ddp_settings *s) {
    return s->allreduce > 0 ? s->algorithms[s->allreduce] : NULL;
}

/* With meta devices this process is rank 0 of a job of which no other rank exists. */
static ls_status take_rank_0(ddp_rank *self, const ddp_settings *s) {
    if (self->launched || s->debug_ranks) {
        return ls_fail(LS_ERR_USAGE, "with --device-kind meta one process is all there is: %s",
                       s->debug_ranks ? "--debug-ranks has nothing to compare"
                                      : "give --spawn N for the number of ranks in place of a launcher");
    }
    if (s->spawn > 0) self->world_size = self->local_world_size = s->spawn;
    ls_note("rank 0 of %d is recorded, in this process; the others are taken to do the same", self->world_size);
    return LS_OK;
}

static bool has_stages(const ddp_settings *s) { return s->pipeline > 1; }

/* The axes that may have a second group. */
static void find_beside(const ddp_settings *s, bool beside[LS_MESH_AXES]) {
    for (int a = 0; a < LS_MESH_AXES; a++) beside[a] = false;
    beside[LS_MESH_DATA] = s->train.sync_bn || (s->shard_state > 0 && !has_stages(s));
    beside[LS_MESH_PIPELINE] = has_stages(s);
}

/* Whether the optimizer's state is shared out among all ranks of a grid, each having some of its stage's. */
static bool shares_stages(const ddp_settings *s) { return has_stages(s) && s->shard_state > 0; }

/* Connections to the store, which rank 0 may serve to all, and the groups. */
static ls_status check_open_files(const struct session *session, const ddp_settings *s) {
    const ddp_rank *self = &session->self;
    bool beside[LS_MESH_AXES];
    find_beside(s, beside);
    int count = 1 + ddp_groups_descriptors(session->sizes, beside, shares_stages(s));
    if (self->hosts_store) count += self->world_size + 3;
    return ddp_check_open_files(count, self->rank == 0 ? "rank 0" : "a rank");
}

/* Finds the other ranks, and refuses to go on with any whose settings are not rank 0's. */
static ls_status find_ranks(struct session *session, ddp_settings *s) {
    ls_option rows[DDP_OPTION_ROWS];
    if (!session->self.launched) return LS_OK;
    double timeout_s = s->train.timeout_s;
    ls_status status = check_open_files(session, s);
    if (status == LS_OK) status = ddp_store_open(&session->store, &session->self, timeout_s);
    if (status == LS_OK) status = ddp_agree_begin(&session->agreement, session->store, &session->self, timeout_s);
    if (status != LS_OK) return status;
    return ddp_agree_on_settings(&session->agreement, rows, ddp_option_rows(s, rows));
}

/* Of test samples only those that will be used. */
static ls_status compare_data(const struct session *session, bool evaluate, ls_status so_far) {
    ddp_found found = {session->choice.kind, session->train, evaluate ? session->test : NULL};
    if (!session->self.launched) return so_far;
    return ddp_agree_on_data(&session->agreement, &found, so_far);
}

/* The groups that ranks meet in; `bootstrap` has room for what finds them. */
static ddp_groups_options describe_groups(const struct session *session, const ddp_settings *s,
                                          ls_bootstrap *bootstrap) {
    const ddp_rank *self = &session->self;
    ddp_groups_options options = {.rank = self->rank,
                                  .world_size = self->world_size,
                                  .local_ranks = self->local_world_size,
                                  .run = session->agreement.run,
                                  .timeout_s = s->train.timeout_s,
                                  .allreduce = named_allreduce(s),
                                  .device = session->device,
                                  .backend = (ddp_backend)s->backend,
                                  .gpus = ls_devices_gpus(&session->choice)};
    memcpy(options.sizes, session->sizes, sizeof options.sizes);
    if (session->store) *bootstrap = ddp_store_bootstrap(session->store);
    options.bootstrap = session->store ? bootstrap : NULL;
    return options;
}

static ls_status join_groups(struct session *session, const ddp_settings *s) {
    ls_bootstrap bootstrap;
    ddp_groups *groups = &session->groups;
    const ddp_groups_options options = describe_groups(session, s, &bootstrap);
    ls_status status = ddp_groups_join(groups, &options);
    if (status != LS_OK) return status;
    if (s->tensor > 1) ls_tensor_meet(session->model, groups->mesh.axis[LS_MESH_TENSOR]);
    bool staged = session->choice.kind == LS_DEVICE_CUDA && groups->attachment.path == LS_COMM_STAGED;
    if (session->self.rank == 0)
        ls_detail("backend: %s%s", ls_comm_backend(groups->job), staged ? ", without overlap" : "");
    session->sync_bn = ls_train_sync_bn(&s->train, session->model, session->self.rank == 0);
    bool beside[LS_MESH_AXES];
    find_beside(s, beside);
    beside[LS_MESH_DATA] = beside[LS_MESH_DATA] && (session->sync_bn || s->shard_state > 0);
    for (int a = 0; a < LS_MESH_AXES && status == LS_OK; a++)
        if (beside[a]) status = ddp_groups_join_beside(groups, (ls_mesh_axis)a, &options);
    return status == LS_OK && shares_stages(s) ? ddp_groups_join_all(groups, &options) : status;
}

static ls_status choose_devices(struct session *session, const ddp_settings *s, int flags) {
    ls_status status = ls_devices_find(&session->choice, &s->train, flags);
    if (status == LS_OK) status = ddp_backend_check((ddp_backend)s->backend, session->choice.kind, named_allreduce(s));
    return status == LS_OK ? ls_devices_for_ranks(&session->choice, &s->device_ids, session->self.local_world_size)
                           : status;
}

/* Samples of a micro-batch on this rank, at most. */
static size_t micro_batch(const struct session *session, const ddp_settings *s) {
    size_t replicas = (size_t)session->sizes[LS_MESH_DATA];
    return ls_micro_batch_rows(((size_t)s->train.batch_size + replicas - 1) / replicas, s->train.accumulate);
}

/* Parameters come block by block: there is no place for them yet when a model is opened. */
static bool comes_in_blocks(const ddp_settings *s) { return s->shard_state == 3 || has_stages(s); }

/* `tell`: what there is to say of the model, and of the weights that are read. */
static ls_status fill_model(struct session *session, const ddp_settings *s, bool tell) {
    if (s->train.init) return ls_weights_load(session->model, s->train.init, tell);
    return ls_model_init(session->model, (uint64_t)s->train.seed);
}

static ls_status check_stages(const struct session *session, const ddp_settings *s) {
    struct ddp_cut cut;
    return has_stages(s) ? ddp_cut_network(&cut, ls_model_network(session->model), s->pipeline) : LS_OK;
}

/* Flags: of ls_train_open_model. */
static ls_status open_model(struct session *session, ddp_settings *s, int flags) {
    ls_status status = ls_train_open_text(&s->train, &session->train, &session->test);
    if (status == LS_OK)
        status = ls_train_open_model(&session->model, &s->train, session->device, micro_batch(session, s), flags);
    if (status == LS_OK) status = check_stages(session, s);
    if (status == LS_OK && !session->train)
        status = ls_train_open_data(&s->train, session->model, &session->train, &session->test);
    return status;
}

/* What a rank does for itself: the others are not asked. */
static ls_status open_own(struct session *session, ddp_settings *s) {
    ls_status status = choose_devices(session, s, session->self.rank == 0 ? LS_DEVICES_TELL : 0);
    if (status == LS_OK) {
        status = ls_devices_open(&session->device, &session->choice, session->self.local_rank, &s->train);
    }
    if (status == LS_OK) status = ls_device_bind_thread(session->device);
    bool tell = session->self.rank == 0, placed = comes_in_blocks(s);
    int flags = (tell ? LS_OPEN_TELL : 0) | (placed ? LS_OPEN_PLACED : 0) | (has_stages(s) ? LS_OPEN_FORWARD_ONLY : 0);
    if (status == LS_OK) status = open_model(session, s, flags);
    return status == LS_OK && !placed ? fill_model(session, s, tell) : status;
}

#define LAST_MEETING_S 5.0 /* the others may not have been started at all */

/* This rank's options are wrong by themselves, and it has said so. The others hear how they differ from theirs, or that
 * it has given up, in place of waiting for it. */
static void meet_once_more(struct session *session, ddp_settings *s) {
    char unsaid[1024];
    ls_log_sink before = ls_log_capture(unsaid, sizeof unsaid);
    s->train.timeout_s = fmin(s->train.timeout_s, LAST_MEETING_S);
    if (session->self.launched && find_ranks(session, s) == LS_OK) ddp_agree_give_up(&session->agreement, "data");
    ls_log_restore(before);
}

typedef ls_status (*create_fn)(ls_parallel **out, ls_model *model, const ddp_options *options);

static create_fn create_of(const ddp_settings *s) {
    static const create_fn by_stage[] = {ddp_create, ddp_create_zero1, ddp_create_zero2, ddp_create_zero3};
    if (has_stages(s)) return ddp_create_pipeline;
    return s->compression.fraction > 0 ? ddp_create_topk : by_stage[s->shard_state];
}

/* What needs no other rank: the grid, and that nothing contradicts it or anything else. */
static ls_status check_settings(struct session *session, ddp_settings *s) {
    ls_status status = ddp_settings_sizes(s, session->self.world_size, session->sizes);
    if (s->tensor > 1)
        s->train.tensor = (ls_tensor_options){session->self.rank % s->tensor, s->tensor, s->sequence_parallel};
    if (status == LS_OK) status = ls_train_options_check(&s->train, session->sizes[LS_MESH_DATA]);
    return status == LS_OK ? ddp_settings_check(s) : status;
}

static ls_status build(struct session *session, ddp_settings *s) {
    ls_status status = check_settings(session, s);
    if (status != LS_OK) meet_once_more(session, s);
    if (status == LS_OK) status = find_ranks(session, s);
    if (status != LS_OK) return status;
    status = compare_data(session, s->train.evaluate, open_own(session, s));
    if (status == LS_OK) status = join_groups(session, s);
    if (status != LS_OK) return status;
    const ddp_groups *groups = &session->groups;
    ddp_options options = {.comm = ddp_groups_data(groups),
                           .mesh = ddp_groups_mesh(groups),
                           .sync_bn = session->sync_bn ? groups->beside[LS_MESH_DATA] : NULL,
                           .shards = shares_stages(s) ? groups->all : groups->beside[LS_MESH_DATA],
                           .stages = groups->beside[LS_MESH_PIPELINE],
                           .schedule = (ddp_schedule_kind)s->schedule,
                           .micro_batches = s->train.accumulate,
                           .prefetch_blocks = s->prefetch_blocks,
                           .max_batch = micro_batch(session, s),
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
    status = create_of(s)(&session->parallel, session->model, &options);
    return status == LS_OK && comes_in_blocks(s) ? fill_model(session, s, session->self.rank == 0) : status;
}

static void take_down(struct session *session, ls_status status) {
    if (session->groups.job && status != LS_OK) ls_comm_abort(session->groups.job, "this rank failed");
    if (session->parallel) session->parallel->ops->destroy(session->parallel);
    ddp_groups_leave(&session->groups);
    ddp_store_close(session->store);
    ls_dataset_close(session->train);
    ls_dataset_close(session->test);
    ls_model_destroy(session->model);
    ls_device_close(session->device);
}

/* An old launcher says it twice. */
static ls_status check_local_rank(const ddp_rank *self, const char *argument) {
    char *end = NULL;
    long value = argument ? strtol(argument, &end, 10) : self->local_rank;
    if (value == self->local_rank && (!end || (end > argument && *end == '\0'))) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--local-rank %s: this process is local rank %d%s", argument, self->local_rank,
                   self->launched ? " (LOCAL_RANK)" : ", since no launcher has set LOCAL_RANK");
}

static ls_status run_rank(ddp_settings *settings, const char *program) {
    struct session session = {0};
    ls_train_result result;
    ls_status status = ddp_rank_discover(&session.self);
    if (status == LS_OK) status = check_local_rank(&session.self, settings->local_rank);
    if (status != LS_OK) return status;
    ls_log_init(program, session.self.launched ? session.self.rank : -1, settings->train.quiet);
    ls_log_verbose(settings->train.verbose);
    if (ddp_is_meta(settings)) status = take_rank_0(&session.self, settings);
    if (status == LS_OK) status = build(&session, settings);
    if (status == LS_OK && settings->debug_ranks) {
        status = ddp_describe_rank(&session.self, session.parallel, &settings->train, ddp_sharing_of(settings),
                                   session.train);
    }
    if (status == LS_OK && session.choice.gpu_missed) session.parallel->gpu_missed = session.choice.found;
    if (!session.self.launched && settings->max_restarts > 0)
        ls_note(
            "--max-restarts has no effect: without --spawn the launcher starts ranks again (ddprun --max-restarts)");
    if (status == LS_OK && session.self.rank == 0) {
        ls_train_warn_workers(&settings->train, session.self.local_world_size);
        ddp_settings_note_idle(settings, session.self.world_size);
    }
    if (status == LS_OK) {
        status = ls_train(session.parallel, &settings->train, ddp_sharing_of(settings), session.train, session.test,
                          &result);
    }
    take_down(&session, status);
    return status;
}

/* What every rank would complain about is said once, by the process that is to start them. The thread is not bound to
 * the device's core, since the ranks would inherit that. It does not touch a GPU either: threads of CUDA would be in
 * the launcher's way; a model that is only looked at may as well lie on a CPU device. */
static ls_status check_before_spawn(ddp_settings *s) {
    struct session session = {.self = {.world_size = s->spawn, .local_world_size = s->spawn}};
    ls_status status = check_settings(&session, s);
    if (status == LS_OK) status = choose_devices(&session, s, LS_DEVICES_APART);
    if (status == LS_OK) status = ls_devices_check(&session.choice);
    if (status == LS_OK) {
        status = ddp_backend_check_ranks((ddp_backend)s->backend, session.choice.kind, s->spawn,
                                         ls_devices_gpus(&session.choice));
    }
    session.choice.kind = LS_DEVICE_CPU;
    if (status == LS_OK) status = ls_devices_open(&session.device, &session.choice, 0, &s->train);
    if (status == LS_OK) status = open_model(&session, s, 0);
    if (status == LS_OK && s->train.init) status = fill_model(&session, s, false);
    int replicas = session.sizes[LS_MESH_DATA];
    if (status == LS_OK) status = ls_train_check(&s->train, replicas, ddp_sharing_of(s), session.train, session.model);
    take_down(&session, status);
    return status;
}

/* Threads that libraries start meanwhile (OpenMP's, in oneDNN) stay, and would take the signals that ddp_launch waits
 * for: they inherit that these are blocked. */
static ls_status check_with_signals_blocked(ddp_settings *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ls_status status = check_before_spawn(s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static ls_status spawn_ranks(ddp_settings *s, char **argv) {
    ls_status status = check_with_signals_blocked(s);
    if (status != LS_OK) return status;
    if (s->max_restarts > 0 && !ls_train_resume(&s->train) && !s->train.quiet)
        ls_note(
            "--max-restarts begins the training anew each time: --save FILE --save-every N --resume-if-present FILE "
            "goes on from the last checkpoint");
    ddp_launch_options launch = {.nproc = s->spawn,
                                 .argv = argv,
                                 .last_argument = "--spawn=0",
                                 .grace_s = DDP_LAUNCH_GRACE_S,
                                 .max_restarts = s->max_restarts};
    return ddp_launch(&launch);
}

/* Once, where a launcher has started several ranks. */
static ls_status show_schedule(const ddp_settings *s) {
    ddp_rank self;
    ddp_schedule schedule = ddp_schedule_of(s);
    ls_status status = ddp_rank_discover(&self);
    return status == LS_OK && self.rank == 0 ? ddp_schedule_show(&schedule, stdout) : status;
}

int main(int argc, char **argv) {
    ddp_settings settings = ddp_settings_defaults();
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = ddp_settings_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    if (settings.show_schedule) return ls_status_exit_code(ls_results_written(show_schedule(&settings)));
    /* waits for this process's own streams outlast those for other ranks, which say whom they wait for */
    ls_set_wait_timeout_s(2 * settings.train.timeout_s);
    status = ls_virtual_time_begin(&settings.train);
    if (status != LS_OK) return ls_status_exit_code(status);
    status =
        settings.spawn > 0 && !ddp_is_meta(&settings) ? spawn_ranks(&settings, argv) : run_rank(&settings, argv[0]);
    return ls_status_exit_code(ls_results_written(status));
}
