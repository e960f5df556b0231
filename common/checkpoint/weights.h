/* Reads and writes weights as safetensors files, named as in PyTorch's state dict (parameters, running statistics and
 * num_batches_tracked). */
#ifndef LS_CHECKPOINT_WEIGHTS_H
#define LS_CHECKPOINT_WEIGHTS_H

#include "common/nn/model.h"

/* Sets every parameter and buffer of the model from the file: a file of ls_weights_save; a PyTorch state dict in fp32,
 * fp16, bf16 or fp64, whose names may all begin with "module." (DataParallel, DistributedDataParallel) or "_orig_mod."
 * (torch.compile); or a checkpoint, of which only the weights are read. With `tell`, one note says what was stripped,
 * converted or left out. num_batches_tracked may be missing. A tensor that layers share may occur under each of its
 * names, with the same bits (nanoGPT's lm_head.weight), and constants of PyTorch's modules may occur (causal masks).
 * LS_ERR_INVALID names the first tensor that is missing, has a different shape or type, is not one of the model's, or
 * holds NaN or an infinity; the model is then unchanged. Host-blocking; collective if the parameters are sharded
 * (parameters.h). */
ls_status ls_weights_load(ls_model *model, const char *path, bool tell);

/* The prefix of every name in PyTorch's DataParallel and DistributedDataParallel. */
#define LS_MODULE_PREFIX "module."

/* Writes all parameters and buffers, each name after `prefix` ("": none); the file is replaced as a whole or not at
 * all. Host-blocking; if the parameters are sharded, collective, and rank 0 writes. */
ls_status ls_weights_save(ls_model *model, const char *path, const char *prefix);

/* The same to an open file. */
ls_status ls_weights_write(ls_model *model, int fd);

#endif
