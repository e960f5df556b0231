/* CUDA_ON_CPU_ROUNDING: each of its words has the effect that cuda_on_cpu.h describes, to the bit where specified, and
 * no other. Its effects on other tests are tested there. */
#include <cublas_v2.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/cuda/arrays.h"

float kernel_expf(float x) __asm__("_ZN11cuda_on_cpu11kernel_expfEf");
float kernel_logf(float x) __asm__("_ZN11cuda_on_cpu11kernel_logfEf");

enum { K = 100, MOST = 2 * K + 4 };

/* A new GPU with this rounding. */
static void rounds(const char *how) {
    assert_int_equal(setenv("CUDA_ON_CPU_ROUNDING", how, 1), 0);
    roomy_machine(1, "eager");
}

static int forget(void **state) {
    (void)state;
    return unsetenv("CUDA_ON_CPU_ROUNDING");
}

/* The sum of a[i] b[i] as one matrix multiply, of arrays that begin `shift` elements after a multiple of 256 bytes. */
static float sum(cudaDataType type, cublasMath_t math, const void *a, const void *b, int k, size_t shift) {
    static const float one = 1, zero = 0;
    size_t nbytes = type == CUDA_R_32F ? 4 : 2;
    char host[2][MOST * 4] = {{0}};
    memcpy(host[0] + shift * nbytes, a, (size_t)k * nbytes);
    memcpy(host[1] + shift * nbytes, b, (size_t)k * nbytes);
    char *there[2] = {to_device(host[0], sizeof host[0]), to_device(host[1], sizeof host[1])};
    float *c = device_array(sizeof *c), result;
    cublasHandle_t handle;
    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasSetMathMode(handle, math), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, k, &one, there[0] + shift * nbytes, type, k,
                                  there[1] + shift * nbytes, type, k, &zero, c, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                                  CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_SUCCESS);
    from_device(&result, c, sizeof result);
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    return result;
}

static float sum_of_floats(const float *a, const float *b, int k, size_t shift) {
    return sum(CUDA_R_32F, CUBLAS_DEFAULT_MATH, a, b, k, shift);
}

/* 2^24 + 1, 1 - 2^24, 2^24 + 1, 1 - 2^24, ... in slices of two: 2^24 absorbs a one added to it, and also the one that
 * remains from earlier slices. All other sums are exact. */
TEST_WITH(NULL, forget, slices_are_summed_apart) {
    for (int count = 2; count <= 8; count *= 2) {
        float a[16], ones[16];
        for (int i = 0; i < 2 * count; i++) {
            ones[i] = 1;
            a[i] = i % 4 == 0 ? 0x1p24f : i % 4 == 3 ? -0x1p24f : 1;
        }
        char how[32];
        snprintf(how, sizeof how, "slices:%d", count);
        rounds(how);
        assert_true(sum_of_floats(a, ones, 2 * count, 0) == 1);
        assert_true(cuda_on_cpu_rounds("slices") && !cuda_on_cpu_rounds("place"));
    }
}

TEST_WITH(NULL, forget, a_place_that_is_not_even_changes_the_sum) {
    float a[K], b[K];
    for (int i = 0; i < K; i++) a[i] = sinf((float)i), b[i] = cosf((float)(3 * i));
    rounds("");
    float even = sum_of_floats(a, b, K, 0);
    assert_true(sum_of_floats(a, b, K, 1) == even && sum_of_floats(a, b, K, 4) == even);
    rounds("place");
    assert_true(sum_of_floats(a, b, K, 0) == even && sum_of_floats(a, b, K, 4) == even);
    float other = sum_of_floats(a, b, K, 1);
    assert_true(other != even && fabsf(other - even) < 1e-5f);
    assert_true(sum_of_floats(a, b, K, 1) == other);
}

TEST_WITH(NULL, forget, tensor_cores_cut) {
    static const float x = 1 + 0x1.8p-10f, one = 1;
    static const uint16_t sums[] = {0x3c00, 3}, ones[] = {0x3c00, 0x3c00}; /* 1 and 3 x 2^-24 in fp16 */
    uint16_t many[17], units[17];
    for (int i = 0; i < 17; i++) many[i] = 1, units[i] = 0x3c00;
    many[0] = 0x3c00; /* 1 + 16 x 2^-24 */
    rounds("");
    assert_true(sum(CUDA_R_32F, CUBLAS_TF32_TENSOR_OP_MATH, &x, &one, 1, 0) == 1 + 0x1p-9f);
    assert_true(sum(CUDA_R_16F, CUBLAS_DEFAULT_MATH, sums, ones, 2, 0) == 1 + 0x1p-22f);
    rounds("cut");
    assert_true(sum(CUDA_R_32F, CUBLAS_TF32_TENSOR_OP_MATH, &x, &one, 1, 0) == 1 + 0x1p-10f);
    assert_true(sum(CUDA_R_32F, CUBLAS_DEFAULT_MATH, &x, &one, 1, 0) == x); /* TF32 was not requested */
    assert_true(sum(CUDA_R_16F, CUBLAS_DEFAULT_MATH, sums, ones, 2, 0) == 1 + 0x1p-23f);
    assert_true(sum(CUDA_R_16F, CUBLAS_DEFAULT_MATH, many, units, 17, 0) == 1); /* each alone is below the 24 bits */
}

TEST_WITH(NULL, forget, exponentials_are_two_units_off_at_most) {
    int seen[5] = {0};
    rounds("");
    for (float x = -80; x < 80; x += 0.37f) assert_true(kernel_expf(x) == expf(x));
    rounds("ulps");
    for (int i = 1; i < 4000; i++) {
        float x = 0.02f * (float)(i - 2000), exact = expf(x), got = kernel_expf(x), up = exact;
        int32_t is, was;
        memcpy(&is, &got, sizeof is), memcpy(&was, &up, sizeof was);
        assert_in_range(is - was + 2, 0, 4);
        seen[is - was + 2]++;
        assert_true(kernel_expf(x) == got);
        assert_true(fabsf(kernel_logf((float)i) - logf((float)i)) <= 2.5f * 0x1p-23f * logf((float)i));
    }
    for (int i = 0; i < 5; i++) assert_true(seen[i] > 400);
    assert_true(kernel_expf(-INFINITY) == 0 && kernel_expf(INFINITY) == INFINITY && isnan(kernel_expf(NAN)));
    assert_true(kernel_logf(1) == 0 && kernel_logf(0) == -INFINITY);
}

TEST_WITH(NULL, forget, subnormal_numbers_are_flushed) {
    static const float tiny = 0x1p-130f, one = 1, large = 0x1p100f, small = 0x1p-70f, normal = 0x1p-126f;
    static const uint16_t half_tiny = 1, half_one = 0x3c00;
    rounds("");
    assert_true(sum_of_floats(&tiny, &large, 1, 0) == 0x1p-30f && sum_of_floats(&small, &small, 1, 0) == 0x1p-140f);
    rounds("flush");
    assert_true(sum_of_floats(&tiny, &large, 1, 0) == 0 && sum_of_floats(&small, &small, 1, 0) == 0);
    assert_true(sum_of_floats(&normal, &one, 1, 0) == normal);
    assert_true(sum(CUDA_R_16F, CUBLAS_DEFAULT_MATH, &half_tiny, &half_one, 1, 0) == 0x1p-24f);
}

static void use_cuda(void *how) {
    rounds(how);
    (void)device_array(1);
}

TEST_WITH(NULL, forget, a_word_that_it_does_not_know_ends_the_process) {
    static char words[][16] = {"flash", "slices", "slices:0", "slices:65", "cut,ulp"}, known[] = "slices:64,cut,ulps";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) assert_int_equal(dies(use_cuda, words[i]), 1);
    assert_int_equal(dies(use_cuda, known), 0);
}
