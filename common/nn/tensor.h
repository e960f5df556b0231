/* What networks, layers and models speak of: shapes of activations, and named tensors. */
#ifndef LS_NN_TENSOR_H
#define LS_NN_TENSOR_H

#include <stddef.h>

/* The shape of one sample or activation; features are channels x 1 x 1. */
struct ls_image {
    int channels, height, width;
};
static inline size_t ls_image_count(struct ls_image image) {
    return (size_t)image.channels * (size_t)image.height * (size_t)image.width;
}

#define LS_TENSOR_NAME_NBYTES 48

/* A named parameter or buffer. Those of a network have no memory: all pointers are NULL. */
struct ls_tensor {
    char name[LS_TENSOR_NAME_NBYTES]; /* "fc1.weight" */
    int ndim;
    size_t shape[4];
    size_t count;
    float *data;
    float *gradient; /* NULL for buffers */
    void *half;      /* a copy in the model's precision, which products read; NULL in an fp32 model, and for buffers */
};

#endif
