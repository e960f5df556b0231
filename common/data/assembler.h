/* ls_assembler: fills batches from a dataset, by index or from a rank's share of a stream; each worker of a loader has
 * one. Private to common/data. */
#ifndef LS_DATA_ASSEMBLER_H
#define LS_DATA_ASSEMBLER_H

#include "common/base/dtype.h"
#include "common/data/batch.h"
#include "common/data/batches.h"
#include "common/data/dataset.h"
#include "common/device/device.h"

/* A batch's memory, its position, and the status of filling it. */
typedef struct ls_batch_slot {
    int worker;      /* for the loader: the worker that fills it, ... */
    uint32_t ticket; /* ... and the value of that worker's `filled` that marks it as filled */
    ls_batch batch;  /* given: epoch, and (by index) step; filled in: count and global_count */
    uint64_t pass;   /* given: a new number each time an epoch is begun, even the same epoch again */
    ls_status status;
    bool end;     /* (stream) the share had no batch left */
    void *inputs; /* of the loader's precision, or tokens */
    int64_t *labels;
    float *targets;
    ls_device *pinned_for; /* the three are pinned for this device; NULL: not pinned */
} ls_batch_slot;

/* Allocates room for `sample_count` samples with inputs in `precision`, pinned for `pin_for` unless that is NULL.
 * False: no memory. A zero-filled slot may be freed. */
bool ls_batch_slot_alloc(ls_batch_slot *slot, const ls_sample_spec *spec, size_t sample_count, ls_dtype precision,
                         ls_device *pin_for);
void ls_batch_slot_free(ls_batch_slot *slot);

typedef struct ls_assembler {
    /* constant */
    const ls_dataset *dataset;
    const ls_batches *batches; /* NULL: a stream */
    ls_stream_share stream;
    ls_dtype precision;
    int worker, workers; /* of this rank */
    float *samples;      /* fp16 and bf16, except for tokens: room for some samples before rounding; owned */
    /* the pass in progress */
    uint64_t pass;
    ls_cursor *cursor; /* (stream) NULL before the first batch and after the last */
    bool ended;
    ls_status status;
    char cause[512]; /* the error message of the first failure, or empty */
} ls_assembler;

/* Allocates the memory that `precision` needs. False: no memory. */
bool ls_assembler_alloc(ls_assembler *assembler);

/* Fills the slot and sets its status and end. After a failure, and at the end of a share, the later slots of the pass
 * get the same status without any work. Errors are kept in `cause`, not printed. */
void ls_assembler_fill(ls_assembler *assembler, ls_batch_slot *slot);

/* Ends a pass in the middle. */
void ls_assembler_release(ls_assembler *assembler);

#endif
