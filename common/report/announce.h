/* What a run says of itself before it begins: what the options come to on these devices. Used by the loop, on
 * rank 0. */
#ifndef LS_REPORT_ANNOUNCE_H
#define LS_REPORT_ANNOUNCE_H

#include <stdio.h>

#include "common/data/batches.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

struct ls_run_announcement {
    const ls_train_options *options; /* that have passed the check */
    const ls_parallel *parallel;     /* its step: how many have been taken before */
    const ls_schedule *schedule;
    const ls_batches *batches; /* rank 0's; NULL: a stream */
    int64_t dataset_count;     /* training samples; of a stream not used */
};

/* A note on stderr for each option without effect; then, unless quiet, a line for each of: the batch, the learning
 * rate, the samples, the precision (unless fp32), and the bytes that travel (where there are several devices). */
void ls_announce(FILE *file, const struct ls_run_announcement *announcement);

#endif
