/* sampler — an epoch's order, and one rank's part of it (the rule and its padding: sampler.h).
 *   idea  : all ranks draw the same permutation from the same seed, so nothing has to be sent
 *   cost  : the whole order, on every rank, once an epoch */
#include "common/data/sampler.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/random.h"

struct ls_sampler {
    ls_sampler_options options;
    int64_t count;    /* of this rank */
    int64_t *order;   /* dataset_count: the epoch's order, the same on all ranks */
    int64_t *indices; /* count */
};

/* Samples of a rank: floor(n / W) with drop_last, else ceil(n / W); uneven: as many as there are at rank, rank + W,
 * ... */
static int64_t count_of(const ls_sampler_options *options, int rank) {
    int64_t whole = options->dataset_count / options->world_size;
    int64_t rest = options->dataset_count % options->world_size;
    if (options->drop_last) return whole;
    return whole + (options->uneven ? rank < rest : rest != 0);
}

static ls_status check_options(const ls_sampler_options *options) {
    if (options->world_size < 1) {
        return ls_fail(LS_ERR_INVALID, "sampler: world size %d is out of range; expected at least 1",
                       options->world_size);
    }
    if (options->rank < 0 || options->rank >= options->world_size) {
        return ls_fail(LS_ERR_INVALID, "sampler: rank %d is out of range; expected 0 to %d", options->rank,
                       options->world_size - 1);
    }
    if (options->dataset_count < 0 || options->dataset_count > INT64_MAX / (int64_t)sizeof(int64_t) / 2) {
        return ls_fail(LS_ERR_INVALID, "sampler: dataset length %" PRId64 " is out of range", options->dataset_count);
    }
    return LS_OK;
}

/* Not one more than needed, so that AddressSanitizer sees an access past the end; malloc(0) may give NULL. */
static int64_t *alloc_indices(int64_t count) { return malloc((size_t)(count > 0 ? count : 1) * sizeof(int64_t)); }

ls_status ls_sampler_create(ls_sampler **out, const ls_sampler_options *options) {
    *out = NULL;
    ls_status status = check_options(options);
    if (status != LS_OK) return status;
    ls_sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler) {
        sampler->options = *options;
        sampler->count = count_of(options, options->rank);
        sampler->order = alloc_indices(options->dataset_count);
        sampler->indices = alloc_indices(sampler->count);
    }
    if (!sampler || !sampler->order || !sampler->indices) {
        ls_sampler_destroy(sampler);
        return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the order of %" PRId64 " samples",
                       options->dataset_count);
    }
    ls_sampler_set_epoch(sampler, 0);
    *out = sampler;
    return LS_OK;
}

void ls_sampler_set_epoch(ls_sampler *sampler, int64_t epoch) {
    const ls_sampler_options *options = &sampler->options;
    int64_t n = options->dataset_count;
    if (options->shuffle) {
        ls_generator generator;
        ls_generator_seed(&generator, options->seed + (uint64_t)epoch);
        ls_randperm(&generator, n, sampler->order);
    } else {
        for (int64_t i = 0; i < n; i++) sampler->order[i] = i;
    }
    /* padding: beyond its end the order starts again, so the last ranks get the first samples of it once more */
    for (int64_t i = 0; i < sampler->count; i++) {
        sampler->indices[i] = sampler->order[(options->rank + i * options->world_size) % n];
    }
}

int64_t ls_sampler_count(const ls_sampler *sampler, int rank) { return count_of(&sampler->options, rank); }

const int64_t *ls_sampler_indices(const ls_sampler *sampler, int64_t *count) {
    *count = sampler->count;
    return sampler->indices;
}

void ls_sampler_destroy(ls_sampler *sampler) {
    if (!sampler) return;
    free(sampler->order);
    free(sampler->indices);
    free(sampler);
}
