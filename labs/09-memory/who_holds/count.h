/* Counts the memory of devices: lockstep's own step runs on meta devices, which count allocations without making
 * them. */
#ifndef LABS_09_MEMORY_WHO_HOLDS_COUNT_H
#define LABS_09_MEMORY_WHO_HOLDS_COUNT_H

#include "common/optim/optimizer.h"
#include "labs/09-memory/who_holds/predict.h"

enum { HOLDS_MOST_DEVICES = 64 };

/* The sizes of a model (as --model takes it), counted on one device with batches of 1 and of 2 samples. LS_ERR_USAGE
 * for an invalid description, and for a model with parameters that a pass may not use (branched). */
ls_status holds_count_sizes(struct holds_sizes *sizes, const char *model);

/* The memory of each of run->devices devices after two steps; of DDP only rank 0 runs, since all ranks are alike.
 * run->moments and run->sizes are not read. `held` has run->devices entries. LS_ERR_USAGE if the mode refuses. */
ls_status holds_count(struct holds_bytes *held, const struct holds_run *run, const char *model,
                      const ls_optimizer_options *optimizer);

#endif
