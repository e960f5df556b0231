/* Training samples that count how often they are trained on: sample i is an image whose pixel i alone is 1. So of the first
 * layer, which is the only one, column i changes in the steps that have sample i, each time by about the same: up to some hundred times. */
#ifndef LABS_MISSING_VISITS_COUNTED_H
#define LABS_MISSING_VISITS_COUNTED_H

#include <stdbool.h>

enum { COUNTED_MOST = 784, COUNTED_CLASSES = 10 };

/* What a run on them is told besides --data and --init; COUNTED_BATCH must divide the number of samples. */
#define COUNTED_BATCH 60
#define COUNTED_OPTIONS                                                                                                \
    "--model mlp:784,10 --batch-size 60 --normalize none --optimizer sgd --momentum 0 --lr 0.0001 --no-evaluate "

/* Writes the samples, at most COUNTED_MOST, into a folder that is there, and weights of zero for --init. False: reported. */
bool counted_write(const char *folder, int samples, const char *init);

/* Reads from weights that a run has ended with how often each sample was trained on; -1: by no whole number. False: the file
 * cannot be read. */
bool counted_read(const char *weights, int samples, int *counts);

#endif
