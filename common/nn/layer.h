/* Layers: explicit forward and backward, no autograd. Private to common/nn; users see model.h. */
#ifndef LS_NN_LAYER_H
#define LS_NN_LAYER_H

#include "common/base/random.h"
#include "common/nn/model.h"
#include "kernels/kernels.h"

typedef struct ls_layer ls_layer;

/* One pass of a layer over a batch. Pointers are device memory, [batch, channels, height, width]. */
struct ls_pass {
    ls_stream *stream;
    size_t batch;
    bool training;   /* forward: batch statistics rather than running ones */
    bool accumulate; /* backward: add to the gradients */
    const float *x;  /* the layer's input, the same in forward and backward */
    float *y;        /* its output; in place: the same memory as x */
    float *dy;       /* backward: the gradient of y; may be overwritten */
    float *dx;       /* backward: gets the gradient of x (may be dy); NULL if nobody needs it */
};

/* What a kind of layer does. Slots marked optional may be NULL. */
struct ls_layer_kind {
    const char *name;
    bool in_place;                      /* y is x: the layer needs no output memory */
    ls_status (*plan)(ls_layer *layer); /* from `in`: out, parameters, buffers, saved bytes */
    void (*init)(const ls_layer *layer, ls_generator *g, float *const *parameters); /* (optional) host arrays to fill */
    ls_status (*forward)(ls_layer *layer, const struct ls_pass *pass);
    ls_status (*backward)(ls_layer *layer, const struct ls_pass *pass);
};

#define LS_LAYER_MAX_TENSORS 2

struct ls_layer {
    /* the description, constant after plan() */
    const struct ls_layer_kind *kind;
    char name[16];
    struct ls_image in, out;
    int units, kernel, stride, padding;           /* linear, conv2d: units = outputs; conv2d, maxpool: kernel */
    bool relu;                                    /* batch norm: followed by a ReLU in the same pass */
    size_t saved_nbytes_per_sample, saved_nbytes; /* memory kept from forward to backward */
    size_t parameter_count, buffer_count;
    struct ls_tensor parameters[LS_LAYER_MAX_TENSORS], buffers[LS_LAYER_MAX_TENSORS];
    /* memory, given by the model */
    float *y;
    void *saved;
    void *workspace;
    size_t first_parameter;  /* the number of parameters[0] in the model */
    int64_t batches_tracked; /* batch norm: training batches seen */
};

/* Fills the next free parameter (or buffer) of a layer: "<layer>.<suffix>" with this shape. */
void ls_layer_add_parameter(ls_layer *layer, const char *suffix, int ndim, const size_t *shape);
void ls_layer_add_buffer(ls_layer *layer, const char *suffix, int ndim, const size_t *shape);

/* PyTorch's default for linear and convolution: weight and bias uniform in +-1/sqrt(fan_in), weight drawn first. */
void ls_init_kaiming_uniform(const ls_layer *layer, ls_generator *g, float *const *parameters);

/* Scratch bytes a convolution needs at a batch size. */
size_t ls_layer_workspace_nbytes(const ls_layer *layer, size_t batch);

extern const struct ls_layer_kind ls_linear, ls_relu, ls_conv2d, ls_batchnorm2d, ls_maxpool2d, ls_flatten;

#endif
