#include "tests/kernels/problems.h"

#include <string.h>

#include "common/base/hash.h"

static void add_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

static float *add_floats(struct problem *p, size_t count, uint64_t seed) {
    float *values = kernel_random(count, seed);
    add_output(p, values, count * sizeof *values);
    return values;
}

static void *add_zeros(struct problem *p, size_t nbytes) {
    void *memory = kernel_bytes(nbytes);
    memset(memory, 0, nbytes);
    add_output(p, memory, nbytes);
    return memory;
}

/* Labels 0, 1, .. classes - 1, 0, 1, .. */
static const int64_t *make_labels(size_t rows, size_t classes) {
    int64_t *labels = kernel_bytes(rows * sizeof *labels);
    for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r % classes);
    return labels;
}

/* Random numbers from 0.5 to 1.5: variances and divisors. */
static float *make_positive(size_t count, uint64_t seed) {
    float *values = kernel_random(count, seed);
    for (size_t i = 0; i < count; i++) values[i] = values[i] * 0.5f + 1;
    return values;
}

/* --- elementwise and linear -------------------------------------------------------------------------------------- */

static void make_fill(struct problem *p, size_t n) {
    p->op.arguments.fill = (struct ls_fill_arguments){add_floats(p, n, 1), 0.7f, n};
}

static void make_scale(struct problem *p, size_t n) {
    p->op.arguments.scale = (struct ls_scale_arguments){add_floats(p, n, 1), 0.7f, n};
}

static void make_divide(struct problem *p, size_t n) {
    p->op.arguments.divide = (struct ls_divide_arguments){add_floats(p, n, 1), 3, n};
}

static void make_scale_by(struct problem *p, size_t n) {
    p->op.arguments.scale_by = (struct ls_scale_by_arguments){add_floats(p, n, 1), kernel_random(1, 2), n};
}

static void make_reduce_add(struct problem *p, size_t n) {
    const float **sources = kernel_bytes(3 * sizeof *sources);
    for (uint64_t s = 0; s < 3; s++) sources[s] = kernel_random(n, 2 + s);
    p->op.arguments.reduce_add = (struct ls_reduce_add_arguments){add_floats(p, n, 1), sources, 3, n};
}

static void make_gemm(struct problem *p, size_t n) {
    const float *a = kernel_random(n * (n + 2), 2), *b = kernel_random((n + 1) * (n + 2), 3);
    float *c = add_floats(p, n * (n + 1), 1);
    p->op.arguments.gemm = (struct ls_gemm_arguments){false, true, n, n + 1, n + 2, a, b, 1, c};
}

static void make_add_bias(struct problem *p, size_t n) {
    size_t columns = 2 * n + 1;
    p->op.arguments.add_bias =
        (struct ls_add_bias_arguments){add_floats(p, n * columns, 1), kernel_random(columns, 2), n, columns};
}

static void make_add_bias_relu(struct problem *p, size_t n) {
    size_t columns = 2 * n + 1;
    p->op.arguments.add_bias_relu =
        (struct ls_add_bias_relu_arguments){add_floats(p, n * columns, 1), kernel_random(columns, 2), n, columns};
}

static void make_relu_bias_gradient(struct problem *p, size_t n) {
    size_t columns = 5 * n + 1;
    float *dbias = add_floats(p, columns, 1), *dy = add_floats(p, n * columns, 2);
    p->op.arguments.relu_bias_gradient =
        (struct ls_relu_bias_gradient_arguments){dbias, dy, kernel_random(n * columns, 3), n, columns, n % 2 == 1};
}

static void make_bias_gradient(struct problem *p, size_t n) {
    size_t columns = 5 * n + 1;
    p->op.arguments.bias_gradient = (struct ls_bias_gradient_arguments){
        add_floats(p, columns, 1), kernel_random(n * columns, 2), n, columns, n % 2 == 1};
}

static void make_relu_forward(struct problem *p, size_t n) {
    p->op.arguments.relu_forward = (struct ls_relu_forward_arguments){add_floats(p, n, 1), kernel_random(n, 2), n};
}

static void make_relu_backward(struct problem *p, size_t n) {
    p->op.arguments.relu_backward =
        (struct ls_relu_backward_arguments){add_floats(p, n, 1), kernel_random(n, 2), kernel_random(n, 3), n};
}

/* --- images ------------------------------------------------------------------------------------------------------ */

static struct ls_conv2d_shape conv2d_shape(size_t size) {
    int n = (int)size;
    return (struct ls_conv2d_shape){2, 1 + n % 5, 4 + n % 7, 3 + n % 11, 1 + n % 19, 3, 2, 1 + n % 2, n % 3};
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

static void make_conv2d_forward(struct problem *p, size_t n) {
    struct ls_conv2d_shape s = conv2d_shape(n);
    const float *x = kernel_random(conv2d_in(&s), 2), *w = kernel_random(conv2d_weights(&s), 3);
    const float *bias = n % 2 ? kernel_random((size_t)s.out_channels, 4) : NULL;
    p->op.arguments.conv2d_forward = (struct ls_conv2d_forward_arguments){
        s, x, w, bias, add_floats(p, conv2d_out(&s), 1), kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s))};
}

static void make_conv2d_backward_data(struct problem *p, size_t n) {
    struct ls_conv2d_shape s = conv2d_shape(n);
    const float *dy = kernel_random(conv2d_out(&s), 2), *w = kernel_random(conv2d_weights(&s), 3);
    p->op.arguments.conv2d_backward_data = (struct ls_conv2d_backward_data_arguments){
        s, dy, w, add_floats(p, conv2d_in(&s), 1), kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s))};
}

static void make_conv2d_backward_weights(struct problem *p, size_t n) {
    struct ls_conv2d_shape s = conv2d_shape(n);
    const float *x = kernel_random(conv2d_in(&s), 2), *dy = kernel_random(conv2d_out(&s), 3);
    float *dw = add_floats(p, conv2d_weights(&s), 1), *dbias = add_floats(p, (size_t)s.out_channels, 4);
    p->op.arguments.conv2d_backward_weights = (struct ls_conv2d_backward_weights_arguments){
        s, x, dy, dw, dbias, n % 2 == 1, kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s))};
}

static struct ls_batchnorm_shape batchnorm_shape(size_t size) {
    int n = (int)size;
    return (struct ls_batchnorm_shape){2, 1 + n % 5, n + 1, 0.1f, 1e-5f, n % 2 == 1};
}

static void make_batchnorm_train(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    const float *x = kernel_random(count, 2), *gamma = kernel_random(c, 3), *beta = kernel_random(c, 4);
    p->op.arguments.batchnorm_train = (struct ls_batchnorm_train_arguments){s,
                                                                            add_floats(p, count, 1),
                                                                            x,
                                                                            gamma,
                                                                            beta,
                                                                            add_floats(p, c, 5),
                                                                            add_floats(p, c, 6),
                                                                            add_floats(p, c, 7),
                                                                            add_floats(p, c, 8)};
}

static void make_batchnorm_eval(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    const float *x = kernel_random(count, 2), *gamma = kernel_random(c, 3), *beta = kernel_random(c, 4);
    p->op.arguments.batchnorm_eval = (struct ls_batchnorm_eval_arguments){
        s, add_floats(p, count, 1), x, gamma, beta, kernel_random(c, 5), make_positive(c, 6)};
}

static void make_batchnorm_backward(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    float *dx = add_floats(p, count, 1), *dgamma = add_floats(p, c, 2), *dbeta = add_floats(p, c, 3);
    p->op.arguments.batchnorm_backward = (struct ls_batchnorm_backward_arguments){.shape = s,
                                                                                  .dx = dx,
                                                                                  .dgamma = dgamma,
                                                                                  .dbeta = dbeta,
                                                                                  .dy = kernel_random(count, 4),
                                                                                  .x = kernel_random(count, 5),
                                                                                  .gamma = kernel_random(c, 6),
                                                                                  .beta = kernel_random(c, 7),
                                                                                  .mean = kernel_random(c, 8),
                                                                                  .invstd = make_positive(c, 9),
                                                                                  .accumulate = n % 2 == 1};
}

/* --- batch norm over several ranks ------------------------------------------------------------------------------- */

static double *make_doubles(const float *values, size_t count) {
    double *doubles = kernel_bytes(count * sizeof *doubles);
    for (size_t i = 0; i < count; i++) doubles[i] = (double)values[i];
    return doubles;
}

static void make_batchnorm_statistics(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    double *statistics = add_zeros(p, ls_batchnorm_statistics_count(&s) * sizeof *statistics);
    p->op.arguments.batchnorm_statistics =
        (struct ls_batchnorm_statistics_arguments){s, statistics, kernel_random(ls_batchnorm_count(&s), 1)};
}

/* Three ranks, the second of which has no values. What counts here is the number of channels. */
static void make_batchnorm_merge(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = {.channels = 1 + (int)n, .momentum = 0.1f, .epsilon = 1e-5f};
    size_t c = (size_t)s.channels, each = ls_batchnorm_statistics_count(&s);
    double *statistics = make_doubles(make_positive(3 * each, 1), 3 * each);
    for (size_t r = 0; r < 3; r++) statistics[(r + 1) * each - 1] = r == 1 ? 0 : (double)(n + 1 + r);
    float *mean = add_floats(p, c, 2), *invstd = add_floats(p, c, 3);
    double *count = add_zeros(p, sizeof *count);
    p->op.arguments.batchnorm_merge = (struct ls_batchnorm_merge_arguments){
        s, mean, invstd, count, add_floats(p, c, 4), add_floats(p, c, 5), statistics, 3};
}

static void make_batchnorm_normalize(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    const float *x = kernel_random(count, 2), *gamma = kernel_random(c, 3), *beta = kernel_random(c, 4);
    p->op.arguments.batchnorm_normalize = (struct ls_batchnorm_normalize_arguments){
        s, add_floats(p, count, 1), x, gamma, beta, kernel_random(c, 5), make_positive(c, 6)};
}

static void make_batchnorm_sums(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    float *sums = add_floats(p, 2 * c, 1), *dgamma = add_floats(p, c, 2), *dbeta = add_floats(p, c, 3);
    const float *dy = kernel_random(count, 4), *x = kernel_random(count, 5), *gamma = kernel_random(c, 6);
    p->op.arguments.batchnorm_sums = (struct ls_batchnorm_sums_arguments){
        s,         sums, dgamma, dbeta, dy, x, gamma, kernel_random(c, 7), kernel_random(c, 8), make_positive(c, 9),
        n % 2 == 1};
}

static void make_batchnorm_input_gradient(struct problem *p, size_t n) {
    struct ls_batchnorm_shape s = batchnorm_shape(n);
    size_t count = ls_batchnorm_count(&s), c = (size_t)s.channels;
    float *dx = add_floats(p, count, 1);
    const float *dy = kernel_random(count, 2), *x = kernel_random(count, 3), *gamma = kernel_random(c, 4);
    p->op.arguments.batchnorm_input_gradient =
        (struct ls_batchnorm_input_gradient_arguments){s,
                                                       dx,
                                                       dy,
                                                       x,
                                                       gamma,
                                                       kernel_random(c, 5),
                                                       kernel_random(c, 6),
                                                       make_positive(c, 7),
                                                       kernel_random(2 * c, 8),
                                                       make_doubles(make_positive(1, 9), 1)};
}

/* --- pooling ----------------------------------------------------------------------------------------------------- */

static struct ls_pool_shape pool_shape(size_t size) {
    int n = (int)size;
    return (struct ls_pool_shape){1 + n % 3, 4 + n % 5, n + 3, 2 + n % 2};
}

static size_t pool_out(const struct ls_pool_shape *s) {
    return (size_t)(s->planes * (s->in_height / s->size) * (s->in_width / s->size));
}

static void make_maxpool_forward(struct problem *p, size_t n) {
    struct ls_pool_shape s = pool_shape(n);
    float *y = add_floats(p, pool_out(&s), 1), *x = kernel_random(ls_pool_count(&s), 2);
    for (size_t i = 0; i < ls_pool_count(&s); i++) x[i] = (float)(int)(x[i] * 4); /* many ties */
    uint8_t *choice = add_zeros(p, pool_out(&s));
    p->op.arguments.maxpool_forward = (struct ls_maxpool_forward_arguments){s, y, choice, x};
}

static void make_maxpool_backward(struct problem *p, size_t n) {
    struct ls_pool_shape s = pool_shape(n);
    uint8_t *choice = kernel_bytes(pool_out(&s));
    for (size_t i = 0; i < pool_out(&s); i++) choice[i] = (uint8_t)(i * 7 % (size_t)(s.size * s.size));
    p->op.arguments.maxpool_backward = (struct ls_maxpool_backward_arguments){s, add_floats(p, ls_pool_count(&s), 1),
                                                                              kernel_random(pool_out(&s), 2), choice};
}

/* --- losses, optimizers, clipping -------------------------------------------------------------------------------- */

/* Few, and about as many as a GPU's warp has threads. */
static size_t class_count(size_t n) { return n % 3 == 2 ? 30 + n % 5 : 1 + n % 13; }

static void make_cross_entropy(struct problem *p, size_t n) {
    size_t classes = class_count(n);
    float *loss = add_floats(p, 1, 1), *dlogits = add_floats(p, n * classes, 2);
    p->op.arguments.cross_entropy = (struct ls_cross_entropy_arguments){
        loss, dlogits, kernel_random(n * classes, 3), make_labels(n, classes), n, classes, 0.25f};
}

static void make_squared_error(struct problem *p, size_t n) {
    float *loss = add_floats(p, 1, 1), *d = add_floats(p, n, 2);
    p->op.arguments.squared_error =
        (struct ls_squared_error_arguments){loss, d, kernel_random(n, 3), kernel_random(n, 4), n, 0.25f};
}

static void make_count_correct(struct problem *p, size_t n) {
    size_t classes = class_count(n);
    int64_t *correct = add_zeros(p, sizeof *correct);
    p->op.arguments.count_correct = (struct ls_count_correct_arguments){correct, kernel_random(n * classes, 1),
                                                                        make_labels(n, classes), n, classes};
}

/* The state after `step` updates. */
static struct ls_update_state *make_state(double step) {
    struct ls_update_state *state = memset(kernel_bytes(sizeof *state), 0, sizeof *state);
    *state = (struct ls_update_state){0.1, step, 0, 0.3f, 0.2f};
    return state;
}

static void make_begin_update(struct problem *p, size_t n) {
    struct ls_update_state *state = make_state((double)n);
    add_output(p, state, sizeof *state);
    p->op.arguments.begin_update = (struct ls_begin_update_arguments){state, 0.9, 0.999};
}

static void make_sgd(struct problem *p, size_t n) {
    struct ls_sgd_rule rule = {n % 2 ? 0.9f : 0, 0, 0.01f, n % 4 == 1};
    float *parameter = add_floats(p, n, 1), *momentum = n % 2 ? add_floats(p, n, 3) : NULL;
    p->op.arguments.sgd =
        (struct ls_sgd_arguments){rule, make_state((double)(n % 3)), parameter, kernel_random(n, 2), momentum, n};
}

static void make_adam(struct problem *p, size_t n) {
    struct ls_adam_rule rule = {0.9, 0.999, 1e-8, 0.01, n % 2 == 1};
    float *parameter = add_floats(p, n, 1), *first = add_floats(p, n, 3), *second = make_positive(n, 4);
    add_output(p, second, n * sizeof *second);
    p->op.arguments.adam =
        (struct ls_adam_arguments){rule, make_state(2), parameter, kernel_random(n, 2), first, second, n};
}

/* Three tensors, of which the second fills several chunks. */
enum { LIST_TENSORS = 3 };
static struct ls_update_tensor *make_list(struct problem *p, size_t n, bool moments, size_t *chunks, size_t *total) {
    const size_t counts[LIST_TENSORS] = {n, n * 2 * LS_UPDATE_CHUNK / 7, n + 1};
    struct ls_update_tensor *list = kernel_bytes(LIST_TENSORS * sizeof *list);
    *chunks = *total = 0;
    for (size_t i = 0; i < LIST_TENSORS; i++) {
        size_t count = counts[i];
        list[i] = (struct ls_update_tensor){.parameter = add_floats(p, count, 10 + i),
                                            .gradient = kernel_random(count, 20 + i),
                                            .first = moments ? add_floats(p, count, 30 + i) : NULL,
                                            .second = moments ? make_positive(count, 40 + i) : NULL,
                                            .count = count,
                                            .first_chunk = *chunks};
        if (moments) add_output(p, list[i].second, count * sizeof(float));
        *chunks += (count + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        *total += count;
    }
    return list;
}

static void make_sgd_list(struct problem *p, size_t n) {
    struct ls_sgd_rule rule = {n % 2 ? 0.9f : 0, 0, 0.01f, n % 4 == 1};
    size_t chunks, total;
    struct ls_update_tensor *list = make_list(p, n, n % 2 == 1, &chunks, &total);
    p->op.arguments.sgd_list =
        (struct ls_sgd_list_arguments){rule, make_state((double)(n % 3)), list, LIST_TENSORS, chunks, total};
}

static void make_adam_list(struct problem *p, size_t n) {
    struct ls_adam_rule rule = {0.9, 0.999, 1e-8, 0.01, n % 2 == 1};
    size_t chunks, total;
    struct ls_update_tensor *list = make_list(p, n, true, &chunks, &total);
    p->op.arguments.adam_list = (struct ls_adam_list_arguments){rule, make_state(2), list, LIST_TENSORS, chunks, total};
}

static void make_square_sum(struct problem *p, size_t n) {
    double *sum = add_zeros(p, sizeof *sum);
    *sum = 0.25; /* it is added to */
    p->op.arguments.square_sum = (struct ls_square_sum_arguments){sum, kernel_random(n, 1), n};
}

static void make_clip_coefficient(struct problem *p, size_t n) {
    double *square_sum = kernel_bytes(sizeof *square_sum);
    *square_sum = (double)n;
    p->op.arguments.clip_coefficient =
        (struct ls_clip_coefficient_arguments){add_floats(p, 1, 1), add_floats(p, 1, 2), square_sum, 1.5f};
}

struct problem make_problem(ls_op_id id, int size) {
    struct problem problem;
    memset(&problem, 0, sizeof problem);
    problem.op.id = id;
    switch (id) {
#define LS_OP(name, flops, bytes, aliasing)                                                                            \
    case LS_OP_##name:                                                                                                 \
        make_##name(&problem, (size_t)size);                                                                           \
        break;
#include "kernels/ops.def"
#undef LS_OP
    case LS_OP_COUNT: break;
    }
    return problem;
}

uint64_t hash_of_outputs(const struct problem *problem) {
    uint64_t hash = LS_HASH_SEED;
    for (int i = 0; i < problem->output_count; i++)
        hash = ls_hash(hash, problem->outputs[i].memory, problem->outputs[i].nbytes);
    return hash;
}
