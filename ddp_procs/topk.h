/* DistributedDataParallel with top-k compression: of each gradient only a list of the largest elements is sent, with
 * error feedback. */
#ifndef DDP_TOPK_H
#define DDP_TOPK_H

#include "ddp_procs/distributed.h"

extern const struct ls_mode ddp_topk_mode;

/* As ddp_create, with options->compression, whose fraction is above 0. Cannot be combined with `shards`, nor feedback
 * with loss scaling or find_unused. */
ls_status ddp_create_topk(ls_parallel **out, ls_model *model, const ddp_options *options);

/* The number of elements sent of a tensor of `count`: count x fraction, rounded down, at least 1. */
size_t ddp_topk_count(size_t count, double fraction);

#endif
