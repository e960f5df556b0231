/* A small run to look at: the training loop itself, DataParallel on some devices, random samples. */
#ifndef LABS_12_LARGE_BATCHES_TRAINING_H
#define LABS_12_LARGE_BATCHES_TRAINING_H

#include "common/seam/options.h"
#include "labs/course/probe/probe.h"

enum { MOST_DEVICES = 4, MOST_RATES = 64, EPOCHS = 3, STEPS_OF_EPOCH = 4 };

struct training {
    int devices;
    ls_train_options options; /* model, data, batch and length are training_run's */
    /* filled by training_run: what each step has given to ls_optimizer_set_rate */
    double rates[MOST_RATES];
    int rate_count;
};

/* Trains for EPOCHS epochs of STEPS_OF_EPOCH steps. What fails ends the probe. */
void training_run(probe *p, struct training *t);

#endif
