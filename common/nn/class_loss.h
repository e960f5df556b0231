/* Vocabulary-parallel cross entropy: the classes of the logits are split over ranks (tensor_parallel.h). */
#ifndef LS_NN_CLASS_LOSS_H
#define LS_NN_CLASS_LOSS_H

#include "common/device/device.h"
#include "common/nn/network.h"

/* Bytes of `sums`, below, for `max_batch` samples. */
size_t ls_class_loss_nbytes(const ls_network *network, size_t max_batch);

/* ls_loss of whole rows of logits, of which y and dy hold this rank's part: [rows, ls_model_outputs per row]. The loss
 * is the same on all ranks. Runs two collectives, of one float and of two floats per row. */
void ls_class_loss_of(const ls_network *network, ls_stream *stream, float *loss, float *dy, const float *y,
                      const int64_t *labels, size_t rows, double weight, float *sums);

#endif
