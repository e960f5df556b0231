/* Layers of images on a GPU: PyTorch's numbers in tests/golden, within the tolerances of the README there, and
 * max-pooling to the bit, in all types. Both rungs; runs on real GPUs too. (Convolutions: test_cuda_conv2d.c; batch
 * norm: test_cuda_layers_batchnorm.c.) */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/cuda/transplant.h"

static void run(struct problem *p, int rung) {
    assert_int_equal(transplant_run(p, transplant_rungs()->rungs[rung].enqueue, TRANSPLANT_ALIGNED), LS_OK);
}

static void add_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

/* A golden tensor where transplant_run finds it. */
static float *golden(const char *tensor, size_t count) { return kernel_copy(kernel_golden(tensor, count), count); }

static void expect_layer(const char *what, const float *got, size_t count) {
    kernel_expect_close(what, got, kernel_golden(what, count), count, 1e-4, 1e-5);
}

/* --- convolutions ------------------------------------------------------------------------------------------------- */

static void check_conv2d(const char *name, struct ls_conv2d_shape s, int rung) {
    kernel_golden_open(name);
    size_t in = (size_t)(s.batch * s.in_channels * s.in_height * s.in_width);
    size_t out = (size_t)(s.batch * s.out_channels * ls_conv2d_out_height(&s) * ls_conv2d_out_width(&s));
    size_t weights = (size_t)(s.out_channels * s.in_channels * s.kernel_h * s.kernel_w);
    size_t channels = (size_t)s.out_channels;
    const float *x = golden("x", in), *w = golden("w", weights), *b = golden("b", channels), *dy = golden("dy", out);
    float *y = kernel_floats(out), *dx = kernel_floats(in), *dw = kernel_floats(weights), *db = kernel_floats(channels);
    struct problem forward = {.op = {.id = LS_OP_conv2d_forward}}, data = {.op = {.id = LS_OP_conv2d_backward_data}};
    struct problem backward = {.op = {.id = LS_OP_conv2d_backward_weights}};
    forward.op.arguments.conv2d_forward = (struct ls_conv2d_forward_arguments){s, x, w, b, y, NULL};
    data.op.arguments.conv2d_backward_data = (struct ls_conv2d_backward_data_arguments){s, dy, w, dx, NULL};
    backward.op.arguments.conv2d_backward_weights =
        (struct ls_conv2d_backward_weights_arguments){s, x, dy, dw, db, false, NULL};
    add_output(&forward, y, out * sizeof *y);
    add_output(&data, dx, in * sizeof *dx);
    add_output(&backward, dw, weights * sizeof *dw);
    add_output(&backward, db, channels * sizeof *db);
    run(&forward, rung);
    run(&data, rung);
    run(&backward, rung);
    expect_layer("y", y, out);
    expect_layer("dx", dx, in);
    kernel_expect_close_to_largest("dw", dw, kernel_golden("dw", weights), weights, 1e-3);
    expect_layer("db", db, channels);
}

static void conv2d(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        check_conv2d("conv2d_1x16k5p2", (struct ls_conv2d_shape){4, 1, 28, 28, 16, 5, 5, 1, 2, LS_FP32}, rung);
        check_conv2d("conv2d_16x32k5p2", (struct ls_conv2d_shape){4, 16, 14, 14, 32, 5, 5, 1, 2, LS_FP32}, rung);
        check_conv2d("conv2d_3x8k3s2p1_odd", (struct ls_conv2d_shape){3, 3, 11, 9, 8, 3, 3, 2, 1, LS_FP32}, rung);
    }
}

/* --- batch norm --------------------------------------------------------------------------------------------------- */

static void check_batchnorm_train(int rung) {
    enum { CHANNELS = 16, COUNT = 4 * CHANNELS * 14 * 14 };
    kernel_golden_open("batchnorm2d_train");
    struct ls_batchnorm_shape s = {4, CHANNELS, 14 * 14, 0.1f, 1e-5f, false, LS_FP32};
    const float *x = golden("x", COUNT), *w = golden("w", CHANNELS), *b = golden("b", CHANNELS);
    float *y = kernel_floats(COUNT), *dx = kernel_floats(COUNT), *mean = kernel_floats(CHANNELS);
    float *invstd = kernel_floats(CHANNELS), *dw = kernel_floats(CHANNELS), *db = kernel_floats(CHANNELS);
    float *running_mean = golden("running_mean_before", CHANNELS),
          *running_var = golden("running_var_before", CHANNELS);
    struct problem train = {.op = {.id = LS_OP_batchnorm_train}}, backward = {.op = {.id = LS_OP_batchnorm_backward}};
    train.op.arguments.batchnorm_train =
        (struct ls_batchnorm_train_arguments){s, y, x, w, b, mean, invstd, running_mean, running_var};
    add_output(&train, y, COUNT * sizeof *y);
    float *small[] = {mean, invstd, running_mean, running_var};
    for (int i = 0; i < 4; i++) add_output(&train, small[i], CHANNELS * sizeof(float));
    run(&train, rung);
    backward.op.arguments.batchnorm_backward =
        (struct ls_batchnorm_backward_arguments){s, dx, dw, db, golden("dy", COUNT), x, w, b, mean, invstd, false};
    add_output(&backward, dx, COUNT * sizeof *dx);
    add_output(&backward, dw, CHANNELS * sizeof *dw);
    add_output(&backward, db, CHANNELS * sizeof *db);
    run(&backward, rung);
    expect_layer("y", y, COUNT);
    expect_layer("running_mean_after", running_mean, CHANNELS);
    expect_layer("running_var_after", running_var, CHANNELS);
    expect_layer("dx", dx, COUNT);
    expect_layer("dw", dw, CHANNELS);
    expect_layer("db", db, CHANNELS);
}

static void check_batchnorm_eval(int rung) {
    enum { CHANNELS = 16, COUNT = 4 * CHANNELS * 7 * 7 };
    kernel_golden_open("batchnorm2d_eval");
    struct ls_batchnorm_shape s = {4, CHANNELS, 7 * 7, 0.1f, 1e-5f, false, LS_FP32};
    float *y = kernel_floats(COUNT);
    struct problem eval = {.op = {.id = LS_OP_batchnorm_eval}};
    eval.op.arguments.batchnorm_eval = (struct ls_batchnorm_eval_arguments){s,
                                                                            y,
                                                                            golden("x", COUNT),
                                                                            golden("w", CHANNELS),
                                                                            golden("b", CHANNELS),
                                                                            golden("running_mean", CHANNELS),
                                                                            golden("running_var", CHANNELS)};
    add_output(&eval, y, COUNT * sizeof *y);
    run(&eval, rung);
    expect_layer("y", y, COUNT);
}

static void batchnorm(void **state) {
    (void)state;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        check_batchnorm_train(rung);
        check_batchnorm_eval(rung);
    }
}

/* --- max-pooling -------------------------------------------------------------------------------------------------- */

/* What the two operations write; y and dx of the shape's type. */
struct pooled {
    void *y, *dx;
    uint8_t *choice;
};

static struct problem pool_forward(struct ls_pool_shape s, const void *x, struct pooled *to, size_t out) {
    struct problem p = {.op = {.id = LS_OP_maxpool_forward}};
    to->y = kernel_elements(s.dtype, out), to->choice = kernel_bytes(out);
    p.op.arguments.maxpool_forward = (struct ls_maxpool_forward_arguments){s, to->y, to->choice, x};
    add_output(&p, to->y, out * ls_dtype_nbytes(s.dtype));
    add_output(&p, to->choice, out);
    return p;
}

/* From the choices that are in `to`. */
static struct problem pool_backward(struct ls_pool_shape s, const void *dy, struct pooled *to) {
    struct problem p = {.op = {.id = LS_OP_maxpool_backward}};
    to->dx = kernel_elements(s.dtype, ls_pool_count(&s));
    p.op.arguments.maxpool_backward = (struct ls_maxpool_backward_arguments){s, to->dx, dy, to->choice};
    add_output(&p, to->dx, ls_pool_count(&s) * ls_dtype_nbytes(s.dtype));
    return p;
}

/* NaNs, infinities and many ties. */
static void *hard_to_pool(ls_dtype dtype, size_t count) {
    float *x = kernel_random(count, 1);
    for (size_t i = 0; i < count; i++) x[i] = i % 11 == 3 ? NAN : i % 7 == 2 ? -INFINITY : (float)(int)(x[i] * 3);
    return kernel_rounded(dtype, x, count);
}

static void check_maxpool(struct ls_pool_shape s, int turn) {
    size_t out = ls_pool_windows(&s), in = ls_pool_count(&s), each = ls_dtype_nbytes(s.dtype);
    const void *x = hard_to_pool(s.dtype, in), *dy = kernel_rounded(s.dtype, kernel_random(out, 2), out);
    struct pooled want, got;
    struct problem forward = pool_forward(s, x, &want, out), backward = pool_backward(s, dy, &want);
    ls_enqueue(kernel_stream(), &forward.op);
    kernel_done();
    ls_enqueue(kernel_stream(), &backward.op);
    kernel_done();
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        ls_op_launcher enqueue = transplant_rungs()->rungs[rung].enqueue;
        forward = pool_forward(s, x, &got, out);
        assert_int_equal(transplant_run(&forward, enqueue, (transplant_alignment)(turn % 3)), LS_OK);
        backward = pool_backward(s, dy, &got);
        assert_int_equal(transplant_run(&backward, enqueue, (transplant_alignment)(turn % 3)), LS_OK);
        kernel_expect_same("y", got.y, want.y, out * each);
        kernel_expect_same("choice", got.choice, want.choice, out);
        kernel_expect_same("dx", got.dx, want.dx, in * each);
    }
}

static void check_pools(ls_dtype dtype, int most_width) {
    for (int size = 2; size <= 5; size++) {
        for (int width = 1; width < most_width; width++) {
            check_maxpool((struct ls_pool_shape){2, 2 * size, width, size, dtype}, width);
            check_maxpool((struct ls_pool_shape){3, 2 * size + 1, width, size, dtype}, width);
        }
    }
    for (int turn = 0; turn < 3; turn++) {
        check_maxpool((struct ls_pool_shape){1, 31, 45, 15, dtype}, turn);
        check_maxpool((struct ls_pool_shape){0, 4, 4, 2, dtype}, turn);
        check_maxpool((struct ls_pool_shape){32, 28, 28, 2, dtype}, turn); /* windows by twos */
        check_maxpool((struct ls_pool_shape){40, 14, 14, 2, dtype}, turn); /* one by one, and many blocks */
    }
}

static void maxpool(void **state) {
    (void)state;
    check_pools(LS_FP32, 24);
    check_pools(LS_FP16, 9);
    check_pools(LS_BF16, 9);
}

static void maxpool_of_golden_values(void **state) {
    (void)state;
    enum { PLANES = 64, IN = PLANES * 14 * 14, OUT = IN / 4 };
    kernel_golden_open("maxpool2d_k2s2_ties");
    struct ls_pool_shape s = {PLANES, 14, 14, 2, LS_FP32};
    const float *x = golden("x", IN), *dy = golden("dy", OUT);
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        struct pooled got;
        struct problem forward = pool_forward(s, x, &got, OUT);
        run(&forward, rung);
        struct problem backward = pool_backward(s, dy, &got);
        run(&backward, rung);
        kernel_expect_same("y", got.y, kernel_golden("y", OUT), OUT * sizeof(float));
        kernel_expect_close("dx", got.dx, kernel_golden("dx", IN), IN, 0, 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(conv2d),
        TEST(batchnorm),
        TEST(maxpool),
        TEST_SO(maxpool, "CUDA_ON_CPU_THREADS=random:1"),
        TEST(maxpool_of_golden_values),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("layers on GPUs", tests, NULL, NULL);
}
