/* ls_batches: the samples of this rank at each step of an epoch. There are two rules for dividing a global batch:
 *
 *   strided      PyTorch's rule for processes: the rank's DistributedSampler list, cut into batches of global_batch /
 *                W. Every rank gets the same number of samples at each step; a few samples are seen twice in an epoch
 *                (or, with drop_last, not at all).
 *   contiguous   DataParallel's rule: batch k is [k B, (k+1) B) of one global order (the sampler's for one rank), and
 *                rank r takes piece r of it by torch.chunk's rule. No sample is seen twice; pieces may differ in length
 *                and the last ranks' may be empty.
 *
 * The two rules give different samples at step k, and so different weights after it; contiguous gives those of
 * dp_train. With world_size 1 both give the same batches. One thread at a time. */
#ifndef LS_DATA_BATCHES_H
#define LS_DATA_BATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct ls_batches ls_batches;

typedef enum ls_shard { LS_SHARD_STRIDED, LS_SHARD_CONTIGUOUS } ls_shard;

/* How samples are divided among the ranks of a run. Zero-filled: strided, evenly. */
typedef struct ls_sharing {
    ls_shard shard;
    bool uneven; /* strided without repeated samples: some ranks get one sample less than others */
    bool join;   /* ranks may run out of samples at different steps (docs/pytorch.md#join) */
} ls_sharing;

typedef struct ls_batches_options {
    int64_t dataset_count;
    int64_t global_batch; /* samples of a step over all ranks, >= 1 */
    int world_size, rank;
    ls_shard shard;
    bool shuffle;
    bool drop_last; /* drop the last, shorter batch, and (strided) cut the order to a multiple of world_size */
    /* strided: repeat no samples; the last ranks may get one sample less, and so one step less. No effect if drop_last,
     * nor on contiguous shards, which never repeat samples */
    bool uneven;
    bool forget_epoch; /* ls_batches_set_epoch has no effect: each epoch has the order of epoch 0 */
    uint64_t seed;
} ls_batches_options;

struct ls_batch_indices {
    const int64_t *indices; /* local_count dataset indices; valid until the next set_epoch */
    size_t local_count;     /* samples of this rank, may be 0 (contiguous) */
    size_t global_count;    /* samples of the step over all ranks that have it, > 0 */
};

/* Starts at epoch 0. LS_ERR_INVALID: an option out of range, or (strided) a global batch that world_size does not
 * divide. On failure *out is NULL. */
ls_status ls_batches_create(ls_batches **out, const ls_batches_options *options);

/* Switches to the batches of that epoch (>= 0). With forget_epoch a no-op, as in a script that never calls
 * set_epoch. */
void ls_batches_set_epoch(ls_batches *batches, int64_t epoch);

/* Steps of an epoch on this rank: the same in each epoch and, unless `uneven`, on all ranks; may be 0 (drop_last and
 * less than one full batch). */
int64_t ls_batches_per_epoch(const ls_batches *batches);

/* The same of any rank. */
int64_t ls_batches_per_epoch_of(const ls_batches *batches, int rank);

/* The largest local_count of any step. */
size_t ls_batches_max_local_count(const ls_batches *batches);

/* Batch k of the epoch, 0 <= k < ls_batches_per_epoch. */
void ls_batches_get(const ls_batches *batches, int64_t k, struct ls_batch_indices *out);

/* NULL is a no-op. */
void ls_batches_destroy(ls_batches *batches);

#endif
