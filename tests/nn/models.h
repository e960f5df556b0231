/* A CPU device whose streams run inline, and models on it. */
#ifndef TESTS_NN_MODELS_H
#define TESTS_NN_MODELS_H

#include "common/nn/model.h"

/* Opens device `index`; asserts. */
ls_device *open_device(int index);

/* Asserts that no device memory is allocated, and closes the device. */
void close_empty_device(ls_device *device);

/* A model with gradients and PyTorch's initial weights for `seed`; asserts. */
ls_model *make_model(ls_device *device, const char *description, size_t max_batch, uint64_t seed);
ls_model *make_model_in(ls_dtype precision, ls_device *device, const char *description, size_t max_batch,
                        uint64_t seed);

/* Device memory with `count` floats of input: small numbers of both signs, the same for the same seed. */
float *make_values(ls_device *device, size_t count, uint64_t seed);

/* A residual network with a tied layer: y = head(h + relu(fc2(h)) + x), h = relu(fc1(x)), of 6 inputs and 3 outputs;
 * fc2 has the weight of fc1 and its own bias. Asserts. */
ls_network *residual_network(void);

/* A network of five blocks of a linear layer each, of 6 inputs and outputs: blocks 2 and 4 have the weights of blocks
 * `first` and `second`, and their own biases. Asserts. */
ls_network *tied_blocks(int first, int second);

/* Compares values in half precision with those in fp32: |half - full| is at most `tolerance` of |full|, as vectors (a
 * single value may differ much, if a ReLU or a maximum selects differently). Returns that ratio. */
double expect_half_near(const char *what, const float *half, const float *full, size_t count, double tolerance);

#endif
