/* Tensor parallelism: T ranks split one network. Each rank has a part of the layers' weights, and all ranks process
 * every sample. A rank's part is itself a network, with models, frames and passes like any other, except that its
 * layers contain collectives with the other ranks, on the compute stream, in a group that must not be used for anything
 * else.
 *
 * Its parameters have the names and the order of the whole network. Memory, gradients and optimizer state are those of
 * the part; hashes, weights and checkpoints read and write whole tensors (ls_parameters_read). A tensor that is not
 * split is replicated on every rank, with the same bits after every step, since every rank computes it from the same
 * values. */
#ifndef LS_NN_TENSOR_PARALLEL_H
#define LS_NN_TENSOR_PARALLEL_H

#include "common/comm/comm.h"
#include "common/nn/model.h"

typedef struct ls_tensor_options {
    int rank, ranks; /* this rank's part, and the number of parts; 0 ranks: not split */
    /* sequence parallelism: activations that would be replicated are split by rows; for texts only
     * (docs/splitting.md) */
    bool sequence;
} ls_tensor_options;

/* Checks that the network can be split over `ranks` ranks. LS_ERR_USAGE with one line: heads, outputs or (with
 * `sequence`) positions are not divisible by them, or no layer can be split. A vocabulary is padded. Needs no group. */
ls_status ls_tensor_check(const ls_network *network, int ranks, bool sequence);

/* Creates this rank's part of `whole` and takes ownership of `whole`, even on failure; *out is then NULL. Not
 * collective. */
ls_status ls_tensor_cut(ls_network **out, ls_network *whole, const ls_tensor_options *options);

/* As ls_model_create_segments, for this rank's part of the described network, which the model owns. */
ls_status ls_tensor_create_model(ls_model **out, ls_device *device, const char *description,
                                 const ls_tensor_options *options, size_t max_batch, ls_dtype precision, int every,
                                 bool placed);

/* Sets the tensor-parallel group of the model, which owns its network: rank r has part r; borrowed for the model's
 * life. Call before its first pass, before creating an optimizer for it, and before reading its tensors. */
void ls_tensor_meet(ls_model *model, ls_comm *group);

/* The tensor-parallel group of a model; NULL: not split. And whether another rank of it counts parameter `index` in a
 * norm of all gradients: a replicated parameter counts once, on rank 0. */
ls_comm *ls_tensor_group(const ls_model *model);
bool ls_tensor_counts_elsewhere(const ls_model *model, size_t index);

/* Bytes of the group's collectives in a training step of `samples` samples on each rank, recomputation included
 * (segments.c): an all-reduce counts its size, and so does an all-gather with its reduce-scatter. 0: not split. */
size_t ls_tensor_step_nbytes(const ls_model *model, size_t samples);
/* The same for some blocks, in frames other than the model's own, each run once forward and once backward: for models
 * with LS_FORWARD_ONLY, which have no step. */
size_t ls_tensor_blocks_nbytes(const ls_model *model, struct ls_blocks blocks, size_t samples);

#endif
