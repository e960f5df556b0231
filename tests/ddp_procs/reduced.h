/* A rank with a model under a reducer, for the reducer's tests. */
#ifndef TESTS_DDP_PROCS_REDUCED_H
#define TESTS_DDP_PROCS_REDUCED_H

#include "ddp_procs/reducer.h"
#include "tests/comm/ranks.h"

#define REDUCED_TIMEOUT_S 20.0

struct reduced {
    ls_model *model;
    ls_stream *compute;
    ddp_reducer *reducer;
    struct ls_phase_clock clock;
};

/* On an open rank: creates a model with PyTorch's weights for seed 0, and its reducer. Collective. */
void reduced_create(struct rank *rank, struct reduced *r, const char *model, size_t batch,
                    const ddp_reducer_options *options);
void reduced_destroy(struct reduced *r);

/* Closes the rank; nothing may remain allocated on its device. */
void reduced_rank_close(struct rank *rank);

/* Values whose sums need rounding, different for each rank and turn. */
void reduced_fill(float *values, size_t count, int rank, int turn);

/* A backward pass with the reducer, for this rank's own x and dy, which depend on `turn`. */
void reduced_turn(const struct rank *rank, struct reduced *r, size_t batch, int turn);

#endif
