/* ls_loader: the batches of an epoch as host memory, assembled by worker threads while the caller trains.
 *
 *     ls_loader_begin_epoch(loader, epoch, 0);
 *     while ((status = ls_loader_next(loader, &batch)) == LS_OK && batch) train(batch);
 *
 * Batch i is worker i mod workers' to assemble, and batches are handed out in the order of the epoch, whichever worker
 * is ready first: order and content depend neither on `workers` nor on `prefetch`. (A stream is shared out among the
 * workers, so its order does depend on their number: see ls_stream_share.) An epoch may be left in the middle: begin
 * the next one (or the same one again), or destroy the loader. All calls come from one thread. */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/status.h"
#include "common/data/batch.h"
#include "common/data/batches.h"
#include "common/data/dataset.h"
#include "common/device/device.h"

#define LS_LOADER_MAX_WORKERS 64

typedef struct ls_loader ls_loader;

typedef struct ls_loader_options {
    int workers;  /* threads that assemble batches, for the loader's whole life; 0: ls_loader_next does the work */
    int prefetch; /* batches that each worker prepares ahead, >= 1 if there are workers (PyTorch's prefetch_factor) */
    ls_dtype precision;     /* of the inputs: LS_FP32, or a half type, to which samples are rounded */
    double timeout_s;       /* a worker that is silent for longer hangs; 0: 300 */
    ls_stream_share stream; /* what of a stream this rank takes; not used for data with indices */
    /* NULL, or a device for which the batches' memory is page-locked (ls_device_pin_host); borrowed until destroy */
    ls_device *pin_for;
} ls_loader_options;

/* Starts the workers. Memory: workers x prefetch + 1 batches. `dataset` and `batches` are borrowed until destroy and
 * the loader alone may call ls_batches_set_epoch meanwhile; `batches` is NULL for a stream. No epoch has begun: next
 * gives NULL. LS_ERR_INVALID: workers or prefetch out of range, batches for a stream, or a share that cannot be. On
 * failure *out is NULL. */
ls_status ls_loader_create(ls_loader **out, const ls_dataset *dataset, ls_batches *batches,
                           const ls_loader_options *options);

/* Starts that epoch (>= 0); the batch handed out last becomes invalid. Workers finish the batch they are at and drop
 * what was prepared. LS_ERR_TIMEOUT: a worker hangs.
 *
 * It starts at batch `first` (>= 0), which is not 0 for a run that resumes: its batches are those that would have
 * followed, and there are none where the epoch has no more than that. Data with indices is read from there on; of a
 * stream the first batches are read and dropped, which may fail as ls_loader_next does. */
ls_status ls_loader_begin_epoch(ls_loader *loader, int64_t epoch, int64_t first);

/* The next batch, or *batch = NULL at the end of the epoch. It stays valid until the next call of next, begin_epoch or
 * destroy. A failure to read shows at the batch that it belongs to, after the batches before it, as one line: "loader
 * worker 2, epoch 0, batch 17: CAUSE". LS_ERR_TIMEOUT: the worker whose batch is next hangs. After either, *batch is
 * NULL and next gives the same status, without a line, until an epoch is begun. */
ls_status ls_loader_next(ls_loader *loader, const ls_batch **batch);

/* Microseconds that the caller has spent in ls_loader_next waiting for data so far (without workers: assembling it). */
double ls_loader_wait_us(const ls_loader *loader);

/* Stops the workers, also in the middle of an epoch, and frees everything. If one hangs, that is reported after the
 * timeout and the memory, which it still uses, is not freed. NULL is a no-op. */
void ls_loader_destroy(ls_loader *loader);

#endif
