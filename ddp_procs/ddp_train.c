/* ddp_train — trains a model with one process per device: DistributedDataParallel. Started by ddprun (or with its
 * variables in the environment) it is one rank; with --spawn N it starts N ranks of itself; alone it is the only
 * rank. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "common/checkpoint/weights.h"
#include "common/seam/devices.h"
#include "common/seam/virtual_time.h"
#include "common/train/loop.h"
#include "ddp_procs/backend.h"
#include "ddp_procs/compared.h"
#include "ddp_procs/debug_ranks.h"
#include "ddp_procs/distributed.h"
#include "ddp_procs/launch/launch.h"
#include "ddp_procs/launch/open_files.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/launch/store.h"
#include "ddp_procs/settings.h"
#include "ddp_procs/sharded.h"

/* Everything that a rank builds and takes down. */
struct session {
    ddp_rank self;
    ddp_store *store;
    ddp_agreement agreement; /* where there is a store */
    ls_comm *comm, *beside;  /* beside: what ranks meet in on the compute stream, or NULL */
    bool sync_bn;
    ls_device_choice choice;   /* of all ranks of this machine */
    ddp_attachment attachment; /* of GPUs to the groups */
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

/* Connections to the store, which rank 0 may serve to all, and one or two groups. */
static ls_status check_open_files(const ddp_rank *self, bool beside) {
    int count = 1 + (beside ? 2 : 1) * ls_comm_descriptors(self->world_size);
    if (self->hosts_store) count += self->world_size + 3;
    return ddp_check_open_files(count, self->rank == 0 ? "rank 0" : "a rank");
}

/* Finds the other ranks, and refuses to go on with any whose settings are not rank 0's. */
static ls_status find_ranks(struct session *session, ddp_settings *s) {
    ls_option rows[DDP_OPTION_ROWS];
    if (!session->self.launched) return LS_OK;
    double timeout_s = s->train.timeout_s;
    ls_status status = check_open_files(&session->self, s->train.sync_bn || s->shard_state > 0);
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

static ls_status create_group(ls_comm **out, const struct session *session, const ls_comm_options *options) {
    if (session->choice.kind == LS_DEVICE_META) return ls_comm_create_meta(out, options, session->device);
    return ls_comm_create_shm(out, options);
}

enum { GROUP_CAPACITY = 48 };

/* The keys of a group are those of this run of the store's, not of an earlier one. */
static const char *name_group(char group[GROUP_CAPACITY], const struct session *session, const char *name) {
    snprintf(group, GROUP_CAPACITY, "run%" PRId64 "/%s", session->agreement.run, name);
    return group;
}

/* The group that batch norm's ranks meet in, and those of a sharded optimizer. Its collectives run on the compute stream
 * while buckets travel on the comm stream, so it is a group of its own; whoever breaks one of the two breaks both. */
static ls_status join_beside(struct session *session, ls_comm_options options) {
    char group[GROUP_CAPACITY];
    options.group = name_group(group, session, "beside");
    options.job = session->comm;
    options.allreduce = "direct"; /* a few hundred bytes, in rank order as DataParallel's; over NCCL in its own order */
    ls_status status = create_group(&session->beside, session, &options);
    if (status != LS_OK || session->choice.kind != LS_DEVICE_CUDA) return status;
    return ls_comm_attach_device(session->beside, session->device, session->attachment.path, &options);
}

static ls_status join_groups(struct session *session, const ddp_settings *s) {
    ls_bootstrap bootstrap;
    char group[GROUP_CAPACITY];
    ls_comm_options options = {.rank = session->self.rank,
                               .world_size = session->self.world_size,
                               .timeout_s = s->train.timeout_s,
                               .allreduce = named_allreduce(s),
                               .group = name_group(group, session, "group0")};
    if (session->store) {
        bootstrap = ddp_store_bootstrap(session->store);
        options.bootstrap = &bootstrap;
    }
    ls_status status = create_group(&session->comm, session, &options);
    if (status == LS_OK && session->choice.kind == LS_DEVICE_CUDA) {
        ddp_backend_options backend = {.backend = (ddp_backend)s->backend,
                                       .group = &options,
                                       .local_ranks = session->self.local_world_size,
                                       .gpus = ls_devices_gpus(&session->choice)};
        status = ddp_backend_attach(session->comm, session->device, &backend, &session->attachment);
    }
    if (status != LS_OK) return status;
    bool staged = session->choice.kind == LS_DEVICE_CUDA && session->attachment.path == LS_COMM_STAGED;
    if (session->self.rank == 0) {
        ls_detail("backend: %s%s", ls_comm_backend(session->comm), staged ? ", without overlap" : "");
    }
    session->sync_bn = ls_train_sync_bn(&s->train, session->model, session->self.rank == 0);
    return session->sync_bn || s->shard_state > 0 ? join_beside(session, options) : LS_OK;
}

static ls_status choose_devices(struct session *session, const ddp_settings *s, int flags) {
    ls_status status = ls_devices_find(&session->choice, &s->train, flags);
    if (status == LS_OK) status = ddp_backend_check((ddp_backend)s->backend, session->choice.kind, named_allreduce(s));
    return status == LS_OK ? ls_devices_for_ranks(&session->choice, &s->device_ids, session->self.local_world_size)
                           : status;
}

/* Samples of a micro-batch on this rank, at most. */
static size_t micro_batch(const struct session *session, const ddp_settings *s) {
    size_t world_size = (size_t)session->self.world_size;
    return ls_micro_batch_rows(((size_t)s->train.batch_size + world_size - 1) / world_size, s->train.accumulate);
}

/* Parameters come block by block: there is no place for them yet when a model is opened. */
static bool has_units(const ddp_settings *s) { return s->shard_state == 3; }

/* `tell`: what there is to say of the model, and of the weights that are read. */
static ls_status fill_model(struct session *session, const ddp_settings *s, bool tell) {
    if (s->train.init) return ls_weights_load(session->model, s->train.init, tell);
    return ls_model_init(session->model, (uint64_t)s->train.seed);
}

static ls_status open_model(struct session *session, ddp_settings *s, bool placed, bool tell) {
    ls_status status = ls_train_open_text(&s->train, &session->train, &session->test);
    if (status == LS_OK)
        status =
            ls_train_open_model(&session->model, &s->train, session->device, micro_batch(session, s), placed, tell);
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
    bool tell = session->self.rank == 0, placed = has_units(s);
    if (status == LS_OK) status = open_model(session, s, placed, tell);
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

/* By --shard-state. */
static ls_status (*const creates[])(ls_parallel **out, ls_model *model, const ddp_options *options) = {
    ddp_create, ddp_create_zero1, ddp_create_zero2, ddp_create_zero3};

static ls_status build(struct session *session, ddp_settings *s) {
    ls_status status = ls_train_options_check(&s->train, session->self.world_size);
    if (status == LS_OK) status = ddp_settings_check(s);
    if (status != LS_OK) meet_once_more(session, s);
    if (status == LS_OK) status = find_ranks(session, s);
    if (status != LS_OK) return status;
    status = compare_data(session, s->train.evaluate, open_own(session, s));
    if (status == LS_OK) status = join_groups(session, s);
    if (status != LS_OK) return status;
    ddp_options options = {.comm = session->comm,
                           .sync_bn = session->sync_bn ? session->beside : NULL,
                           .shards = session->beside,
                           .prefetch_blocks = s->prefetch_blocks,
                           .max_batch = micro_batch(session, s),
                           .gpu_count = session->attachment.gpus,
                           .optimizer = ls_train_optimizer(&s->train),
                           .join = {.enable = s->join,
                                    .divide_by_initial_world_size = s->join_divide == 0,
                                    .throw_on_early_termination = s->join_throw},
                           .compare_each_step = s->debug_ranks,
                           .reducer = {.bucket_cap_mb = s->bucket_cap_mb,
                                       .overlap = s->overlap,
                                       .find_unused = s->find_unused,
                                       .compress = (ls_dtype)s->compress}};
    status = creates[s->shard_state](&session->parallel, session->model, &options);
    return status == LS_OK && has_units(s) ? fill_model(session, s, session->self.rank == 0) : status;
}

static void take_down(struct session *session, ls_status status) {
    if (session->comm && status != LS_OK) ls_comm_abort(session->comm, "this rank failed");
    if (session->parallel) session->parallel->ops->destroy(session->parallel);
    ls_comm_destroy(session->beside);
    ls_comm_destroy(session->comm);
    ddp_store_close(session->store);
    ls_dataset_close(session->train);
    ls_dataset_close(session->test);
    ls_model_destroy(session->model);
    ls_device_close(session->device);
}

static ls_status run_rank(ddp_settings *settings, const char *program) {
    struct session session = {0};
    ls_train_result result;
    ls_status status = ddp_rank_discover(&session.self);
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
    ls_status status = ls_train_options_check(&s->train, s->spawn);
    if (status == LS_OK) status = ddp_settings_check(s);
    if (status == LS_OK) status = choose_devices(&session, s, LS_DEVICES_APART);
    if (status == LS_OK) status = ls_devices_check(&session.choice);
    if (status == LS_OK) {
        status = ddp_backend_check_ranks((ddp_backend)s->backend, session.choice.kind, s->spawn,
                                         ls_devices_gpus(&session.choice));
    }
    session.choice.kind = LS_DEVICE_CPU;
    if (status == LS_OK) status = ls_devices_open(&session.device, &session.choice, 0, &s->train);
    if (status == LS_OK) status = open_model(&session, s, false, false);
    if (status == LS_OK && s->train.init) status = fill_model(&session, s, false);
    if (status == LS_OK) status = ls_train_check(&s->train, s->spawn, ddp_sharing_of(s), session.train, session.model);
    take_down(&session, status);
    return status;
}

static ls_status spawn_ranks(ddp_settings *s, char **argv) {
    ls_status status = check_before_spawn(s);
    if (status != LS_OK) return status;
    ddp_launch_options launch = {
        .nproc = s->spawn, .argv = argv, .last_argument = "--spawn=0", .grace_s = DDP_LAUNCH_GRACE_S};
    return ddp_launch(&launch);
}

int main(int argc, char **argv) {
    ddp_settings settings = ddp_settings_defaults();
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = ddp_settings_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    /* waits for this process's own streams outlast those for other ranks, which say whom they wait for */
    ls_set_wait_timeout_s(2 * settings.train.timeout_s);
    status = ls_virtual_time_begin(&settings.train);
    if (status != LS_OK) return ls_status_exit_code(status);
    status =
        settings.spawn > 0 && !ddp_is_meta(&settings) ? spawn_ranks(&settings, argv) : run_rank(&settings, argv[0]);
    return ls_status_exit_code(ls_results_written(status));
}
