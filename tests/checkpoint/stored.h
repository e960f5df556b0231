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
 * value of the same tensor. Infinity for a NaN or a missing tensor. The gradient of a bias before batch norm is zero up
 * to rounding; its difference is relative to a twentieth of the largest gradient of all. */
double stored_gradient_error(const char *run, const char *prefix, const ls_model *model);

/* The same for parameters (buffers: false) or buffers. */
double stored_state_error(const char *run, const char *prefix, const ls_model *model, bool buffers);

/* The largest absolute difference between a parameter and the run's tensor of the same name. Infinity as above. */
double stored_weights_difference(const char *run, const ls_model *model);

/* The distance of the model's parameters from the run's tensors PREFIX + name: the Euclidean norm of the difference,
 * relative to that of the tensor. Returns the largest over all tensors. Infinity as above. */
double stored_state_distance(const char *run, const char *prefix, const ls_model *model);

enum { STORED_MAX_STEPS = 64 };

/* Reads the losses of the run's steps. Returns their number (at most `capacity` are written), -1 if they cannot be
 * read. */
int stored_losses(const char *run, double *losses, int capacity);

/* Whether the losses of a run follow the stored ones: within 1e-4 at steps 1 to 5, within 2e-2 at every step, relative.
 * A NaN does not. Prints the first step that does not. */
bool stored_losses_follow(const char *run, const double *losses, int count);

/* Whether the weights after a run follow the stored ones: as a whole within 5e-3 (stored_state_distance), and each
 * within a tenth of the largest of its tensor (stored_state_error). Prints those that do not.
 * If matrix multiplies sum in PyTorch's order, weights agree to 1e-5. In another order (on GPUs, and on processors for
 * which oneDNN has other kernels) a ReLU whose input is zero up to rounding occasionally passes a gradient in one run
 * and not in the other. Adam divides each gradient by its own size, so a weight with a tiny gradient still takes whole
 * steps, of up to the learning rate each. Such weights hardly change the distance (0.002 was seen; TF32, which this
 * must detect, has 0.007), but single ones are off by several such steps (0.04 of the largest was seen). */
bool stored_weights_follow(const char *run, const ls_model *model);

#endif
