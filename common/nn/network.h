/* Networks: a graph of layers with their parameters and buffers. A network is a description: constant once created,
 * without memory on any device. Models (model.h) give it parameters, frames (frame.h) give it activations.
 *
 * Its layers are in the order of the forward pass; each reads the outputs of up to three earlier layers, or the
 * network's input. Blocks are ranges of layers: a block reads only the output of the block before it, so that a network
 * can be run, kept or sent block by block.
 *
 * network_internal.h builds one layer by layer. */
#ifndef LS_NN_NETWORK_H
#define LS_NN_NETWORK_H

#include <stdbool.h>

#include "common/base/status.h"
#include "common/nn/tensor.h"

typedef enum ls_loss_kind { LS_LOSS_CROSS_ENTROPY, LS_LOSS_SQUARED_ERROR } ls_loss_kind;

typedef struct ls_network ls_network;

/* Creates a network from a description ("mlp:784,512,10"; list: model.h). LS_ERR_USAGE, with one line: not a
 * description; on failure *out is NULL. */
ls_status ls_network_create(ls_network **out, const char *description);
/* NULL is a no-op. */
void ls_network_destroy(ls_network *network);

/* A range of blocks, first .. end - 1. */
struct ls_blocks {
    int first, end;
};
struct ls_blocks ls_network_blocks(const ls_network *network); /* all */
/* Special values for a number of blocks (model.h). */
enum { LS_EVERY_SQRT = -1, LS_FORWARD_ONLY = -2 };
struct ls_shape ls_network_block_input(const ls_network *network, int block);
/* The cost of a sample's forward pass through a block, for assigning blocks to devices: its multiply-adds, plus one per
 * output element of each layer. A backward costs twice as much. */
double ls_network_block_cost(const ls_network *network, int block);
/* Whether layers of other blocks read a parameter of this one. */
bool ls_network_block_is_shared(const ls_network *network, int block);
/* Whether the network's input is integers, such as tokens, rather than activations. */
bool ls_network_takes_integers(const ls_network *network);
/* Whether a file of the network's tensors may also have a tensor of that name: a second name of a shared parameter
 * (*same: its first name, whose values must be equal), or a constant of PyTorch's module (*same: NULL). */
bool ls_network_may_name(const ls_network *network, const char *name, const char **same);
/* The output's shape; of a part of a split network, the whole network's. */
struct ls_shape ls_network_output(const ls_network *network);
/* Answers of a sample: its labels, one per row of the output, or the floats of its target. */
size_t ls_network_answers(const ls_network *network);

#endif
