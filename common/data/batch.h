/* A batch in host memory, as the loader returns it, and the rule that assigns a stream's samples to ranks and
 * workers. */
#ifndef LS_DATA_BATCH_H
#define LS_DATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_batch {
    const void *inputs;    /* count x rows x channels x height x width, of the loader's precision; or int32 tokens */
    const int64_t *labels; /* count x rows; NULL for regression */
    const float *targets;  /* count x target_count; NULL for classification */
    size_t count;          /* samples of this rank, may be 0 */
    size_t global_count;   /* samples of the step over all ranks; 0: unknown (a stream of several ranks) */
    int64_t epoch, step;   /* step counts from 0 in each epoch */
} ls_batch;

/* Rank r's worker k of K reads samples r K + k, r K + k + W K, ... of a stream and cuts them into batches of its own,
 * which are returned round robin over the workers that still have some: the last batch of each worker may be short,
 * even in the middle of the epoch. Without threads there is one worker, the caller. 12 samples in batches of 2 on 2
 * ranks with 2 workers: rank 0 gets [0,4] [1,5] [8] [9], rank 1 [2,6] [3,7] [10] [11]. */
typedef struct ls_stream_share {
    size_t local_batch; /* samples of a batch on this rank, >= 1 */
    int rank, world_size;
    bool drop_last; /* each worker drops its last, shorter batch */
} ls_stream_share;

#endif
