/* Training on one device for tests: PyTorch's recorded runs (stored.h) and others, through the loop. All functions
 * assert; tests run in the repository's root. */
#ifndef TESTS_TRAIN_TRAINER_H
#define TESTS_TRAIN_TRAINER_H

#include "common/train/loop.h"
#include "tests/checkpoint/stored.h"

/* A recorded run, or one without a record (run ""), and the options that repeat it. */
struct repetition {
    const char *run, *model;
    int64_t batch, steps;
    int optimizer;
    double learning_rate, momentum;
};

extern const struct repetition recorded_mlp, recorded_convnet;

struct trainer {
    ls_train_options options;
    ls_model *model;
    ls_dataset *train, *test;
    ls_parallel *parallel;
};

/* The caller owns the device. The model's parameters are zero. */
struct trainer trainer_open(const struct repetition *r, ls_device *device);
void trainer_close(struct trainer *t);

/* Loads the run's initial weights, through a file in the scratch folder; without a recorded run, seed 0's. */
void trainer_begin(struct trainer *t, const struct repetition *r);

/* ls_train, without printing results: a test's output is cmocka's. */
ls_status trainer_train(struct trainer *t, ls_train_result *result);

/* Reads at most `capacity` losses that --dump-losses has written. Returns their number. */
int read_losses(const char *path, double *losses, int capacity);

/* The loss and the gradients of one step of a recorded run. */
void expect_recorded_gradients(const struct repetition *r, ls_device *device, int64_t step, const char *state,
                               const char *gradients);

/* A whole recorded run: every loss, the weights and buffers after it, and the accuracy. */
void expect_recorded_run(const struct repetition *r, ls_device *device);

#endif
