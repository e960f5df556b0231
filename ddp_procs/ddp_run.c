/* ddp_run — a run of DistributedDataParallel, from its options to its result: this process is a rank, or starts the
 * ranks. */
#include "ddp_procs/ddp_run.h"

#include <signal.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/seam/devices.h"
#include "common/seam/virtual_time.h"
#include "ddp_procs/backend.h"
#include "ddp_procs/debug_ranks.h"
#include "ddp_procs/elastic.h"
#include "ddp_procs/launch/launch.h"
#include "ddp_procs/launch/rank.h"
#include "ddp_procs/setup.h"

static ls_status prepare(ddp_settings *s) {
    /* waits for this process's own streams have a longer deadline than waits for other ranks, whose errors name the
     * rank */
    ls_set_wait_timeout_s(2 * s->train.timeout_s);
    return ls_virtual_time_begin(&s->train);
}

/* With meta devices this process is rank 0 of a job whose other ranks do not exist. */
static ls_status take_rank_0(ddp_rank *self, const ddp_settings *s) {
    if (self->launched || s->debug_ranks) {
        return ls_fail(LS_ERR_USAGE, "--device-kind meta runs one process only: %s",
                       s->debug_ranks ? "leave --debug-ranks out"
                                      : "give the number of ranks with --spawn N, not by a launcher");
    }
    if (s->pipeline > 1)
        return ls_fail(LS_ERR_USAGE,
                       "--pipeline cannot be combined with --device-kind meta, where one rank stands for all: "
                       "build/plan records a rank of each stage");
    if (s->spawn > 0) self->world_size = self->local_world_size = s->spawn;
    ls_note("rank 0 of %d is recorded, in this process; the others are taken to do the same", self->world_size);
    return LS_OK;
}

/* What rank 0 prints before the run; with --debug-ranks all ranks print. */
static ls_status announce_run(const ddp_setup *setup, const ddp_settings *s) {
    if (setup->choice.gpu_expected) setup->parallel->why_not_gpu = setup->choice.found;
    if (!setup->self.launched && s->max_restarts > 0)
        ls_note(
            "--max-restarts has no effect: without --spawn the launcher starts ranks again (ddprun --max-restarts)");
    if (setup->self.rank == 0) {
        ls_train_warn_workers(&s->train, setup->self.local_world_size);
        ddp_settings_note_idle(s, setup->self.world_size);
    }
    if (!s->debug_ranks) return LS_OK;
    return ddp_describe_rank(&setup->self, setup->parallel, &s->train, ddp_sharing_of(s), setup->train);
}

static ls_status train(const ddp_setup *setup, const ddp_settings *s, ls_train_result *result, ls_kept *kept) {
    return ls_train_kept(setup->parallel, &s->train, ddp_sharing_of(s), setup->train, setup->test, result, kept);
}

/* Trains in ranks that all end when one of them fails. */
static ls_status train_together(ddp_setup *setup, ddp_settings *s, ls_train_result *result) {
    ls_status status = ddp_setup_join_groups(setup, s);
    if (status == LS_OK) status = ddp_setup_form_parallel(setup, s);
    if (status == LS_OK) status = announce_run(setup, s);
    return status == LS_OK ? train(setup, s, result, NULL) : status;
}

static ls_status train_elastically(ddp_setup *setup, ddp_settings *s, ls_train_result *result) {
    ddp_elastic elastic;
    ls_status status = ddp_elastic_begin(&elastic, setup, s);
    if (status == LS_OK && setup->parallel) {
        if (!setup->agreement.late) status = announce_run(setup, s);
        do status = train(setup, s, result, &elastic.kept);
        while (ddp_elastic_goes_on(&elastic, &status));
    }
    ddp_elastic_end(&elastic, status);
    return status;
}

/* An old launcher passes it twice. */
static ls_status check_local_rank(const ddp_rank *self, const char *argument) {
    char *end = NULL;
    long value = argument ? strtol(argument, &end, 10) : self->local_rank;
    if (value == self->local_rank && (!end || (end > argument && *end == '\0'))) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--local-rank is %s, but this process is local rank %d%s", argument, self->local_rank,
                   self->launched ? " (LOCAL_RANK)" : ", since no launcher has set LOCAL_RANK");
}

static ls_status run_rank(ddp_settings *settings, const char *program, ls_train_result *result) {
    ddp_setup setup = {0};
    bool elastic = settings->limits.least > 0;
    ls_status status = ddp_rank_discover(&setup.self);
    if (status == LS_OK) status = check_local_rank(&setup.self, settings->local_rank);
    if (status != LS_OK) return status;
    ls_log_init(program, setup.self.launched ? setup.self.rank : -1, settings->train.quiet);
    ls_log_verbose(settings->train.verbose);
    if (ddp_is_meta(settings)) status = take_rank_0(&setup.self, settings);
    if (status == LS_OK && elastic && !ddp_is_meta(settings)) status = ddp_elastic_check(&setup.self);
    if (status == LS_OK) status = ddp_setup_begin(&setup, settings);
    if (status == LS_OK)
        status = elastic ? train_elastically(&setup, settings, result) : train_together(&setup, settings, result);
    ddp_setup_end(&setup, status);
    return status;
}

/* Errors that every rank would report are reported once, by the process that starts them. The thread is not bound to
 * the device's core, since the ranks would inherit that. It does not use a GPU either: a launcher must not have CUDA's
 * threads, and a CPU device is enough to check a model. */
static ls_status check_before_spawn(ddp_settings *s) {
    ddp_setup setup = {.self = {.world_size = s->spawn, .local_world_size = s->spawn}};
    ls_status status = ddp_setup_check(&setup, s);
    if (status == LS_OK) status = ddp_setup_choose_devices(&setup, s, LS_DEVICES_APART);
    if (status == LS_OK) status = ls_devices_check(&setup.choice);
    if (status == LS_OK) {
        status = ddp_backend_check_ranks((ddp_backend)s->backend, setup.choice.kind, s->spawn,
                                         ls_devices_gpus(&setup.choice));
    }
    setup.choice.kind = LS_DEVICE_CPU;
    if (status == LS_OK) status = ls_devices_open(&setup.device, &setup.choice, 0, &s->train);
    if (status == LS_OK) status = ddp_setup_open_model(&setup, s, 0);
    if (status == LS_OK && s->train.init) status = ddp_setup_fill_model(&setup, s, false);
    int replicas = setup.sizes[LS_MESH_DATA];
    if (status == LS_OK) status = ls_train_check(&s->train, replicas, ddp_sharing_of(s), setup.train, setup.model);
    ddp_setup_end(&setup, status);
    return status;
}

/* Threads that libraries start during the check (OpenMP's, in oneDNN) continue to exist, and would receive the signals
 * that ddp_launch waits for. So these signals are blocked first, and the threads inherit the mask. */
static ls_status check_with_signals_blocked(ddp_settings *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ls_status status = check_before_spawn(s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

ls_status ddp_spawn_ranks(ddp_settings *s, char **argv, int (*entry)(void *context), void *context) {
    ls_status status = prepare(s);
    if (status == LS_OK) status = check_with_signals_blocked(s);
    if (status != LS_OK) return status;
    if (s->max_restarts > 0 && s->limits.least == 0 && !ls_train_resume(&s->train) && !s->train.quiet)
        ls_note(
            "--max-restarts begins the training again each time: --save FILE --save-every N --resume-if-present FILE "
            "goes on from the last checkpoint");
    ddp_launch_options launch = {.nproc = s->spawn,
                                 .argv = argv,
                                 .entry = entry,
                                 .context = context,
                                 .last_argument = "--spawn=0",
                                 .grace_s = DDP_LAUNCH_GRACE_S,
                                 .max_restarts = s->max_restarts,
                                 .elastic = s->limits.least > 0 ? s->elastic : NULL,
                                 .limits = s->limits};
    return ddp_launch(&launch);
}

ls_status ddp_run_rank(ddp_settings *s, const char *program, ls_train_result *result) {
    ls_status status = prepare(s);
    return status == LS_OK ? run_rank(s, program, result) : status;
}
