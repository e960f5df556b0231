/* Fused operations: bitwise equal to the operations that they replace. */
#include <math.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"

static const struct {
    size_t rows, columns;
} shapes[] = {{0, 3}, {1, 1}, {2, 0}, {3, 5}, {5, 16}, {7, 255}, {8, 256}, {9, 257}, {33, 10}, {64, 700}, {257, 3}};

#define SHAPES (sizeof shapes / sizeof *shapes)

/* Random numbers; every 7th is a special value that comparisons, sums or masks could get wrong. */
static float *make_numbers(size_t count, uint64_t seed) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-42f, -1e-42f};
    float *values = kernel_random(count, seed);
    for (size_t i = 0; i < count; i += 7) values[i] = odd[(i / 7 + seed) % (sizeof odd / sizeof *odd)];
    return values;
}

/* --- bias and ReLU ------------------------------------------------------------------------------------------------ */

TEST_CASE(add_bias_relu_is_add_bias_and_relu) {
    for (size_t s = 0; s < SHAPES; s++) {
        size_t rows = shapes[s].rows, columns = shapes[s].columns, count = rows * columns;
        float *fused = make_numbers(count, 1), *bias = make_numbers(columns, 2), *y = kernel_copy(fused, count);
        ls_add_bias_relu(kernel_stream(), LS_FP32, fused, bias, rows, columns);
        kernel_done();
        ls_add_bias(kernel_stream(), LS_FP32, y, bias, rows, columns);
        kernel_done();
        ls_relu_forward(kernel_stream(), LS_FP32, y, y, count);
        kernel_done();
        kernel_expect_same("add_bias_relu", fused, y, count * sizeof *y);
    }
}

TEST_CASE(add_bias_relu_by_hand) {
    float *y = kernel_copy((float[]){1, -2, NAN, -0.5f, 3, 2}, 6), *bias = kernel_copy((float[]){-3, 4, 1}, 3);
    const float want[] = {0, 2, NAN, 0, 7, 3};
    ls_add_bias_relu(kernel_stream(), LS_FP32, y, bias, 2, 3);
    kernel_done();
    for (int i = 0; i < 6; i++) assert_true(i == 2 ? isnan(y[i]) : y[i] == want[i] && !signbit(y[i]));
}

static void check_relu_bias_gradient(size_t rows, size_t columns, bool accumulate) {
    size_t count = rows * columns;
    float *fused_dy = make_numbers(count, 3), *y = make_numbers(count, 4), *dy = kernel_copy(fused_dy, count);
    float *fused = kernel_random(columns, 5), *dbias = kernel_copy(fused, columns);
    ls_relu_bias_gradient(kernel_stream(), LS_FP32, fused, fused_dy, y, rows, columns, accumulate);
    kernel_done();
    ls_relu_backward(kernel_stream(), LS_FP32, dy, dy, y, count);
    kernel_done();
    ls_bias_gradient(kernel_stream(), LS_FP32, dbias, dy, rows, columns, accumulate);
    kernel_done();
    kernel_expect_same("dy", fused_dy, dy, count * sizeof *dy);
    kernel_expect_same("dbias", fused, dbias, columns * sizeof *dbias);
}

TEST_CASE(relu_bias_gradient_is_relu_backward_and_bias_gradient) {
    for (size_t s = 0; s < SHAPES; s++) {
        check_relu_bias_gradient(shapes[s].rows, shapes[s].columns, false);
        check_relu_bias_gradient(shapes[s].rows, shapes[s].columns, true);
    }
}

TEST_CASE(relu_bias_gradient_by_hand) {
    float *dy = kernel_copy((float[]){1, 2, 4, 8, 16, 32}, 6), *dbias = kernel_copy((float[]){100, 100}, 2);
    const float *y = kernel_copy((float[]){1, 0, -1, 2, 3, NAN}, 6);
    const float want_dy[] = {1, 0, 0, 8, 16, 32}, want[] = {117, 140};
    ls_relu_bias_gradient(kernel_stream(), LS_FP32, dbias, dy, y, 3, 2, true);
    kernel_done();
    kernel_expect_same("dy", dy, want_dy, sizeof want_dy);
    kernel_expect_same("dbias", dbias, want, sizeof want);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

enum { TENSORS = 7 };
static const size_t counts[TENSORS] = {0, 1, LS_UPDATE_CHUNK, 0, LS_UPDATE_CHUNK + 1, 13, 0};

struct list {
    struct ls_update_tensor *tensors;
    size_t chunks, total;
};

static struct list make_list(bool moments) {
    struct list list = {.tensors = kernel_bytes(TENSORS * sizeof *list.tensors)};
    for (uint64_t i = 0; i < TENSORS; i++) {
        size_t count = counts[i];
        float *second = kernel_random(count, 30 + i);
        for (size_t k = 0; k < count; k++) second[k] = fabsf(second[k]);
        list.tensors[i] = (struct ls_update_tensor){.parameter = kernel_random(count, 10 + i),
                                                    .gradient = make_numbers(count, 20 + i),
                                                    .first = moments ? kernel_random(count, 40 + i) : NULL,
                                                    .second = moments ? second : NULL,
                                                    .count = count,
                                                    .first_chunk = list.chunks};
        list.chunks += (count + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        list.total += count;
    }
    return list;
}

static void expect_same_lists(const struct list *got, const struct list *want) {
    for (int i = 0; i < TENSORS; i++) {
        const struct ls_update_tensor *a = &got->tensors[i], *b = &want->tensors[i];
        kernel_expect_same("parameter", a->parameter, b->parameter, a->count * sizeof(float));
        if (a->first) kernel_expect_same("first moment", a->first, b->first, a->count * sizeof(float));
        if (a->second) kernel_expect_same("second moment", a->second, b->second, a->count * sizeof(float));
    }
}

static struct ls_update_state *make_state(double step, float found_inf) {
    struct ls_update_state *state = memset(kernel_bytes(sizeof *state), 0, sizeof *state);
    *state = (struct ls_update_state){.learning_rate = 0.1,
                                      .step = step,
                                      .found_inf = found_inf,
                                      .gradient_factor = step > 2 ? 0.7f : 1,
                                      .step_size = 0.3f,
                                      .bias2_sqrt = 0.2f};
    return state;
}

static void check_sgd_list(struct ls_sgd_rule rule, struct ls_update_state *state) {
    struct list one_by_one = make_list(rule.momentum != 0), list = make_list(rule.momentum != 0);
    for (int i = 0; i < TENSORS; i++) {
        struct ls_update_tensor *t = &one_by_one.tensors[i];
        ls_sgd(kernel_stream(), rule, state, t->parameter, t->gradient, t->first, t->count);
        kernel_done();
    }
    ls_sgd_list(kernel_stream(), rule, state, list.tensors, TENSORS, list.chunks, list.total);
    kernel_done();
    expect_same_lists(&list, &one_by_one);
    bool untouched = memcmp(list.tensors[5].parameter, kernel_random(13, 15), 13 * sizeof(float)) == 0;
    assert_int_equal(untouched, state->found_inf != 0);
}

TEST_CASE(sgd_list_is_sgd_for_each) {
    struct ls_sgd_rule plain = {0, 0, 0.01f, false}, nesterov = {0.9f, 0, 0.01f, true},
                       dampened = {0.9f, 0.5f, 0, false};
    check_sgd_list(plain, make_state(2, 0));
    check_sgd_list(nesterov, make_state(1, 0));
    check_sgd_list(nesterov, make_state(2, 0));
    check_sgd_list(dampened, make_state(2, 0));
    check_sgd_list(dampened, make_state(2, 1));
    check_sgd_list(nesterov, make_state(3, 0));
}

static void check_adam_list(bool decoupled, struct ls_update_state *state) {
    struct ls_adam_rule rule = {0.9, 0.999, 1e-8, 0.01, decoupled};
    struct list one_by_one = make_list(true), list = make_list(true);
    for (int i = 0; i < TENSORS; i++) {
        struct ls_update_tensor *t = &one_by_one.tensors[i];
        ls_adam(kernel_stream(), rule, state, t->parameter, t->gradient, t->first, t->second, t->count);
        kernel_done();
    }
    ls_adam_list(kernel_stream(), rule, state, list.tensors, TENSORS, list.chunks, list.total);
    kernel_done();
    expect_same_lists(&list, &one_by_one);
    bool untouched = memcmp(list.tensors[5].parameter, kernel_random(13, 15), 13 * sizeof(float)) == 0;
    assert_int_equal(untouched, state->found_inf != 0);
}

TEST_CASE(adam_list_is_adam_for_each) {
    check_adam_list(false, make_state(2, 0));
    check_adam_list(true, make_state(2, 0));
    check_adam_list(true, make_state(2, 1));
    check_adam_list(true, make_state(3, 0));
}

TEST_CASE(an_empty_list_is_nothing) {
    struct ls_update_state *update = make_state(2, 0);
    ls_sgd_list(kernel_stream(), (struct ls_sgd_rule){0}, update, NULL, 0, 0, 0);
    kernel_done();
    ls_adam_list(kernel_stream(), (struct ls_adam_rule){0.9, 0.999, 1e-8, 0, false}, update, NULL, 0, 0, 0);
    kernel_done();
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(add_bias_relu_is_add_bias_and_relu),
        ROW(add_bias_relu_by_hand),
        ROW(relu_bias_gradient_is_relu_backward_and_bias_gradient),
        ROW(relu_bias_gradient_by_hand),
        ROW(sgd_list_is_sgd_for_each),
        ROW(adam_list_is_adam_for_each),
        ROW(an_empty_list_is_nothing),
    };
    return RUN_EVERYWHERE("fused operations", tests);
}
