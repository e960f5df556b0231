/* DistributedDataParallel whose gradients travel as lists of their largest elements: top-k, with error feedback. */
#ifndef DDP_TOPK_H
#define DDP_TOPK_H

#include "ddp_procs/distributed.h"

extern const struct ls_mode ddp_topk_mode;

/* As ddp_create, with options->compression, whose fraction is above 0. Not with `shards`; with feedback neither with loss
 * scaling nor with find_unused. */
ls_status ddp_create_topk(ls_parallel **out, ls_model *model, const ddp_options *options);

/* The elements of a tensor of `count` that are sent: fraction of them, rounded down, and at least one. */
size_t ddp_topk_count(size_t count, double fraction);

#endif
