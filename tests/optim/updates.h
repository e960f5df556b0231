/* A small model under an optimizer, for tests that write its gradients by hand. On a CPU device, whose memory is the
 * host's. All functions assert. */
#ifndef TESTS_OPTIM_UPDATES_H
#define TESTS_OPTIM_UPDATES_H

#include "common/optim/optimizer.h"

struct updates {
    ls_device *device;
    ls_model *model;
    ls_optimizer *optimizer;
    float *parameters, *gradients; /* laid out alike, with padding of zero */
    size_t count;
};

struct updates updates_open(const char *model, const ls_optimizer_options *options);
void updates_close(struct updates *u);

/* All gradients = values that `turn` chooses x factor; the step. */
void updates_fill(struct updates *u, int turn, float factor);
void updates_step(struct updates *u, const bool *skip);

/* The weights are the same bits. */
bool updates_agree(const struct updates *u, const struct updates *other);

#endif
