/* Ranks that train a small model in micro-batches, by DDP or, in one process, by DataParallel; and what each of them
 * sent on the way. */
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

/* What a rank, or DataParallel's one process, brings along, and what is seen of it. */
struct rank {
    float *start, *x[RUN_STEPS]; /* drawn */
    int64_t labels[RUN_STEPS][RUN_RANKS * RUN_ROWS];
    size_t rows[RUN_STEPS];
    /* seen */
    struct sent sent[RUN_STEPS][RUN_PIECES];
    uint64_t all_reduced, reduced; /* bytes by the clocks, in all; the latter: DataParallel's, to device 0 */
    float losses[RUN_STEPS];
    float *gradients, *state; /* at the end */
    size_t gradient_count, state_count;
};

struct run {
    const char *model, *streams;
    int ranks;    /* of DDP; or devices of DataParallel */
    bool threads; /* DataParallel */
    int steps, pieces;
    size_t rows;      /* the most of a rank in a step; in the last step it has fewer, another number on each rank */
    bool local_first; /* the first step is no_sync and without an update: its gradients go into the second one's */
    struct rank rank[RUN_RANKS];
};

/* Draws what all need and lets them train. The first failure in the order of the ranks. */
ls_status run_all(probe *p, struct run *run);
void run_release(struct run *run);

#endif
