/* Training samples whose visits can be counted: sample i is an image in which only pixel i is 1. So column i of the
 * network's only layer changes in the steps that have sample i, each time by about the same amount, up to a few hundred
 * times. */
#ifndef LABS_MISSING_VISITS_COUNTED_H
#define LABS_MISSING_VISITS_COUNTED_H

#include <stdbool.h>

enum { COUNTED_MOST = 784, COUNTED_CLASSES = 10 };

/* The options of a run on them, besides --data and --init; COUNTED_BATCH must divide the number of samples. */
#define COUNTED_BATCH 60
#define COUNTED_OPTIONS                                                                                                \
    "--model mlp:784,10 --batch-size 60 --normalize none --optimizer sgd --momentum 0 --lr 0.0001 --no-evaluate "

/* Writes the samples, at most COUNTED_MOST, into an existing folder, and weights of zero for --init. False on failure,
 * which is reported. */
bool counted_write(const char *folder, int samples, const char *init);

/* Computes from a run's final weights how often each sample was trained on; -1 if that is not a whole number. False if
 * the file cannot be read. */
bool counted_read(const char *weights, int samples, int *counts);

#endif
