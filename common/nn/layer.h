/* Layers: explicit forward and backward, no autograd. Private to common/nn; users see model.h. */
#ifndef LS_NN_LAYER_H
#define LS_NN_LAYER_H

#include "common/base/random.h"
#include "common/nn/model.h"
#include "kernels/kernels.h"

typedef struct ls_layer ls_layer;

/* One pass of a layer over a batch. Pointers are device memory, [batch, channels, height, width], of the model's
 * precision (layer->dtype). */
struct ls_pass {
    ls_stream *stream;
    size_t batch;
    bool training;   /* forward: batch statistics rather than running ones */
    bool accumulate; /* backward: add to the gradients */
    const void *x;   /* the layer's input, the same in forward and backward */
    void *y;         /* its output; in place: the same memory as x */
    void *dy;        /* backward: the gradient of y; may be overwritten */
    void *dx;        /* backward: gets the gradient of x (may be dy); NULL if nobody needs it */
};

/* What a kind of layer does. Slots marked optional may be NULL. */
struct ls_layer_kind {
    const char *name;
    bool in_place;                      /* y is x: the layer needs no output memory */
    bool untaken;                       /* a branch that no pass takes: its parameters are never ready */
    ls_status (*plan)(ls_layer *layer); /* from `in`: out, parameters, buffers, saved bytes */
    void (*init)(const ls_layer *layer, ls_generator *g, float *const *parameters); /* (optional) host arrays to fill */
    void (*forward)(ls_layer *layer, const struct ls_pass *pass); /* they enqueue; a failure poisons the device */
    void (*backward)(ls_layer *layer, const struct ls_pass *pass);
};

#define LS_LAYER_MAX_TENSORS 2

struct ls_layer {
    /* the description, constant after plan() */
    const struct ls_layer_kind *kind;
    char name[16];
    ls_dtype dtype; /* of activations and their gradients: the model's precision */
    struct ls_image in, out;
    int units, kernel, stride, padding;           /* linear, conv2d: units = outputs; conv2d, maxpool: kernel */
    bool relu;                                    /* linear, batch norm: followed by a ReLU in the same pass */
    size_t saved_nbytes_per_sample, saved_nbytes; /* memory kept from forward to backward */
    size_t parameter_count, buffer_count;
    struct ls_tensor parameters[LS_LAYER_MAX_TENSORS], buffers[LS_LAYER_MAX_TENSORS];
    /* memory, given by the model */
    void *y;
    void *saved;
    void *workspace;
    size_t first_parameter; /* the number of parameters[0] in the model */
    /* where backward writes the gradient of a parameter that is left out (the model sees to it); NULL: it takes part */
    float *discarded[LS_LAYER_MAX_TENSORS];
    int64_t batches_tracked; /* batch norm: training batches seen */
    ls_comm *group;          /* batch norm: the ranks that normalise together, more than one; NULL: this one alone */
    void *shared;            /* batch norm with a group: what its ranks tell each other */
};

/* Fills the next free parameter (or buffer) of a layer: "<layer>.<suffix>" with this shape. */
void ls_layer_add_parameter(ls_layer *layer, const char *suffix, int ndim, const size_t *shape);
void ls_layer_add_buffer(ls_layer *layer, const char *suffix, int ndim, const size_t *shape);

/* PyTorch's default for linear and convolution (docs/pytorch.md#initial-weights): weight and bias uniform in
 * +-1/sqrt(fan_in), weight drawn first. */
void ls_init_kaiming_uniform(const ls_layer *layer, ls_generator *g, float *const *parameters);

/* The backward of a layer that has seen no samples, or that no pass takes: its gradients count as zero. */
void ls_layer_zero_gradients(ls_layer *layer, const struct ls_pass *pass);

/* A model's layers in the order of the forward pass, and the input of its last forward (NULL and 0 before the first):
 * model.c. */
const ls_layer *ls_model_layers(const ls_model *model, size_t *count);
const void *ls_model_last_input(const ls_model *model, size_t *batch);

/* What products read of a parameter: the copy in half precision where there is one (PyTorch's autocast), else
 * itself. */
const void *ls_layer_operand(const ls_layer *layer, size_t parameter);

/* Scratch bytes that a layer's products need at a batch size on a kind of device. */
size_t ls_layer_workspace_nbytes(const ls_layer *layer, ls_device_kind kind, size_t batch);

/* Bytes of layer->shared of a batch norm layer in a group of that size. */
size_t ls_batchnorm_shared_nbytes(const ls_layer *layer, int world_size);

extern const struct ls_layer_kind ls_linear, ls_conv2d, ls_batchnorm2d, ls_maxpool2d, ls_flatten, ls_untaken;

#endif
