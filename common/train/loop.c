/* loop — epochs and steps.
 *   idea  : a step enqueues; the host looks at losses only when LS_LOSS_RING of them have gathered on the device, at the end of an
 *           epoch, and at the end of the run. Looking is collective over ranks, and falls outside of the step times
 *   cost  : per step two readings of the clock and one wait for the device's compute stream. Where streams are shuffled that
 *           wait is left out, so that the race detector sees across steps */
#include "common/train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/statistics.h"
#include "common/train/report.h"
#include "common/train/weights.h"

enum { EVALUATION_CHUNK_MAX = 256 };

struct run {
    ls_parallel *parallel;
    const ls_train_options *options;
    const ls_dataset *test;
    ls_report *report; /* rank 0 only */
    ls_loader *loader;
    int64_t steps_per_epoch, total_steps;
    bool wait_each_step;
    double *step_ms; /* of every step */
    /* losses read from the device */
    int64_t read_steps; /* steps whose losses have been read */
    double last_loss, epoch_loss_sum;
    int64_t epoch_losses;
    double accuracy;
};

/* --- losses and accuracy: the host's late look ------------------------------------------------------------------- */

static ls_status sum_over_ranks(ls_parallel *p, double *values, size_t count) {
    return p->ops->sum_over_ranks ? p->ops->sum_over_ranks(p, values, count) : LS_OK;
}

/* Reads the losses of all steps that have been enqueued since the last time. */
static ls_status read_losses(struct run *run, int64_t epoch) {
    ls_parallel *p = run->parallel;
    ls_stream *stream = ls_device_stream(p->loss_device, LS_STREAM_COMPUTE);
    float ring[LS_LOSS_RING];
    double losses[LS_LOSS_RING];
    size_t count = (size_t)((int64_t)p->step - run->read_steps);
    ls_status status = ls_copy(stream, ring, p->losses, sizeof ring);
    ls_status done = ls_stream_synchronize(stream);
    if (status == LS_OK) status = done;
    for (size_t i = 0; i < count; i++) losses[i] = (double)ring[(size_t)(run->read_steps + (int64_t)i) % LS_LOSS_RING];
    if (status == LS_OK) status = sum_over_ranks(p, losses, count);
    for (size_t i = 0; status == LS_OK && i < count; i++, run->read_steps++) {
        run->last_loss = losses[i] / p->world_size;
        run->epoch_loss_sum += run->last_loss;
        run->epoch_losses++;
        if (run->report) {
            ls_report_step(run->report, run->read_steps, epoch, run->last_loss, run->step_ms[run->read_steps]);
        }
    }
    return status;
}

/* Every rank counts its share of the test samples. */
static ls_status measure_accuracy(struct run *run) {
    ls_parallel *p = run->parallel;
    bool can = run->options->evaluate && ls_model_loss(p->model) == LS_LOSS_CROSS_ENTROPY;
    run->accuracy = NAN;
    if (!can) return LS_OK;
    size_t count = ls_dataset_count(run->test), world = (size_t)p->world_size, rank = (size_t)p->rank;
    size_t chunk = (size_t)(run->options->batch_size / p->device_count);
    if (chunk > EVALUATION_CHUNK_MAX) chunk = EVALUATION_CHUNK_MAX;
    int64_t right = 0;
    ls_status status = p->ops->before_evaluation ? p->ops->before_evaluation(p) : LS_OK;
    if (status == LS_OK) {
        status = ls_count_right(p->model, run->test, count * rank / world, count * (rank + 1) / world, chunk, &right);
    }
    double sum = (double)right;
    if (status == LS_OK) status = sum_over_ranks(p, &sum, 1);
    if (status == LS_OK) run->accuracy = sum / (double)count;
    return status;
}

/* --- one step ---------------------------------------------------------------------------------------------------- */

static ls_status train_step(struct run *run, const ls_batch *batch) {
    ls_parallel *p = run->parallel;
    ls_status status = p->ops->prepare(p, batch);
    if (status == LS_OK) status = p->ops->forward_backward(p);
    if (status == LS_OK) status = p->ops->reduce(p);
    if (status == LS_OK) status = p->ops->apply(p);
    if (status == LS_OK) status = ls_event_synchronize(p->batch_copied); /* the loader may overwrite the batch */
    if (status == LS_OK && run->wait_each_step) {
        status = ls_stream_synchronize(ls_device_stream(ls_model_device(p->model), LS_STREAM_COMPUTE));
    }
    return status;
}

/* The phases' times and bytes leave out the same steps as the step times. */
static void forget_warmup(const struct run *run) {
    ls_parallel *p = run->parallel;
    if ((int64_t)p->step != LS_WARMUP_STEPS || run->total_steps <= LS_WARMUP_STEPS) return;
    for (int d = 0; d < p->local_device_count; d++) ls_phase_reset(&p->clocks[d]);
}

static ls_status train_epoch(struct run *run, int64_t epoch) {
    ls_parallel *p = run->parallel;
    ls_progress progress = ls_progress_begin(run->options->quiet || p->rank > 0);
    const ls_batch *batch = NULL;
    ls_status status = ls_loader_begin_epoch(run->loader, epoch);
    while (status == LS_OK && (int64_t)p->step < run->total_steps) {
        double begin_us = ls_now_us();
        ls_phase_enter(p->clocks, LS_PHASE_LOADER);
        status = ls_loader_next(run->loader, &batch);
        if (status != LS_OK || !batch) break;
        status = train_step(run, batch);
        run->step_ms[p->step++] = (ls_now_us() - begin_us) * 1e-3;
        forget_warmup(run);
        if (status == LS_OK && p->step % LS_LOSS_RING == 0) status = read_losses(run, epoch);
        ls_progress_show(&progress, "step", (int64_t)p->step, run->total_steps);
    }
    ls_progress_end(&progress);
    ls_phase_enter(p->clocks, LS_PHASE_OTHER);
    if (status == LS_OK) status = read_losses(run, epoch);
    return status;
}

/* The clocks leave out what lies between epochs. */
static ls_status train_epochs(struct run *run, int64_t *epochs) {
    ls_parallel *p = run->parallel;
    ls_status status = LS_OK;
    for (*epochs = 0; status == LS_OK && (int64_t)p->step < run->total_steps; ++*epochs) {
        double begin_us = ls_now_us();
        run->epoch_loss_sum = 0;
        run->epoch_losses = 0;
        for (int d = 0; d < p->local_device_count; d++) p->clocks[d].since_us = begin_us;
        status = train_epoch(run, *epochs);
        double seconds = (ls_now_us() - begin_us) * 1e-6;
        bool last = (int64_t)p->step >= run->total_steps;
        if (status == LS_OK && (last || run->options->steps == 0)) {
            status = measure_accuracy(run);
            double mean = run->epoch_losses ? run->epoch_loss_sum / (double)run->epoch_losses : NAN;
            if (status == LS_OK && run->report) ls_report_epoch(run->report, *epochs, mean, run->accuracy, seconds);
        }
    }
    return status;
}

/* --- a run ------------------------------------------------------------------------------------------------------- */

static void summarise(struct run *run, ls_train_result *result) {
    int64_t steps = (int64_t)run->parallel->step;
    int64_t skip = steps > LS_WARMUP_STEPS ? LS_WARMUP_STEPS : steps;
    if (!run->wait_each_step) skip = steps; /* without the wait, times are those of enqueueing */
    size_t count = (size_t)(steps - skip);
    ls_sort(run->step_ms + skip, count);
    result->steps = steps;
    result->timed_steps = (int64_t)count;
    result->median_step_ms = ls_quantile(run->step_ms + skip, count, 0.5);
    result->p10_step_ms = ls_quantile(run->step_ms + skip, count, 0.1);
    result->p90_step_ms = ls_quantile(run->step_ms + skip, count, 0.9);
    result->samples_per_s =
        result->median_step_ms > 0 ? (double)run->options->batch_size / result->median_step_ms * 1e3 : 0;
    result->final_loss = run->last_loss;
    result->accuracy = run->accuracy;
}

static ls_status open_batches(ls_batches **out, const ls_train_options *options, const ls_batches_options *plan) {
    ls_status status = ls_batches_create(out, plan);
    if (status != LS_OK) return status;
    int64_t steps_per_epoch = ls_batches_per_epoch(*out);
    if (steps_per_epoch == 0) {
        status = ls_fail(LS_ERR_INVALID,
                         "%lld training samples give no full batch of %lld; "
                         "leave out --drop-last or lower the batch size",
                         (long long)plan->dataset_count, (long long)options->batch_size);
    } else if (options->steps == 0 && options->epochs > INT64_MAX / 16 / steps_per_epoch) {
        status = ls_fail(LS_ERR_USAGE, "%lld epochs are too many", (long long)options->epochs);
    }
    if (status == LS_OK) return LS_OK;
    ls_batches_destroy(*out);
    *out = NULL;
    return status;
}

static ls_batches_options plan_batches(const ls_train_options *options, ls_shard shard, const ls_dataset *train) {
    return (ls_batches_options){
        .dataset_count = (int64_t)ls_dataset_count(train),
        .global_batch = options->batch_size,
        .world_size = 1,
        .shard = shard,
        .shuffle = options->shuffle,
        .drop_last = options->drop_last,
        .seed = (uint64_t)options->seed,
    };
}

ls_status ls_train_check(const ls_train_options *options, int world_size, ls_shard shard, const ls_dataset *train) {
    ls_batches *batches = NULL;
    ls_batches_options plan = plan_batches(options, shard, train);
    plan.world_size = world_size;
    ls_status status = open_batches(&batches, options, &plan);
    ls_batches_destroy(batches);
    return status == LS_OK ? ls_report_check(options) : status;
}

/* Waits for all devices of this process, whose failures count too. After it, nothing reads the loader's batches any more. */
static ls_status settle_devices(ls_parallel *p, ls_status status) {
    for (int d = 0; d < p->local_device_count && !p->stuck; d++) {
        ls_status done = ls_device_synchronize(p->devices[d]);
        if (status == LS_OK) status = done;
    }
    return status;
}

static ls_status plan_steps(struct run *run, const ls_batches *batches) {
    run->steps_per_epoch = ls_batches_per_epoch(batches);
    run->total_steps = run->options->steps > 0 ? run->options->steps : run->options->epochs * run->steps_per_epoch;
    run->step_ms = calloc((size_t)run->total_steps, sizeof *run->step_ms);
    return run->step_ms
               ? LS_OK
               : ls_fail(LS_ERR_NO_MEMORY, "no memory for the times of %lld steps", (long long)run->total_steps);
}

ls_status ls_train(ls_parallel *p, const ls_train_options *options, ls_shard shard, const ls_dataset *train,
                   const ls_dataset *test, ls_train_result *result) {
    *result = (ls_train_result){.accuracy = NAN, .final_loss = NAN};
    p->step = 0;
    struct run run = {.parallel = p, .options = options, .test = test, .accuracy = NAN, .last_loss = NAN};
    run.wait_each_step = strcmp(ls_device_stream_mode(p->devices[0]), "shuffle") != 0;
    ls_batches *batches = NULL;
    ls_loader_options loading = {.workers = options->workers, .prefetch = options->prefetch};
    ls_batches_options plan = plan_batches(options, shard, train);
    plan.world_size = p->world_size;
    plan.rank = p->rank;
    ls_status status = open_batches(&batches, options, &plan);
    if (status == LS_OK) status = plan_steps(&run, batches);
    if (status == LS_OK) status = ls_loader_create(&run.loader, train, batches, &loading);
    if (status == LS_OK && p->rank == 0) status = ls_report_open(&run.report, options, p);
    if (status == LS_OK) status = train_epochs(&run, &result->epochs);
    status = settle_devices(p, status);
    if (status == LS_OK) status = ls_model_hash(p->model, &result->parameter_hash);
    if (status == LS_OK) summarise(&run, result);
    if (status == LS_OK && p->rank == 0 && options->save) status = ls_weights_save(p->model, options->save);
    ls_status written = ls_report_close(run.report, p, status == LS_OK ? result : NULL);
    ls_loader_destroy(run.loader);
    ls_batches_destroy(batches);
    free(run.step_ms);
    return status != LS_OK ? status : written;
}
