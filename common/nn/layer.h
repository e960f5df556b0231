/* Layers: explicit forward and backward, no autograd. For common/nn and for code that builds a network layer by layer;
 * others use network.h and model.h.
 *
 * A layer is constant: a pass brings the memory, the parameters and the batch. */
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
    const void *operand; /* read by matrix multiplies: the fp16 or bf16 copy if there is one (PyTorch's autocast) */
    float *gradient;     /* backward: overwritten or, if `adds`, added to */
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
    void *dx[LS_LAYER_MAX_INPUTS];      /* backward: receive the gradients of x; NULL: not needed */
    struct ls_pass_parameter parameters[LS_LAYER_MAX_TENSORS];
    float *buffers[LS_LAYER_MAX_TENSORS];
    void *saved;     /* kept from forward to backward, as planned */
    void *workspace; /* scratch memory for matrix multiplies */
    ls_comm *tensor; /* the tensor-parallel group, of a network that is split */
    ls_comm *group;  /* batch norm: the ranks that normalise together, two or more; NULL: this rank alone */
    void *shared;    /* batch norm with a group: memory for its exchange */
    const struct ls_ready *ready; /* backward: for ls_pass_ready */
};

/* Call within a backward: the gradient of the network's parameter `number`, which the layer's plan has not declared
 * (network_internal.h), is complete once the work enqueued so far is done. (passes.c) */
void ls_pass_ready(const struct ls_pass *pass, size_t number);

/* The functions and properties of a kind of layer. Slots marked optional may be NULL. */
struct ls_layer_kind {
    const char *name;
    bool in_place;     /* y is x: the layer needs no output memory */
    bool leaves_input; /* in place, and x is not changed: other layers may read it, too */
    bool hands_on;     /* each input's gradient is the output's, after backward (optional) */
    bool reports;      /* backward itself reports ready gradients, and is also called without samples (described.h) */
    bool apart;        /* backward honours `adds` per parameter; else all must be equal */
    const char *const *masks;           /* (optional) constants that PyTorch's module may have, ended by NULL */
    ls_status (*plan)(ls_layer *layer); /* from `in`: out, parameters, buffers, saved bytes */
    void (*init)(const ls_layer *layer, ls_generator *g, float *const *parameters); /* (optional) host arrays to fill */
    void (*forward)(const ls_layer *layer, const struct ls_pass *pass); /* both enqueue; a failure poisons the device */
    void (*backward)(const ls_layer *layer, const struct ls_pass *pass);
    /* (optional) Bytes kept from forward to backward in addition to those of plan, if they depend on the precision. */
    size_t (*saved_nbytes)(const ls_layer *layer, ls_dtype dtype, size_t batch);
    /* (optional) Scratch bytes that a pass needs at a batch size on a kind of device. */
    size_t (*workspace_nbytes)(const ls_layer *layer, ls_dtype dtype, ls_device_kind kind, size_t batch);
    /* (optional) Multiply-adds of a sample's forward pass. NULL: none. */
    double (*products)(const ls_layer *layer);
    /* (optional) Bytes of pass->shared for batch norm in a group of that size. */
    size_t (*shared_nbytes)(const ls_layer *layer, int world_size);
};

#define LS_NETWORK_INPUT (-1) /* instead of a layer's number */

/* How tensor parallelism splits a layer over ranks (tensor_parallel.h). */
enum ls_layer_cut {
    LS_CUT_NONE,    /* not split; batch norm and pools follow their input */
    LS_CUT_OUTPUTS, /* column-parallel: each rank has some outputs, that is rows of the weight and their bias */
    LS_CUT_QKV,     /* the same in three ranges of outputs: heads of query, of key and of value */
    LS_CUT_INPUTS,  /* row-parallel: reads its rank's part of the inputs, so that its outputs are partial sums */
    LS_CUT_HEADS,   /* attention: each rank has some heads */
    LS_CUT_CLASSES  /* embedding, head: a range of the vocabulary */
};

/* A rank's part of a split layer. */
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
    int passes_by; /* 1, 2: no backward reads its output, which is kept in that slot only until the next layer has read it */
    enum ls_layer_cut cut;
    struct ls_layer_part part; /* tensor_parallel.c */
    /* names of the layers whose outputs it reads; NULL before the last name: the network's input; no names: the
     * preceding layer. Read only while the layer is added */
    const char *reads[LS_LAYER_MAX_INPUTS];
    bool reads_input; /* with no names: reads the network's input */
    const char
        *shares[LS_LAYER_MAX_TENSORS]; /* the earlier parameter used as this layer's p-th; NULL: none, it has its own */
    const struct ls_described_node *described; /* described.h; NULL: the layer computes */
    /* from plan() */
    struct ls_shape in, out;                      /* in: of the first input */
    size_t saved_nbytes_per_sample, saved_nbytes; /* memory kept from forward to backward */
    size_t parameter_count, buffer_count, batchnorm_count;
    struct ls_tensor parameters[LS_LAYER_MAX_TENSORS], buffers[LS_LAYER_MAX_TENSORS];
    /* from the network */
    int block;
    int inputs[LS_LAYER_MAX_INPUTS], input_count; /* numbers of layers, or LS_NETWORK_INPUT */
    bool is_unread; /* no layer reads its output: no pass runs it, and its own parameters get no gradient */
    size_t parameter_numbers[LS_LAYER_MAX_TENSORS], buffer_numbers[LS_LAYER_MAX_TENSORS]; /* in the network's lists */
    /* whether, of the layers with this parameter, backward reaches this one first (it writes the gradient, the others
     * add), and last (after it the gradient is ready) */
    bool writes_gradient[LS_LAYER_MAX_TENSORS], completes_gradient[LS_LAYER_MAX_TENSORS];
};

/* Kinds that only a rank's part of a split network has (tensor_layers.c, tensor_parts.c, tensor_embedding.c). */
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

/* The backward of a layer without samples: sets or leaves its gradients as if zero were added. */
void ls_layer_zero_gradients(const ls_layer *layer, const struct ls_pass *pass);

extern const struct ls_layer_kind ls_linear, ls_conv2d, ls_batchnorm2d, ls_maxpool2d, ls_flatten, ls_addition;
extern const struct ls_layer_kind ls_relu, ls_avgpool2d;
extern const struct ls_layer_kind ls_head, ls_embedding, ls_layernorm, ls_attention;

#endif
