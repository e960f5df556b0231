/* ls_sampler: which samples a rank sees in an epoch and in which order, index for index PyTorch's
 * DistributedSampler (docs/pytorch.md#sampler).
 *
 * All ranks draw the same order (a permutation seeded with seed + epoch, or 0 .. n-1) and rank r takes elements r, r +
 * W, r + 2W, ... So that every rank gets the same number, the order is first made a multiple of W long: its beginning
 * is repeated at the end, or, with drop_last, its end is cut off. Or it is left as it is (`uneven`, which PyTorch's has
 * not): then the first n mod W ranks get one sample more than the others. One thread at a time. */
#ifndef LS_DATA_SAMPLER_H
#define LS_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct ls_sampler ls_sampler;

typedef struct ls_sampler_options {
    int64_t dataset_count;
    int world_size, rank; /* 0 <= rank < world_size */
    bool shuffle;         /* false: the order 0 .. n-1 in each epoch */
    bool drop_last;
    bool uneven;   /* repeat no samples; nothing to do if drop_last */
    uint64_t seed; /* the same on all ranks; note that (seed 0, epoch 1) and (seed 1, epoch 0) are one order */
} ls_sampler_options;

/* Starts at epoch 0. LS_ERR_INVALID for a rank or count out of range. On failure *out is NULL. */
ls_status ls_sampler_create(ls_sampler **out, const ls_sampler_options *options);

/* Makes the list of that epoch. Epochs count from 0, here and in error messages; a report's lines count from 1. Without
 * this call each epoch would repeat the order of epoch 0. */
void ls_sampler_set_epoch(ls_sampler *sampler, int64_t epoch);

/* How many samples a rank gets: the same number in each epoch and, unless `uneven`, for each rank. */
int64_t ls_sampler_count(const ls_sampler *sampler, int rank);

/* This rank's indices and how many. Valid until the next set_epoch. */
const int64_t *ls_sampler_indices(const ls_sampler *sampler, int64_t *count);

/* NULL is a no-op. */
void ls_sampler_destroy(ls_sampler *sampler);

#endif
