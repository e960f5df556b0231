/* What a run says of itself before it begins: what the options come to on these devices. Used by the loop, on
 * rank 0. */
#ifndef LS_REPORT_ANNOUNCE_H
#define LS_REPORT_ANNOUNCE_H

#include <stdio.h>

#include "common/data/batches.h"
#include "common/seam/options.h"
#include "common/seam/parallel.h"

struct ls_announcement {
    const ls_train_options *options; /* that have passed the check */
    const ls_parallel *parallel;     /* its step: how many have been taken before */
    const ls_schedule *schedule;
    const ls_batches *batches; /* rank 0's; NULL: a stream */
    int64_t dataset_count;     /* training samples; of a stream not used */
};

/* A note on stderr for each option without effect; then, unless quiet, a line for each of: the batch, the learning
 * rate, the samples, the precision (unless fp32), and the bytes that travel (where there are several devices). */
void ls_announce(FILE *file, const struct ls_announcement *announcement);

/* The bytes that device `local` of this process moves in a full step of a run on several devices, phase by phase, as
 * its clock will count them (phase.h): its part of the batch, whatever travels once a step, and no last, shorter step.
 * (Nobody counts what batch norms with --sync-bn tell each other, nor --find-unused and --join: some bytes for each
 * channel, parameter and rank.) */
void ls_predict_bytes(const ls_parallel *parallel, const ls_train_options *options, int local,
                      uint64_t bytes[LS_PHASE_COUNT]);

#endif
