/* DistributedDataParallel whose ranks share out what they would all hold alike: ZeRO (docs/pytorch.md#shards).
 *
 * Stage 1: each rank has the optimizer's state of 1/W of the parameters, updates these, and gathers the others. Stage 2: of
 * the gradients, too, it keeps no more than these; stage 3: of the parameters, too, which are gathered block by block (units.h).
 * Buffers stay whole on every rank. */
#ifndef DDP_SHARDED_H
#define DDP_SHARDED_H

#include "ddp_procs/distributed.h"

extern const struct ls_mode ddp_zero1_mode, ddp_zero2_mode, ddp_zero3_mode;

/* As ddp_create, with options->shards. The slots of the model's parameters are widened (parameters.h). Stage 2 needs overlap
 * and has no find_unused. */
ls_status ddp_create_zero1(ls_parallel **out, ls_model *model, const ddp_options *options);
ls_status ddp_create_zero2(ls_parallel **out, ls_model *model, const ddp_options *options);
/* The model comes without values (`placed`, model.h), and is initialised or loaded afterwards, on all ranks alike. */
ls_status ddp_create_zero3(ls_parallel **out, ls_model *model, const ddp_options *options);

#endif
