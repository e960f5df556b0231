/* Networks: a graph of layers, and the parameters and buffers that they have. A network is a description: constant once it is
 * made, without memory on any device. Models (model.h) give it parameters, frames (frame.h) give it activations.
 *
 * Its layers stand in the order of the forward pass; each reads the outputs of up to three earlier ones, or the network's
 * input. Blocks cut it into ranges of layers: what later blocks read of earlier ones is the output of the block just
 * before, and nothing else, so that a network can be run, kept or sent block by block.
 *
 * How one is made layer by layer is in network_internal.h. */
#ifndef LS_NN_NETWORK_H
#define LS_NN_NETWORK_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/nn/tensor.h"

typedef enum ls_loss_kind { LS_LOSS_CROSS_ENTROPY, LS_LOSS_SQUARED_ERROR } ls_loss_kind;

typedef struct ls_network ls_network;

/* From a description ("mlp:784,512,10"; the list is in model.h). LS_ERR_USAGE with one line if it is not one; on failure
 * *out is NULL. */
ls_status ls_network_create(ls_network **out, const char *description);
/* NULL is a no-op. */
void ls_network_destroy(ls_network *network);

/* A range of blocks, first .. end - 1. */
struct ls_blocks {
    int first, end;
};
struct ls_blocks ls_network_blocks(const ls_network *network); /* all */
/* In place of a number of blocks: how a model runs them (model.h). */
enum { LS_EVERY_SQRT = -1, LS_FORWARD_ONLY = -2 };
struct ls_shape ls_network_block_input(const ls_network *network, int block);
/* What a sample's forward pass through a block costs, for whoever gives blocks to devices: its multiply-adds, and one more for
 * each element that a layer puts out. A backward takes twice as much. */
double ls_network_block_cost(const ls_network *network, int block);
/* Whether layers of other blocks read a parameter of this one. */
bool ls_network_block_is_shared(const ls_network *network, int block);
/* Whether its input is integers, as tokens are, and no activations. */
bool ls_network_takes_integers(const ls_network *network);
/* Whether a file of the network's tensors may have one of that name beside them: another name of a parameter that layers
 * share (*same: its own, of the same values), or a constant of PyTorch's module, which says nothing (*same: NULL). */
bool ls_network_may_name(const ls_network *network, const char *name, const char **same);
/* Of a part of a network: the whole one's. */
struct ls_shape ls_network_output(const ls_network *network);
/* Of a sample: its labels, one for each row of the output, or the floats of its target. */
size_t ls_network_answers(const ls_network *network);

#endif
