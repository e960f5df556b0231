/* Layers: explicit forward and backward, no autograd. Private to common/nn, and to those who make a network layer by
 * layer; users see network.h and model.h.
 *
 * A layer is constant: what a pass needs beside its description (memory, parameters, the batch) comes with the pass. */
#ifndef LS_NN_LAYER_H
#define LS_NN_LAYER_H

#include <stdint.h>

#include "common/base/random.h"
#include "common/comm/comm.h"
#include "common/device/device.h"
#include "common/nn/tensor.h"
#include "kernels/kernels.h"

typedef struct ls_layer ls_layer;

#define LS_LAYER_MAX_TENSORS 2
#define LS_LAYER_MAX_INPUTS 3

/* A parameter as a pass sees it. */
struct ls_pass_parameter {
    const float *data;
    const void *operand; /* what products read: the copy in half precision where there is one (PyTorch's autocast) */
    float *gradient;     /* backward: written, or if `adds` added to */
    bool adds;
};

/* One pass of a layer over a batch. Pointers are device memory, activations [batch, channels, height, width] of the
 * model's precision (dtype). */
struct ls_pass {
    ls_stream *stream;
    ls_dtype dtype;
    size_t batch;
    bool training;                      /* forward: batch statistics rather than running ones */
    const void *x[LS_LAYER_MAX_INPUTS]; /* the layer's inputs, the same in forward and backward */
    void *y;                            /* its output; in place: the same memory as x[0] */
    void *dy;                           /* backward: the gradient of y; may be overwritten */
    void *dx[LS_LAYER_MAX_INPUTS];      /* backward: get the gradients of x; NULL if nobody needs it */
    struct ls_pass_parameter parameters[LS_LAYER_MAX_TENSORS];
    float *buffers[LS_LAYER_MAX_TENSORS];
    void *saved;     /* kept from forward to backward, as planned */
    void *workspace; /* scratch memory of products */
    ls_comm *tensor; /* of a network that is cut: the ranks that have the other parts */
    ls_comm *group;  /* batch norm: the ranks that normalise together, more than one; NULL: this one alone */
    void *shared;    /* batch norm with a group: what its ranks tell each other */
    const struct ls_ready *ready; /* backward: for ls_pass_ready */
};

/* In the middle of a backward: the gradient of the network's parameter `number`, which the layer's plan has not declared
 * (network_internal.h), is complete once what has been enqueued is done. (passes.c) */
void ls_pass_ready(const struct ls_pass *pass, size_t number);

/* What a kind of layer does. Slots marked optional may be NULL. */
struct ls_layer_kind {
    const char *name;
    bool in_place;     /* y is x: the layer needs no output memory */
    bool leaves_input; /* in place, and y is x as it was: others may read it, too */
    bool hands_on;     /* each input's gradient is that of the output, as backward (optional) leaves it */
    bool reports; /* backward itself says which gradients are ready, and is called without samples, too (described.h) */
    bool apart;   /* backward looks at `adds` of each parameter by itself; else they must all be alike */
    const char *const
        *masks; /* (optional) tensors that PyTorch's module may have beside parameters, up to a NULL: constants */
    ls_status (*plan)(ls_layer *layer); /* from `in`: out, parameters, buffers, saved bytes */
    void (*init)(const ls_layer *layer, ls_generator *g, float *const *parameters); /* (optional) host arrays to fill */
    void (*forward)(const ls_layer *layer, const struct ls_pass *pass); /* they enqueue; a failure poisons the device */
    void (*backward)(const ls_layer *layer, const struct ls_pass *pass);
    /* (optional) Bytes kept from forward to backward that depend on the precision, beside those that plan has asked for. */
    size_t (*saved_nbytes)(const ls_layer *layer, ls_dtype dtype, size_t batch);
    /* (optional) Scratch bytes that a pass needs at a batch size on a kind of device. */
    size_t (*workspace_nbytes)(const ls_layer *layer, ls_dtype dtype, ls_device_kind kind, size_t batch);
    /* (optional) Multiply-adds of a sample's forward pass. NULL: there is no product in it. */
    double (*products)(const ls_layer *layer);
    /* (optional) Bytes of pass->shared, where batch norm may meet the ranks of a group of that size. */
    size_t (*shared_nbytes)(const ls_layer *layer, int world_size);
};

#define LS_NETWORK_INPUT (-1) /* in place of the number of a layer */

/* How tensor parallelism cuts a layer among ranks (tensor_parallel.h). */
enum ls_layer_cut {
    LS_CUT_NONE,    /* it stays whole; batch norm and pools go along with their input */
    LS_CUT_OUTPUTS, /* column-parallel: a rank has outputs of its own, that is rows of the weight and their bias */
    LS_CUT_QKV,     /* the same in three ranges of outputs: heads of query, of key and of value */
    LS_CUT_INPUTS,  /* row-parallel: it reads its rank's outputs, so that its own are terms of a sum */
    LS_CUT_HEADS,   /* attention: heads of its own */
    LS_CUT_CLASSES  /* embedding, head: a range of the vocabulary */
};

/* A rank's layer of a network that is cut: what its kind must know of the cut. */
struct ls_layer_part {
    int rank, ranks;
    struct ls_class_part classes; /* LS_CUT_CLASSES */
};

struct ls_layer {
    /* the description */
    const struct ls_layer_kind *kind;
    char name[32];
    int units, kernel, stride, padding; /* linear, conv2d, embedding: units = outputs; conv2d, maxpool: kernel */
    int vocabulary, heads;              /* embedding; attention */
    double deviation;  /* embedding, linear: initial weights are normal; linear: 0: PyTorch's default */
    bool no_bias;      /* linear, conv2d */
    bool relu;         /* linear with a bias, batch norm, addition: followed by a ReLU in the same pass */
    bool gelu;         /* linear: followed by a GELU in the same pass */
    bool keeps_scores; /* attention: scores stay in memory from forward to backward */
    bool begins_block; /* the first layer does anyway */
    int passes_by; /* 1, 2: no backward reads its output, which lies in that slot until the next layer has read it */
    enum ls_layer_cut cut;
    struct ls_layer_part part; /* tensor_parallel.c */
    /* the layers whose outputs it reads, up to the last that is named; NULL: the network's input; none is named: the layer
     * before. Names are looked at while the layer is added */
    const char *reads[LS_LAYER_MAX_INPUTS];
    bool reads_input; /* where none is named: the network's input, whichever layer is before */
    const char
        *shares[LS_LAYER_MAX_TENSORS]; /* an earlier parameter that is the p-th of this layer, too; NULL: its own */
    const struct ls_described_node *described; /* described.h; NULL: the layer computes */
    /* from plan() */
    struct ls_shape in, out;                      /* in: of the first input */
    size_t saved_nbytes_per_sample, saved_nbytes; /* memory kept from forward to backward */
    size_t parameter_count, buffer_count, batchnorm_count;
    struct ls_tensor parameters[LS_LAYER_MAX_TENSORS], buffers[LS_LAYER_MAX_TENSORS];
    /* from the network */
    int block;
    int inputs[LS_LAYER_MAX_INPUTS], input_count; /* numbers of layers, or LS_NETWORK_INPUT */
    bool is_unread; /* nobody reads its output: no pass takes it, and its own parameters get no gradient */
    size_t parameter_numbers[LS_LAYER_MAX_TENSORS], buffer_numbers[LS_LAYER_MAX_TENSORS]; /* in the network's lists */
    /* of the layers that have this parameter, the one that backward meets first (its gradient is written there, the others
     * add), and the one that it meets last (behind which the gradient is ready) */
    bool writes_gradient[LS_LAYER_MAX_TENSORS], completes_gradient[LS_LAYER_MAX_TENSORS];
};

/* What a rank's part of a network has beside the kinds below (tensor_layers.c, tensor_parts.c, tensor_embedding.c). */
extern const struct ls_layer_kind ls_tensor_f, ls_tensor_g, ls_sequence_gather, ls_sequence_scatter;
extern const struct ls_layer_kind ls_embedding_part, ls_conv2d_part, ls_layernorm_part;

/* Fills the next free parameter (or buffer) of a layer: "<layer>.<suffix>" with this shape. */
void ls_layer_add_parameter(ls_layer *layer, const char *suffix, int ndim, const size_t *shape);
void ls_layer_add_buffer(ls_layer *layer, const char *suffix, int ndim, const size_t *shape);

/* PyTorch's default for linear and convolution (docs/pytorch.md#initial-weights): weight and bias uniform in
 * +-1/sqrt(fan_in), weight drawn first. */
void ls_init_kaiming_uniform(const ls_layer *layer, ls_generator *g, float *const *parameters);

/* Normal values of mean 0. */
void ls_init_normal(ls_generator *g, float *values, size_t count, double deviation);

/* The backward of a layer that has seen no samples: its gradients count as zero. */
void ls_layer_zero_gradients(const ls_layer *layer, const struct ls_pass *pass);

extern const struct ls_layer_kind ls_linear, ls_conv2d, ls_batchnorm2d, ls_maxpool2d, ls_flatten, ls_addition;
extern const struct ls_layer_kind ls_relu, ls_avgpool2d;
extern const struct ls_layer_kind ls_head, ls_embedding, ls_layernorm, ls_attention;

#endif
