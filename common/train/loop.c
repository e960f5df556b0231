/* loop — epochs and steps.
 *   idea  : a step enqueues; the host reads the losses of all ranks only from time to time, at least every LS_LOSS_RING
 *           steps, and at the end of an epoch (deferred.h). Reading is collective over ranks, outside of the step times
 *   times : CPU devices have finished a step when its calls return, and each step is timed. A GPU then still runs the
 *           step before: the host only waits for its batch to be copied, for which a place must be free (parallel.h),
 *           so that it is at most two steps ahead; times are those of blocks of steps, with the GPU idle at both ends
 *           (step_times.h). Only with --metrics or --dump-losses the host waits for each step. With shuffled streams
 *           there is no wait, so that the race detector sees across steps
 *   cost  : per step two readings of the clock and one wait for the copy stream
 *   fails : on CPU devices a loss that is not finite ends the run in its step, and its origin is located
 *           (divergence.c); on GPUs it is detected at the next read */
#include "common/train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/results.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/weights.h"
#include "common/device/host_lock.h"
#include "common/report/announce.h"
#include "common/report/deferred.h"
#include "common/report/recording.h"
#include "common/report/report.h"
#include "common/report/step_times.h"
#include "common/seam/step.h"
#include "common/seam/step_graph.h"
#include "common/train/feed.h"
#include "common/train/generate.h"
#include "common/train/kept.h"

struct run {
    ls_parallel *parallel;
    const ls_train_options *options;
    const ls_dataset *test;
    ls_report *report; /* rank 0 only */
    ls_feed feed;
    bool join;           /* ranks may run out of samples at different steps */
    ls_batch joined;     /* with join: the step's batch on this rank */
    int64_t total_steps; /* LS_STEPS_UNKNOWN: a stream */
    ls_schedule schedule;
    struct ls_position resumed; /* where the run begins: all zero, or where a checkpoint was written */
    int64_t epoch, epoch_steps; /* the epoch in progress, and steps of it so far */
    ls_step_times times;
    int64_t clocked_from; /* the step before which the phases' clocks began */
    ls_deferred deferred; /* losses, times and memory, which the host reads from time to time */
    struct ls_checkpointed checkpointed;
    ls_kept *kept; /* NULL: ranks that part end */
    bool unsaved;  /* rank 0 could not write a checkpoint; all ranks know, and nothing else failed */
    ls_recording recording;
    ls_train_result *result;
};

/* --- the test samples --------------------------------------------------------------------------------------------- */

static ls_status evaluate(struct run *run) {
    ls_parallel *p = run->parallel;
    bool can =
        run->options->evaluate && ls_device_computes(p->devices[0]) && ls_model_loss(p->model) == LS_LOSS_CROSS_ENTROPY;
    ls_status status = can ? ls_measure(p, run->options, run->test, run->result) : LS_OK;
    return can && status == LS_OK ? ls_deferred_read(&run->deferred)
                                  : status; /* the devices' peaks include the evaluation */
}

/* Generates the text that --generate requests, from the start of the test set; the caller frees *text. Collective. */
static ls_status generate(const struct run *run, uint8_t **text) {
    ls_parallel *p = run->parallel;
    const ls_train_options *o = run->options;
    const struct ls_generation generation = {
        .count = (size_t)o->generate, .temperature = o->temperature, .seed = (uint64_t)o->seed};
    *text = malloc(run->result->tokens + generation.count);
    if (!*text) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to generate %zu tokens", generation.count);
    ls_status status = p->process ? p->process->before_evaluation(p) : LS_OK;
    return status == LS_OK ? ls_generate(p->model, run->test, &generation, *text) : status;
}

/* --- one step ---------------------------------------------------------------------------------------------------- */

/* This rank's next batch, or NULL at the end of the epoch or the run. With join, a rank without samples gets empty
 * batches until no rank has any, so that all ranks take the same number of steps. */
static ls_status next_batch(struct run *run, const ls_batch **batch) {
    ls_parallel *p = run->parallel;
    bool done = (int64_t)p->step >= run->total_steps, anyone = false;
    *batch = NULL;
    ls_phase_enter(p->clocks, LS_PHASE_LOADER);
    ls_status status = done ? LS_OK : ls_feed_next(&run->feed, p, batch);
    if (status != LS_OK && run->kept) run->kept->by_itself = true;
    if (status != LS_OK || !run->join) return status;
    ls_phase_enter(p->clocks, LS_PHASE_ALL_REDUCE); /* waiting for other ranks is not waiting for the loader */
    run->joined = *batch ? **batch : (ls_batch){0};
    status = p->process->join(p, &run->joined, &anyone);
    *batch = status == LS_OK && anyone ? &run->joined : NULL;
    return status;
}

static ls_status train_step(struct run *run, const ls_batch *batch) {
    ls_parallel *p = run->parallel;
    double rate = ls_schedule_rate(&run->schedule, (int64_t)p->step, p->epoch);
    ls_optimizer_set_rate(p->optimizer, rate);
    ls_status status = ls_step(p, batch);
    ls_optimizer_record(p->optimizer, p->step % LS_LOSS_RING);
    if (status == LS_OK) status = ls_event_synchronize(p->batch_copied); /* the loader may overwrite the batch */
    if (status == LS_OK && run->times.how == LS_TIME_STEPS) {
        status = ls_stream_synchronize(ls_device_stream(ls_model_device(p->model), LS_STREAM_COMPUTE));
    }
    return status;
}

/* The phases' times and bytes leave out the same steps as the step times. */
static void forget_warmup(struct run *run) {
    ls_parallel *p = run->parallel;
    int64_t warm = run->resumed.step + run->times.warmup;
    if ((int64_t)p->step != warm || run->total_steps <= warm) return;
    run->clocked_from = warm;
    for (int d = 0; d < p->local_device_count; d++) ls_phase_reset(&p->clocks[d]);
}

/* Reading losses is not timed. */
static ls_status read_deferred(struct run *run) {
    ls_status status = ls_step_times_pause(&run->times);
    return status == LS_OK ? ls_deferred_read(&run->deferred) : status;
}

/* --- checkpoints ------------------------------------------------------------------------------------------------- */

static struct ls_position position_of(const struct run *run) {
    struct ls_position position = {.step = (int64_t)run->parallel->step,
                                   .epoch = run->epoch,
                                   .epoch_steps = run->epoch_steps,
                                   .last_loss = run->deferred.last_loss};
    if (run->epoch_steps > 0) ls_deferred_epoch_losses(&run->deferred, &position.loss_sum, &position.losses);
    return position;
}

static ls_status write_checkpoint(struct run *run) {
    const struct ls_position position = position_of(run);
    return ls_checkpoint_save(&run->checkpointed, &position, run->options->save);
}

/* Tells the other ranks whether rank 0 has written the checkpoint: they wait here rather than within a step. */
static ls_status agree_on_checkpoint(struct run *run, ls_status status, bool last) {
    ls_parallel *p = run->parallel;
    enum { UNSAVED = 1, WORSE };
    double failed = status == LS_OK ? 0 : status == LS_ERR_IO ? UNSAVED : WORSE;
    ls_status heard = ls_sum_over_ranks(p, &failed, 1);
    if (heard != LS_OK) return status != LS_OK ? status : heard;
    if (failed == 0) return LS_OK;
    run->unsaved = failed == UNSAVED;
    if (status != LS_OK || (last && run->unsaved)) return status; /* the others are done, rank 0 is not */
    return ls_fail(LS_ERR_PEER, "rank 0 could not write %s; this rank ends with rank 0", run->options->save);
}

/* Collective: all ranks get the current buffers, and rank 0 writes. Not part of a step. `last`: none follows. */
static ls_status save_checkpoint(struct run *run, bool last) {
    ls_parallel *p = run->parallel;
    ls_status status = read_deferred(run);
    double begin_us = ls_now_us();
    if (status == LS_OK) status = ls_parallel_synchronize(p, LS_OK); /* weights may include a failed device's data */
    if (status == LS_OK && p->process) status = p->process->before_evaluation(p);
    if (status == LS_OK) status = agree_on_checkpoint(run, write_checkpoint(run), last);
    double us = ls_now_us() - begin_us;
    for (int d = 0; d < p->local_device_count; d++) p->clocks[d].since_us += us;
    run->deferred.since_us += us;
    return status;
}

static bool checkpoint_is_due(const struct run *run) {
    int64_t every = run->options->save_every;
    return every > 0 && (int64_t)run->parallel->step % every == 0;
}

static bool is_finished(const struct run *run) {
    const ls_train_options *o = run->options;
    return o->steps > 0 ? (int64_t)run->parallel->step >= o->steps : run->epoch >= o->epochs;
}

/* Whether the run continues from the state that an earlier run of this process has kept. */
static bool goes_on(const struct run *run) { return run->kept && run->kept->fd >= 0; }

/* The run ends where an uninterrupted one would: after --steps, or --epochs, from its beginning. */
static ls_status resume(struct run *run) {
    ls_parallel *p = run->parallel;
    const ls_train_options *o = run->options;
    int64_t steps_per_epoch = run->checkpointed.steps_per_epoch;
    const char *path = NULL;
    struct ls_position *at = &run->resumed;
    ls_status status = goes_on(run) ? ls_checkpoint_load_kept(&run->checkpointed, run->kept->fd, at)
                                    : ls_checkpoint_find(&run->checkpointed, &path);
    if (status == LS_OK && path) status = ls_checkpoint_load(&run->checkpointed, path, at);
    if (status != LS_OK || at->step == 0) return status;
    p->step = (uint64_t)at->step;
    run->clocked_from = at->step;
    run->epoch = p->epoch = at->epoch;
    run->epoch_steps = at->epoch_steps;
    if (o->steps == 0 && steps_per_epoch > 0) {
        int64_t epochs_left = o->epochs > at->epoch ? o->epochs - at->epoch : 0;
        run->total_steps = at->step - at->epoch_steps + epochs_left * steps_per_epoch;
    }
    if (path && is_finished(run) && p->rank == 0) {
        ls_note("nothing is left to train: %s %lld was reached when %s was written",
                o->steps > 0 ? "--steps" : "--epochs", (long long)(o->steps > 0 ? o->steps : o->epochs), path);
    }
    return LS_OK;
}

/* --- epochs ------------------------------------------------------------------------------------------------------ */

static int64_t shown_total(const struct run *run) {
    return run->total_steps == LS_STEPS_UNKNOWN ? 0 : run->total_steps;
}

static ls_status train_epoch(struct run *run) {
    ls_parallel *p = run->parallel;
    ls_progress progress = ls_progress_begin(run->options->quiet || p->rank > 0 || run->deferred.wants_view);
    const ls_batch *batch = NULL;
    ls_status status = ls_loader_begin_epoch(run->feed.loader, p->epoch, run->epoch_steps);
    while (status == LS_OK) {
        double waited_us = ls_loader_wait_us(run->feed.loader), step_ms;
        status = ls_recording_begin_step(&run->recording, !run->join);
        if (status != LS_OK) break;
        ls_step_times_begin(&run->times);
        status = ls_kept_ask(run->kept);
        if (status == LS_OK) status = next_batch(run, &batch);
        if (batch) ls_recording_has_batch(&run->recording);
        if (status == LS_OK && batch) status = train_step(run, batch);
        if (status != LS_OK || !batch) break;
        status = ls_step_times_end(&run->times, &step_ms);
        ls_deferred_note(&run->deferred, step_ms, (ls_loader_wait_us(run->feed.loader) - waited_us) * 1e-3);
        if (status == LS_OK) status = ls_recording_end_step(&run->recording, step_ms);
        p->step++;
        run->epoch_steps++;
        forget_warmup(run);
        if (status == LS_OK) status = ls_kept_note(run->kept, p);
        if (status == LS_OK && ls_deferred_is_due(&run->deferred)) status = read_deferred(run);
        if (status == LS_OK && checkpoint_is_due(run)) status = save_checkpoint(run, false);
        ls_progress_show(&progress, "step", (int64_t)p->step, shown_total(run));
    }
    ls_recording_no_step(&run->recording);
    ls_progress_end(&progress);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    if (status == LS_OK) status = read_deferred(run);
    if (status == LS_OK && run->epoch_steps == 0) {
        status = ls_fail(LS_ERR_INVALID,
                         "an epoch of %s does not fill a batch of %lld: leave out --drop-last or lower the batch size",
                         run->options->data, (long long)run->options->batch_size);
    }
    return status;
}

static void report_epoch(struct run *run, double seconds) {
    ls_live_view_hide(&run->deferred.view);
    ls_report_epoch(run->report, run->parallel->epoch, ls_deferred_epoch_loss(&run->deferred), run->result, seconds);
    ls_live_view_resume(&run->deferred.view);
}

static void resume_losses(struct run *run) {
    ls_deferred_resume_epoch(&run->deferred, run->resumed.loss_sum, run->resumed.losses);
    run->deferred.last_loss = run->resumed.last_loss;
}

static void begin_epoch(struct run *run, double now_us) {
    ls_parallel *p = run->parallel;
    p->epoch = run->epoch;
    ls_deferred_begin_epoch(&run->deferred);
    if (run->epoch_steps > 0) resume_losses(run);
    for (int d = 0; d < p->local_device_count; d++) p->clocks[d].since_us = now_us;
}

/* The clocks exclude the time between epochs. An epoch that --steps ends stays the one in progress. */
static ls_status train_epochs(struct run *run) {
    ls_status status = LS_OK;
    while (status == LS_OK && !is_finished(run)) {
        double begin_us = ls_now_us();
        begin_epoch(run, begin_us);
        status = train_epoch(run);
        double seconds = (ls_now_us() - begin_us) * 1e-6;
        bool by_steps = run->options->steps > 0, last = by_steps && is_finished(run);
        if (status == LS_OK && (last || !by_steps)) {
            status = evaluate(run);
            if (status == LS_OK && run->report && ls_device_computes(run->parallel->devices[0]))
                report_epoch(run, seconds);
        }
        if (last || status != LS_OK) break;
        run->epoch++;
        run->epoch_steps = 0;
    }
    return status;
}

/* --- a run ------------------------------------------------------------------------------------------------------- */

static void summarise(struct run *run, ls_train_result *result) {
    result->steps = (int64_t)run->parallel->step;
    result->epochs = run->epoch + (run->epoch_steps > 0);
    result->clocked_steps = result->steps - run->clocked_from;
    if (!ls_device_computes(run->parallel->devices[0])) { /* there is no time, loss or accuracy */
        result->median_step_ms = result->p10_step_ms = result->p90_step_ms = result->samples_per_s = NAN;
        return;
    }
    ls_step_times_summarise(&run->times, result);
    result->samples_per_s =
        result->median_step_ms > 0 ? (double)run->options->batch_size / result->median_step_ms * 1e3 : 0;
    result->final_loss = run->deferred.last_loss;
}

static void announce(const struct run *run, const ls_dataset *train) {
    const ls_batches *batches = run->feed.batches;
    ls_announce(ls_results(),
                &(struct ls_run_announcement){.options = run->options,
                                              .parallel = run->parallel,
                                              .schedule = &run->schedule,
                                              .batches = batches,
                                              .dataset_count = batches ? (int64_t)ls_dataset_count(train) : 0});
}

/* Writes the results to files and stdout. If a checkpoint or a trace cannot be written, the others still are. */
static ls_status finish(struct run *run, ls_status status, ls_train_result *result) {
    ls_parallel *p = run->parallel;
    ls_status saved = status == LS_OK && run->options->save ? save_checkpoint(run, true) : LS_OK;
    if (saved != LS_OK && !run->unsaved) status = saved;
    status = ls_parallel_synchronize(p, status); /* the devices are idle */
    /* ranks gather the parts that they own */
    bool takes_part = p->rank == 0 || ls_parameters_are_collective(ls_model_tensors(p->model));
    const char *weights = takes_part ? run->options->save_weights : NULL;
    if (status != LS_OK) ls_deferred_salvage(&run->deferred);
    if (status == LS_OK && ls_device_computes(p->devices[0])) status = ls_model_hash(p->model, &result->parameter_hash);
    if (status == LS_OK) summarise(run, result);
    const char *prefix = run->options->save_module_prefix ? LS_MODULE_PREFIX : "";
    if (status == LS_OK && weights) status = ls_weights_save(p->model, weights, prefix);
    const struct ls_embedding *embedding = takes_part ? run->options->embedding : NULL;
    if (status == LS_OK && embedding && embedding->weights_fd >= 0)
        status = ls_weights_write(p->model, embedding->weights_fd);
    uint8_t *text = NULL;
    if (status == LS_OK && run->options->generate > 0) status = generate(run, &text);
    result->text = text;
    ls_status recorded = status == LS_OK ? ls_recording_finish(&run->recording, result->median_step_ms) : LS_OK;
    ls_live_view_end(&run->deferred.view, status == LS_OK); /* before the results are printed */
    if (status == LS_OK) ls_step_graph_note_idle(run->parallel);
    ls_recording_tell(&run->recording);
    ls_status written = ls_report_close(run->report, p, status == LS_OK ? result : NULL, run->deferred.rows);
    free(text);
    result->text = NULL;
    if (status == LS_OK) status = saved != LS_OK ? saved : written;
    return status != LS_OK ? status : recorded;
}

ls_status ls_train_kept(ls_parallel *p, const ls_train_options *options, ls_sharing sharing, const ls_dataset *train,
                        const ls_dataset *test, ls_train_result *result, ls_kept *kept) {
    bool strided = p->data_size > 1 && sharing.shard == LS_SHARD_STRIDED && !ls_train_is_stream(options);
    *result = (ls_train_result){.accuracy = NAN,
                                .test_loss = NAN,
                                .final_loss = NAN,
                                .strided = strided,
                                .tokens = ls_train_sample_tokens(p->model)};
    p->step = 0;
    p->micro_batches = options->accumulate;
    struct run run = {.parallel = p,
                      .options = options,
                      .test = test,
                      .result = result,
                      .resumed = {.last_loss = NAN},
                      .kept = kept,
                      .checkpointed = {.parallel = p, .options = options, .sharing = sharing}};
    run.join = sharing.join && p->process; /* in DataParallel no rank can run out of samples */
    p->check_each_loss = !ls_device_runs_behind(p->devices[0]);
    ls_status status = ls_host_lock_set(options->host_lock_us, options->virtual_time || !ls_parallel_has_cores(p));
    if (status == LS_OK) status = ls_feed_open(&run.feed, options, p, sharing, train);
    if (status == LS_OK && options->cuda_graph) status = ls_step_graph_create(p);
    run.total_steps = run.feed.total_steps;
    run.checkpointed.steps_per_epoch = run.feed.steps_per_epoch;
    if (status == LS_OK) status = resume(&run);
    ls_step_times_open(&run.times, p, ls_step_times_choose(p, options, kept != NULL),
                       shown_total(&run) - run.resumed.step);
    run.schedule = ls_train_schedule(options, ls_parallel_replicas(p), shown_total(&run));
    if (status == LS_OK) status = ls_schedule_check(&run.schedule);
    if (status == LS_OK) status = ls_kept_note(kept, p);
    if (status == LS_OK && p->rank == 0) {
        int64_t steps = goes_on(&run) ? LS_REPORT_SAME_RUN : run.resumed.step;
        status = ls_report_open(&run.report, options, p, steps, run.resumed.last_loss);
    }
    if (status == LS_OK) {
        status = ls_recording_open(&run.recording, options, p, &run.times, run.resumed.step, run.total_steps);
    }
    if (status == LS_OK && p->rank == 0 && !goes_on(&run)) announce(&run, train);
    if (status == LS_OK) status = ls_deferred_open(&run.deferred, p, options, run.report, shown_total(&run));
    if (status == LS_OK) resume_losses(&run);
    bool begun = status == LS_OK;
    if (begun) status = train_epochs(&run);
    status = finish(&run, status, result);
    if (kept) ls_kept_end(kept, &run.checkpointed, position_of(&run), begun);
    ls_deferred_close(&run.deferred);
    ls_feed_close(&run.feed);
    ls_step_graph_destroy(p);
    ls_recording_close(&run.recording);
    ls_step_times_close(&run.times);
    return status;
}
