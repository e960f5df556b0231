/* The interface of ops.def for every operation: a name, costs, aliasing; and that of kernels.h for groups of them: rows
 * do not depend on the batch, gradients accumulate, labels are checked. (Each operation at many sizes: test_walk.c.) */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/problems.h"

static const char *const aliasing[] = {
#define LS_OP(name, flops, bytes, aliasing) aliasing,
#include "kernels/ops.def"
#undef LS_OP
};

/* --- the list ---------------------------------------------------------------------------------------------------- */

TEST_CASE(every_operation_is_described) {
    for (int id = 0; id < LS_OP_COUNT; id++) {
        assert_true(strlen(ls_op_name((ls_op_id)id)) > 2);
        assert_true(strlen(aliasing[id]) > 3);
        struct problem small = make_problem((ls_op_id)id, 4, LS_FP32), large = make_problem((ls_op_id)id, 26, LS_FP32);
        assert_true(ls_op_bytes(&small.op) > 0);
        assert_true(ls_op_bytes(&large.op) >= ls_op_bytes(&small.op));
        bool only_moves = id == LS_OP_fill || id == LS_OP_fill_entries || id == LS_OP_cast ||
                          id == LS_OP_maxpool_backward || id == LS_OP_set_learning_rate;
        assert_true(only_moves ? ls_op_flops(&small.op) == 0 : ls_op_flops(&small.op) > 0);
        assert_true(ls_op_flops(&large.op) >= ls_op_flops(&small.op));
        for (int other = 0; other < id; other++) {
            assert_string_not_equal(ls_op_name((ls_op_id)id), ls_op_name((ls_op_id)other));
        }
    }
    assert_string_equal(ls_op_name(LS_OP_gemm), "gemm");
    assert_string_equal(ls_op_name(LS_OP_COUNT), "unknown operation");
}

TEST_CASE(costs_of_known_operations) {
    struct ls_op gemm = {.id = LS_OP_gemm, .arguments.gemm = {.m = 3, .n = 5, .k = 7, .beta = 0}};
    assert_int_equal(ls_op_flops(&gemm), 2 * 3 * 5 * 7);
    assert_int_equal(ls_op_bytes(&gemm), 4 * (3 * 7 + 7 * 5 + 3 * 5));
    gemm.arguments.gemm.beta = 1; /* the result is read too */
    assert_int_equal(ls_op_bytes(&gemm), 4 * (3 * 7 + 7 * 5 + 2 * 3 * 5));
    struct ls_conv2d_shape shape = {100, 16, 14, 14, 32, 5, 5, 1, 2, LS_FP32};
    struct ls_op conv = {.id = LS_OP_conv2d_forward, .arguments.conv2d_forward = {.shape = shape}};
    assert_int_equal(ls_op_flops(&conv), 2u * 100 * 32 * 14 * 14 * 16 * 25);
    assert_int_equal(ls_op_bytes(&conv), 4u * (100 * (16 + 32) * 14 * 14 + 32 * 16 * 25));
    struct ls_pool_shape thirds = {2, 7, 9, 3, LS_FP32}; /* 12 windows; one row of each plane is in none of them */
    struct ls_op pool = {.id = LS_OP_maxpool_forward, .arguments.maxpool_forward = {.shape = thirds}};
    assert_int_equal(ls_op_bytes(&pool), 12 * (9 * 4 + 4 + 1));
    pool = (struct ls_op){.id = LS_OP_maxpool_backward, .arguments.maxpool_backward = {.shape = thirds}};
    assert_int_equal(ls_op_bytes(&pool), 2 * 7 * 9 * 4 + 12 * (4 + 1));
    gemm.arguments.gemm.dtype = LS_BF16; /* and the operands take 2 bytes each */
    assert_int_equal(ls_op_bytes(&gemm), 2 * (3 * 7 + 7 * 5) + 4 * 2 * 3 * 5);
    conv.arguments.conv2d_forward.shape.dtype = LS_FP16;
    assert_int_equal(ls_op_bytes(&conv), 2u * (100 * (16 + 32) * 14 * 14 + 32 * 16 * 25));
    struct ls_op cast = {.id = LS_OP_cast, .arguments.cast = {.to = LS_FP16, .from = LS_FP32, .count = 10}};
    assert_int_equal(ls_op_bytes(&cast), 60);
    struct ls_op add = {.id = LS_OP_reduce_add, .arguments.reduce_add = {.source_count = 3, .count = 10}};
    assert_int_equal(ls_op_flops(&add), 30);
    assert_int_equal(ls_op_bytes(&add), 4 * 5 * 10);
}

/* --- aliasing ---------------------------------------------------------------------------------------------------- */

enum { COUNT = 5 * 3 * 7, LONG = 70 * 37 };

/* Runs an operation into a separate array and once in place of its input: the bits must agree. */
static void check_in_place(struct ls_op apart, const float *result, struct ls_op in_place, const float *aliased,
                           size_t count) {
    kernel_align(KERNEL_ALIGNED);
    ls_enqueue(kernel_stream(), &apart);
    kernel_done();
    ls_enqueue(kernel_stream(), &in_place);
    kernel_done();
    kernel_expect_same(ls_op_name(apart.id), aliased, result, count * sizeof(float));
}

TEST_CASE(relu_in_place) {
    float *x = kernel_random(LONG, 1), *y = kernel_floats(LONG), *dy = kernel_random(LONG, 2);
    float *dx = kernel_floats(LONG), *x_too = kernel_copy(x, LONG);
    assert_string_equal(aliasing[LS_OP_relu_forward], "y may be x");
    check_in_place((struct ls_op){.id = LS_OP_relu_forward, .arguments.relu_forward = {LS_FP32, y, x, LONG}}, y,
                   (struct ls_op){.id = LS_OP_relu_forward, .arguments.relu_forward = {LS_FP32, x_too, x_too, LONG}},
                   x_too, LONG);
    assert_string_equal(aliasing[LS_OP_relu_backward], "dx may be dy");
    check_in_place((struct ls_op){.id = LS_OP_relu_backward, .arguments.relu_backward = {LS_FP32, dx, dy, y, LONG}}, dx,
                   (struct ls_op){.id = LS_OP_relu_backward, .arguments.relu_backward = {LS_FP32, dy, dy, y, LONG}}, dy,
                   LONG);
}

/* With a thread, a warp, and a block of a GPU for a row. */
TEST_CASE(losses_in_place) {
    static const size_t shapes[][2] = {{15, 7}, {300, 10}, {257, 32}, {70, 37}, {3, 1100}};
    assert_string_equal(aliasing[LS_OP_squared_error], "dprediction may be prediction");
    assert_string_equal(aliasing[LS_OP_cross_entropy], "dlogits may be logits");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t rows = shapes[i][0], classes = shapes[i][1], n = rows * classes;
        float *x = kernel_random(n, 1), *target = kernel_random(n, 2), *d = kernel_floats(n), *loss = kernel_floats(1);
        float *x_too = kernel_copy(x, n);
        int64_t *labels = kernel_bytes(rows * sizeof *labels);
        for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r % classes);
        struct ls_op op = {.id = LS_OP_squared_error, .arguments.squared_error = {loss, d, x, target, n, 0.5f}};
        struct ls_op in_place = {.id = LS_OP_squared_error,
                                 .arguments.squared_error = {loss, x_too, x_too, target, n, 0.5f}};
        check_in_place(op, d, in_place, x_too, n);
        x_too = kernel_copy(x, n);
        op = (struct ls_op){.id = LS_OP_cross_entropy,
                            .arguments.cross_entropy = {loss, d, x, labels, rows, classes, 0.5f}};
        in_place = (struct ls_op){.id = LS_OP_cross_entropy,
                                  .arguments.cross_entropy = {loss, x_too, x_too, labels, rows, classes, 0.5f}};
        check_in_place(op, d, in_place, x_too, n);
    }
}

/* --- accumulation ------------------------------------------------------------------------------------------------ */

/* `run(out, accumulate)` overwrites `out`, or adds to it. */
static void check_accumulates(const char *what, void (*run)(float *out, bool accumulate), size_t count) {
    float *gradient = kernel_floats(count), *sum = kernel_random(count, 9), *want = kernel_copy(sum, count);
    run(gradient, false);
    run(sum, true);
    for (size_t i = 0; i < count; i++) want[i] += gradient[i];
    kernel_expect_same(what, sum, want, count * sizeof *want);
}

static void run_bias_gradient(float *out, bool accumulate) {
    ls_bias_gradient(kernel_stream(), LS_FP32, out, kernel_random(7 * 300, 1), 7, 300, accumulate);
    kernel_done();
}

static void run_conv2d(float *out, bool accumulate) {
    struct ls_conv2d_shape s = {3, 2, 6, 5, 4, 3, 3, 1, 1, LS_FP32};
    ls_conv2d_backward_weights(kernel_stream(), s, kernel_random(3 * 2 * 30, 1), kernel_random(3 * 4 * 30, 2), out,
                               out + 4 * 2 * 9, accumulate, NULL);
    kernel_done();
}

static void run_batchnorm(float *out, bool accumulate) {
    struct ls_batchnorm_shape s = {5, 3, 7, 0.1f, 1e-5f, true, LS_FP32};
    float *parameters = kernel_random(4 * 3, 3);
    ls_batchnorm_backward(kernel_stream(), s, kernel_floats(COUNT), out, out + 3, kernel_random(COUNT, 1),
                          kernel_random(COUNT, 2), parameters, parameters + 3, parameters + 6, parameters + 9,
                          accumulate);
    kernel_done();
}

TEST_CASE(gradients_accumulate) {
    check_accumulates("bias_gradient", run_bias_gradient, 300);
    check_accumulates("conv2d_backward_weights", run_conv2d, 4 * 2 * 9 + 4);
    check_accumulates("batchnorm_backward", run_batchnorm, 6);
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

enum { ROWS = 9, COLUMNS = 37, LAST = (ROWS - 1) * COLUMNS };

TEST_CASE(a_row_has_the_same_bits_in_any_batch) {
    ls_stream *stream = kernel_stream();
    float *x = kernel_random(ROWS * COLUMNS, 1), *bias = kernel_random(COLUMNS, 2);
    float *all = kernel_copy(x, ROWS * COLUMNS), *one = kernel_copy(x + LAST, COLUMNS);
    ls_add_bias(stream, LS_FP32, all, bias, ROWS, COLUMNS);
    kernel_done();
    ls_add_bias(stream, LS_FP32, one, bias, 1, COLUMNS);
    kernel_done();
    kernel_expect_same("add_bias", all + LAST, one, COLUMNS * sizeof(float));
    float *statistics = kernel_random(4, 3);
    struct ls_batchnorm_shape batch = {ROWS, 1, COLUMNS, 0.1f, 1e-5f, true, LS_FP32}, row = batch;
    row.batch = 1;
    statistics[3] = 0.8f;
    ls_batchnorm_eval(stream, batch, all, x, statistics, statistics + 1, statistics + 2, statistics + 3);
    kernel_done();
    ls_batchnorm_eval(stream, row, one, x + LAST, statistics, statistics + 1, statistics + 2, statistics + 3);
    kernel_done();
    kernel_expect_same("batchnorm_eval", all + LAST, one, COLUMNS * sizeof(float));
}

/* The last row alone, and after others: with a thread, a warp, a block of a GPU for a row; in one block, in several. */
TEST_CASE(a_row_of_logits_has_the_same_bits_in_any_batch) {
    static const size_t shapes[][2] = {{9, 10}, {300, 32}, {9, 33}, {9, 37}, {100, 37}, {5, 1030}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t rows = shapes[s][0], classes = shapes[s][1], last = (rows - 1) * classes;
        int64_t *labels = kernel_bytes(rows * sizeof *labels);
        for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r % classes);
        float *logits = kernel_random(rows * classes, 1), *all = kernel_floats(rows * classes),
              *one = kernel_floats(classes), *loss = kernel_floats(1);
        ls_cross_entropy(kernel_stream(), loss, all, logits, labels, rows, classes, 0.5f);
        kernel_done();
        ls_cross_entropy(kernel_stream(), loss, one, logits + last, labels + rows - 1, 1, classes, 0.5f);
        kernel_done();
        kernel_expect_same("cross_entropy", one, all + last, classes * sizeof *one);
    }
}

TEST_CASE(an_image_has_the_same_bits_in_any_batch) {
    enum { IN = 3 * 11 * 9, OUT = 8 * 6 * 5 };
    struct ls_conv2d_shape batch = {4, 3, 11, 9, 8, 3, 3, 2, 1, LS_FP32}, image = batch;
    image.batch = 1;
    float *x = kernel_random(4 * IN, 1), *w = kernel_random(8 * 3 * 9, 2), *dy = kernel_random(4 * OUT, 3);
    float *y = kernel_floats(4 * OUT), *one = kernel_floats(OUT), *dx = kernel_floats(4 * IN),
          *dx_one = kernel_floats(IN);
    ls_conv2d_forward(kernel_stream(), batch, x, w, NULL, y, NULL);
    kernel_done();
    ls_conv2d_forward(kernel_stream(), image, x + 3 * IN, w, NULL, one, NULL);
    kernel_done();
    kernel_expect_same("conv2d_forward", y + 3 * OUT, one, OUT * sizeof(float));
    ls_conv2d_backward_data(kernel_stream(), batch, dy, w, dx, NULL);
    kernel_done();
    ls_conv2d_backward_data(kernel_stream(), image, dy + 3 * OUT, w, dx_one, NULL);
    kernel_done();
    kernel_expect_same("conv2d_backward_data", dx + 3 * IN, dx_one, IN * sizeof(float));
}

/* --- errors: if the stream does not run inline, only synchronising reports them ----------------------------------- */

TEST_CASE(a_label_out_of_range_is_an_error) {
    static const int64_t bad[] = {0, -1, INT64_MAX};
    static const size_t classes[] = {3, 32, 33, 1024};
    for (size_t i = 0; i < 4 * 3; i++) {
        size_t n = classes[i / 3];
        int64_t label = bad[i % 3] ? bad[i % 3] : (int64_t)n;
        const int64_t *labels = kernel_labels((int64_t[]){2, label}, 2);
        ls_cross_entropy(kernel_stream(), kernel_floats(1), kernel_floats(2 * n), kernel_random(2 * n, 1), labels, 2, n,
                         1);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        char said[40], range[40];
        snprintf(said, sizeof said, "label %lld", (long long)label);
        snprintf(range, sizeof range, kernel_is_on(ON_BUILDS) ? "expected a label below %zu" : "out of range [0, %zu)",
                 n);
        scratch_expect_error(said, range);
    }
}

/* A GPU does not write the gradient of that row; the other rows have theirs, and the loss is NaN. */
TEST_CASE(a_row_with_a_bad_label_has_no_gradient) {
    enum { BAD = 3 };
    const size_t rows = 5;
    static const size_t counts[] = {10, 32, 33, 1024};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t classes = counts[i];
        const int64_t *labels = kernel_labels((int64_t[]){0, 1, 2, (int64_t)classes, 4}, rows);
        float *before = kernel_random(rows * classes, 2), *d = kernel_copy(before, rows * classes);
        float *loss = kernel_random(1, 3);
        ls_cross_entropy(kernel_stream(), loss, d, kernel_random(rows * classes, 1), labels, rows, classes, 1);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        scratch_expect_error("cross_entropy: label", "out of range");
        assert_true(isnan(*loss));
        for (size_t r = 0; r < rows; r++) {
            bool same = memcmp(d + r * classes, before + r * classes, classes * sizeof *d) == 0;
            if (same != (r == BAD)) fail_msg("%zu classes, row %zu: same %d", classes, r, same);
        }
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW_ON(ON_BEST, every_operation_is_described),
        ROW_ON(ON_BEST, costs_of_known_operations),
        ROW(relu_in_place),
        ROW(losses_in_place),
        ROW(gradients_accumulate),
        ROW(a_row_has_the_same_bits_in_any_batch),
        ROW(a_row_of_logits_has_the_same_bits_in_any_batch),
        ROW_ON(ON_BUILDS | ON_NAIVE, an_image_has_the_same_bits_in_any_batch),
        ROW(a_label_out_of_range_is_an_error),
        ROW_ON(ON_GPUS, a_row_with_a_bad_label_has_no_gradient),
    };
    return RUN_EVERYWHERE("operations", tests);
}
