/* What a network consists of, and how one is made layer by layer:
 *
 *     ls_network *network = ls_network_begin(input, loss);
 *     ls_network_add(network, (ls_layer){.kind = &ls_linear, .name = "fc1", .units = 256, .relu = true}); ...
 *     ls_network_finish(network);
 *
 * For common/nn, and for who brings a network that is not built in. */
#ifndef LS_NN_NETWORK_INTERNAL_H
#define LS_NN_NETWORK_INTERNAL_H

#include "common/nn/layer.h"
#include "common/nn/network.h"

#define LS_NETWORK_MAX_LAYERS 160

struct ls_network {
    struct ls_image input;
    ls_loss_kind loss;
    size_t layer_count;
    int block_count;
    size_t parameter_count, buffer_count;
    const struct ls_tensor *parameters[LS_LAYER_MAX_TENSORS * LS_NETWORK_MAX_LAYERS]; /* in the order of definition */
    const struct ls_tensor *buffers[LS_LAYER_MAX_TENSORS * LS_NETWORK_MAX_LAYERS];
    int parameter_blocks[LS_LAYER_MAX_TENSORS * LS_NETWORK_MAX_LAYERS]; /* the block that has defined it */
    bool untaken[LS_LAYER_MAX_TENSORS * LS_NETWORK_MAX_LAYERS];         /* per parameter: no pass takes it */
    bool has_untaken;
    ls_layer layers[LS_NETWORK_MAX_LAYERS];
};

/* A network without layers, which ls_network_destroy frees. NULL, reported: there is no memory. */
ls_network *ls_network_begin(struct ls_image input, ls_loss_kind loss);
/* Plans the layer, whose description is filled in, and adds it. LS_ERR_USAGE if there are too many, LS_ERR_INVALID if it
 * does not fit what it reads or shares. */
ls_status ls_network_add(ls_network *network, ls_layer layer);
/* Behind the last layer, whose output is the network's. LS_ERR_INVALID if what blocks read of each other is not the one
 * output, or shared parameters do not go together. */
ls_status ls_network_finish(ls_network *network);

#endif
