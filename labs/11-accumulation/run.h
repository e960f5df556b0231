/* Ranks that train a small model in micro-batches, by DDP or, in one process, by DataParallel; and what each of them
 * sent. */
#ifndef LABS_11_ACCUMULATION_RUN_H
#define LABS_11_ACCUMULATION_RUN_H

#include "labs/course/probe/crew.h"
#include "labs/course/probe/probe.h"

enum { RUN_RANKS = 3, RUN_STEPS = 3, RUN_PIECES = 6, RUN_ROWS = 9, RUN_STATE = 1 << 15 };

/* Collectives of a micro-batch, from prepare to the update. */
struct sent {
    int reduces, broadcasts;
    size_t floats; /* all-reduced */
};

/* The inputs and results of a rank, or of DataParallel's one process. */
struct rank {
    float *start, *x[RUN_STEPS]; /* drawn */
    int64_t labels[RUN_STEPS][RUN_RANKS * RUN_ROWS];
    size_t rows[RUN_STEPS];
    /* seen */
    struct sent sent[RUN_STEPS][RUN_PIECES];
    uint64_t all_reduced, reduced; /* total bytes by the clocks; `reduced`: DataParallel's, to device 0 */
    float losses[RUN_STEPS];
    float *gradients, *state; /* at the end */
    size_t gradient_count, state_count;
};

struct run {
    const char *model, *streams;
    int ranks;    /* of DDP; or devices of DataParallel */
    bool threads; /* DataParallel */
    int steps, pieces;
    size_t rows;      /* the maximum of a rank in a step; in the last step fewer, a different number on each rank */
    bool local_first; /* the first step is no_sync and without an update: its gradients go into the second one's */
    struct rank rank[RUN_RANKS];
};

/* Draws the inputs of all ranks and trains them. Returns the first failure in rank order. */
ls_status run_all(probe *p, struct run *run);
void run_release(struct run *run);

#endif
