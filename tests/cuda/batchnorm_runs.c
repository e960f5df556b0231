#include "tests/cuda/batchnorm_runs.h"

#include <math.h>
#include <string.h>

static float *random_or_none(bool wanted, size_t count, uint64_t seed) {
    return wanted ? kernel_random(count, seed) : kernel_floats(count);
}

struct batchnorm batchnorm_make(struct ls_batchnorm_shape s, float offset, int rung, int turn) {
    struct batchnorm b = {.s = s, .rung = rung, .alignment = (transplant_alignment)(turn % 3)};
    size_t c = b.channels = (size_t)s.channels, count = b.count = ls_batchnorm_count(&s);
    b.accumulate = turn % 2 == 1;
    float *x = kernel_random(count, 1);
    for (size_t i = 0; i < count; i++) x[i] += offset;
    b.x = kernel_rounded(s.dtype, x, count), b.dy = kernel_rounded(s.dtype, kernel_random(count, 2), count);
    b.gamma = kernel_random(c, 3), b.beta = kernel_random(c, 4);
    b.y = kernel_elements(s.dtype, count), b.dx = kernel_elements(s.dtype, count);
    b.mean = kernel_floats(c), b.invstd = kernel_floats(c);
    b.running_mean = kernel_random(c, 5), b.running_var = kernel_random(c, 6);
    b.dgamma = random_or_none(b.accumulate, c, 7), b.dbeta = random_or_none(b.accumulate, c, 8);
    b.sums = kernel_floats(2 * c), b.m = kernel_bytes(sizeof *b.m);
    b.statistics = kernel_bytes(ls_batchnorm_statistics_count(&s) * sizeof *b.statistics);
    return b;
}

static void add_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

static void add_large(struct problem *p, const struct batchnorm *b, void *memory) {
    add_output(p, memory, ls_batchnorm_nbytes(&b->s));
}

/* Channels' numbers that the operation writes. */
static void add_small(struct problem *p, const struct batchnorm *b, float *const *arrays, int count) {
    for (int i = 0; i < count; i++) add_output(p, arrays[i], b->channels * sizeof(float));
}

static ls_status run(const struct batchnorm *b, const struct problem *p) {
    if (b->rung == ON_THE_CPU) {
        ls_enqueue(kernel_stream(), &p->op);
        return ls_stream_synchronize(kernel_stream());
    }
    return transplant_run(p, transplant_rungs()->rungs[b->rung].enqueue, b->alignment);
}

ls_status batchnorm_train(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_train}};
    p.op.arguments.batchnorm_train = (struct ls_batchnorm_train_arguments){
        b->s, b->y, b->x, b->gamma, b->beta, b->mean, b->invstd, b->running_mean, b->running_var};
    add_large(&p, b, b->y);
    add_small(&p, b, (float *const[]){b->mean, b->invstd, b->running_mean, b->running_var}, 4);
    return run(b, &p);
}

ls_status batchnorm_backward(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_backward}};
    if (b->count > 0) memcpy(b->dx, b->dy, ls_batchnorm_nbytes(&b->s));
    p.op.arguments.batchnorm_backward = (struct ls_batchnorm_backward_arguments){
        b->s, b->dx, b->dgamma, b->dbeta, b->dx, b->x, b->gamma, b->beta, b->mean, b->invstd, b->accumulate};
    add_large(&p, b, b->dx);
    add_small(&p, b, (float *const[]){b->dgamma, b->dbeta}, 2);
    return run(b, &p);
}

ls_status batchnorm_eval(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_eval}};
    for (size_t c = 0; c < b->channels; c++) b->running_var[c] = fabsf(b->running_var[c]);
    p.op.arguments.batchnorm_eval =
        (struct ls_batchnorm_eval_arguments){b->s, b->y, b->x, b->gamma, b->beta, b->mean, b->running_var};
    add_large(&p, b, b->y);
    return run(b, &p);
}

ls_status batchnorm_statistics(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_statistics}};
    p.op.arguments.batchnorm_statistics = (struct ls_batchnorm_statistics_arguments){b->s, b->statistics, b->x};
    add_output(&p, b->statistics, ls_batchnorm_statistics_count(&b->s) * sizeof *b->statistics);
    return run(b, &p);
}

ls_status batchnorm_merge(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_merge}};
    p.op.arguments.batchnorm_merge = (struct ls_batchnorm_merge_arguments){
        b->s, b->mean, b->invstd, b->m, b->running_mean, b->running_var, b->statistics, 1};
    add_output(&p, b->m, sizeof *b->m);
    add_small(&p, b, (float *const[]){b->mean, b->invstd, b->running_mean, b->running_var}, 4);
    return run(b, &p);
}

ls_status batchnorm_normalize(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_normalize}};
    p.op.arguments.batchnorm_normalize =
        (struct ls_batchnorm_normalize_arguments){b->s, b->y, b->x, b->gamma, b->beta, b->mean, b->invstd};
    add_large(&p, b, b->y);
    return run(b, &p);
}

ls_status batchnorm_sums(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_sums}};
    p.op.arguments.batchnorm_sums = (struct ls_batchnorm_sums_arguments){
        b->s, b->sums, b->dgamma, b->dbeta, b->dy, b->x, b->gamma, b->beta, b->mean, b->invstd, b->accumulate};
    add_output(&p, b->sums, 2 * b->channels * sizeof *b->sums);
    add_small(&p, b, (float *const[]){b->dgamma, b->dbeta}, 2);
    return run(b, &p);
}

ls_status batchnorm_input_gradient(struct batchnorm *b) {
    struct problem p = {.op = {.id = LS_OP_batchnorm_input_gradient}};
    p.op.arguments.batchnorm_input_gradient = (struct ls_batchnorm_input_gradient_arguments){
        b->s, b->dx, b->dy, b->x, b->gamma, b->beta, b->mean, b->invstd, b->sums, b->m};
    add_large(&p, b, b->dx);
    return run(b, &p);
}
