/* What a network consists of, and how one is made layer by layer:
 *
 *     ls_network *network = ls_network_begin(input, loss);
 *     ls_network_add(network, (ls_layer){.kind = &ls_linear, .name = "fc1", .units = 256, .relu = true}); ...
 *     ls_network_finish(network);
 *
 * For common/nn, and for who brings a network that is not built in. */
#ifndef LS_NN_NETWORK_INTERNAL_H
#define LS_NN_NETWORK_INTERNAL_H

#include "common/nn/cut.h"
#include "common/nn/layer.h"
#include "common/nn/network.h"

struct ls_network {
    /* set by whoever makes it, before the first layer */
    struct ls_shape input;
    size_t input_nbytes; /* of a sample that is no activation (integers); 0: it is one, of the model's precision */
    ls_loss_kind loss;
    bool casts_itself; /* in half precision: its layers cast parameters and output, too (described.h) */
    /* from ls_network_add */
    size_t layer_count, parameter_count, buffer_count;
    int block_count;
    ls_layer *layers;
    struct ls_declared *parameters; /* in the order of definition */
    struct ls_tensor *buffers;
    /* from ls_network_finish */
    size_t answer_nbytes; /* of a sample: labels, one for each row of the output, or targets */
    bool *untaken;        /* per parameter: no pass takes it */
    bool has_untaken;
    const struct ls_described *described; /* described.h; NULL: a network that computes */
    /* a rank's part of a network (tensor_parallel.h) */
    ls_network *whole;                /* what it is a part of, owned; NULL: it is no part */
    struct ls_cut *cuts;              /* of each parameter, then of each buffer */
    int tensor_rank;                  /* which part */
    ls_comm *tensor;                  /* the ranks that have the other parts; NULL: they have not met */
    const struct ls_layer *class_cut; /* the last layer, if its outputs are a part of the classes */
};

/* A network without layers, whose input is activations, and which ls_network_destroy frees. NULL, reported: there is no memory. */
ls_network *ls_network_begin(struct ls_shape input, ls_loss_kind loss);
/* Plans the layer, whose description is filled in, and adds it. LS_ERR_INVALID if it does not fit what it reads or shares. */
ls_status ls_network_add(ls_network *network, ls_layer layer);
/* A parameter, or buffer, of the last layer that its plan does not declare: for kinds that have more than a few. Its pass has
 * no place for it, and its backward says itself when the gradient is ready (pass->ready). */
ls_status ls_network_declare_parameter(ls_network *network, const struct ls_tensor *tensor);
ls_status ls_network_declare_buffer(ls_network *network, const struct ls_tensor *tensor);
/* Behind the last layer, whose output is the network's. LS_ERR_INVALID if what blocks read of each other is not the one
 * output, or shared parameters do not go together. */
ls_status ls_network_finish(ls_network *network);

/* The input and all layers of a GPT (gpt.h) to a network that has none. (gpt.c) */
ls_status ls_gpt_add_layers(ls_network *network, const char *description);

#endif
