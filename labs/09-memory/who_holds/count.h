/* What devices hold, counted: the product's own step runs on meta devices, which have no memory and count it. */
#ifndef LABS_09_MEMORY_WHO_HOLDS_COUNT_H
#define LABS_09_MEMORY_WHO_HOLDS_COUNT_H

#include "common/optim/optimizer.h"
#include "labs/09-memory/who_holds/predict.h"

enum { HOLDS_MOST_DEVICES = 64 };

/* The sizes of a model (as --model takes it), counted on one device with batches of 1 and of 2 samples. LS_ERR_USAGE
 * for a description that is none, and for a model with parameters that no pass takes (branched). */
ls_status holds_count_sizes(struct holds_sizes *sizes, const char *model);

/* What each of run->devices devices holds after two steps; of DDP rank 0 runs, and stands for all. run->moments and
 * run->sizes are not read. `held` has run->devices entries. LS_ERR_USAGE where the mode refuses. */
ls_status holds_count(struct holds_bytes *held, const struct holds_run *run, const char *model,
                      const ls_optimizer_options *optimizer);

#endif
