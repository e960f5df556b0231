/* The struct of a network, and the functions that build one layer by layer:
 *
 *     ls_network *network = ls_network_begin(input, loss);
 *     ls_network_add(network, (ls_layer){.kind = &ls_linear, .name = "fc1", .units = 256, .relu = true}); ...
 *     ls_network_finish(network);
 *
 * For common/nn, and for code that adds a network that is not built in. */
#ifndef LS_NN_NETWORK_INTERNAL_H
#define LS_NN_NETWORK_INTERNAL_H

#include "common/nn/cut.h"
#include "common/nn/layer.h"
#include "common/nn/network.h"

struct ls_network {
    /* set by the builder, before the first layer */
    struct ls_shape input;
    size_t input_nbytes; /* of a sample of integers; 0: samples are activations of the model's precision */
    ls_loss_kind loss;
    bool casts_itself; /* its layers also cast parameters and output to fp16 or bf16 (described.h) */
    /* from ls_network_add */
    size_t layer_count, parameter_count, buffer_count;
    int block_count;
    ls_layer *layers;
    struct ls_declared *parameters; /* in the order of definition */
    struct ls_tensor *buffers;
    /* from ls_network_finish */
    size_t answer_nbytes; /* of a sample: labels, one for each row of the output, or targets */
    bool *untaken;        /* per parameter: no pass uses it */
    bool has_untaken;
    const struct ls_described *described; /* described.h; NULL: a network that computes */
    /* a rank's part of a split network (tensor_parallel.h) */
    ls_network *whole;                /* the whole network, owned; NULL: not split */
    struct ls_cut *cuts;              /* of each parameter, then of each buffer */
    int tensor_rank;                  /* which part */
    ls_comm *tensor;                  /* the ranks with the other parts; NULL: not set yet (ls_tensor_meet) */
    const struct ls_layer *class_cut; /* the last layer, if its classes are split */
};

/* Creates a network without layers, whose input is activations. Free it by ls_network_destroy. NULL, reported: no
 * memory. */
ls_network *ls_network_begin(struct ls_shape input, ls_loss_kind loss);
/* Plans a layer, given its description, and adds it. LS_ERR_INVALID: it does not fit the layers that it reads or shares
 * with. */
ls_status ls_network_add(ls_network *network, ls_layer layer);
/* Declares another parameter, or buffer, of the last layer, for kinds with more than a plan can declare. It is not in
 * the pass's lists, and the layer's backward itself reports the ready gradient (pass->ready). */
ls_status ls_network_declare_parameter(ls_network *network, const struct ls_tensor *tensor);
ls_status ls_network_declare_buffer(ls_network *network, const struct ls_tensor *tensor);
/* Call after the last layer, whose output is the network's. LS_ERR_INVALID: a block reads more than the output of the
 * block before it, or shared parameters do not match. */
ls_status ls_network_finish(ls_network *network);

/* Adds the input and all layers of a GPT (gpt.h) to a network without layers. (gpt.c) */
ls_status ls_gpt_add_layers(ls_network *network, const char *description);

#endif
