/* Pipeline parallelism: each rank of the pipeline axis has a stage, some consecutive blocks of the network, and trains
 * it with all samples; the micro-batches of a step are on different stages at the same time (pipeline.c; schedules:
 * schedule.h). Along the data axis each stage has several ranks, which average its gradients. */
#ifndef DDP_PIPELINE_H
#define DDP_PIPELINE_H

#include "ddp_procs/distributed.h"

extern const struct ls_mode ddp_pipeline_mode;

/* Checks that stages have room for the schedule's micro-batches in flight. LS_ERR_USAGE with one line. */
ls_status ddp_pipeline_check(const ddp_schedule *schedule);

/* As ddp_create, on the mesh options->mesh, with options->stages, schedule and micro_batches (--accumulate).
 * options->shards, a second group of all ranks: the optimizer state of a stage is sharded over its replicas (ZeRO-1);
 * or NULL. `model` is `placed` and LS_FORWARD_ONLY (model.h); initialise it afterwards, equally on all ranks. The
 * reducer's options are not used. */
ls_status ddp_create_pipeline(ls_parallel **out, ls_model *model, const ddp_options *options);

#endif
