/* Matrix products on a GPU: ls_gemm in every shape that is special, and the products of halves and of many matrices at
 * once. Operations that do the work of several, and rows in different batches: equal bits. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/cuda/transplant.h"

/* --- arrays on the GPU -------------------------------------------------------------------------------------------- */

static void *to_gpu(const void *values, size_t nbytes) {
    void *memory;
    ls_stream *stream = transplant_stream();
    assert_int_equal(ls_device_alloc(ls_stream_device(stream), LS_MEMORY_WORKSPACE, nbytes, "a test", &memory), LS_OK);
    assert_int_equal(ls_copy_now(stream, memory, values, nbytes), LS_OK);
    return memory;
}

static void *from_gpu(void *memory, size_t nbytes) {
    void *values = kernel_bytes(nbytes);
    assert_int_equal(ls_copy_now(transplant_stream(), values, memory, nbytes), LS_OK);
    ls_device_free(ls_stream_device(transplant_stream()), memory);
    return values;
}

static float *random_on_gpu(size_t count, uint64_t seed) {
    return to_gpu(kernel_random(count, seed), count * sizeof(float));
}

static void done(void) { assert_int_equal(ls_stream_synchronize(transplant_stream()), LS_OK); }

static void multiply(const struct ls_cuda_product *product) {
    assert_int_equal(transplant_rungs()->matmul(transplant_stream(), product), LS_OK);
    done();
}

/* --- gemm --------------------------------------------------------------------------------------------------------- */

struct shape {
    size_t m, n, k;
};

/* All ways to store the matrices, and beta: against sums in double. */
static void check_gemm(struct shape s, bool transpose_a, bool transpose_b, float beta, int rung) {
    float *a = kernel_random(s.m * s.k, 1), *b = kernel_random(s.k * s.n, 2), *c = kernel_random(s.m * s.n, 3);
    double *want = kernel_bytes(s.m * s.n * sizeof *want);
    for (size_t i = 0; i < s.m * s.n; i++) {
        size_t row = i / s.n, column = i % s.n;
        want[i] = beta == 0 ? 0 : (double)beta * (double)c[i];
        for (size_t t = 0; t < s.k; t++)
            want[i] += (double)a[transpose_a ? t * s.m + row : row * s.k + t] *
                       (double)b[transpose_b ? column * s.k + t : t * s.n + column];
        if (beta == 0) c[i] = NAN; /* must not be read */
    }
    struct problem p = {.op.id = LS_OP_gemm, .output_count = 1};
    p.op.arguments.gemm =
        (struct ls_gemm_arguments){LS_FP32, transpose_a, transpose_b, s.m, s.n, s.k, a, b, beta, LS_FP32, c, NULL};
    p.outputs[0].memory = c;
    p.outputs[0].nbytes = s.m * s.n * sizeof *c;
    assert_int_equal(transplant_run(&p, transplant_rungs()->rungs[rung].enqueue, TRANSPLANT_SECOND_SHIFTED), LS_OK);
    kernel_expect_sum("gemm", c, want, s.m * s.n, (double)s.k);
}

/* A batch may be empty: products of nothing, and over nothing. */
static const struct shape shapes[] = {{1, 1, 1},   {1, 7, 5}, {7, 1, 5}, {5, 7, 1}, {33, 17, 65},
                                      {64, 10, 9}, {0, 3, 5}, {3, 0, 5}, {3, 5, 0}, {2, 300, 70}};

static void gemm_in_every_shape(void **state) {
    (void)state;
    static const float betas[] = {0, 1, -0.5f};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int way = 0; way < 4; way++) {
            for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
                check_gemm(shapes[s], way & 1, way & 2, betas[b], RUNG_NAIVE);
                check_gemm(shapes[s], way & 1, way & 2, betas[b], RUNG_FAST);
            }
        }
    }
}

/* --- products of other types, and of many matrices ---------------------------------------------------------------- */

/* Of product number i: c[i] = a[i] b^T + beta c[i], with one b for all if `shared`. */
static void check_products(ls_dtype dtype, ls_dtype c_dtype, size_t batch, bool shared, float beta) {
    enum { M = 9, N = 13, K = 21 };
    size_t a_count = batch * M * K, b_count = (shared ? 1 : batch) * N * K, c_count = batch * M * N;
    const void *a_bits = kernel_rounded(dtype, kernel_random(a_count, 1), a_count);
    const void *b_bits = kernel_rounded(dtype, kernel_random(b_count, 2), b_count);
    const void *c_bits = kernel_rounded(c_dtype, kernel_random(c_count, 3), c_count);
    const float *a = kernel_widened(dtype, a_bits, a_count), *b = kernel_widened(dtype, b_bits, b_count);
    const float *c = kernel_widened(c_dtype, c_bits, c_count);
    size_t nbytes = ls_dtype_nbytes(dtype), c_nbytes = c_count * ls_dtype_nbytes(c_dtype);
    void *a_gpu = to_gpu(a_bits, a_count * nbytes), *b_gpu = to_gpu(b_bits, b_count * nbytes);
    void *c_gpu = to_gpu(c_bits, c_nbytes);
    struct ls_cuda_product product = {
        dtype, c_dtype, false, true, M, N, K, a_gpu, b_gpu, beta, c_gpu, batch, M * K, shared ? 0 : N * K, M * N};
    multiply(&product);
    const float *got = kernel_widened(c_dtype, from_gpu(c_gpu, c_nbytes), c_count);
    (void)from_gpu(a_gpu, 1), (void)from_gpu(b_gpu, 1);
    double rounding = c_dtype == LS_FP32 ? 1e-6 : c_dtype == LS_FP16 ? 0x1p-11 : 0x1p-8;
    for (size_t i = 0; i < c_count; i++) {
        size_t p = i / (M * N), row = i / N % M, column = i % N;
        double want = (double)beta * (double)c[i], x = (double)got[i];
        for (size_t t = 0; t < K; t++)
            want += (double)a[(p * M + row) * K + t] * (double)b[((shared ? 0 : p) * N + column) * K + t];
        if (!(fabs(x - want) <= 1e-5 + rounding * fabs(want)))
            fail_msg("%s product[%zu] is %g, not %g", ls_dtype_name(dtype), i, x, want);
    }
}

static void products_of_every_type(void **state) {
    (void)state;
    static const ls_dtype dtypes[][2] = {
        {LS_FP32, LS_FP32}, {LS_FP16, LS_FP16}, {LS_BF16, LS_BF16}, {LS_FP16, LS_FP32}, {LS_BF16, LS_FP32}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        check_products(dtypes[d][0], dtypes[d][1], 1, false, 0);
        check_products(dtypes[d][0], dtypes[d][1], 1, false, 1);
        check_products(dtypes[d][0], dtypes[d][1], 4, false, 0);
        check_products(dtypes[d][0], dtypes[d][1], 4, true, 1);
        check_products(dtypes[d][0], dtypes[d][1], 0, true, 1);
    }
}

/* Products over nothing leave beta c. */
static void products_over_nothing(void **state) {
    (void)state;
    static const uint16_t ones[6] = {1, 2, 3, 4, 5, 6}, none[6] = {0};
    static const float floats[4] = {1, 2, 3, 4}, halved[4] = {0.5f, 1, 1.5f, 2};
    for (int beta = 0; beta < 2; beta++) {
        void *c = to_gpu(ones, sizeof ones);
        struct ls_cuda_product product = {.dtype = LS_BF16,
                                          .c_dtype = LS_BF16,
                                          .m = 1,
                                          .n = 3,
                                          .beta = (float)beta,
                                          .c = c,
                                          .batch = 2,
                                          .stride_c = 3};
        multiply(&product);
        kernel_expect_same("c", from_gpu(c, sizeof ones), beta ? ones : none, sizeof ones);
    }
    void *c = to_gpu(floats, sizeof floats);
    struct ls_cuda_product product = {
        .dtype = LS_FP16, .c_dtype = LS_FP32, .m = 2, .n = 2, .beta = 0.5f, .c = c, .batch = 1};
    multiply(&product);
    product.beta = 0;
    kernel_expect_same("c of floats", from_gpu(c, sizeof floats), halved, sizeof halved);
    c = product.c = to_gpu(floats, sizeof floats);
    multiply(&product);
    kernel_expect_same("c of floats", from_gpu(c, sizeof floats), (float[4]){0}, sizeof floats);
}

static void products_that_are_refused(void **state) {
    (void)state;
    struct ls_cuda_product product = {.dtype = LS_INT32, .c_dtype = LS_FP32, .m = 1, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(transplant_rungs()->matmul(transplant_stream(), &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "int32");
    product.dtype = LS_FP16;
    product.c_dtype = LS_BF16;
    assert_int_equal(transplant_rungs()->matmul(transplant_stream(), &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "a product of fp16 cannot be stored as bf16");
    product.c_dtype = LS_FP16, product.beta = 0.5f, product.k = 0; /* no kernel scales halves */
    assert_int_equal(transplant_rungs()->matmul(transplant_stream(), &product), LS_ERR_UNSUPPORTED);
    scratch_expect_error("matmul", "nothing but 0 and 1 scales fp16");
    product.dtype = product.c_dtype = LS_FP32;
    product.k = (size_t)INT32_MAX + 1;
    assert_int_equal(transplant_rungs()->matmul(transplant_stream(), &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "too large");
    product.k = 1;
    ls_stream *copy = ls_device_stream(ls_stream_device(transplant_stream()), LS_STREAM_COPY);
    assert_int_equal(transplant_rungs()->matmul(copy, &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "compute stream");
}

/* --- operations that do the work of several ----------------------------------------------------------------------- */

static const size_t tables[][2] = {{1, 1}, {3, 5}, {9, 256}, {64, 10}, {130, 260}, {257, 3}};

static void fused_operations_have_the_bits_of_the_others(void **state) {
    (void)state;
    ls_stream *stream = transplant_stream();
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        size_t rows = tables[t][0], columns = tables[t][1], count = rows * columns, nbytes = count * sizeof(float);
        float *fused = random_on_gpu(count, 1), *y = random_on_gpu(count, 1), *bias = random_on_gpu(columns, 2);
        ls_add_bias_relu(stream, LS_FP32, fused, bias, rows, columns);
        done();
        ls_add_bias(stream, LS_FP32, y, bias, rows, columns);
        done();
        ls_relu_forward(stream, y, y, count);
        done();
        float *dy = random_on_gpu(count, 3), *fused_dy = random_on_gpu(count, 3);
        float *dbias = random_on_gpu(columns, 4), *fused_dbias = random_on_gpu(columns, 4);
        ls_relu_bias_gradient(stream, LS_FP32, fused_dbias, fused_dy, y, rows, columns, true);
        done();
        ls_relu_backward(stream, dy, dy, y, count);
        done();
        ls_bias_gradient(stream, LS_FP32, dbias, dy, rows, columns, true);
        done();
        kernel_expect_same("y", from_gpu(fused, nbytes), from_gpu(y, nbytes), nbytes);
        kernel_expect_same("dy", from_gpu(fused_dy, nbytes), from_gpu(dy, nbytes), nbytes);
        nbytes = columns * sizeof(float);
        kernel_expect_same("dbias", from_gpu(fused_dbias, nbytes), from_gpu(dbias, nbytes), nbytes);
        (void)from_gpu(bias, 4);
    }
}

/* The last row alone, and behind others: a thread to a row, a warp, a block; in one block, in several. */
static void a_row_has_the_same_bits_in_any_batch(void **state) {
    (void)state;
    static const size_t shapes_of_rows[][2] = {{9, 10}, {300, 32}, {9, 33}, {100, 37}, {5, 1030}};
    ls_stream *stream = transplant_stream();
    for (size_t s = 0; s < sizeof shapes_of_rows / sizeof *shapes_of_rows; s++) {
        size_t rows = shapes_of_rows[s][0], classes = shapes_of_rows[s][1], last = (rows - 1) * classes;
        int64_t labels[300];
        for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r % classes);
        float *logits = random_on_gpu(rows * classes, 1), *all = random_on_gpu(rows * classes, 2);
        float *one = random_on_gpu(classes, 3), *loss = random_on_gpu(1, 4);
        int64_t *there = to_gpu(labels, rows * sizeof *labels);
        ls_cross_entropy(stream, loss, all, logits, there, rows, classes, 0.5f);
        done();
        ls_cross_entropy(stream, loss, one, logits + last, there + rows - 1, 1, classes, 0.5f);
        done();
        const float *of_all = from_gpu(all, rows * classes * sizeof *all),
                    *of_one = from_gpu(one, classes * sizeof *one);
        kernel_expect_same("cross_entropy", of_one, of_all + last, classes * sizeof *one);
        (void)from_gpu(logits, 4), (void)from_gpu(loss, 4), (void)from_gpu(there, 4);
    }
}

/* What stands where its gradient would go is left alone; the other rows have theirs. */
static void a_row_with_a_bad_label_has_no_gradient(void **state) {
    (void)state;
    enum { ROWS = 5, BAD = 3 };
    static const size_t counts[] = {10, 32, 33, 1024};
    for (size_t i = 0; i < sizeof counts / sizeof *counts * RUNG_COUNT; i++) {
        size_t classes = counts[i / RUNG_COUNT], nbytes = ROWS * classes * sizeof(float);
        int64_t labels[ROWS] = {0, 1, 2, (int64_t)classes, 4};
        float *before = kernel_random(ROWS * classes, 2), *d = to_gpu(before, nbytes);
        float *logits = random_on_gpu(ROWS * classes, 1), *loss = random_on_gpu(1, 3);
        int64_t *there = to_gpu(labels, sizeof labels);
        struct ls_op op = {.id = LS_OP_cross_entropy};
        op.arguments.cross_entropy = (struct ls_cross_entropy_arguments){loss, d, logits, there, ROWS, classes, 1};
        assert_int_equal(transplant_rungs()->rungs[i % RUNG_COUNT].enqueue(transplant_stream(), &op), LS_OK);
        assert_int_equal(ls_stream_synchronize(transplant_stream()), LS_ERR_INVALID);
        scratch_expect_error("cross_entropy: label", "outside of");
        const float *after = from_gpu(d, nbytes);
        assert_true(isnan(*(float *)from_gpu(loss, sizeof *loss)));
        for (size_t r = 0; r < ROWS; r++) {
            bool same = memcmp(after + r * classes, before + r * classes, classes * sizeof *after) == 0;
            if (same != (r == BAD)) fail_msg("%zu classes, row %zu: same %d", classes, r, same);
        }
        (void)from_gpu(logits, 4), (void)from_gpu(there, 4);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(gemm_in_every_shape),
        TEST_SO(gemm_in_every_shape, "CUDA_ON_CPU_ROUNDING=slices:2"),
        TEST_SO(gemm_in_every_shape, "CUDA_ON_CPU_ROUNDING=slices:8,place,flush"),
        TEST(products_of_every_type),
        TEST_SO(products_of_every_type, "CUDA_ON_CPU_ROUNDING=cut"),
        TEST_SO(products_of_every_type, "CUDA_ON_CPU_ROUNDING=slices:4,place,cut,flush"),
        TEST(products_over_nothing),
        TEST(products_that_are_refused),
        TEST(fused_operations_have_the_bits_of_the_others),
        TEST(a_row_has_the_same_bits_in_any_batch),
        TEST(a_row_with_a_bad_label_has_no_gradient),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("products and fused operations on GPUs", tests, NULL, NULL);
}
