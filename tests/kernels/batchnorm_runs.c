#include "tests/kernels/batchnorm_runs.h"

#include <math.h>
#include <string.h>

struct ls_batchnorm_shape batchnorm_shape(int batch, int channels, int plane, bool relu, ls_dtype dtype) {
    return (struct ls_batchnorm_shape){batch, channels, plane, 0.1f, 1e-5f, relu, dtype};
}

static float *random_or_none(bool wanted, size_t count, uint64_t seed) {
    return wanted ? kernel_random(count, seed) : kernel_floats(count);
}

struct batchnorm batchnorm_make(struct ls_batchnorm_shape s, float offset, bool accumulate) {
    struct batchnorm b = {.s = s, .accumulate = accumulate};
    size_t c = b.channels = (size_t)s.channels, count = b.count = ls_batchnorm_count(&s);
    float *x = kernel_random(count, 1);
    for (size_t i = 0; i < count; i++) x[i] += offset;
    b.x = kernel_rounded(s.dtype, x, count), b.dy = kernel_rounded(s.dtype, kernel_random(count, 2), count);
    b.gamma = kernel_random(c, 3), b.beta = kernel_random(c, 4);
    b.y = kernel_elements(s.dtype, count), b.dx = kernel_elements(s.dtype, count);
    b.mean = kernel_floats(c), b.invstd = kernel_floats(c);
    b.running_mean = kernel_random(c, 5), b.running_var = kernel_random(c, 6);
    b.dgamma = random_or_none(accumulate, c, 7), b.dbeta = random_or_none(accumulate, c, 8);
    b.sums = kernel_floats(2 * c), b.m = kernel_bytes(sizeof *b.m);
    b.statistics = kernel_bytes(ls_batchnorm_statistics_count(&s) * sizeof *b.statistics);
    return b;
}

static ls_status done(void) { return ls_stream_synchronize(kernel_stream()); }

ls_status batchnorm_train(struct batchnorm *b) {
    ls_batchnorm_train(kernel_stream(), b->s, b->y, b->x, b->gamma, b->beta, b->mean, b->invstd, b->running_mean,
                       b->running_var);
    return done();
}

ls_status batchnorm_backward(struct batchnorm *b) {
    if (b->count > 0) memcpy(b->dx, b->dy, ls_batchnorm_nbytes(&b->s));
    ls_batchnorm_backward(kernel_stream(), b->s, b->dx, b->dgamma, b->dbeta, b->dx, b->x, b->gamma, b->beta, b->mean,
                          b->invstd, b->accumulate);
    return done();
}

ls_status batchnorm_eval(struct batchnorm *b) {
    for (size_t c = 0; c < b->channels; c++) b->running_var[c] = fabsf(b->running_var[c]);
    ls_batchnorm_eval(kernel_stream(), b->s, b->y, b->x, b->gamma, b->beta, b->mean, b->running_var);
    return done();
}

ls_status batchnorm_statistics(struct batchnorm *b) {
    ls_batchnorm_statistics(kernel_stream(), b->s, b->statistics, b->x);
    return done();
}

ls_status batchnorm_merge(struct batchnorm *b) {
    ls_batchnorm_merge(kernel_stream(), b->s, b->mean, b->invstd, b->m, b->running_mean, b->running_var, b->statistics,
                       1);
    return done();
}

ls_status batchnorm_normalize(struct batchnorm *b) {
    ls_batchnorm_normalize(kernel_stream(), b->s, b->y, b->x, b->gamma, b->beta, b->mean, b->invstd);
    return done();
}

ls_status batchnorm_sums(struct batchnorm *b) {
    ls_batchnorm_sums(kernel_stream(), b->s, b->sums, b->dgamma, b->dbeta, b->dy, b->x, b->gamma, b->beta, b->mean,
                      b->invstd, b->accumulate);
    return done();
}

ls_status batchnorm_input_gradient(struct batchnorm *b) {
    ls_batchnorm_input_gradient(kernel_stream(), b->s, b->dx, b->dy, b->x, b->gamma, b->beta, b->mean, b->invstd,
                                b->sums, b->m);
    return done();
}
