/* A small model with an optimizer, for tests that write its gradients by hand. On a CPU device, whose memory is the
 * host's. All functions assert. */
#ifndef TESTS_OPTIM_UPDATES_H
#define TESTS_OPTIM_UPDATES_H

#include "common/optim/optimizer.h"

struct updates {
    ls_device *device;
    ls_model *model;
    ls_optimizer *optimizer;
    float *parameters, *gradients; /* the same layout, with padding of zero */
    size_t count;
};

struct updates updates_open(const char *model, const ls_optimizer_options *options);
void updates_close(struct updates *u);

/* Sets all gradients to values that `turn` chooses, times `factor`; makes the step. */
void updates_fill(struct updates *u, int turn, float factor);
void updates_step(struct updates *u, const bool *skip);

/* True if the weights have the same bits. */
bool updates_agree(const struct updates *u, const struct updates *other);

#endif
