/* Losses: a value and its gradient for one device's rows. */
#ifndef LS_NN_LOSS_H
#define LS_NN_LOSS_H

#include "common/nn/model.h"

/* The expected answers: labels [rows] or targets [rows, outputs], device memory; the other is NULL. */
struct ls_answers {
    const int64_t *labels;
    const float *targets;
};

/* The weight of one row of a model's output in the loss of `samples` samples over all devices: gradient_weight /
 * (number of their rows). */
double ls_loss_weight(int gradient_weight, size_t samples, struct ls_shape output);

/* Enqueues *loss = weight x (mean loss of the `rows` rows x rows) and dy = its gradient, in place of y. With weight
 * 1/rows that is PyTorch's reduction "mean"; with 1/(rows of all devices) the devices' losses and gradients add up to
 * those of the whole batch. y and dy are [rows, outputs], and may be the same memory. */
void ls_loss(ls_loss_kind kind, ls_stream *stream, float *loss, float *dy, const float *y, struct ls_answers answers,
             size_t rows, size_t outputs, double weight);

/* The same for the output of a training forward of the model, whose classes may be split (tensor_parallel.h). */
void ls_model_take_loss(ls_model *model, ls_stream *stream, float *loss, float *dy, const float *y,
                        struct ls_answers answers, size_t rows, double weight);

#endif
