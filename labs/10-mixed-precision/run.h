/* Ranks that train a small model in fp16 with a loss scale that is too large at first. One rank's samples make larger
 * gradients than those of the others: in some steps only that rank has infinities. */
#ifndef LABS_10_MIXED_PRECISION_RUN_H
#define LABS_10_MIXED_PRECISION_RUN_H

#include "common/optim/optimizer.h"
#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { RUN_RANKS = 3, RUN_STEPS = 10, RUN_ROWS = 4, RUN_INPUTS = 12, RUN_OUTPUTS = 5, RUN_WEIGHTS = 1 << 12 };

/* One rank's inputs, drawn before the ranks start, and its results, read when they have ended. */
struct rank {
    float x[RUN_STEPS][RUN_ROWS * RUN_INPUTS];
    int64_t labels[RUN_STEPS][RUN_ROWS];
    /* seen */
    struct ls_update_state records[RUN_STEPS];
    struct ls_scaler_state scaler;
    float weights[RUN_WEIGHTS];
    size_t weight_count;
};

struct run {
    int ranks;
    ls_optimizer_kind kind;
    double clip_norm;
    float start[RUN_WEIGHTS]; /* drawn: the weights at the beginning */
    struct rank rank[RUN_RANKS];
};

/* Draws the inputs of all ranks and trains them. Returns the first failure in rank order. */
ls_status run_all(probe *p, struct run *run, const char *streams);

#endif
