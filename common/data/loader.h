/* ls_loader: the batches of an epoch as host memory, assembled by worker threads while the caller trains.
 *
 *     ls_loader_begin_epoch(loader, epoch, 0);
 *     while ((status = ls_loader_next(loader, &batch)) == LS_OK && batch) train(batch);
 *
 * Worker i mod workers assembles batch i, and batches are returned in the order of the epoch, whichever worker finishes
 * first: order and content depend neither on `workers` nor on `prefetch`. (A stream is divided among the workers, so
 * its order does depend on their number: see ls_stream_share.) An epoch may be left in the middle: begin the next one
 * (or the same one again), or destroy the loader. All calls come from one thread. */
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
    ls_dtype precision;     /* of the inputs: LS_FP32, or LS_FP16 or LS_BF16, to which samples are rounded */
    double timeout_s;       /* after which a silent worker counts as hung; 0: 300 */
    ls_stream_share stream; /* this rank's share of a stream; not used for data with indices */
    /* NULL, or a device for which the batches' memory is pinned (ls_device_pin_host); borrowed until destroy */
    ls_device *pin_for;
} ls_loader_options;

/* Starts the workers. Memory: workers x prefetch + 1 batches. `dataset` and `batches` are borrowed until destroy and
 * the loader alone may call ls_batches_set_epoch meanwhile; `batches` is NULL for a stream. Until an epoch is begun,
 * ls_loader_next gives NULL. LS_ERR_INVALID: workers or prefetch out of range, batches for a stream, or an invalid
 * share. On failure *out is NULL. */
ls_status ls_loader_create(ls_loader **out, const ls_dataset *dataset, ls_batches *batches,
                           const ls_loader_options *options);

/* Starts that epoch (>= 0); the batch returned last becomes invalid. Workers finish their current batch and drop
 * prepared ones. LS_ERR_TIMEOUT: a worker hangs.
 *
 * The epoch starts at batch `first` (>= 0), which is not 0 for a run that resumes; there are no batches if the epoch
 * has no more than `first`. Data with indices is read from there on; a stream's first batches are read and dropped,
 * which may fail as ls_loader_next does. */
ls_status ls_loader_begin_epoch(ls_loader *loader, int64_t epoch, int64_t first);

/* The next batch, or *batch = NULL at the end of the epoch. It stays valid until the next call of next, begin_epoch or
 * destroy. A read error is returned at its batch, after the batches before it, with one line: "loader worker 2, epoch
 * 0, batch 17: CAUSE". LS_ERR_TIMEOUT: the worker whose batch is next hangs. After either, *batch is NULL and next
 * gives the same status, without a line, until an epoch is begun. */
ls_status ls_loader_next(ls_loader *loader, const ls_batch **batch);

/* Total microseconds that the caller has waited for data in ls_loader_next (without workers: has assembled data). */
double ls_loader_wait_us(const ls_loader *loader);

/* Stops the workers, also in the middle of an epoch, and frees everything. If one hangs, that is reported after the
 * timeout and the memory, which it still uses, is not freed. NULL is a no-op. */
void ls_loader_destroy(ls_loader *loader);

#endif
