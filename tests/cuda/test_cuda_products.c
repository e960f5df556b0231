/* ls_cuda_matmul, the matrix multiplies of convolutions on a GPU: in fp16 and bf16, and in batches. (ls_gemm:
 * tests/kernels.) Runs on real GPUs too. */
#include <math.h>

#include "common/device/plugin.h"
#include "kernels/cuda/cuda.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/backends.h"

static ls_status try_product(ls_stream *stream, const struct ls_cuda_product *product) {
    char why[400];
    const struct ls_cuda_rungs *rungs = ls_plugin_open("ls_cuda.so", "ls_cuda_rungs", why, sizeof why);
    if (!rungs) fail_msg("%s", why);
    return rungs->matmul(stream, product);
}

static void multiply(const struct ls_cuda_product *product) {
    assert_int_equal(try_product(kernel_gpu_stream(), product), LS_OK);
    assert_int_equal(ls_stream_synchronize(kernel_gpu_stream()), LS_OK);
}

static void *to_gpu(const void *values, size_t nbytes) {
    return gpu_upload(ls_stream_device(kernel_gpu_stream()), values, nbytes);
}

static void *from_gpu(void *memory, size_t nbytes) {
    void *values = kernel_bytes(nbytes);
    gpu_download(ls_stream_device(kernel_gpu_stream()), values, memory, nbytes);
    ls_device_free(ls_stream_device(kernel_gpu_stream()), memory);
    return values;
}

/* For matrix i of the batch: c[i] = a[i] b^T + beta c[i], with one b for all if `shared`. */
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
    struct ls_cuda_product product = {.dtype = dtype,
                                      .c_dtype = c_dtype,
                                      .transpose_b = true,
                                      .m = M,
                                      .n = N,
                                      .k = K,
                                      .a = a_gpu,
                                      .b = b_gpu,
                                      .beta = beta,
                                      .c = c_gpu,
                                      .batch = batch,
                                      .stride_a = M * K,
                                      .stride_b = shared ? 0 : N * K,
                                      .stride_c = M * N};
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

TEST_CASE(products_of_every_type) {
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

/* With k = 0 the result is beta c. */
TEST_CASE(products_over_nothing) {
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

TEST_CASE(products_that_are_refused) {
    struct ls_cuda_product product = {.dtype = LS_INT32, .c_dtype = LS_FP32, .m = 1, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(try_product(kernel_gpu_stream(), &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "int32");
    product.dtype = LS_FP16;
    product.c_dtype = LS_BF16;
    assert_int_equal(try_product(kernel_gpu_stream(), &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "a product of fp16 cannot be stored as bf16");
    product.c_dtype = LS_FP16, product.beta = 0.5f, product.k = 0; /* no kernel scales fp16 values */
    assert_int_equal(try_product(kernel_gpu_stream(), &product), LS_ERR_UNSUPPORTED);
    scratch_expect_error("matmul", "scale factors other than 0 and 1 need fp32, not fp16");
    product.dtype = product.c_dtype = LS_FP32;
    product.k = (size_t)INT32_MAX + 1;
    assert_int_equal(try_product(kernel_gpu_stream(), &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "exceed what cuBLAS can take");
    product.k = 1;
    ls_stream *copy = ls_device_stream(ls_stream_device(kernel_gpu_stream()), LS_STREAM_COPY);
    assert_int_equal(try_product(copy, &product), LS_ERR_INVALID);
    scratch_expect_error("matmul", "compute stream");
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW_ON(ON_FAST | ON_FAST_OTHERWISE, products_of_every_type),
        ROW_ON(ON_FAST, products_over_nothing),
        ROW_ON(ON_FAST, products_that_are_refused),
    };
    return RUN_EVERYWHERE("products on GPUs", tests);
}
