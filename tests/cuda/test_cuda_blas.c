/* The results of the fake cuBLAS (tests/cuda_on_cpu/cublas_gemm.cpp), against sums in double, and when it reads its
 * arguments. */
#include <cublas_v2.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/cuda/arrays.h"

static cublasHandle_t handle;

static void blas(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) fail_msg("%s", cublasGetStatusName(status));
}

static int setup(void **state) {
    (void)state;
    roomy_machine(2, "eager");
    blas(cublasCreate(&handle));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    blas(cublasDestroy(handle));
    return 0;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static double random_number(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 40) / (1 << 23) - 1;
}

static float *random_floats(size_t count, uint64_t seed) {
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) values[i] = (float)random_number(&seed);
    return values;
}

/* Rounds to `digits` bits of mantissa and an exponent of at least `lowest` (that of numbers in [0.5, 1) is 0), to the
 * nearest, ties to even. */
static double rounded(double x, int digits, int lowest) {
    int exponent;
    if (x == 0 || isnan(x) || isinf(x)) return x;
    frexp(x, &exponent);
    int unit = (exponent > lowest ? exponent : lowest) - digits;
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

static double half_rounded(double x) {
    double y = rounded(x, 11, -13);
    return fabs(y) > 65504 ? copysign(INFINITY, x) : y;
}

static double bfloat_rounded(double x) {
    double y = rounded(x, 8, -125);
    return fabs(y) > 0x1.fep127 ? copysign(INFINITY, x) : y;
}

static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent > 0 ? ldexp(1024 + mantissa, exponent - 25)
                                 : ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
}

static double bfloat_value(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static bool is_same(double a, double b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

/* --- one matrix multiply ------------------------------------------------------------------------------------------ */

struct shape {
    bool transpose_a, transpose_b;
    int m, n, k, pad; /* pad: the leading dimensions' excess over the minimum */
};

static int leading_a(const struct shape *s) { return (s->transpose_a ? s->k : s->m) + s->pad; }
static int leading_b(const struct shape *s) { return (s->transpose_b ? s->n : s->k) + s->pad; }
static int leading_c(const struct shape *s) { return s->m + s->pad; }
static size_t count_a(const struct shape *s) { return (size_t)leading_a(s) * (size_t)(s->transpose_a ? s->m : s->k); }
static size_t count_b(const struct shape *s) { return (size_t)leading_b(s) * (size_t)(s->transpose_b ? s->k : s->n); }
static size_t count_c(const struct shape *s) { return (size_t)leading_c(s) * (size_t)s->n; }
static cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

static double sum_at(const struct shape *s, const float *a, const float *b, int row, int column) {
    double sum = 0;
    for (int i = 0; i < s->k; i++) {
        size_t in_a = s->transpose_a ? (size_t)row * (size_t)leading_a(s) + (size_t)i
                                     : (size_t)i * (size_t)leading_a(s) + (size_t)row;
        size_t in_b = s->transpose_b ? (size_t)i * (size_t)leading_b(s) + (size_t)column
                                     : (size_t)column * (size_t)leading_b(s) + (size_t)i;
        sum += (double)a[in_a] * (double)b[in_b];
    }
    return sum;
}

/* Asserts c = alpha op(a) op(b) + beta before, and that the elements between columns are unchanged. */
static void expect_product(const struct shape *s, float alpha, const float *a, const float *b, float beta,
                           const float *before, const float *c) {
    for (int column = 0; column < s->n; column++) {
        for (int row = 0; row < leading_c(s); row++) {
            size_t i = (size_t)column * (size_t)leading_c(s) + (size_t)row;
            if (row >= s->m) {
                assert_memory_equal(&c[i], &before[i], sizeof *c);
                continue;
            }
            double want =
                (double)alpha * sum_at(s, a, b, row, column) + (beta == 0 ? 0 : (double)beta * (double)before[i]);
            if (!(fabs((double)c[i] - want) <= 1e-6 * (1 + s->k))) {
                fail_msg("%d x %d x %d: c[%d,%d] is %g instead of %g", s->m, s->n, s->k, row, column, (double)c[i],
                         want);
            }
        }
    }
}

static void check_sgemm(const struct shape *s, float alpha, float beta) {
    float *a = random_floats(count_a(s), 1), *b = random_floats(count_b(s), 2), *c = random_floats(count_c(s), 3);
    float *before = random_floats(count_c(s), 3);
    for (size_t i = 0; i < count_c(s) && beta == 0; i++) before[i] = c[i] = NAN;
    float *da = to_device(a, count_a(s) * sizeof *a), *db = to_device(b, count_b(s) * sizeof *b);
    float *dc = to_device(c, count_c(s) * sizeof *c);
    blas(cublasSgemm(handle, operation(s->transpose_a), operation(s->transpose_b), s->m, s->n, s->k, &alpha, da,
                     leading_a(s), db, leading_b(s), &beta, dc, leading_c(s)));
    from_device(c, dc, count_c(s) * sizeof *c);
    expect_product(s, alpha, a, b, beta, before, c);
    free(a);
    free(b);
    free(c);
    free(before);
    ok(cudaFree(da));
    ok(cudaFree(db));
    ok(cudaFree(dc));
}

TEST_WITH(setup, teardown, products_are_those_of_the_formula) {
    static const int sizes[][3] = {{1, 1, 1}, {2, 3, 4}, {7, 5, 3}, {1, 33, 65}, {64, 1, 9}, {37, 64, 19}, {3, 2, 500}};
    static const float factors[][2] = {{1, 0}, {1, 1}, {-2, 0.5f}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int t = 0; t < 4; t++) {
            struct shape s = {t & 1, t & 2, sizes[i][0], sizes[i][1], sizes[i][2], (int)i % 3};
            const float *f = factors[(i + (size_t)t) % 3];
            check_sgemm(&s, f[0], f[1]);
        }
    }
}

TEST_WITH(setup, teardown, what_does_not_count_is_not_read) {
    float nothing[4] = {NAN, NAN, NAN, NAN}, c[4] = {1, 2, 3, 4}, zero = 0, one = 1, two = 2;
    float *dn = to_device(nothing, sizeof nothing), *dc = to_device(c, sizeof c);
    /* alpha 0, then k 0: the product is 0 whatever A and B contain */
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &zero, dn, 2, dn, 2, &two, dc, 2));
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 0, &one, dn, 2, dn, 1, &two, dc, 2));
    from_device(c, dc, sizeof c);
    for (int i = 0; i < 4; i++) assert_true(c[i] == 4 * (float)(i + 1));
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 0, &one, dn, 2, dn, 1, &zero, dn, 2));
    from_device(nothing, dn, sizeof nothing);
    for (int i = 0; i < 4; i++) assert_true(nothing[i] == 0);
    /* nothing to compute: matrices may be NULL */
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 2, 2, &one, NULL, 1, NULL, 2, &zero, NULL, 1));
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 0, 2, &one, NULL, 2, NULL, 2, &zero, NULL, 2));
}

TEST_WITH(setup, teardown, a_batch_steps_by_its_strides) {
    enum { BATCH = 5 };
    struct shape s = {true, false, 3, 4, 6, 1};
    size_t stride_b = count_b(&s) + 2, stride_c = count_c(&s) + 3;
    float *a = random_floats(count_a(&s), 1), *b = random_floats(BATCH * stride_b, 2),
          *c = random_floats(BATCH * stride_c, 3);
    float *before = random_floats(BATCH * stride_c, 3), alpha = 1, beta = 1;
    float *da = to_device(a, count_a(&s) * sizeof *a), *db = to_device(b, BATCH * stride_b * sizeof *b);
    float *dc = to_device(c, BATCH * stride_c * sizeof *c);
    for (int round = 0; round < 2; round++) {
        ok(cudaMemcpy(dc, before, BATCH * stride_c * sizeof *c, cudaMemcpyHostToDevice));
        if (round == 0) {
            blas(cublasSgemmStridedBatched(handle, CUBLAS_OP_T, CUBLAS_OP_N, s.m, s.n, s.k, &alpha, da, leading_a(&s),
                                           0, db, leading_b(&s), (long long)stride_b, &beta, dc, leading_c(&s),
                                           (long long)stride_c, BATCH));
        } else {
            blas(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, s.m, s.n, s.k, &alpha, da, CUDA_R_32F,
                                            leading_a(&s), 0, db, CUDA_R_32F, leading_b(&s), (long long)stride_b, &beta,
                                            dc, CUDA_R_32F, leading_c(&s), (long long)stride_c, BATCH,
                                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        }
        from_device(c, dc, BATCH * stride_c * sizeof *c);
        for (size_t i = 0; i < BATCH; i++) {
            expect_product(&s, alpha, a, b + i * stride_b, beta, before + i * stride_c, c + i * stride_c);
            assert_memory_equal(c + i * stride_c + count_c(&s), before + i * stride_c + count_c(&s), 3 * sizeof *c);
        }
    }
    free(a);
    free(b);
    free(c);
    free(before);
}

/* --- types -------------------------------------------------------------------------------------------------------- */

/* out[i] = in[i] * factor for all 65536 bit patterns of a 16-bit type. */
static void multiply_all(cudaDataType type, uint16_t factor, cudaDataType out_type, void *out) {
    static uint16_t in[65536];
    float one = 1, zero = 0;
    for (int i = 0; i < 65536; i++) in[i] = (uint16_t)i;
    size_t nbytes = out_type == CUDA_R_32F ? 65536 * sizeof(float) : sizeof in;
    uint16_t *din = to_device(in, sizeof in), *dfactor = to_device(&factor, sizeof factor);
    void *dout;
    ok(cudaMalloc(&dout, nbytes));
    blas(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 65536, 1, 1, &one, din, type, 65536, dfactor, type, 1, &zero,
                      dout, out_type, 65536, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    from_device(out, dout, nbytes);
}

static void check_type(cudaDataType type, const uint16_t *factors, double (*value)(uint16_t), double (*round)(double)) {
    static float wide[65536];
    static uint16_t narrow[65536];
    for (int f = 0; factors[f]; f++) {
        multiply_all(type, factors[f], CUDA_R_32F, wide);
        multiply_all(type, factors[f], type, narrow);
        for (int i = 0; i < 65536; i++) {
            float product = (float)value((uint16_t)i) * (float)value(factors[f]);
            if (!is_same(wide[i] + 0.0, product + 0.0) || !is_same(value(narrow[i]) + 0.0, round(product) + 0.0)) {
                fail_msg("%a * %a: %a, rounded %a", value((uint16_t)i), value(factors[f]), (double)wide[i],
                         value(narrow[i]));
            }
        }
    }
}

TEST_WITH(setup, teardown, fp16_and_bf16_sum_in_fp32_and_round_once) {
    /* 1, 1 + 2^-10, -1.5, 0.00123, 3, a third, 40000 */
    static const uint16_t halves[] = {0x3c00, 0x3c01, 0xbe00, 0x150a, 0x4200, 0x3555, 0x78e2, 0};
    /* 1, 1 + 2^-7, -1.5, 2^-20, a third, 2^100 */
    static const uint16_t bfloats[] = {0x3f80, 0x3f81, 0xbfc0, 0x3580, 0x3eab, 0x7180, 0};
    const int in_fp32 = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    blas(cublasSetMathMode(handle, (cublasMath_t)in_fp32));
    check_type(CUDA_R_16F, halves, half_value, half_rounded);
    check_type(CUDA_R_16BF, bfloats, bfloat_value, bfloat_rounded);
    /* 2048 + 1 + 1 = 2050, but 2048 + 1 = 2048 in fp16 */
    uint16_t ones[3] = {0x6800, 0x3c00, 0x3c00}, b[3] = {0x3c00, 0x3c00, 0x3c00}, c[3] = {0x3c00, 0x3c00, 0x3c00};
    float alpha = 1, beta = 1;
    uint16_t *da = to_device(ones, sizeof ones), *db = to_device(b, sizeof b), *dc = to_device(c, sizeof c);
    blas(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, 3, &alpha, da, CUDA_R_16F, 3, db, CUDA_R_16F, 3, &beta,
                      dc + 1, CUDA_R_16F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    from_device(c, dc, sizeof c);
    assert_true(half_value(c[1]) == 2052); /* 2051 is halfway between 2050 and 2052, whose mantissa is even */
    assert_int_equal(c[0], 0x3c00);
    assert_int_equal(c[2], 0x3c00);
    /* unless parts of the sum may be added as fp16: (1 + 2048 = 2048) + 2 = 2050 */
    blas(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
    ok(cudaMemcpy(dc, db, sizeof c, cudaMemcpyDefault));
    blas(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, 3, &alpha, da, CUDA_R_16F, 3, db, CUDA_R_16F, 3, &beta,
                      dc + 1, CUDA_R_16F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    from_device(c, dc, sizeof c);
    assert_true(half_value(c[1]) == 2050);
}

/* The product x * 1 in the given mode. */
static float product_with_one(float x, bool by_gemm_ex, cublasComputeType_t compute) {
    float one = 1, zero = 0, result;
    float *dx = to_device(&x, sizeof x), *d1 = to_device(&one, sizeof one), *dc = to_device(&zero, sizeof zero);
    if (by_gemm_ex) {
        blas(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d1, CUDA_R_32F, 1, dx, CUDA_R_32F, 1, &zero,
                          dc, CUDA_R_32F, 1, compute, CUBLAS_GEMM_DEFAULT_TENSOR_OP));
    } else {
        blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, dx, 1, d1, 1, &zero, dc, 1));
    }
    from_device(&result, dc, sizeof result);
    ok(cudaFree(dx));
    ok(cudaFree(d1));
    ok(cudaFree(dc));
    return result;
}

TEST_WITH(setup, teardown, tf32_is_10_bits_and_only_when_asked_for) {
    static const float numbers[] = {0x1.002p0f,  0x1.006p0f,     0x1.004p0f,    0x1.0021p0f,
                                    -0x1.ffep3f, 0x1.fffffep-3f, 0x1.5555p-120f};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        float x = numbers[i], tf32 = (float)rounded((double)x, 11, -1000);
        assert_true(i == 2 || x != tf32);
        blas(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
        assert_true(product_with_one(x, false, CUBLAS_COMPUTE_32F) == x);
        assert_true(product_with_one(x, true, CUBLAS_COMPUTE_32F) == x);
        assert_true(product_with_one(x, true, CUBLAS_COMPUTE_32F_FAST_TF32) == tf32);
        blas(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH));
        assert_true(product_with_one(x, false, CUBLAS_COMPUTE_32F) == x);
        blas(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
        assert_true(product_with_one(x, false, CUBLAS_COMPUTE_32F) == tf32);
        assert_true(product_with_one(x, true, CUBLAS_COMPUTE_32F) == tf32);
        assert_true(product_with_one(x, true, CUBLAS_COMPUTE_32F_PEDANTIC) == x);
    }
}

/* --- timing ------------------------------------------------------------------------------------------------------- */

TEST_WITH(setup, teardown, alpha_and_beta_are_read_at_the_call_or_on_the_device) {
    blas(cublasDestroy(handle));
    roomy_machine(2, "shuffle:3");
    blas(cublasCreate(&handle));
    float values[4] = {2, 3, 10, 100}, c = 0, alpha = 5, beta = 1;
    float *device = to_device(values, sizeof values), *dc = to_device(&values[3], sizeof c);
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, device, 1, device + 1, 1, &beta, dc, 1));
    alpha = beta = NAN;
    assert_int_equal(cuda_on_cpu_peek(&c, dc, sizeof c), 0);
    assert_true(c == 100); /* without a wait by the host */
    ok(cudaDeviceSynchronize());
    from_device(&c, dc, sizeof c);
    assert_true(c == 5 * 2 * 3 + 100);

    blas(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    values[2] = -1;
    ok(cudaMemcpyAsync(device + 2, values + 2, sizeof(float), cudaMemcpyHostToDevice, NULL));
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, device + 2, device, 1, device + 1, 1, device, dc, 1));
    from_device(&c, dc, sizeof c);
    assert_true(c == -1 * 2 * 3 + 2 * 130);
}

TEST_WITH(setup, teardown, a_product_runs_on_the_handles_stream) {
    cudaStream_t stream, told;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float x = 3, c = 0, one = 1, *dx = to_device(&x, sizeof x), *dc = to_device(&c, sizeof c);
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    blas(cublasSetStream(handle, stream));
    blas(cublasGetStream(handle, &told));
    assert_ptr_equal(told, stream);
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    blas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, dx, 1, dx, 1, &one, dc, 1));
    ok(cudaStreamEndCapture(stream, &graph));
    ok(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) ok(cudaGraphLaunch(exec, stream));
    ok(cudaStreamSynchronize(stream));
    from_device(&c, dc, sizeof c);
    assert_true(c == 27);
    ok(cudaGraphExecDestroy(exec));
    ok(cudaGraphDestroy(graph));
    ok(cudaStreamDestroy(stream));
}
