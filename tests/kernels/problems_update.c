#include "tests/kernels/problem_parts.h"

#include <math.h>
#include <string.h>

/* --- losses and optimizers ------------------------------------------------------------------------------------ */

/* A few, up to about the number of threads of a GPU's warp. */
static size_t class_count(size_t n) { return n % 3 == 2 ? 30 + n % 5 : 1 + n % 13; }

/* Labels 0, 1, .. classes - 1, 0, 1, .. */
static const int64_t *make_labels(size_t rows, size_t classes) {
    int64_t *labels = kernel_bytes(rows * sizeof *labels);
    for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r % classes);
    return labels;
}

void problem_cross_entropy(struct problem *p, size_t n) {
    size_t classes = class_count(n);
    float *loss = problem_floats(p, 1, 1), *dlogits = problem_floats(p, n * classes, 2);
    p->op.arguments.cross_entropy = (struct ls_cross_entropy_arguments){
        loss, dlogits, kernel_random(n * classes, 3), make_labels(n, classes), n, classes, 0.25f};
}

/* The later of two parts of the classes. */
static struct ls_class_part second_part(size_t whole) {
    size_t room = (whole + 1) / 2;
    return (struct ls_class_part){room, whole - room, room, whole};
}

void problem_class_maxima(struct problem *p, size_t n) {
    struct ls_class_part part = second_part(class_count(n));
    float *maxima = problem_floats(p, n, 1);
    p->op.arguments.class_maxima = (struct ls_class_maxima_arguments){maxima, kernel_random(n * part.room, 2), n, part};
}

void problem_class_sums(struct problem *p, size_t n) {
    struct ls_class_part part = second_part(class_count(n));
    float *sums = problem_floats(p, 2 * n, 1);
    p->op.arguments.class_sums = (struct ls_class_sums_arguments){
        sums, kernel_random(n * part.room, 2), kernel_random(n, 3), make_labels(n, part.whole), n, part};
}

void problem_class_loss(struct problem *p, size_t n) {
    struct ls_class_part part = second_part(class_count(n));
    float *loss = problem_floats(p, 1, 1), *dlogits = problem_floats(p, n * part.room, 2);
    p->op.arguments.class_loss = (struct ls_class_loss_arguments){.loss = loss,
                                                                  .dlogits = dlogits,
                                                                  .logits = kernel_random(n * part.room, 3),
                                                                  .maxima = kernel_random(n, 4),
                                                                  .sums = problem_positive(2 * n, 5),
                                                                  .labels = make_labels(n, part.whole),
                                                                  .rows = n,
                                                                  .part = part,
                                                                  .scale = 0.25f};
}

void problem_squared_error(struct problem *p, size_t n) {
    float *loss = problem_floats(p, 1, 1), *d = problem_floats(p, n, 2);
    p->op.arguments.squared_error =
        (struct ls_squared_error_arguments){loss, d, kernel_random(n, 3), kernel_random(n, 4), n, 0.25f};
}

void problem_count_correct(struct problem *p, size_t n) {
    size_t classes = class_count(n);
    int64_t *correct = problem_zeros(p, sizeof *correct);
    p->op.arguments.count_correct = (struct ls_count_correct_arguments){correct, kernel_random(n * classes, 1),
                                                                        make_labels(n, classes), n, classes};
}

/* The state after `step` updates. */
static struct ls_update_state *make_state(double step) {
    struct ls_update_state *state = memset(kernel_bytes(sizeof *state), 0, sizeof *state);
    *state = (struct ls_update_state){
        .learning_rate = 0.1, .step = step, .gradient_factor = 1, .step_size = 0.3f, .bias2_sqrt = 0.2f};
    return state;
}

void problem_begin_update(struct problem *p, size_t n) {
    struct ls_update_state *state = make_state((double)n);
    problem_output(p, state, sizeof *state);
    p->op.arguments.begin_update = (struct ls_begin_update_arguments){state, 0.9, 0.999};
}

void problem_sgd(struct problem *p, size_t n) {
    struct ls_sgd_rule rule = {n % 2 ? 0.9f : 0, 0, 0.01f, n % 4 == 1};
    float *parameter = problem_floats(p, n, 1), *momentum = n % 2 ? problem_floats(p, n, 3) : NULL;
    p->op.arguments.sgd =
        (struct ls_sgd_arguments){rule, make_state((double)(n % 3)), parameter, kernel_random(n, 2), momentum, n};
}

void problem_adam(struct problem *p, size_t n) {
    struct ls_adam_rule rule = {0.9, 0.999, 1e-8, 0.01, n % 2 == 1};
    float *parameter = problem_floats(p, n, 1), *first = problem_floats(p, n, 3), *second = problem_positive(n, 4);
    problem_output(p, second, n * sizeof *second);
    p->op.arguments.adam =
        (struct ls_adam_arguments){rule, make_state(2), parameter, kernel_random(n, 2), first, second, n};
}

/* Three tensors, the second of which fills several chunks. */
enum { LIST_TENSORS = 3 };
static struct ls_update_tensor *make_list(struct problem *p, size_t n, bool moments, size_t *chunks, size_t *total) {
    const size_t counts[LIST_TENSORS] = {n, n * 2 * LS_UPDATE_CHUNK / 7, n + 1};
    struct ls_update_tensor *list = kernel_bytes(LIST_TENSORS * sizeof *list);
    *chunks = *total = 0;
    for (size_t i = 0; i < LIST_TENSORS; i++) {
        size_t count = counts[i];
        list[i] = (struct ls_update_tensor){.parameter = problem_floats(p, count, 10 + i),
                                            .gradient = kernel_random(count, 20 + i),
                                            .first = moments ? problem_floats(p, count, 30 + i) : NULL,
                                            .second = moments ? problem_positive(count, 40 + i) : NULL,
                                            .count = count,
                                            .first_chunk = *chunks};
        if (moments) problem_output(p, list[i].second, count * sizeof(float));
        *chunks += (count + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        *total += count;
    }
    return list;
}

void problem_sgd_list(struct problem *p, size_t n) {
    struct ls_sgd_rule rule = {n % 2 ? 0.9f : 0, 0, 0.01f, n % 4 == 1};
    size_t chunks, total;
    struct ls_update_tensor *list = make_list(p, n, n % 2 == 1, &chunks, &total);
    p->op.arguments.sgd_list =
        (struct ls_sgd_list_arguments){rule, make_state((double)(n % 3)), list, LIST_TENSORS, chunks, total};
}

void problem_adam_list(struct problem *p, size_t n) {
    struct ls_adam_rule rule = {0.9, 0.999, 1e-8, 0.01, n % 2 == 1};
    size_t chunks, total;
    struct ls_update_tensor *list = make_list(p, n, true, &chunks, &total);
    p->op.arguments.adam_list = (struct ls_adam_list_arguments){rule, make_state(2), list, LIST_TENSORS, chunks, total};
}

void problem_square_sum_list(struct problem *p, size_t n) {
    size_t chunks, total;
    double *sum = problem_zeros(p, sizeof *sum);
    struct ls_update_tensor *list = make_list(p, n, false, &chunks, &total);
    p->op.arguments.square_sum_list = (struct ls_square_sum_list_arguments){sum, list, LIST_TENSORS, chunks, total};
}

/* --- loss scaling ------------------------------------------------------------------------------------------------- */

enum { STATES = 3 };

/* The states of several devices. */
static struct ls_update_state *make_states(struct problem *p) {
    struct ls_update_state *states = kernel_bytes(STATES * sizeof *states);
    for (int s = 0; s < STATES; s++) states[s] = *make_state(s);
    problem_output(p, states, STATES * sizeof *states);
    return states;
}

static struct ls_scaler_state *make_scaler(size_t n) {
    struct ls_scaler_state *scaler = kernel_bytes(sizeof *scaler);
    *scaler = (struct ls_scaler_state){.scale = 1024, .growth_tracker = (int32_t)(n % 5), .skipped = (int64_t)n};
    return scaler;
}

void problem_weigh_gradients(struct problem *p, size_t n) {
    double *square_sum = kernel_bytes(sizeof *square_sum);
    *square_sum = n % 3 == 1 ? INFINITY : (double)n;
    p->op.arguments.weigh_gradients =
        (struct ls_weigh_gradients_arguments){make_states(p), STATES, n % 2 ? make_scaler(n) : NULL, square_sum, 1.5f};
}

void problem_update_scale(struct problem *p, size_t n) {
    struct ls_scaler_state *scaler = make_scaler(n);
    struct ls_update_state *state = make_state(1);
    problem_output(p, scaler, sizeof *scaler);
    state->found_inf = n % 3 == 1;
    p->op.arguments.update_scale =
        (struct ls_update_scale_arguments){scaler, state, (struct ls_scaler_rule){2, 0.5, 3}};
}

void problem_set_learning_rate(struct problem *p, size_t n) {
    p->op.arguments.set_learning_rate =
        (struct ls_set_learning_rate_arguments){make_states(p), STATES, 0.01 * (double)n};
}
