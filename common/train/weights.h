/* Weights from and to safetensors files, named as in PyTorch's state dict (parameters, running statistics and
 * num_batches_tracked). */
#ifndef LS_TRAIN_WEIGHTS_H
#define LS_TRAIN_WEIGHTS_H

#include "common/nn/model.h"

/* Sets every parameter and buffer of the model from the file. LS_ERR_INVALID names the first tensor that is missing,
 * has another shape or type, or that the model does not have; the model is unchanged then. num_batches_tracked may be
 * missing. Host-blocking. */
ls_status ls_weights_load(ls_model *model, const char *path);

/* Writes them all; the file is replaced as a whole or not at all. Host-blocking. */
ls_status ls_weights_save(const ls_model *model, const char *path);

#endif
