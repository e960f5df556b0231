#include <math.h>

#include "tests/kernels/problem_parts.h"

static struct ls_attention_shape attention_shape(const struct problem *p, size_t size) {
    int n = (int)size, heads = 1 + n % 3;
    return (struct ls_attention_shape){n < 2 ? n : 2, 1 + n % 71, heads, heads * (1 + 7 * n % 41),
                                       p->dtype,      n % 2 == 0};
}

static size_t outputs(const struct ls_attention_shape *s) { return (size_t)(s->batch * s->context * s->channels); }

static void *workspace(const struct ls_attention_shape *s) {
    return kernel_bytes(ls_attention_workspace_nbytes(LS_DEVICE_CPU, s));
}

void problem_attention_forward(struct problem *p, size_t n) {
    struct ls_attention_shape s = attention_shape(p, n);
    size_t rows = (size_t)(s.batch * s.heads * s.context);
    void *y = problem_results(p, outputs(&s), 1);
    const void *qkv = problem_values(p, 3 * outputs(&s), 2);
    void *saved = s.tiled ? problem_floats(p, rows, 3) : problem_results(p, rows * (size_t)s.context, 3);
    p->op.arguments.attention_forward = (struct ls_attention_forward_arguments){s, y, qkv, saved, workspace(&s)};
}

/* As large as the scores that forward saves: probabilities of t + 1 positions, or the logarithm of their sum. */
static const void *make_saved(const struct ls_attention_shape *s) {
    size_t context = (size_t)s->context, rows = (size_t)(s->batch * s->heads) * context;
    size_t count = s->tiled ? rows : rows * context;
    float *values = problem_positive(count, 5);
    for (size_t r = 0; r < rows; r++) {
        size_t t = r % context;
        if (s->tiled) values[r] = logf(values[r] * (float)(t + 1));
        for (size_t u = 0; u < context && !s->tiled; u++) values[r * context + u] *= u <= t ? 1 / (float)(t + 1) : 0;
    }
    return s->tiled ? values : kernel_rounded(s->dtype, values, count);
}

void problem_attention_backward(struct problem *p, size_t n) {
    struct ls_attention_shape s = attention_shape(p, n);
    void *dqkv = problem_results(p, 3 * outputs(&s), 1);
    const void *dy = problem_values(p, outputs(&s), 2), *qkv = problem_values(p, 3 * outputs(&s), 3);
    p->op.arguments.attention_backward = (struct ls_attention_backward_arguments){
        s, dqkv, dy, qkv, problem_values(p, outputs(&s), 4), make_saved(&s), workspace(&s)};
}
