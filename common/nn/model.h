/* Models: a network (network.h), its parameters (parameters.h) and a frame for its activations (frame.h), together on
 * one device. For code that trains a whole network with one micro-batch at a time.
 *
 * Built in (--model):
 *     mlp           linear 784-256, ReLU, linear 256-10; any sizes as mlp:784,512,10
 *     convnet       conv 1-16 k5 p2, batch norm, ReLU, max-pool 2, conv 16-32 k5 p2, batch norm, ReLU, max-pool 2, linear 1568-10;
 *                   for other data as convnet:3x32x32,100
 *     wide          linear 4096-8192, ReLU, linear 8192-4096, with target vectors and the mean squared error; any sizes as
 *                   wide:64,128,64
 *     deep          mlp:784,1024 (16 times),10: 34 tensors, so that there are buckets to overlap
 *     branched      mlp with an auxiliary head, linear 256-10, on the hidden layer, which the loss does not use: DDP
 *                   names its two parameters and fails, unless --find-unused is given
 *     gpt           4 layers of 4 heads and 128 channels, context 64 (gpt:LAYERS,HEADS,CHANNELS,CONTEXT), whose head is
 *                   its token embedding; the vocabulary, which comes from the data, is a fifth number here:
 *                   gpt:4,4,128,64,65 (gpt.h)
 * Other networks are files: FILE.net, or FILE.net:3x32x32,10 if it takes sizes from the data (network_text.h).
 *
 * Parameters and their gradients are named and ordered as in PyTorch's state dict; all parameters are in one
 * allocation, followed by the buffers (batch norm's running statistics), so that one flat copy updates a replica.
 * Threads: one at a time. All functions enqueue on the device's compute stream and return, except those marked "host";
 * a failure poisons the device (device.h). */
#ifndef LS_NN_MODEL_H
#define LS_NN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/nn/frame.h"

typedef struct ls_model ls_model;

/* Builds a model with room for batches of up to `max_batch` samples; the parameters are zero until ls_model_init or a
 * load. LS_ERR_USAGE for a description that is not one of the above. On failure *out is NULL.
 *
 * `precision` LS_FP16 or LS_BF16 is PyTorch's autocast: linear and convolution layers read copies of input,
 * weights and bias in that type, all activations and their gradients are stored in it, and arithmetic, batch norm's
 * statistics and the gradients of parameters stay fp32, as do the parameters themselves, the input and the output. */
ls_status ls_model_create(ls_model **out, ls_device *device, const char *description, size_t max_batch,
                          ls_dtype precision);
/* The same of any network, which is borrowed for the model's life. */
ls_status ls_model_create_of(ls_model **out, ls_device *device, const ls_network *network, size_t max_batch,
                             ls_dtype precision);
/* Both with activation checkpointing and, if `placed`, without memory for parameters, which an owner places
 * (parameters.h). For each `every` blocks only the input is kept, and their forward is recomputed before their backward
 * (segments.c). Weights and buffers have the same bits as without. LS_EVERY_SQRT: the square root of the number of
 * blocks; 0: all activations are kept. LS_FORWARD_ONLY: a model without backward, for example if its blocks are trained
 * in other frames: runs one block at a time and keeps nothing. */
ls_status ls_model_create_segments(ls_model **out, ls_device *device, const char *description, size_t max_batch,
                                   ls_dtype precision, int every, bool placed);
ls_status ls_model_create_segments_of(ls_model **out, ls_device *device, const ls_network *network, size_t max_batch,
                                      ls_dtype precision, int every, bool placed);
/* Creates a replica: a model with the network (borrowed from `model`), precision and segments of `model`, and its own
 * parameters (zero). */
ls_status ls_model_create_like(ls_model **out, ls_device *device, const ls_model *model, size_t max_batch);
void ls_model_destroy(ls_model *model);

/* PyTorch's default initialisation after torch.manual_seed(seed), in definition order; for a gpt GPT-2's. Host: returns
 * when it is done. On a meta device it does nothing. */
ls_status ls_model_init(ls_model *model, uint64_t seed);

/* Call after every write to the parameters: the next forward then renews their fp16 or bf16 copies, once for all passes
 * until the next write (PyTorch's cache of casts). */
void ls_model_parameters_changed(ls_model *model);

ls_device *ls_model_device(const ls_model *model);
const ls_network *ls_model_network(const ls_model *model);
ls_parameters *ls_model_tensors(const ls_model *model); /* for frames beside the model's own */
ls_dtype ls_model_precision(const ls_model *model);
struct ls_shape ls_model_input(const ls_model *model);
size_t ls_model_input_nbytes(const ls_model *model); /* of a sample: in the model's precision, or of its integers */
struct ls_shape ls_model_output(const ls_model *model);
size_t ls_model_outputs(const ls_model *model);       /* per sample, over all rows: floats of a training forward */
size_t ls_model_answer_nbytes(const ls_model *model); /* of a sample: its label (of each row), or its target */
ls_loss_kind ls_model_loss(const ls_model *model);

size_t ls_model_parameter_count(const ls_model *model); /* tensors */
const struct ls_tensor *ls_model_parameter(const ls_model *model, size_t index);
size_t ls_model_buffer_count(const ls_model *model);
const struct ls_tensor *ls_model_buffer(const ls_model *model, size_t index);

/* All parameters and buffers as one range of device memory (padding between tensors is zero); parameters that are
 * placed elsewhere are not in it. */
void ls_model_state(const ls_model *model, float **data, size_t *count);
/* The parameters' part of it. */
void ls_model_parameters(const ls_model *model, float **data, size_t *count);

/* After a forward whose loss is not finite: names the first tensor in the order of the computation that holds a NaN or
 * an infinity: "the input batch", "parameter fc1.weight" or "the output of conv2"; "" if none does, so that only the
 * loss itself is left. Host-blocking. */
ls_status ls_model_find_nonfinite(ls_model *model, char *place, size_t capacity);

/* The same in a frame that is not the model's own: searches its input (*in_input: found there), its parameters, and its
 * layers' outputs of the last forward. */
ls_status ls_model_search_frame(ls_model *model, const ls_frame *frame, char *place, size_t capacity, bool *in_input);

/* The same among the parameters of a block, whose values must be in place. */
ls_status ls_model_search_block(ls_model *model, int block, char *place, size_t capacity);

/* Allocates the gradients: one range laid out like the parameters, of category gradient ... */
ls_status ls_model_alloc_gradients(ls_model *model);
void ls_model_gradients(const ls_model *model, float **data, size_t *count);
/* ... or places parameter `index`'s gradient elsewhere (DDP's buckets). `gradient` holds its count floats. */
void ls_model_place_gradient(ls_model *model, size_t index, float *gradient);

/* Runs the layers on `batch` samples of x [batch, input], in the model's precision; returns y [batch, outputs], fp32 in
 * the model's memory, overwritten by the next forward. A batch larger than max_batch poisons the device, and y is NULL.
 * x must not change until backward has run. A batch of 0 computes nothing, but this rank still takes part in the
 * collectives of ls_model_sync_batchnorm; its backward gives zero gradients. */
const float *ls_model_forward(ls_model *model, const void *x, size_t batch, bool training);

/* Computes the gradients of all parameters from dy [batch, outputs] (overwritten), for the last training forward.
 * `accumulate` false: gradients are overwritten. When the work that completes a parameter's gradient has been enqueued,
 * calls the hook on this thread with the parameter's index: last layers first, bias before weight. A failure of the
 * hook poisons the device; the hook is not called on a failed device. */
void ls_model_backward(ls_model *model, float *dy, bool accumulate);

typedef ls_status (*ls_grad_ready_fn)(void *context, size_t parameter);
void ls_model_on_grad_ready(ls_model *model, ls_grad_ready_fn hook, void *context);
/* The hooks that a pass calls when it enters and leaves a block (struct ls_hooks); NULL: none. */
typedef void (*ls_block_fn)(void *context, int block, bool backward);
void ls_model_on_blocks(ls_model *model, ls_block_fn enter, ls_block_fn leave, void *context);
/* Writes the blocks to `visits` in the order in which a training step enters them: forward, then backward with
 * recomputed forwards. `visits` has room for three times the network's blocks. Returns their number. */
size_t ls_model_visits(const ls_model *model, int *visits);
/* The hooks of the model's passes, for other frames whose gradients are reported in the same way. */
const struct ls_hooks *ls_model_hooks(const ls_model *model);

/* For each parameter, whether it belongs to a branch that no pass runs (branched's head): its gradient is zero, the
 * hook is not called for it, and if PyTorch's gradient is None, the optimizer must skip it. NULL: all take part. */
const bool *ls_model_untaken(const ls_model *model);

/* SyncBatchNorm: from now on every batch norm layer normalises, in training, with the statistics of the batches of all
 * ranks of `group` together (NULL or a group of one: of its own batch, the default). Its collectives run on the compute
 * stream, so the group must not be used for anything else; a rank without samples must take part with a batch of 0. The
 * group is borrowed until the next call or the model's end. Call while no pass is in progress; after LS_ERR_NO_MEMORY
 * no layer is synchronised. */
ls_status ls_model_sync_batchnorm(ls_model *model, ls_comm *group);

/* Batch norm layers' counts of training batches (PyTorch's num_batches_tracked), in layer order; host. */
size_t ls_model_batchnorm_count(const ls_model *model);
const char *ls_model_batchnorm_name(const ls_model *model, size_t index);
int64_t *ls_model_batches_tracked(ls_model *model, size_t index);

#endif
