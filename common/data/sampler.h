/* ls_sampler: the samples of a rank in an epoch and their order, equal to PyTorch's DistributedSampler index for index
 * (docs/pytorch.md#sampler).
 *
 * All ranks draw the same order (a permutation seeded with seed + epoch, or 0 .. n-1) and rank r takes elements r, r +
 * W, r + 2W, ... So that every rank gets the same number, the order's length is first made a multiple of W: its
 * beginning is repeated at the end or, with drop_last, its end is dropped. With `uneven`, which PyTorch does not have,
 * the order is not changed: the first n mod W ranks then get one sample more than the others. One thread at a time. */
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
    bool uneven;   /* repeat no samples; no effect with drop_last */
    uint64_t seed; /* the same on all ranks; (seed 0, epoch 1) and (seed 1, epoch 0) give the same order */
} ls_sampler_options;

/* Starts at epoch 0. LS_ERR_INVALID for a rank or count out of range. On failure *out is NULL. */
ls_status ls_sampler_create(ls_sampler **out, const ls_sampler_options *options);

/* Switches to the list of that epoch. Epochs count from 0, here and in error messages; a report's lines count from 1.
 * Without this call each epoch repeats the order of epoch 0. */
void ls_sampler_set_epoch(ls_sampler *sampler, int64_t epoch);

/* The number of samples of a rank: the same in each epoch and, unless `uneven`, for each rank. */
int64_t ls_sampler_count(const ls_sampler *sampler, int rank);

/* This rank's indices and how many. Valid until the next set_epoch. */
const int64_t *ls_sampler_indices(const ls_sampler *sampler, int64_t *count);

/* NULL is a no-op. */
void ls_sampler_destroy(ls_sampler *sampler);

#endif
