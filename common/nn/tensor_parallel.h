/* Tensor parallelism: one network among T ranks, each of which has a part of the layers' weights, and all of which see every
 * sample. A rank's part is a network of its own, whose models, frames and passes are those of any network; only that its layers
 * meet those of the other ranks, on the compute stream, in a group that serves nothing else.
 *
 * Its parameters are declared as those of the whole network: the same names in the same order. Their memory, gradients and
 * optimizer's state are the part's; hashes, weights and checkpoints read and write whole tensors (ls_parameters_read). A
 * tensor that is not cut is there on every rank, with the same bits after every step, since every rank makes it of the same
 * numbers. */
#ifndef LS_NN_TENSOR_PARALLEL_H
#define LS_NN_TENSOR_PARALLEL_H

#include "common/comm/comm.h"
#include "common/nn/model.h"

typedef struct ls_tensor_options {
    int rank, ranks; /* which of how many share the network; 0 ranks: it is not shared */
    /* Where all ranks would have the same rows of activations, each has its own: a text's only (docs/splitting.md). */
    bool sequence;
} ls_tensor_options;

/* Whether `ranks` ranks can share the network; LS_ERR_USAGE with one line if they cannot: heads, outputs or (with `sequence`)
 * positions that they do not divide, or a network of which nothing can be cut. A vocabulary is padded. Needs no group. */
ls_status ls_tensor_check(const ls_network *network, int ranks, bool sequence);

/* This rank's part of `whole`, which belongs to it from now on, also if this fails; *out is then NULL. Not collective. */
ls_status ls_tensor_cut(ls_network **out, ls_network *whole, const ls_tensor_options *options);

/* A model of this rank's part of the network that the description names, which it owns: as ls_model_create_segments. */
ls_status ls_tensor_create_model(ls_model **out, ls_device *device, const char *description,
                                 const ls_tensor_options *options, size_t max_batch, ls_dtype precision, int every,
                                 bool placed);

/* Gives the model, which owns its network, the ranks with the other parts, in the order of the parts: borrowed for its life.
 * Before its first pass, before an optimizer is made for it, and before its tensors are read. */
void ls_tensor_meet(ls_model *model, ls_comm *group);

/* The group of a model's network; NULL: it is whole. Whether another rank of it counts parameter `index` in a norm of all
 * gradients: what is not cut counts once, on rank 0. */
ls_comm *ls_tensor_group(const ls_model *model);
bool ls_tensor_counts_elsewhere(const ls_model *model, size_t index);

/* The bytes that a training step of `samples` samples on each rank brings together in the group, with what is run forward again
 * (segments.c): of what is all-reduced its size, and as much where a gather and a scatter take the place of one. 0: the
 * model's network is whole. */
size_t ls_tensor_step_nbytes(const ls_model *model, size_t samples);
/* The same of some blocks in frames beside the model's own, each run once forward and once back; a model that only runs forward
 * (LS_FORWARD_ONLY) has no step of its own. */
size_t ls_tensor_blocks_nbytes(const ls_model *model, struct ls_blocks blocks, size_t samples);

#endif
