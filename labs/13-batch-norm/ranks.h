/* A batch norm layer on each of several ranks, which normalise together, and its results. */
#ifndef LABS_13_BATCH_NORM_RANKS_H
#define LABS_13_BATCH_NORM_RANKS_H

#include "common/base/dtype.h"
#include "common/comm/comm.h"
#include "labs/course/probe/probe.h"

enum { MOST_RANKS = 9, MOST_STEPS = 3 };

/* The inputs and outputs of one rank's layer, step by step, in arrays of exactly the size needed. */
struct bn_rank {
    void *x[MOST_STEPS], *y[MOST_STEPS], *dy[MOST_STEPS], *dx[MOST_STEPS]; /* of bn_run.dtype */
    float *parameters, *gradients, *buffers;                               /* 2 x channels each */
    float *seen_gradients[MOST_STEPS], *seen_buffers[MOST_STEPS];          /* their values after the step */
    ls_comm_traffic traffic[2 * MOST_STEPS];                               /* after each forward and each backward */
    ls_status status;                                                      /* of the device, at the end */
};

struct bn_run {
    int ranks, steps, channels, height, width;
    size_t batch[MOST_STEPS][MOST_RANKS];
    bool relu, accumulate, apart; /* apart: each rank's values have a different range */
    bool forward_only;
    ls_dtype dtype;
    const char *streams; /* as in LS_CPU_STREAMS */
    ls_status break_gather, break_reduce;
    struct bn_rank rank[MOST_RANKS];
};

/* Draws values, and runs the layer forward and backward in each step, or forward_only. Reads the first members; bn_release
 * frees the rest. Statistics are merged by the probe's own function, so that a wrong merge fails only the first check.
 * A rank's failure is in its status; a failure of the setup ends the probe. */
void bn_run(probe *p, struct bn_run *run);
void bn_release(struct bn_run *run);

/* Values of one rank in one step. */
size_t bn_count(const struct bn_run *run, int step, int rank);

#endif
