#include "common/nn/loss.h"

#include "kernels/kernels.h"

double ls_loss_weight(int gradient_weight, size_t samples, struct ls_shape output) {
    return (double)gradient_weight / (double)(samples * ls_shape_rows(output));
}

void ls_loss(ls_loss_kind kind, ls_stream *stream, float *loss, float *dy, const float *y, struct ls_answers answers,
             size_t rows, size_t outputs, double weight) {
    switch (kind) {
    case LS_LOSS_CROSS_ENTROPY:
        ls_cross_entropy(stream, loss, dy, y, answers.labels, rows, outputs, (float)weight);
        break;
    case LS_LOSS_SQUARED_ERROR:
        ls_squared_error(stream, loss, dy, y, answers.targets, rows * outputs, (float)(weight / (double)outputs));
        break;
    }
}
