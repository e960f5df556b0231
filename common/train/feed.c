/* feed — creates batches from the options.
 *   fails : ranks that run out of batches at different steps would wait for each other until their deadline. For data
 *           with indices this is known beforehand, for a stream never; both are refused beforehand unless the ranks
 *           join. */
#include "common/train/feed.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/log.h"

/* A rank whose loader hangs reports it before the ranks that wait for it time out, so that the message names the cause
 * and not its effect. */
#define LOADER_SHARE_OF_TIMEOUT 0.9

static ls_batches_options plan_batches(const ls_train_options *options, int rank, int world_size, ls_sharing sharing,
                                       const ls_dataset *train) {
    return (ls_batches_options){
        .dataset_count = (int64_t)ls_dataset_count(train),
        .global_batch = options->batch_size,
        .world_size = world_size,
        .rank = rank,
        .shard = sharing.shard,
        .shuffle = options->shuffle,
        .drop_last = options->drop_last,
        .uneven = sharing.uneven,
        .forget_epoch = !options->set_epoch,
        .seed = (uint64_t)options->seed,
    };
}

/* --- checks before the run ---------------------------------------------------------------------------------------- */

static ls_status check_batches(const ls_train_options *options, const ls_batches_options *plan, bool join,
                               const ls_batches *batches) {
    int64_t most = ls_batches_per_epoch_of(batches, 0); /* the remainder goes to the first ranks */
    if (most == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%" PRId64 " training samples do not fill a batch of %" PRId64
                       "; leave out --drop-last or lower the batch size",
                       plan->dataset_count, options->batch_size);
    }
    for (int rank = 1; rank < plan->world_size && !join; rank++) {
        int64_t steps = ls_batches_per_epoch_of(batches, rank);
        if (steps == most) continue;
        return ls_fail(LS_ERR_INVALID,
                       "rank 0 has %" PRId64 " step%s in an epoch, but rank %d has %" PRId64
                       ": use --join or --drop-last, or leave out --uneven",
                       most, most == 1 ? "" : "s", rank, steps);
    }
    if (options->steps == 0 && options->epochs > INT64_MAX / 16 / most) {
        return ls_fail(LS_ERR_USAGE, "%" PRId64 " epochs are too many", options->epochs);
    }
    return LS_OK;
}

static ls_status check_stream(const ls_train_options *options, int world_size, bool join) {
    if (options->batch_size % world_size != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "a stream's batch of %" PRId64
                       " samples cannot be shared equally by %d ranks: choose a multiple of %d (--batch-size, "
                       "or --per-device-batch)",
                       options->batch_size, world_size, world_size);
    }
    if (world_size > 1 && !join) {
        return ls_fail(LS_ERR_INVALID,
                       "the length of a stream is not known, so its %d ranks may run out of samples at different "
                       "steps: use --join, one rank, or read the folder by index (--data without stream:)",
                       world_size);
    }
    return LS_OK;
}

static ls_status open_batches(ls_batches **out, const ls_train_options *options, const ls_batches_options *plan,
                              bool join) {
    ls_status status = ls_batches_create(out, plan);
    if (status == LS_OK) status = check_batches(options, plan, join, *out);
    if (status == LS_OK) return LS_OK;
    ls_batches_destroy(*out);
    *out = NULL;
    return status;
}

ls_status ls_feed_check(const ls_train_options *options, int world_size, ls_sharing sharing, const ls_dataset *train,
                        int64_t *steps_per_epoch) {
    *steps_per_epoch = 0;
    if (ls_dataset_is_stream(train)) return check_stream(options, world_size, sharing.join);
    ls_batches *batches = NULL;
    ls_batches_options plan = plan_batches(options, 0, world_size, sharing, train);
    ls_status status = open_batches(&batches, options, &plan, sharing.join);
    if (status == LS_OK) *steps_per_epoch = ls_batches_per_epoch_of(batches, 0);
    ls_batches_destroy(batches);
    return status;
}

/* --- messages about a rank's share -------------------------------------------------------------------------------- */

enum { SHOWN_SAMPLES = 8 };

ls_status ls_feed_describe(const ls_train_options *options, int rank, int world_size, ls_sharing sharing,
                           const ls_dataset *train, char *text, size_t capacity) {
    if (ls_dataset_is_stream(train)) {
        snprintf(text, capacity, "a stream's samples in turn with the other ranks");
        return LS_OK;
    }
    ls_batches *batches;
    ls_batches_options plan = plan_batches(options, rank, world_size, sharing, train);
    ls_status status = open_batches(&batches, options, &plan, sharing.join);
    if (status != LS_OK) return status;
    size_t count = 0, length = 0;
    char shown[24 * SHOWN_SAMPLES] = "";
    for (int64_t k = 0; k < ls_batches_per_epoch(batches); k++) {
        struct ls_batch_indices picked;
        ls_batches_get(batches, k, &picked);
        for (size_t i = 0; i < picked.local_count && count + i < SHOWN_SAMPLES; i++) {
            length += (size_t)snprintf(shown + length, sizeof shown - length, " %" PRId64, picked.indices[i]);
        }
        count += picked.local_count;
    }
    snprintf(text, capacity, "%zu of %" PRId64 " samples, the first%s%s", count, plan.dataset_count, shown,
             count > SHOWN_SAMPLES ? " ..." : "");
    ls_batches_destroy(batches);
    return LS_OK;
}

/* --- the feed of one rank ---------------------------------------------------------------------------------------- */

ls_status ls_feed_open(ls_feed *feed, const ls_train_options *options, ls_parallel *parallel, ls_sharing sharing,
                       const ls_dataset *train) {
    int rank = parallel->data_rank, world_size = parallel->data_size;
    *feed = (ls_feed){.total_steps = LS_STEPS_UNKNOWN};
    ls_loader_options loading = {.workers = options->workers,
                                 .prefetch = options->prefetch,
                                 .precision = (ls_dtype)options->precision,
                                 .timeout_s = options->timeout_s * LOADER_SHARE_OF_TIMEOUT};
    if (options->pin_memory && !ls_device_memory_is_host(parallel->devices[0])) loading.pin_for = parallel->devices[0];
    ls_status status;
    if (ls_dataset_is_stream(train)) {
        loading.stream.local_batch = (size_t)(options->batch_size / world_size);
        loading.stream.rank = rank;
        loading.stream.world_size = world_size;
        loading.stream.drop_last = options->drop_last;
        status = check_stream(options, world_size, sharing.join);
        if (parallel->rank == 0 && options->shuffle) ls_note("a stream keeps its own order: --shuffle has no effect");
    } else {
        ls_batches_options plan = plan_batches(options, rank, world_size, sharing, train);
        status = open_batches(&feed->batches, options, &plan, sharing.join);
        if (status == LS_OK) feed->steps_per_epoch = ls_batches_per_epoch_of(feed->batches, 0);
        if (status == LS_OK) feed->total_steps = options->epochs * feed->steps_per_epoch;
    }
    if (options->steps > 0) feed->total_steps = options->steps;
    feed->resident = options->resident_batches;
    if (feed->resident > 0 && status == LS_OK) {
        status = ls_parallel_add_places(parallel, feed->resident);
    }
    if (status == LS_OK) status = ls_loader_create(&feed->loader, train, feed->batches, &loading);
    if (status != LS_OK) ls_feed_close(feed);
    return status;
}

ls_status ls_feed_next(ls_feed *feed, const ls_parallel *parallel, const ls_batch **batch) {
    if (feed->resident == 0) return ls_loader_next(feed->loader, batch);
    uint64_t step = parallel->step, resident = (uint64_t)feed->resident;
    ls_batch *kept = &feed->kept[step % resident];
    if (step < resident) {
        ls_status status = ls_loader_next(feed->loader, batch);
        if (status != LS_OK || !*batch) return status;
        *kept = **batch;
    }
    /* a single one is copied to both places of a device that runs behind; until then the loader's memory has it */
    if (step >= (uint64_t)parallel->places.count) {
        kept->inputs = kept->targets = NULL;
        kept->labels = NULL;
    }
    *batch = kept;
    return LS_OK;
}

void ls_feed_close(ls_feed *feed) {
    ls_loader_destroy(feed->loader);
    ls_batches_destroy(feed->batches);
    *feed = (ls_feed){0};
}
