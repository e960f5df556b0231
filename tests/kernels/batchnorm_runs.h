/* The arguments and results of all batch norm operations on one batch, and each operation with them. */
#ifndef TESTS_KERNELS_BATCHNORM_RUNS_H
#define TESTS_KERNELS_BATCHNORM_RUNS_H

#include "tests/kernels/backends.h"

struct batchnorm {
    struct ls_batchnorm_shape s;
    size_t count, channels;
    void *x, *dy; /* of s.dtype, like y and dx; floats for LS_FP32 */
    float *gamma, *beta;
    /* results; a gradient is accumulated if it is initialized with a number */
    void *y, *dx;
    float *mean, *invstd, *running_mean, *running_var, *dgamma, *dbeta, *sums;
    double *statistics, *m;
    bool accumulate;
};

struct ls_batchnorm_shape batchnorm_shape(int batch, int channels, int plane, bool relu, ls_dtype dtype);

/* Random numbers; x and dy are rounded to the shape's type, and the means of x are near `offset`. The same at every
 * call. */
struct batchnorm batchnorm_make(struct ls_batchnorm_shape s, float offset, bool accumulate);

/* Each waits, and returns the status of the wait. */
ls_status batchnorm_train(struct batchnorm *b);
/* With dx in place of dy, which the next test may need. */
ls_status batchnorm_backward(struct batchnorm *b);
/* With mean and the absolute value of running_var. */
ls_status batchnorm_eval(struct batchnorm *b);
ls_status batchnorm_statistics(struct batchnorm *b);
ls_status batchnorm_merge(struct batchnorm *b); /* of one rank */
ls_status batchnorm_normalize(struct batchnorm *b);
ls_status batchnorm_sums(struct batchnorm *b);
ls_status batchnorm_input_gradient(struct batchnorm *b);

#endif
