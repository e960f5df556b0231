/* ls_loader: the batches of an epoch as host memory, assembled by a thread of its own while the caller trains.
 *
 *     ls_loader_begin_epoch(loader, epoch);
 *     while ((status = ls_loader_next(loader, &batch)) == LS_OK && batch) train(batch);
 *
 * The order and content of the batches do not depend on `prefetch`. An epoch may be left in the middle: begin the next
 * one (or the same one again), or destroy the loader. All calls come from one thread. */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/data/batches.h"
#include "common/data/dataset.h"

typedef struct ls_loader ls_loader;

typedef struct ls_batch {
    const float *inputs;   /* count x channels x height x width */
    const int64_t *labels; /* count; NULL for regression */
    const float *targets;  /* count x target_count; NULL for classification */
    size_t count;          /* samples of this rank, may be 0 */
    size_t global_count;   /* samples of the step over all ranks */
    int64_t epoch, step;   /* step counts from 0 in each epoch */
} ls_batch;

typedef struct ls_loader_options {
    int workers;  /* threads that assemble batches, for the loader's whole life; 0: ls_loader_next does the work */
    int prefetch; /* batches that each worker prepares ahead, >= 1 if there are workers (PyTorch's prefetch_factor) */
} ls_loader_options;

/* Memory: workers x prefetch + 1 batches. `dataset` and `batches` are borrowed until destroy and the loader alone
 * may call ls_batches_set_epoch meanwhile. No epoch has begun: next gives NULL. On failure *out is NULL. */
ls_status ls_loader_create(ls_loader **out, const ls_dataset *dataset, ls_batches *batches,
                           const ls_loader_options *options);

/* Starts that epoch (>= 0) at its first batch; the batch handed out last becomes invalid.
 * LS_ERR_TIMEOUT: the loader's thread has been silent for 300 s. */
ls_status ls_loader_begin_epoch(ls_loader *loader, int64_t epoch);

/* The next batch, or *batch = NULL at the end of the epoch. It stays valid until the next call of next, begin_epoch or
 * destroy. LS_ERR_TIMEOUT as above, with *batch = NULL. */
ls_status ls_loader_next(ls_loader *loader, const ls_batch **batch);

/* Microseconds that the caller has spent in ls_loader_next waiting for data so far (without workers: assembling it). */
double ls_loader_wait_us(const ls_loader *loader);

/* Stops the thread, also in the middle of an epoch, and frees everything. NULL is a no-op. */
void ls_loader_destroy(ls_loader *loader);

#endif
