/* Products of halves on a GPU: ls_gemm in every shape that is special, with results of halves and of floats, against
 * sums in double; what rounding once means for the largest, the smallest and no numbers at all; subnormal numbers,
 * which cuBLAS may lose; and which types go together. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/transplant.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const ls_dtype half_types[] = {LS_FP16, LS_BF16};
static int flushed; /* subnormal numbers that cuBLAS took for zero */

static void run_rung(int rung, const struct problem *p, transplant_alignment alignment) {
    ls_status status = transplant_run(p, transplant_rungs()->rungs[rung].enqueue, alignment);
    if (status != LS_OK) fail_msg("%s: %s", ls_op_name(p->op.id), ls_status_text(status));
}

static struct problem problem_of(struct ls_gemm_arguments g) {
    struct problem p = {.op = {.id = LS_OP_gemm, .arguments.gemm = g}, .output_count = 1};
    p.outputs[0].memory = g.c;
    p.outputs[0].nbytes = g.m * g.n * ls_dtype_nbytes(g.c_dtype);
    return p;
}

/* --- gemm --------------------------------------------------------------------------------------------------------- */

/* Half a unit of the last place, beside what sums in fp32 may be off. */
static void expect_rounded(ls_dtype dtype, const void *c, const double *want, size_t count, double terms) {
    const float *got = kernel_widened(dtype, c, count);
    double rtol = dtype == LS_FP16 ? 0x1p-11 : 0x1p-8, atol = 1e-6 * (1 + sqrt(terms));
    for (size_t i = 0; i < count; i++) {
        if (fabs((double)got[i] - want[i]) <= atol + rtol * fabs(want[i])) continue;
        fail_msg("c[%zu] of %s is %.9g, not %.9g", i, ls_dtype_name(dtype), (double)got[i], want[i]);
    }
}

static void check_gemm(ls_dtype dtype, ls_dtype c_dtype, const size_t *s, int way, float beta, int rung) {
    const bool transpose_a = way & 1, transpose_b = way & 2;
    const size_t m = s[0], n = s[1], k = s[2];
    void *a_bits = kernel_rounded(dtype, kernel_random(m * k, 1), m * k);
    void *b_bits = kernel_rounded(dtype, kernel_random(k * n, 2), k * n);
    const float *a = kernel_widened(dtype, a_bits, m * k), *b = kernel_widened(dtype, b_bits, k * n);
    float *c = kernel_random(m * n, 3);
    double *want = kernel_bytes(m * n * sizeof *want);
    for (size_t i = 0; i < m * n; i++) {
        size_t row = i / n, column = i % n;
        want[i] = beta == 0 ? 0 : (double)beta * (double)c[i];
        for (size_t t = 0; t < k; t++)
            want[i] += (double)a[transpose_a ? t * m + row : row * k + t] *
                       (double)b[transpose_b ? column * k + t : t * n + column];
        if (beta == 0) c[i] = NAN; /* must not be read */
    }
    void *c_bits = kernel_rounded(c_dtype, c, m * n);
    struct problem p = problem_of((struct ls_gemm_arguments){dtype, transpose_a, transpose_b, m, n, k, a_bits, b_bits,
                                                             beta, c_dtype, c_bits, NULL});
    run_rung(rung, &p, (transplant_alignment)(way % TRANSPLANT_ALIGNMENTS));
    if (c_dtype == LS_FP32) kernel_expect_sum("gemm into floats", c_bits, want, m * n, (double)k);
    if (c_dtype != LS_FP32) expect_rounded(dtype, c_bits, want, m * n, (double)k);
}

static void gemm_in_every_shape(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},   {1, 7, 5}, {7, 1, 5}, {5, 7, 1}, {33, 17, 65},
                                       {64, 10, 9}, {0, 3, 5}, {3, 0, 5}, {3, 5, 0}, {2, 300, 70}};
    for (size_t i = 0; i < COUNT(shapes) * 4 * RUNG_COUNT * COUNT(half_types); i++) {
        size_t at = i;
        const size_t *shape = shapes[at % COUNT(shapes)];
        at /= COUNT(shapes);
        int way = (int)(at % 4), rung = (int)(at / 4 % RUNG_COUNT);
        ls_dtype dtype = half_types[at / 4 / RUNG_COUNT];
        check_gemm(dtype, dtype, shape, way, 0, rung);
        check_gemm(dtype, LS_FP32, shape, way, 0, rung);
        check_gemm(dtype, LS_FP32, shape, way, i % 2 ? 1 : -0.5f, rung);
    }
}

/* 1 x k times k x 1, with every product of two elements exact. */
static float multiply(int rung, ls_dtype dtype, ls_dtype c_dtype, size_t k, const float *a, const float *b) {
    void *c = kernel_elements(c_dtype, 1);
    struct problem p = problem_of((struct ls_gemm_arguments){dtype, false, true, 1, 1, k, kernel_rounded(dtype, a, k),
                                                             kernel_rounded(dtype, b, k), 0, c_dtype, c, NULL});
    run_rung(rung, &p, TRANSPLANT_ALIGNED);
    return *kernel_widened(c_dtype, c, 1);
}

#define MULTIPLY(dtype, c_dtype, a, b) multiply(rung, dtype, c_dtype, COUNT(a), a, b)

static void results_are_rounded_once(void **state) {
    (void)state;
    static const float large[] = {300, 300, 60000}, ones[] = {1, 1, 1}, not_a_number[] = {1, NAN, 1};
    static const float overflow[] = {300, 0, 0}, fine[] = {2048, 1, 1}, coarse[] = {256, 1, 1};
    static const float tall[] = {60000, 60000, -60000}, top[] = {0x1p127f, 0x1p127f, 0};
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        /* fp16 ends at 65504, floats do not; and a sum may go beyond and come back */
        assert_true(MULTIPLY(LS_FP16, LS_FP16, large, overflow) == INFINITY);
        assert_true(MULTIPLY(LS_FP16, LS_FP32, large, overflow) == 90000);
        assert_true(MULTIPLY(LS_FP16, LS_FP16, tall, ones) == 60000);
        assert_true(MULTIPLY(LS_BF16, LS_BF16, top, ones) == INFINITY);
        assert_true(MULTIPLY(LS_BF16, LS_BF16, large, overflow) == 90112);
        for (size_t h = 0; h < COUNT(half_types); h++) {
            assert_true(isnan(MULTIPLY(half_types[h], half_types[h], not_a_number, ones)));
            assert_true(isnan(MULTIPLY(half_types[h], LS_FP32, ones, not_a_number)));
        }
        /* 2048 + 1 + 1 and 256 + 1 + 1, where sums in halves would not move */
        assert_true(MULTIPLY(LS_FP16, LS_FP16, fine, ones) == 2050);
        assert_true(MULTIPLY(LS_BF16, LS_BF16, coarse, ones) == 258);
    }
}

/* Our own kernels keep numbers below the smallest normal one. cuBLAS promises nothing of them: where it takes or gives
 * zero for them, that is reported, not failed; anything else fails. */
static void expect_subnormal(int rung, const char *what, float got, float want) {
    if (got == want) return;
    if (got != 0 || rung == RUNG_NAIVE || !gpu_may_round("flush"))
        fail_msg("%s rung: %s is %a, not %a", transplant_rungs()->rungs[rung].name, what, (double)got, (double)want);
    flushed++;
    print_message("reported, not failed: cuBLAS took zero for a subnormal number: %s is 0, not %a\n", what,
                  (double)want);
}

static void subnormal_numbers_are_kept(void **state) {
    (void)state;
    static const float ones[] = {1, 1, 1}, tiny[] = {0x1p-24f, 0, 0}, odd[] = {3 * 0x1p-24f, 0, 0};
    static const float half[] = {0.5f, 0, 0}, bottom[] = {0x1p-130f, 0, 0}, small[] = {0x1p-100f, 0, 0};
    flushed = 0;
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        expect_subnormal(rung, "2^-24 of fp16", MULTIPLY(LS_FP16, LS_FP16, tiny, ones), 0x1p-24f);
        expect_subnormal(rung, "2^-24 of fp16 as fp32", MULTIPLY(LS_FP16, LS_FP32, tiny, ones), 0x1p-24f);
        /* halfway between two of them: to the even one */
        expect_subnormal(rung, "1.5 * 2^-24 of fp16", MULTIPLY(LS_FP16, LS_FP16, odd, half), 0x1p-23f);
        expect_subnormal(rung, "2^-48 of fp16 as fp32", MULTIPLY(LS_FP16, LS_FP32, tiny, tiny), 0x1p-48f);
        expect_subnormal(rung, "2^-130 of bf16 as fp32", MULTIPLY(LS_BF16, LS_FP32, bottom, ones), 0x1p-130f);
        assert_true(MULTIPLY(LS_FP16, LS_FP16, tiny, tiny) == 0);
        assert_true(MULTIPLY(LS_BF16, LS_BF16, small, small) == 0);
    }
    const char *rounding = getenv("CUDA_ON_CPU_ROUNDING");
    bool told = rounding && strstr(rounding, "flush") && !gpu_is_real();
    if (told) assert_int_equal(flushed, 1); /* the one that is subnormal as fp32 too */
}

static void types_that_do_not_go_together(void **state) {
    (void)state;
    static const ls_dtype pairs[][2] = {{LS_FP16, LS_BF16}, {LS_BF16, LS_FP16}, {LS_FP32, LS_FP16}};
    for (size_t i = 0; i < COUNT(pairs) * RUNG_COUNT; i++) {
        ls_dtype dtype = pairs[i % COUNT(pairs)][0], c_dtype = pairs[i % COUNT(pairs)][1];
        struct ls_op op = {.id = LS_OP_gemm, .arguments.gemm = {.dtype = dtype, .m = 1, .n = 1, .k = 1}};
        op.arguments.gemm.c_dtype = c_dtype;
        assert_int_equal(transplant_rungs()->rungs[i / COUNT(pairs)].enqueue(transplant_stream(), &op), LS_ERR_INVALID);
        scratch_expect_error("gemm", "cannot be stored as");
        (void)ls_stream_synchronize(transplant_stream()); /* clears the failure */
        op.arguments.gemm.c_dtype = LS_FP16, op.arguments.gemm.beta = 1;
        assert_int_equal(transplant_rungs()->rungs[i / COUNT(pairs)].enqueue(transplant_stream(), &op), LS_ERR_INVALID);
        scratch_expect_error("gemm", "adds to fp32 only, not to fp16");
        (void)ls_stream_synchronize(transplant_stream());
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(gemm_in_every_shape),
        TEST_SO(gemm_in_every_shape, "CUDA_ON_CPU_ROUNDING=slices:2,cut"),
        TEST_SO(gemm_in_every_shape, "CUDA_ON_CPU_ROUNDING=slices:8,place,flush"),
        TEST(results_are_rounded_once),
        TEST_SO(results_are_rounded_once, "CUDA_ON_CPU_ROUNDING=slices:2,cut"),
        TEST(subnormal_numbers_are_kept),
        TEST_SO(subnormal_numbers_are_kept, "CUDA_ON_CPU_ROUNDING=cut"),
        TEST_SO(subnormal_numbers_are_kept, "CUDA_ON_CPU_ROUNDING=flush"),
        TEST(types_that_do_not_go_together),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("products of halves on GPUs", tests, NULL, NULL);
}
