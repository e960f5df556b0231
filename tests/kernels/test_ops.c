/* What ops.def promises of every operation: a name, costs, aliasing; and what kernels.h promises of groups of them:
 * nothing happens to no elements, rows do not depend on the batch, gradients accumulate. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <string.h>

#include "tests/base/scratch.h"
#include "tests/kernels/problems.h"

static const char *const aliasing[] = {
#define LS_OP(name, flops, bytes, aliasing) aliasing,
#include "kernels/ops.def"
#undef LS_OP
};

/* --- the list ---------------------------------------------------------------------------------------------------- */

static void every_operation_is_described(void **state) {
    (void)state;
    for (int id = 0; id < LS_OP_COUNT; id++) {
        assert_true(strlen(ls_op_name((ls_op_id)id)) > 2);
        assert_true(strlen(aliasing[id]) > 3);
        struct problem small = make_problem((ls_op_id)id, 4, LS_FP32), large = make_problem((ls_op_id)id, 26, LS_FP32);
        assert_true(ls_op_bytes(&small.op) > 0);
        assert_true(ls_op_bytes(&large.op) >= ls_op_bytes(&small.op));
        bool only_moves =
            id == LS_OP_fill || id == LS_OP_cast || id == LS_OP_maxpool_backward || id == LS_OP_set_learning_rate;
        assert_true(only_moves ? ls_op_flops(&small.op) == 0 : ls_op_flops(&small.op) > 0);
        assert_true(ls_op_flops(&large.op) >= ls_op_flops(&small.op));
        for (int other = 0; other < id; other++) {
            assert_string_not_equal(ls_op_name((ls_op_id)id), ls_op_name((ls_op_id)other));
        }
    }
    assert_string_equal(ls_op_name(LS_OP_gemm), "gemm");
    assert_string_equal(ls_op_name(LS_OP_COUNT), "unknown operation");
}

static void costs_of_known_operations(void **state) {
    (void)state;
    struct ls_op gemm = {.id = LS_OP_gemm, .arguments.gemm = {.m = 3, .n = 5, .k = 7, .beta = 0}};
    assert_int_equal(ls_op_flops(&gemm), 2 * 3 * 5 * 7);
    assert_int_equal(ls_op_bytes(&gemm), 4 * (3 * 7 + 7 * 5 + 3 * 5));
    gemm.arguments.gemm.beta = 1; /* the result is read too */
    assert_int_equal(ls_op_bytes(&gemm), 4 * (3 * 7 + 7 * 5 + 2 * 3 * 5));
    struct ls_conv2d_shape shape = {100, 16, 14, 14, 32, 5, 5, 1, 2, LS_FP32};
    struct ls_op conv = {.id = LS_OP_conv2d_forward, .arguments.conv2d_forward = {.shape = shape}};
    assert_int_equal(ls_op_flops(&conv), 2u * 100 * 32 * 14 * 14 * 16 * 25);
    assert_int_equal(ls_op_bytes(&conv), 4u * (100 * (16 + 32) * 14 * 14 + 32 * 16 * 25));
    struct ls_pool_shape thirds = {2, 7, 9, 3, LS_FP32}; /* 12 windows; a row of each plane is in none of them */
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

/* Every size from nothing to a few vectors; the fixture's guards watch the outputs' ends. */
static void check_sizes(ls_op_id id, ls_dtype dtype) {
    for (int size = 0; size < 40; size++) {
        if (id == LS_OP_gemm && size == 0) continue;
        struct problem problem = make_problem(id, size, dtype);
        ls_enqueue(kernel_stream(), &problem.op);
        kernel_done();
        uint64_t first = hash_of_outputs(&problem);
        problem = make_problem(id, size, dtype);
        ls_enqueue(kernel_stream(), &problem.op);
        kernel_done();
        assert_true(hash_of_outputs(&problem) == first);
    }
}

static void every_operation_runs_at_every_size(void **state) {
    (void)state;
    for (int id = 0; id < LS_OP_COUNT; id++) {
        for (int d = 0; d < (op_has_dtype((ls_op_id)id) ? PROBLEM_DTYPES : 1); d++) {
            check_sizes((ls_op_id)id, problem_dtypes[d]);
        }
    }
}

/* --- aliasing ---------------------------------------------------------------------------------------------------- */

enum { COUNT = 5 * 3 * 7 };

/* Runs an operation into an array of its own and once in place of its input: the bits must agree. */
static void check_in_place(struct ls_op apart, const float *result, struct ls_op in_place, const float *aliased) {
    ls_enqueue(kernel_stream(), &apart);
    kernel_done();
    ls_enqueue(kernel_stream(), &in_place);
    kernel_done();
    kernel_expect_same(ls_op_name(apart.id), aliased, result, COUNT * sizeof(float));
}

static void relu_in_place(void **state) {
    (void)state;
    float *x = kernel_random(COUNT, 1), *y = kernel_floats(COUNT), *dy = kernel_random(COUNT, 2);
    float *dx = kernel_floats(COUNT), *x_too = kernel_copy(x, COUNT);
    assert_string_equal(aliasing[LS_OP_relu_forward], "y may be x");
    check_in_place((struct ls_op){.id = LS_OP_relu_forward, .arguments.relu_forward = {y, x, COUNT}}, y,
                   (struct ls_op){.id = LS_OP_relu_forward, .arguments.relu_forward = {x_too, x_too, COUNT}}, x_too);
    assert_string_equal(aliasing[LS_OP_relu_backward], "dx may be dy");
    check_in_place((struct ls_op){.id = LS_OP_relu_backward, .arguments.relu_backward = {dx, dy, y, COUNT}}, dx,
                   (struct ls_op){.id = LS_OP_relu_backward, .arguments.relu_backward = {dy, dy, y, COUNT}}, dy);
}

static void batchnorm_backward_in_place(void **state) {
    (void)state;
    assert_string_equal(aliasing[LS_OP_batchnorm_backward], "dx may be dy");
    float *x = kernel_random(COUNT, 1), *dy = kernel_random(COUNT, 2), *dx = kernel_floats(COUNT);
    float *parameters = kernel_random(4 * 3, 3), *gradients = kernel_floats(2 * 3);
    struct ls_op op = {.id = LS_OP_batchnorm_backward};
    op.arguments.batchnorm_backward =
        (struct ls_batchnorm_backward_arguments){.shape = {5, 3, 7, 0.1f, 1e-5f, true, LS_FP32},
                                                 .dx = dx,
                                                 .dgamma = gradients,
                                                 .dbeta = gradients + 3,
                                                 .dy = dy,
                                                 .x = x,
                                                 .gamma = parameters,
                                                 .beta = parameters + 3,
                                                 .mean = parameters + 6,
                                                 .invstd = parameters + 9};
    struct ls_op in_place = op;
    in_place.arguments.batchnorm_backward.dx = dy;
    check_in_place(op, dx, in_place, dy);
}

static void losses_in_place(void **state) {
    (void)state;
    float *x = kernel_random(COUNT, 1), *target = kernel_random(COUNT, 2), *d = kernel_floats(COUNT);
    float *loss = kernel_floats(1), *x_too = kernel_copy(x, COUNT);
    int64_t labels[15];
    for (int r = 0; r < 15; r++) labels[r] = r % 7;
    assert_string_equal(aliasing[LS_OP_squared_error], "dprediction may be prediction");
    struct ls_op op = {.id = LS_OP_squared_error, .arguments.squared_error = {loss, d, x, target, COUNT, 0.5f}};
    struct ls_op in_place = {.id = LS_OP_squared_error,
                             .arguments.squared_error = {loss, x_too, x_too, target, COUNT, 0.5f}};
    check_in_place(op, d, in_place, x_too);
    x_too = kernel_copy(x, COUNT);
    assert_string_equal(aliasing[LS_OP_cross_entropy], "dlogits may be logits");
    op = (struct ls_op){.id = LS_OP_cross_entropy, .arguments.cross_entropy = {loss, d, x, labels, 15, 7, 0.5f}};
    in_place =
        (struct ls_op){.id = LS_OP_cross_entropy, .arguments.cross_entropy = {loss, x_too, x_too, labels, 15, 7, 0.5f}};
    check_in_place(op, d, in_place, x_too);
}

/* --- accumulation ------------------------------------------------------------------------------------------------ */

/* `run(out, accumulate)` overwrites, or adds to what is there. */
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
                               out + 4 * 2 * 9, accumulate,
                               kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &s)));
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

static void gradients_accumulate(void **state) {
    (void)state;
    check_accumulates("bias_gradient", run_bias_gradient, 300);
    check_accumulates("conv2d_backward_weights", run_conv2d, 4 * 2 * 9 + 4);
    check_accumulates("batchnorm_backward", run_batchnorm, 6);
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

enum { ROWS = 9, COLUMNS = 37, LAST = (ROWS - 1) * COLUMNS };

static void a_row_has_the_same_bits_in_any_batch(void **state) {
    (void)state;
    ls_stream *stream = kernel_stream();
    float *x = kernel_random(ROWS * COLUMNS, 1), *bias = kernel_random(COLUMNS, 2), *loss = kernel_floats(1);
    float *all = kernel_copy(x, ROWS * COLUMNS), *one = kernel_copy(x + LAST, COLUMNS);
    ls_add_bias(stream, LS_FP32, all, bias, ROWS, COLUMNS);
    kernel_done();
    ls_add_bias(stream, LS_FP32, one, bias, 1, COLUMNS);
    kernel_done();
    kernel_expect_same("add_bias", all + LAST, one, COLUMNS * sizeof(float));
    static const int64_t labels[ROWS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    ls_cross_entropy(stream, loss, all, x, labels, ROWS, COLUMNS, 1);
    kernel_done();
    ls_cross_entropy(stream, loss, one, x + LAST, labels + ROWS - 1, 1, COLUMNS, 1);
    kernel_done();
    kernel_expect_same("cross_entropy", all + LAST, one, COLUMNS * sizeof(float));
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

static void an_image_has_the_same_bits_in_any_batch(void **state) {
    (void)state;
    enum { IN = 3 * 11 * 9, OUT = 8 * 6 * 5 };
    struct ls_conv2d_shape batch = {4, 3, 11, 9, 8, 3, 3, 2, 1, LS_FP32}, image = batch;
    image.batch = 1;
    float *x = kernel_random(4 * IN, 1), *w = kernel_random(8 * 3 * 9, 2), *dy = kernel_random(4 * OUT, 3);
    float *y = kernel_floats(4 * OUT), *one = kernel_floats(OUT), *dx = kernel_floats(4 * IN),
          *dx_one = kernel_floats(IN);
    void *workspace = kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &batch));
    ls_conv2d_forward(kernel_stream(), batch, x, w, NULL, y, workspace);
    kernel_done();
    ls_conv2d_forward(kernel_stream(), image, x + 3 * IN, w, NULL, one, workspace);
    kernel_done();
    kernel_expect_same("conv2d_forward", y + 3 * OUT, one, OUT * sizeof(float));
    ls_conv2d_backward_data(kernel_stream(), batch, dy, w, dx, workspace);
    kernel_done();
    ls_conv2d_backward_data(kernel_stream(), image, dy + 3 * OUT, w, dx_one, workspace);
    kernel_done();
    kernel_expect_same("conv2d_backward_data", dx + 3 * IN, dx_one, IN * sizeof(float));
}

/* --- errors: where the stream does not run inline, only synchronising tells ---------------------------------------- */

static void a_label_out_of_range_is_an_error(void **state) {
    (void)state;
    static const int64_t bad[] = {3, -1, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        const int64_t labels[] = {2, bad[i]};
        float *loss = kernel_floats(1), *logits = kernel_random(6, 1);
        ls_cross_entropy(kernel_stream(), loss, kernel_floats(6), logits, labels, 2, 3, 1);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        scratch_expect_error("row 1 has label", "3 classes");
    }
}

static void a_convolution_without_output_is_an_error(void **state) {
    (void)state;
    static const struct ls_conv2d_shape bad[] = {
        {1, 1, 3, 3, 1, 5, 3, 1, 0, LS_FP32},          /* the kernel is taller than the padded image */
        {1, 1, 3, 3, 1, 3, 4, 1, 0, LS_FP32},          /* and wider */
        {1, 0, 3, 3, 1, 3, 3, 1, 0, LS_FP32},          /* no channels */
        {1, 1, 3, 3, 1, 3, 3, 0, 0, LS_FP32},          /* no stride */
        {1, 4000, 4000, 4000, 1, 3, 3, 1, 0, LS_FP32}, /* one image is too large */
    };
    float *v = kernel_random(4, 1);
    ls_stream *stream = kernel_stream();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &bad[i]), 0);
        ls_conv2d_forward(stream, bad[i], v, v, v, v, v);
        assert_int_equal(ls_stream_synchronize(stream), LS_ERR_INVALID);
        ls_conv2d_backward_data(stream, bad[i], v, v, v, v);
        assert_int_equal(ls_stream_synchronize(stream), LS_ERR_INVALID);
        ls_conv2d_backward_weights(stream, bad[i], v, v, v, v, false, v);
        assert_int_equal(ls_stream_synchronize(stream), LS_ERR_INVALID);
        scratch_expect_error("has no output", NULL);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kernel_setup, kernel_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_operation_is_described),
        TEST(costs_of_known_operations),
        TEST(every_operation_runs_at_every_size),
        TEST(relu_in_place),
        TEST(batchnorm_backward_in_place),
        TEST(losses_in_place),
        TEST(gradients_accumulate),
        TEST(a_row_has_the_same_bits_in_any_batch),
        TEST(an_image_has_the_same_bits_in_any_batch),
        TEST(a_label_out_of_range_is_an_error),
        TEST(a_convolution_without_output_is_an_error),
    };
    return cmocka_run_group_tests_name("operations", tests, NULL, NULL);
}
