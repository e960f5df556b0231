/* A network that is trained step by step without a mode (forward, loss, backward, update) by ranks in threads of this
 * process that share it (common/nn/tensor_parallel.h), or by one rank that has the whole network. */
#ifndef TESTS_NN_TEAM_H
#define TESTS_NN_TEAM_H

#include "common/data/dataset.h"
#include "common/optim/optimizer.h"

enum { TEAM_MOST_RANKS = 4, TEAM_MOST_STEPS = 128 };

struct team_plan {
    const char *model;
    int ranks; /* 0: one device with the whole network */
    bool sequence;
    size_t batch, steps; /* samples, in the order of the data */
    int micro_batches;   /* 0: 1 */
    int every;           /* blocks of a segment */
    ls_dtype precision;
    uint64_t seed;
    ls_optimizer_options optimizer;
    const ls_dataset *data;
};

/* The results of a run. */
struct team_run {
    ls_status status[TEAM_MOST_RANKS];
    char message[TEAM_MOST_RANKS][256];
    double losses[TEAM_MOST_RANKS][TEAM_MOST_STEPS];
    float norms[TEAM_MOST_STEPS]; /* rank 0's, of all gradients, if they are clipped */
    bool alike;                   /* the parts that are not cut had the same bits on all ranks after each step */
    float *values;                /* of rank 0: all whole tensors at the end, concatenated */
    size_t value_count;           /* floats */
    size_t activation_bytes;      /* rank 0's peaks */
    size_t parameter_bytes;
    uint64_t sent_bytes, step_nbytes; /* rank 0's operations in the last step; the result of ls_tensor_step_nbytes */
    uint64_t operations;              /* of the last step */
    float *logits;                    /* rank 0's, of an evaluation of the first batch after the last step */
    size_t logit_count;
};

/* Asserts that all ranks succeed. */
struct team_run *team_train(const struct team_plan *plan);
/* The same without this assertion. */
struct team_run *team_try(const struct team_plan *plan);
void team_free(struct team_run *run);

/* The largest difference between the values of two runs. */
double team_difference(const struct team_run *a, const struct team_run *b);

#endif
