/* A small test run: the product's training loop, DataParallel on a few devices, random samples. */
#ifndef LABS_12_LARGE_BATCHES_TRAINING_H
#define LABS_12_LARGE_BATCHES_TRAINING_H

#include "common/seam/options.h"
#include "labs/course/probe/probe.h"

enum { MOST_DEVICES = 4, MOST_RATES = 64, EPOCHS = 3, STEPS_OF_EPOCH = 4 };

struct training {
    int devices;
    ls_train_options options; /* training_run sets model, data, batch and length */
    /* filled by training_run: the rate that each step passed to ls_optimizer_set_rate */
    double rates[MOST_RATES];
    int rate_count;
};

/* Trains for EPOCHS epochs of STEPS_OF_EPOCH steps. A failure ends the probe. */
void training_run(probe *p, struct training *t);

#endif
