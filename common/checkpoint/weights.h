/* Weights from and to safetensors files, named as in PyTorch's state dict (parameters, running statistics and
 * num_batches_tracked). */
#ifndef LS_CHECKPOINT_WEIGHTS_H
#define LS_CHECKPOINT_WEIGHTS_H

#include "common/nn/model.h"

/* Sets every parameter and buffer of the model from the file: our own weights, a state dict of PyTorch whose names
 * may all begin with "module." (DataParallel, DistributedDataParallel) or "_orig_mod." (torch.compile), in fp32,
 * fp16, bf16 or fp64; or a checkpoint, of which the weights alone are taken. With `tell`, one note says what was
 * stripped, converted or left out. num_batches_tracked may be missing; a tensor that layers share may be there by each of
 * its names, with the same bits (nanoGPT's lm_head.weight), and constants of PyTorch's modules may be there (causal masks).
 * LS_ERR_INVALID names the first tensor that is missing, has another shape or type, or that the model does not have, or that
 * holds NaN or an infinity; the model is unchanged then. Host-blocking; collective where ranks share the parameters out
 * (parameters.h). */
ls_status ls_weights_load(ls_model *model, const char *path, bool tell);

/* What PyTorch's DataParallel and DistributedDataParallel put in front of every name. */
#define LS_MODULE_PREFIX "module."

/* Writes them all, each name behind `prefix` ("": none); the file is replaced as a whole or not at all.
 * Host-blocking; where ranks share the parameters out, collective, and rank 0 writes. */
ls_status ls_weights_save(ls_model *model, const char *path, const char *prefix);

/* The same to an open file. */
ls_status ls_weights_write(ls_model *model, int fd);

#endif
