/* ZeRO: DistributedDataParallel with sharded optimizer state, gradients and parameters (docs/pytorch.md#shards).
 *
 * Stage 1: each rank has the optimizer state of 1/W of the parameters, updates these, and gathers the others. Stage 2:
 * it also keeps only the gradients of its 1/W. Stage 3: it also keeps only its 1/W of the parameters, which are
 * gathered block by block (units.h). Buffers are replicated. */
#ifndef DDP_SHARDED_H
#define DDP_SHARDED_H

#include "ddp_procs/distributed.h"

extern const struct ls_mode ddp_zero1_mode, ddp_zero2_mode, ddp_zero3_mode;

/* As ddp_create, with options->shards. The slots of the model's parameters are widened (parameters.h). Stage 2 needs overlap
 * and has no find_unused. */
ls_status ddp_create_zero1(ls_parallel **out, ls_model *model, const ddp_options *options);
ls_status ddp_create_zero2(ls_parallel **out, ls_model *model, const ddp_options *options);
/* Create the model without values (`placed`, model.h); initialise or load it afterwards, equally on all ranks. */
ls_status ddp_create_zero3(ls_parallel **out, ls_model *model, const ddp_options *options);

#endif
