/* Units (FSDP's term): the parameters of a block, of which each rank keeps a slice, and which all ranks gather when a
 * pass enters the block (units.c). They are what ZeRO-3 adds to ZeRO-2.
 *
 * Threads: as the model's. */
#ifndef DDP_UNITS_H
#define DDP_UNITS_H

#include "common/comm/comm.h"
#include "common/nn/model.h"
#include "common/seam/parallel.h"

typedef struct ddp_units ddp_units;

enum { DDP_MOST_PREFETCHED = 2 };

/* Shards the parameters of a model without values (`placed`, model.h): allocates slices of zeros and hooks into its
 * passes. Initialise or load the model afterwards, equally on all ranks. `beside`: a second group of the same ranks,
 * for the compute stream. Slots are widened, as by ls_parameters_widen_slots. Collective; all are borrowed until
 * destroy. On failure *out is NULL. */
ls_status ddp_units_create(ddp_units **out, ls_comm *comm, ls_comm *beside, ls_model *model,
                           struct ls_phase_clock *clock, int prefetch);
/* Afterwards the model has no values. NULL is a no-op. */
void ddp_units_destroy(ddp_units *units);

/* Bytes gathered in a step of `micro_batches` micro-batches, including this rank's own slices. */
uint64_t ddp_units_step_nbytes(const ddp_units *units, int micro_batches);

/* A mode's find_nonfinite (mode.h), called between loss and backward: runs through the gathers of the backward that the
 * other ranks are in, and searches each unit. (units_search.c) */
ls_status ddp_units_find_nonfinite(ls_parallel *p, char *place, size_t capacity);

#endif
