/* The announcement of a run before its first step: the effect of the options on these devices. Used by the loop, on
 * rank 0. */
#ifndef LS_REPORT_ANNOUNCE_H
#define LS_REPORT_ANNOUNCE_H

#include <stdio.h>

#include "common/data/batches.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

struct ls_run_announcement {
    const ls_train_options *options; /* checked already */
    const ls_parallel *parallel;     /* its `step` counts the steps already done */
    const ls_schedule *schedule;
    const ls_batches *batches; /* rank 0's; NULL: a stream */
    int64_t dataset_count;     /* training samples; of a stream not used */
};

/* A note on stderr for each option without effect; then, unless quiet, a line for each of: the batch, the learning
 * rate, the samples, the precision (unless fp32), and, with several devices, the bytes sent per step. */
void ls_announce(FILE *file, const struct ls_run_announcement *announcement);

#endif
