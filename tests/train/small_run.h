/* A small run on one device for tests of checkpoints: the digits, a network of 16 hidden units. All functions
 * assert. */
#ifndef TESTS_TRAIN_SMALL_RUN_H
#define TESTS_TRAIN_SMALL_RUN_H

#include "common/checkpoint/checkpoint.h"
#include "common/train/loop.h"

struct small_run {
    ls_train_options options;
    ls_device *device;
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
    struct ls_parallel_ops ops; /* the parallel's operations, which a test may replace */
    struct ls_checkpointed checkpointed;
};

/* mlp:784,16,10 in batches of 600, which makes three steps an epoch; Adam; quiet, without evaluation. */
ls_train_options small_run_options(void);

/* Creates it, with seed 0's weights. */
struct small_run small_run_open(const ls_train_options *options);
void small_run_close(struct small_run *r);

/* ls_train, without printing results. */
ls_status small_run_train(struct small_run *r);

/* From now on the run fails, like one that is killed, when it begins step `step` (from 0). */
void small_run_die_at(struct small_run *r, uint64_t step);

/* A hash of all that a checkpoint keeps: weights, counts of batches, moments, update states and scaler. */
uint64_t small_run_state(const struct small_run *r);

/* True if two files have the same bytes. */
bool same_files(const char *left, const char *right);

#endif
