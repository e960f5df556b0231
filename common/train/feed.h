/* ls_feed: the batches of a run: the samples of each rank at each step, and the loader that assembles them. Private to
 * common/train. */
#ifndef LS_TRAIN_FEED_H
#define LS_TRAIN_FEED_H

#include "common/data/loader.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

#define LS_STEPS_UNKNOWN INT64_MAX /* a stream: the run ends when its epochs do */

typedef struct ls_feed {
    ls_batches *batches; /* NULL: a stream */
    ls_loader *loader;
    int64_t total_steps;                 /* of the run: the most of any rank, or LS_STEPS_UNKNOWN */
    int64_t steps_per_epoch;             /* the most of any rank; 0: not known, a stream */
    int resident;                        /* batches that stay on the devices; 0: each step loads its own */
    ls_batch kept[LS_MOST_BATCH_PLACES]; /* the resident ones */
} ls_feed;

/* Checks, without opening anything, that ls_feed_open will succeed on every rank, and computes the steps of an epoch
 * (0: not known, a stream). Refuses batches that cannot be divided among the ranks, ranks that would run out of them at
 * different steps without --join, and an overflowing number of steps. */
ls_status ls_feed_check(const ls_train_options *options, int world_size, ls_sharing sharing, const ls_dataset *train,
                        int64_t *steps_per_epoch);

/* ls_train_describe_share. */
ls_status ls_feed_describe(const ls_train_options *options, int rank, int world_size, ls_sharing sharing,
                           const ls_dataset *train, char *text, size_t capacity);

/* Opens the feed of this rank of `parallel`; with options->pin_memory, batches are in memory pinned for its first
 * device, to which they are copied. With options->resident_batches places are added to the parallel's. `train` and the
 * device are borrowed until close. On failure there is nothing to close. */
ls_status ls_feed_open(ls_feed *feed, const ls_train_options *options, ls_parallel *parallel, ls_sharing sharing,
                       const ls_dataset *train);

/* Returns the batch of the parallel's step, from ls_loader_next. With K resident batches those of the first K steps are
 * loaded, over as many epochs as needed; from then on the loader is not called, no epoch ends, and step s gets the
 * batch of step s mod K, without inputs and answers once every place of the devices' batch has its own. */
ls_status ls_feed_next(ls_feed *feed, const ls_parallel *parallel, const ls_batch **batch);

/* A zero-filled feed is a no-op. */
void ls_feed_close(ls_feed *feed);

#endif
