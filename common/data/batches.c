#include "common/data/batches.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/chunk.h"
#include "common/base/log.h"
#include "common/data/sampler.h"

struct ls_batches {
    ls_batches_options options;
    ls_sampler *sampler;
    /* the list from which this rank cuts its batches: its own share (strided), or all samples (contiguous) */
    const int64_t *list;
    int64_t list_count;
    int64_t cut; /* list elements of a full step */
};

static bool is_strided(const ls_batches *batches) { return batches->options.shard == LS_SHARD_STRIDED; }

static ls_status check_options(const ls_batches_options *options) {
    if (options->global_batch < 1) {
        return ls_fail(LS_ERR_INVALID, "the batch size must be at least 1, got %" PRId64, options->global_batch);
    }
    if (options->world_size < 1 || options->rank < 0 || options->rank >= options->world_size) {
        return ls_fail(LS_ERR_INVALID, "batches: rank %d is not among %d ranks", options->rank, options->world_size);
    }
    if (options->shard == LS_SHARD_STRIDED && options->global_batch % options->world_size != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "a batch of %" PRId64
                       " samples cannot be shared equally by %d ranks: choose a multiple of %d (--batch-size, or "
                       "--per-device-batch), or --shard contiguous",
                       options->global_batch, options->world_size, options->world_size);
    }
    return LS_OK;
}

ls_status ls_batches_create(ls_batches **out, const ls_batches_options *options) {
    *out = NULL;
    ls_status status = check_options(options);
    if (status != LS_OK) return status;
    ls_batches *batches = calloc(1, sizeof *batches);
    if (!batches) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the list of batches");
    batches->options = *options;
    bool strided = is_strided(batches);
    ls_sampler_options sampler = {
        .dataset_count = options->dataset_count,
        .world_size = strided ? options->world_size : 1,
        .rank = strided ? options->rank : 0,
        .shuffle = options->shuffle,
        .drop_last = options->drop_last,
        .uneven = options->uneven,
        .seed = options->seed,
    };
    status = ls_sampler_create(&batches->sampler, &sampler);
    if (status != LS_OK) {
        ls_batches_destroy(batches);
        return status;
    }
    batches->list = ls_sampler_indices(batches->sampler, &batches->list_count);
    batches->cut = strided ? options->global_batch / options->world_size : options->global_batch;
    *out = batches;
    return LS_OK;
}

void ls_batches_set_epoch(ls_batches *batches, int64_t epoch) {
    if (!batches->options.forget_epoch) ls_sampler_set_epoch(batches->sampler, epoch);
}

int64_t ls_batches_per_epoch(const ls_batches *batches) {
    return ls_batches_per_epoch_of(batches, batches->options.rank);
}

/* The length of the list from which a rank cuts its batches. */
static int64_t list_count_of(const ls_batches *batches, int rank) {
    return ls_sampler_count(batches->sampler, is_strided(batches) ? rank : 0);
}

int64_t ls_batches_per_epoch_of(const ls_batches *batches, int rank) {
    int64_t count = list_count_of(batches, rank);
    bool rest = count % batches->cut != 0;
    return count / batches->cut + (rest && !batches->options.drop_last);
}

size_t ls_batches_max_local_count(const ls_batches *batches) {
    if (ls_batches_per_epoch(batches) == 0) return 0;
    int64_t longest = batches->list_count < batches->cut ? batches->list_count : batches->cut;
    if (is_strided(batches)) return (size_t)longest;
    /* The first rank's piece of a full batch. Not this rank's: of 9 samples on 4 ranks the last rank gets none, of 8
     * two. */
    size_t begin, count;
    ls_chunk((size_t)longest, batches->options.world_size, 0, &begin, &count);
    return count;
}

/* The number of elements that step k takes from a list of list_count. */
static size_t count_at(const ls_batches *batches, int64_t list_count, int64_t k) {
    int64_t left = list_count - k * batches->cut; /* 0 if this rank has the step and that one does not */
    return (size_t)(left < batches->cut ? left : batches->cut);
}

void ls_batches_get(const ls_batches *batches, int64_t k, struct ls_batch_indices *out) {
    const ls_batches_options *options = &batches->options;
    int64_t begin = k * batches->cut;
    size_t step_count = count_at(batches, batches->list_count, k);
    if (is_strided(batches)) {
        size_t global_count = 0;
        for (int rank = 0; rank < options->world_size; rank++) {
            global_count += count_at(batches, list_count_of(batches, rank), k);
        }
        *out = (struct ls_batch_indices){
            .indices = batches->list + begin, .local_count = step_count, .global_count = global_count};
        return;
    }
    size_t piece_begin, piece_count;
    ls_chunk(step_count, options->world_size, options->rank, &piece_begin, &piece_count);
    *out = (struct ls_batch_indices){
        .indices = batches->list + begin + piece_begin, .local_count = piece_count, .global_count = step_count};
}

void ls_batches_destroy(ls_batches *batches) {
    if (!batches) return;
    ls_sampler_destroy(batches->sampler);
    free(batches);
}
