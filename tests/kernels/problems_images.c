#include "tests/kernels/problem_parts.h"

/* --- images ------------------------------------------------------------------------------------------------------ */

static struct ls_conv2d_shape conv2d_shape(const struct problem *p, size_t size) {
    int n = (int)size;
    return (struct ls_conv2d_shape){2, 1 + n % 5, 4 + n % 7, 3 + n % 11, 1 + n % 19, 3, 2, 1 + n % 2, n % 3, p->dtype};
}

static size_t conv2d_in(const struct ls_conv2d_shape *s) {
    return (size_t)(s->batch * s->in_channels * s->in_height * s->in_width);
}

static size_t conv2d_out(const struct ls_conv2d_shape *s) {
    return (size_t)(s->batch * s->out_channels * ls_conv2d_out_height(s) * ls_conv2d_out_width(s));
}

static size_t conv2d_weights(const struct ls_conv2d_shape *s) {
    return (size_t)(s->out_channels * s->in_channels * s->kernel_h * s->kernel_w);
}

void problem_conv2d_forward(struct problem *p, size_t n) {
    struct ls_conv2d_shape s = conv2d_shape(p, n);
    const void *x = problem_values(p, conv2d_in(&s), 2), *w = problem_values(p, conv2d_weights(&s), 3);
    const void *bias = n % 2 ? problem_values(p, (size_t)s.out_channels, 4) : NULL;
    p->op.arguments.conv2d_forward =
        (struct ls_conv2d_forward_arguments){s,
                                             x,
                                             w,
                                             bias,
                                             problem_results(p, conv2d_out(&s), 1),
                                             kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s))};
}

void problem_conv2d_backward_data(struct problem *p, size_t n) {
    struct ls_conv2d_shape s = conv2d_shape(p, n);
    const void *dy = problem_values(p, conv2d_out(&s), 2), *w = problem_values(p, conv2d_weights(&s), 3);
    p->op.arguments.conv2d_backward_data = (struct ls_conv2d_backward_data_arguments){
        s, dy, w, problem_results(p, conv2d_in(&s), 1), kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s))};
}

void problem_conv2d_backward_weights(struct problem *p, size_t n) {
    struct ls_conv2d_shape s = conv2d_shape(p, n);
    const void *x = problem_values(p, conv2d_in(&s), 2), *dy = problem_values(p, conv2d_out(&s), 3);
    float *dw = problem_floats(p, conv2d_weights(&s), 1), *dbias = problem_floats(p, (size_t)s.out_channels, 4);
    p->op.arguments.conv2d_backward_weights = (struct ls_conv2d_backward_weights_arguments){
        s, x, dy, dw, dbias, n % 2 == 1, kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s))};
}

static struct ls_batchnorm_shape batchnorm_shape(const struct problem *p, size_t size) {
    int n = (int)size;
    return (struct ls_batchnorm_shape){2, 1 + n % 5, n + 1, 0.1f, 1e-5f, n % 2 == 1, p->dtype};
}

void problem_batchnorm_train(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    const void *x = problem_values(p, count, 2);
    const float *gamma = kernel_random(c, 3), *beta = kernel_random(c, 4);
    p->op.arguments.batchnorm_train = (struct ls_batchnorm_train_arguments){s,
                                                                            problem_results(p, count, 1),
                                                                            x,
                                                                            gamma,
                                                                            beta,
                                                                            problem_floats(p, c, 5),
                                                                            problem_floats(p, c, 6),
                                                                            problem_floats(p, c, 7),
                                                                            problem_floats(p, c, 8)};
}

void problem_batchnorm_eval(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    const void *x = problem_values(p, count, 2);
    const float *gamma = kernel_random(c, 3), *beta = kernel_random(c, 4);
    p->op.arguments.batchnorm_eval = (struct ls_batchnorm_eval_arguments){
        s, problem_results(p, count, 1), x, gamma, beta, kernel_random(c, 5), problem_positive(c, 6)};
}

void problem_batchnorm_backward(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    void *dx = problem_results(p, count, 1);
    float *dgamma = problem_floats(p, c, 2), *dbeta = problem_floats(p, c, 3);
    p->op.arguments.batchnorm_backward = (struct ls_batchnorm_backward_arguments){.shape = s,
                                                                                  .dx = dx,
                                                                                  .dgamma = dgamma,
                                                                                  .dbeta = dbeta,
                                                                                  .dy = problem_values(p, count, 4),
                                                                                  .x = problem_values(p, count, 5),
                                                                                  .gamma = kernel_random(c, 6),
                                                                                  .beta = kernel_random(c, 7),
                                                                                  .mean = kernel_random(c, 8),
                                                                                  .invstd = problem_positive(c, 9),
                                                                                  .accumulate = n % 2 == 1};
}

/* --- batch norm over several ranks ------------------------------------------------------------------------------- */

static double *make_doubles(const float *values, size_t count) {
    double *doubles = kernel_bytes(count * sizeof *doubles);
    for (size_t i = 0; i < count; i++) doubles[i] = (double)values[i];
    return doubles;
}

void problem_batchnorm_statistics(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    double *statistics = problem_zeros(p, ls_batchnorm_statistics_count(&s) * sizeof *statistics);
    p->op.arguments.batchnorm_statistics =
        (struct ls_batchnorm_statistics_arguments){s, statistics, problem_values(p, ls_batchnorm_count(&s), 1)};
}

/* Three ranks, the second of which has no values. `size` is the number of channels. */
void problem_batchnorm_merge(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = {.channels = 1 + (int)n, .momentum = 0.1f, .epsilon = 1e-5f, .dtype = p->dtype};
    size_t c = (size_t)s.channels, each = ls_batchnorm_statistics_count(&s);
    double *statistics = make_doubles(problem_positive(3 * each, 1), 3 * each);
    for (size_t r = 0; r < 3; r++) statistics[(r + 1) * each - 1] = r == 1 ? 0 : (double)(n + 1 + r);
    float *mean = problem_floats(p, c, 2), *invstd = problem_floats(p, c, 3);
    double *count = problem_zeros(p, sizeof *count);
    p->op.arguments.batchnorm_merge = (struct ls_batchnorm_merge_arguments){
        s, mean, invstd, count, problem_floats(p, c, 4), problem_floats(p, c, 5), statistics, 3};
}

void problem_batchnorm_normalize(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    const void *x = problem_values(p, count, 2);
    const float *gamma = kernel_random(c, 3), *beta = kernel_random(c, 4);
    p->op.arguments.batchnorm_normalize = (struct ls_batchnorm_normalize_arguments){
        s, problem_results(p, count, 1), x, gamma, beta, kernel_random(c, 5), problem_positive(c, 6)};
}

void problem_batchnorm_sums(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    float *sums = problem_floats(p, 2 * c, 1), *dgamma = problem_floats(p, c, 2), *dbeta = problem_floats(p, c, 3);
    const void *dy = problem_values(p, count, 4), *x = problem_values(p, count, 5);
    const float *gamma = kernel_random(c, 6);
    p->op.arguments.batchnorm_sums = (struct ls_batchnorm_sums_arguments){
        s,         sums, dgamma, dbeta, dy, x, gamma, kernel_random(c, 7), kernel_random(c, 8), problem_positive(c, 9),
        n % 2 == 1};
}

void problem_batchnorm_input_gradient(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(p, n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    void *dx = problem_results(p, count, 1);
    const void *dy = problem_values(p, count, 2), *x = problem_values(p, count, 3);
    const float *gamma = kernel_random(c, 4);
    p->op.arguments.batchnorm_input_gradient =
        (struct ls_batchnorm_input_gradient_arguments){s,
                                                       dx,
                                                       dy,
                                                       x,
                                                       gamma,
                                                       kernel_random(c, 5),
                                                       kernel_random(c, 6),
                                                       problem_positive(c, 7),
                                                       kernel_random(2 * c, 8),
                                                       make_doubles(problem_positive(1, 9), 1)};
}

/* --- pooling ----------------------------------------------------------------------------------------------------- */

static struct ls_pool_shape pool_shape(const struct problem *p, size_t size) {
    int n = (int)size;
    return (struct ls_pool_shape){1 + n % 3, 4 + n % 5, n + 3, 2 + n % 2, p->dtype};
}

static size_t pool_out(const struct ls_pool_shape *s) {
    return (size_t)(s->planes * (s->in_height / s->size) * (s->in_width / s->size));
}

void problem_maxpool_forward(struct problem *p, size_t n) {
    struct ls_pool_shape s = pool_shape(p, n);
    void *y = problem_results(p, pool_out(&s), 1);
    float *x = kernel_random(ls_pool_count(&s), 2);
    for (size_t i = 0; i < ls_pool_count(&s); i++) x[i] = (float)(int)(x[i] * 4); /* many ties */
    uint8_t *choice = problem_zeros(p, pool_out(&s));
    p->op.arguments.maxpool_forward =
        (struct ls_maxpool_forward_arguments){s, y, choice, kernel_rounded(p->dtype, x, ls_pool_count(&s))};
}

void problem_maxpool_backward(struct problem *p, size_t n) {
    struct ls_pool_shape s = pool_shape(p, n);
    uint8_t *choice = kernel_bytes(pool_out(&s));
    for (size_t i = 0; i < pool_out(&s); i++) choice[i] = (uint8_t)(i * 7 % (size_t)(s.size * s.size));
    p->op.arguments.maxpool_backward = (struct ls_maxpool_backward_arguments){
        s, problem_results(p, ls_pool_count(&s), 1), problem_values(p, pool_out(&s), 2), choice};
}

void problem_avgpool_forward(struct problem *p, size_t n) {
    size_t plane = 1 + n % 71;
    p->op.arguments.avgpool_forward = (struct ls_avgpool_forward_arguments){p->dtype, problem_results(p, n, 1),
                                                                            problem_values(p, n * plane, 2), n, plane};
}

void problem_avgpool_backward(struct problem *p, size_t n) {
    size_t plane = 1 + n % 71;
    p->op.arguments.avgpool_backward = (struct ls_avgpool_backward_arguments){
        p->dtype, problem_results(p, n * plane, 1), problem_values(p, n, 2), n, plane};
}
