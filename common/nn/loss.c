#include "common/nn/loss.h"

#include "common/comm/values.h"
#include "common/nn/class_loss.h"
#include "common/nn/model_internal.h"
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

/* For --debug-values: sums that are all-reduced (class_loss.c), followed by the largest logits. */
static void label_sums(const float *sums, size_t rows) {
    ls_values_at("loss", -1);
    ls_values_set(sums, 2 * rows * sizeof *sums, ls_labels_of(LS_PARTIAL, LS_VARYING), false, "the sums of the loss");
    ls_values_set(sums + 2 * rows, rows * sizeof *sums, ls_labels_of(LS_VARYING, LS_VARYING), false,
                  "the largest logits");
}

void ls_model_take_loss(ls_model *model, ls_stream *stream, float *loss, float *dy, const float *y,
                        struct ls_answers answers, size_t rows, double weight) {
    const ls_network *network = model->network;
    if (ls_values_on() && network->class_cut) label_sums(model->class_sums, rows);
    if (network->class_cut)
        ls_class_loss_of(network, stream, loss, dy, y, answers.labels, rows, weight, model->class_sums);
    else
        ls_loss(network->loss, stream, loss, dy, y, answers, rows, ls_shape_row_count(ls_network_output(network)),
                weight);
}
