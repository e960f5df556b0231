/* PyTorch's recorded training runs (tests/golden/train_*.safetensors and .json): their states, gradients and losses.
 * For tests that run in the repository's root. Nothing here asserts, so that forked ranks may use it. */
#ifndef TESTS_CHECKPOINT_STORED_H
#define TESTS_CHECKPOINT_STORED_H

#include <stdbool.h>

#include "common/nn/model.h"

/* Sets every parameter and buffer of the model from the run's tensors PREFIX + name. */
bool stored_load(const char *run, const char *prefix, ls_model *model);

/* Writes the tensors PREFIX + name as a file of weights, without the prefix. */
bool stored_write_weights(const char *run, const char *prefix, const char *path);

/* The largest difference between the model's gradients and the run's tensors PREFIX + name, relative to the largest
 * value of the tensor it is found in. Infinity for a NaN or a missing tensor. The gradient of a bias in front of batch
 * norm is zero up to rounding; there, the measure is a twentieth of the largest gradient of all. */
double stored_gradient_error(const char *run, const char *prefix, const ls_model *model);

/* The same for parameters (buffers: false) or buffers. */
double stored_state_error(const char *run, const char *prefix, const ls_model *model, bool buffers);

/* The largest difference between a parameter and the run's tensor of its name, in numbers as they are. Infinity as above. */
double stored_weights_difference(const char *run, const ls_model *model);

/* How far the model's parameters are from the run's tensors PREFIX + name, in the Euclidean norm and relative to the
 * tensor's; of the tensor that is farthest. Infinity as above. */
double stored_state_distance(const char *run, const char *prefix, const ls_model *model);

enum { STORED_MAX_STEPS = 64 };

/* The losses of the run's steps; returns how many there are (at most `capacity` are written), -1 if they cannot be
 * read. */
int stored_losses(const char *run, double *losses, int capacity);

/* Whether the losses of a run follow the stored ones: within 1e-4 at steps 1 to 5, within 2e-2 at every step, relative.
 * NaN does not. Prints the first step that does not. */
bool stored_losses_follow(const char *run, const double *losses, int count);

/* Whether the weights after a run follow the stored ones: together within 5e-3 (stored_state_distance), and none off by
 * more than a tenth of its tensor's largest (stored_state_error). Prints what does not.
 * Where products add up in PyTorch's order, weights agree to 1e-5. In another order (on GPUs, and on processors for
 * which oneDNN has other kernels) a ReLU whose input is zero up to rounding may let a gradient through or not, once in
 * a while. Adam divides each gradient by its own size: of weights that have hardly any it makes whole steps of that, of
 * up to the learning rate each. Such weights hardly change the distance (0.002 was seen; products in TF32, which this
 * must tell apart, have 0.007), and single ones are off by several such steps (0.04 was seen, of the largest). */
bool stored_weights_follow(const char *run, const ls_model *model);

#endif
