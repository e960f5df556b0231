#include "tests/kernels/problem_parts.h"

/* --- layer norm and embedding -------------------------------------------------------------------------------------- */

void problem_layernorm_forward(struct problem *p, size_t n) {
    size_t rows = 1 + n % 9, channels = 5 * n + 1;
    if (n == 0) rows = 0;
    void *y = problem_results(p, rows * channels, 1);
    p->op.arguments.layernorm_forward =
        (struct ls_layernorm_forward_arguments){.dtype = p->dtype,
                                                .y = y,
                                                .x = problem_values(p, rows * channels, 2),
                                                .gamma = kernel_random(channels, 3),
                                                .beta = kernel_random(channels, 4),
                                                .mean = problem_floats(p, rows, 5),
                                                .invstd = problem_floats(p, rows, 6),
                                                .rows = rows,
                                                .channels = channels,
                                                .epsilon = 1e-5f};
}

void problem_layernorm_backward(struct problem *p, size_t n) {
    size_t rows = 3 * n, channels = n + 1;
    void *dx = problem_results(p, rows * channels, 1);
    float *dgamma = problem_floats(p, channels, 2), *dbeta = problem_floats(p, channels, 3);
    p->op.arguments.layernorm_backward =
        (struct ls_layernorm_backward_arguments){.dtype = p->dtype,
                                                 .dx = dx,
                                                 .dgamma = dgamma,
                                                 .dbeta = dbeta,
                                                 .dy = problem_values(p, rows * channels, 4),
                                                 .x = problem_values(p, rows * channels, 5),
                                                 .gamma = kernel_random(channels, 6),
                                                 .mean = kernel_random(rows, 7),
                                                 .invstd = problem_positive(rows, 8),
                                                 .rows = rows,
                                                 .channels = channels,
                                                 .accumulate = n % 2 == 1};
}

/* Some tokens never occur, some often. */
static const int32_t *problem_tokens(size_t rows, size_t vocabulary) {
    int32_t *tokens = kernel_bytes(rows * sizeof *tokens);
    for (size_t r = 0; r < rows; r++) tokens[r] = (int32_t)(r * r * 7 % (vocabulary + r) % vocabulary);
    return tokens;
}

void problem_embedding_forward(struct problem *p, size_t n) {
    size_t context = n / 2 + 1, rows = n > 0 ? 2 * context : 0, vocabulary = n + 1, channels = n + 3;
    void *y = problem_results(p, rows * channels, 1);
    p->op.arguments.embedding_forward = (struct ls_embedding_forward_arguments){p->dtype,
                                                                                y,
                                                                                problem_tokens(rows, vocabulary),
                                                                                kernel_random(vocabulary * channels, 2),
                                                                                kernel_random(context * channels, 3),
                                                                                rows,
                                                                                context,
                                                                                vocabulary,
                                                                                channels};
}

void problem_embedding_backward(struct problem *p, size_t n) {
    size_t rows = 3 * n, vocabulary = n + 1, channels = n + 3;
    float *dtable = problem_floats(p, vocabulary * channels, 1);
    p->op.arguments.embedding_backward = (struct ls_embedding_backward_arguments){
        p->dtype, dtable,    problem_values(p, rows * channels, 2), problem_tokens(rows, vocabulary), rows, vocabulary,
        channels, n % 2 == 1};
}

/* Part 1 of two of the vocabulary: the rest of its table is padding. */
static struct ls_class_part second_half(size_t whole) {
    size_t room = (whole + 1) / 2;
    return (struct ls_class_part){room, whole - room, room, whole};
}

void problem_embedding_part_forward(struct problem *p, size_t n) {
    size_t context = n / 2 + 1, rows = n > 0 ? 2 * context : 0, channels = n + 3;
    struct ls_class_part part = second_half(n + 1);
    void *y = problem_results(p, rows * channels, 1);
    p->op.arguments.embedding_part_forward = (struct ls_embedding_part_forward_arguments){
        .dtype = p->dtype,
        .y = y,
        .tokens = problem_tokens(rows, part.whole),
        .token_table = kernel_random(part.room * channels, 2),
        .position_table = n % 2 == 1 ? kernel_random(context * channels, 3) : NULL,
        .rows = rows,
        .context = context,
        .part = part,
        .channels = channels};
}

void problem_embedding_part_backward(struct problem *p, size_t n) {
    size_t rows = 3 * n, channels = n + 3;
    struct ls_class_part part = second_half(n + 1);
    float *dtable = problem_floats(p, part.room * channels, 1);
    p->op.arguments.embedding_part_backward =
        (struct ls_embedding_part_backward_arguments){.dtype = p->dtype,
                                                      .dtable = dtable,
                                                      .dy = problem_values(p, rows * channels, 2),
                                                      .tokens = problem_tokens(rows, part.whole),
                                                      .rows = rows,
                                                      .part = part,
                                                      .channels = channels,
                                                      .accumulate = n % 2 == 1};
}
