/* Pipeline parallelism: a rank of the pipeline axis has a stage, some consecutive blocks of the network, and trains them with all
 * samples; a step's micro-batches are on different stages at the same time (pipeline.c; schedule.h has the orders). On the data
 * axis of the grid each stage has several ranks, which average its gradients. */
#ifndef DDP_PIPELINE_H
#define DDP_PIPELINE_H

#include "ddp_procs/distributed.h"

extern const struct ls_mode ddp_pipeline_mode;

/* Whether stages have room for the schedule's micro-batches in flight. LS_ERR_USAGE with one line. */
ls_status ddp_pipeline_check(const ddp_schedule *schedule);

/* As ddp_create, in the grid options->mesh, with options->stages, schedule and micro_batches: steps have so many (--accumulate).
 * options->shards, a second group of all ranks: the replicas of a stage share its optimizer's state out (ZeRO-1); or NULL.
 * `model` is `placed` and LS_FORWARD_ONLY (model.h), and gets its initial values afterwards, the same on all ranks. What the
 * reducer's options say does not apply. */
ls_status ddp_create_pipeline(ls_parallel **out, ls_model *model, const ddp_options *options);

#endif
