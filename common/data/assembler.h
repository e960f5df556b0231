/* ls_assembler: fills batches from a dataset, by index or from a share of a stream; each worker of a loader has one.
 * Private to common/data. */
#ifndef LS_DATA_ASSEMBLER_H
#define LS_DATA_ASSEMBLER_H

#include "common/base/dtype.h"
#include "common/data/batch.h"
#include "common/data/batches.h"
#include "common/data/dataset.h"
#include "common/device/device.h"

/* A batch's memory, which batch it is, and what became of it. */
typedef struct ls_batch_slot {
    int worker;      /* the loader's: who is to fill it, ... */
    uint32_t ticket; /* ... and the value of that worker's `filled` that says it is */
    ls_batch batch;  /* given: epoch, and (by index) step; filled in: count and global_count */
    uint64_t pass;   /* given: a new number for each epoch that is begun, also if it is begun again */
    ls_status status;
    bool end;     /* (stream) the share had no batch left */
    void *inputs; /* of the loader's precision, or tokens */
    int64_t *labels;
    float *targets;
    ls_device *pinned_for; /* the three are page-locked for this device; NULL: they are not */
} ls_batch_slot;

/* Room for `sample_count` samples with inputs in `precision`, page-locked for `pin_for`, if that is not NULL. false: no
 * memory. A slot that is all zero may be freed. */
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
    float
        *samples; /* in half precision, unless they are tokens: room for some samples before they are rounded; owned */
    /* the pass in progress */
    uint64_t pass;
    ls_cursor *cursor; /* (stream) NULL before the first batch and after the last */
    bool ended;
    ls_status status;
    char cause[512]; /* the error line of the first failure; empty if nothing was said */
} ls_assembler;

/* Makes room for what `precision` needs. False: no memory. */
bool ls_assembler_alloc(ls_assembler *assembler);

/* Fills the slot; its status and end say how it went. After a failure, and at the end of a share, the following slots
 * of the pass end the same way without any work. Errors are kept in `cause`, not printed. */
void ls_assembler_fill(ls_assembler *assembler, ls_batch_slot *slot);

/* Ends a pass in the middle. */
void ls_assembler_release(ls_assembler *assembler);

#endif
