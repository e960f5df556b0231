/* Shapes of activations, and named tensors. */
#ifndef LS_NN_TENSOR_H
#define LS_NN_TENSOR_H

#include <stddef.h>

/* The shape of a sample, or of an activation: rows x channels x height x width, the last axis running fastest. An image
 * is one row; so is a vector of features, channels x 1 x 1. A text has a row for each of its positions. Layers process
 * each row separately, except for attention, in which a row sees the earlier rows of its sample. The loss has an answer
 * for each row of the output. */
struct ls_shape {
    int channels, height, width;
    int rows; /* 0 is 1 */
};
static inline struct ls_shape ls_features(int count) {
    return (struct ls_shape){.channels = count, .height = 1, .width = 1};
}
static inline size_t ls_shape_rows(struct ls_shape shape) { return shape.rows > 1 ? (size_t)shape.rows : 1; }
static inline size_t ls_shape_row_count(struct ls_shape shape) { /* elements of a row */
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}
static inline size_t ls_shape_count(struct ls_shape shape) { return ls_shape_rows(shape) * ls_shape_row_count(shape); }

#define LS_TENSOR_NAME_NBYTES 48

/* A named parameter or buffer. In a network, which has no memory, all pointers are NULL. */
struct ls_tensor {
    char name[LS_TENSOR_NAME_NBYTES]; /* "fc1.weight" */
    int ndim;
    size_t shape[4];
    size_t count;
    float *data;
    float *gradient; /* NULL for buffers */
    void *half; /* a copy in the model's precision, read by matrix multiplies; NULL in an fp32 model, and for buffers */
};

/* A parameter of a network. */
struct ls_declared {
    struct ls_tensor tensor;
    int block; /* it belongs to; ascending */
};

#endif
