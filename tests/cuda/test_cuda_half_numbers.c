/* Halves on a GPU, number by number: casts of every half and of the floats between them, what overflows, what is too
 * small, and that sums and averages are rounded where kernels.h says. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/cuda/transplant.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { ALL = 65536 };
static const ls_dtype half_types[] = {LS_FP16, LS_BF16};

static void run(struct ls_op op, int rung, void *output, size_t nbytes, transplant_alignment alignment) {
    struct problem p = {.op = op, .output_count = 1};
    p.outputs[0].memory = output, p.outputs[0].nbytes = nbytes;
    ls_status status = transplant_run(&p, transplant_rungs()->rungs[rung].enqueue, alignment);
    if (status != LS_OK) fail_msg("%s: %s", ls_op_name(op.id), ls_status_text(status));
}

static void expect_same_numbers(ls_dtype dtype, const char *what, const float *got, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) == 0 || (isnan(got[i]) && isnan(want[i]))) continue;
        fail_msg("%s of %s [%zu] is %a, not %a", what, ls_dtype_name(dtype), i, (double)got[i], (double)want[i]);
    }
}

/* --- casts -------------------------------------------------------------------------------------------------------- */

/* The number with these bits, by its definition. */
static float value_of(ls_dtype dtype, unsigned bits) {
    int digits = dtype == LS_FP16 ? 10 : 7, exponents = dtype == LS_FP16 ? 31 : 255, bias = exponents / 2;
    int exponent = (int)(bits >> digits) & exponents, mantissa = (int)bits & ((1 << digits) - 1);
    double size = exponent == exponents ? (mantissa ? NAN : INFINITY)
                  : exponent == 0       ? ldexp(mantissa, 1 - bias - digits)
                                        : ldexp((1 << digits) + mantissa, exponent - bias - digits);
    return (float)(bits >> 15 ? -size : size);
}

static void every_half_is_widened(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(half_types) * RUNG_COUNT; i++) {
        ls_dtype dtype = half_types[i / RUNG_COUNT];
        uint16_t *x = kernel_elements(dtype, ALL);
        float *y = kernel_floats(ALL), *want = kernel_floats(ALL);
        for (unsigned k = 0; k < ALL; k++) x[k] = (uint16_t)k, want[k] = value_of(dtype, k);
        struct ls_op op = {.id = LS_OP_cast, .arguments.cast = {LS_FP32, y, dtype, x, ALL}};
        run(op, (int)(i % RUNG_COUNT), y, ALL * sizeof *y, TRANSPLANT_ALIGNED);
        expect_same_numbers(dtype, "cast", y, want, ALL);
    }
}

/* Between two neighbours: in the middle, to the even one; a little to either side, to the nearer one. Behind the
 * largest comes infinity, as if it were the next. */
static void floats_are_rounded_to_the_nearest_half(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(half_types) * RUNG_COUNT; i++) {
        ls_dtype dtype = half_types[i / RUNG_COUNT];
        const unsigned end = dtype == LS_FP16 ? 0x7c00 : 0x7f80; /* infinity */
        float *x = kernel_floats(3 * end), *want = kernel_floats(3 * end);
        for (unsigned k = 0; k < end; k++) {
            double low = (double)value_of(dtype, k), next = (double)value_of(dtype, k + 1);
            if (k + 1 == end) next = low + (low - (double)value_of(dtype, k - 1));
            float middle = (float)((low + next) / 2);
            unsigned sign = k % 2 ? 0x8000 : 0;
            x[3 * k] = nextafterf(middle, 0), want[3 * k] = value_of(dtype, k | sign);
            x[3 * k + 1] = middle, want[3 * k + 1] = value_of(dtype, (k + k % 2) | sign);
            x[3 * k + 2] = nextafterf(middle, INFINITY), want[3 * k + 2] = value_of(dtype, (k + 1) | sign);
            for (int side = 0; side < 3 && sign; side++) x[3 * k + (unsigned)side] *= -1;
        }
        void *y = kernel_elements(dtype, 3 * end);
        struct ls_op op = {.id = LS_OP_cast, .arguments.cast = {dtype, y, LS_FP32, x, 3 * end}};
        run(op, (int)(i % RUNG_COUNT), y, 3 * end * sizeof(uint16_t), TRANSPLANT_FIRST_SHIFTED);
        expect_same_numbers(dtype, "cast", kernel_widened(dtype, y, 3 * end), want, 3 * end);
    }
}

static void casts_that_are_refused(void **state) {
    (void)state;
    static const ls_dtype casts[][2] = {{LS_FP16, LS_BF16}, {LS_FP32, LS_INT64}, {LS_INT32, LS_FP32}};
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        for (size_t i = 0; i < COUNT(casts); i++) {
            struct ls_op op = {.id = LS_OP_cast, .arguments.cast = {.to = casts[i][0], .from = casts[i][1]}};
            assert_int_equal(transplant_rungs()->rungs[rung].enqueue(transplant_stream(), &op), LS_ERR_INVALID);
            scratch_expect_error("cast from", "one must be fp32, the other fp32, fp16 or bf16");
            (void)ls_stream_synchronize(transplant_stream()); /* clears the failure */
        }
        struct ls_op op = {.id = LS_OP_cast_divide, .arguments.cast_divide = {.to = LS_FP32, .divisor = 2}};
        assert_int_equal(transplant_rungs()->rungs[rung].enqueue(transplant_stream(), &op), LS_ERR_INVALID);
        scratch_expect_error("cast_divide to fp32", "it must be fp16 or bf16");
        (void)ls_stream_synchronize(transplant_stream());
    }
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

/* y + bias of one number by both operations. */
static void check_sum(ls_dtype dtype, float y, float bias, float want) {
    for (int i = 0; i < 2 * RUNG_COUNT; i++) {
        bool relu = i % 2;
        void *result = kernel_rounded(dtype, &y, 1), *addend = kernel_rounded(dtype, &bias, 1);
        struct ls_op op = {.id = LS_OP_add_bias, .arguments.add_bias = {dtype, result, addend, 1, 1}};
        if (relu) {
            op = (struct ls_op){.id = LS_OP_add_bias_relu, .arguments.add_bias_relu = {dtype, result, addend, 1, 1}};
        }
        run(op, i / 2, result, ls_dtype_nbytes(dtype), TRANSPLANT_ALIGNED);
        expect_same_numbers(dtype, ls_op_name(op.id), kernel_widened(dtype, result, 1),
                            &(float){relu && want <= 0 ? 0 : want}, 1);
    }
}

static void sums_are_rounded_once(void **state) {
    (void)state;
    check_sum(LS_FP16, 65504, 15, 65504);
    check_sum(LS_FP16, 65504, 16, INFINITY);
    check_sum(LS_FP16, -65504, -16, -INFINITY);
    check_sum(LS_FP16, 2048, 1, 2048);
    check_sum(LS_FP16, 2050, 1, 2052);
    check_sum(LS_FP16, 0x1p-24f, 0x1p-24f, 0x1p-23f);
    check_sum(LS_FP16, 0x1p-14f, -0x1p-24f, 0x1p-14f - 0x1p-24f);
    check_sum(LS_FP16, INFINITY, -INFINITY, NAN);
    check_sum(LS_BF16, 256, 1, 256);
    check_sum(LS_BF16, 258, 1, 260);
    check_sum(LS_BF16, 0x1.fep127f, 0x1p119f, INFINITY);
    check_sum(LS_BF16, 0x1p-133f, -0x1p-132f, -0x1p-133f);
    check_sum(LS_BF16, NAN, 1, NAN);
}

/* An average is rounded before it is divided, and after: 65520 is infinite at once, and the last one is not x / 3. */
static void averages_are_rounded_twice(void **state) {
    (void)state;
    static const float x[][5] = {{65520, 65519, -65520, NAN, 0x1.001p0f}, {65520, 65519, -0x1p-133f, NAN, 0x1.011p0f}};
    static const float want[][5] = {{INFINITY, 21840, -INFINITY, NAN, 0x1.554p-2f},
                                    {21888, 21888, -0.0f, NAN, 0x1.58p-2f}};
    for (size_t i = 0; i < COUNT(half_types) * RUNG_COUNT; i++) {
        ls_dtype dtype = half_types[i / RUNG_COUNT];
        void *y = kernel_elements(dtype, 5);
        const float *values = kernel_copy(x[i / RUNG_COUNT], 5);
        struct ls_op op = {.id = LS_OP_cast_divide, .arguments.cast_divide = {dtype, y, values, 3, 5}};
        run(op, (int)(i % RUNG_COUNT), y, 5 * sizeof(uint16_t), TRANSPLANT_ALIGNED);
        expect_same_numbers(dtype, "cast_divide", kernel_widened(dtype, y, 5), want[i / RUNG_COUNT], 5);
    }
}

/* Sums of gradients are floats: they neither end at 65504 nor stand still. A zero of either sign lets nothing through,
 * the smallest half and NaN do. */
static void gradients_are_sums_of_floats(void **state) {
    (void)state;
    enum { ROWS = 300, COLUMNS = 4 };
    static const float columns[COLUMNS] = {60000, 0.25f, 60000, 0x1p-24f}, masks[COLUMNS] = {0x1p-24f, NAN, -0.0f, 0};
    float dy[ROWS * COLUMNS], y[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) dy[i] = columns[i % COLUMNS], y[i] = masks[i % COLUMNS];
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        float *dbias = kernel_floats(COLUMNS);
        struct ls_op op = {.id = LS_OP_bias_gradient};
        op.arguments.bias_gradient = (struct ls_bias_gradient_arguments){
            LS_FP16, dbias, kernel_rounded(LS_FP16, dy, COUNT(dy)), ROWS, COLUMNS, false};
        run(op, rung, dbias, COLUMNS * sizeof *dbias, TRANSPLANT_ALIGNED);
        for (int c = 0; c < COLUMNS; c++) assert_true(dbias[c] == ROWS * columns[c]);
        void *masked = kernel_rounded(LS_FP16, dy, COUNT(dy));
        struct problem p = {.op.id = LS_OP_relu_bias_gradient, .output_count = 2};
        p.op.arguments.relu_bias_gradient = (struct ls_relu_bias_gradient_arguments){
            LS_FP16, dbias, masked, kernel_rounded(LS_FP16, y, COUNT(y)), ROWS, COLUMNS, true};
        p.outputs[0].memory = dbias, p.outputs[0].nbytes = COLUMNS * sizeof *dbias;
        p.outputs[1].memory = masked, p.outputs[1].nbytes = sizeof(uint16_t) * COUNT(dy);
        assert_int_equal(transplant_run(&p, transplant_rungs()->rungs[rung].enqueue, TRANSPLANT_ALIGNED), LS_OK);
        const float *left = kernel_widened(LS_FP16, masked, COUNT(dy));
        for (int i = 0; i < ROWS * COLUMNS; i++) assert_true(left[i] == (i % COLUMNS < 2 ? dy[i] : 0));
        for (int c = 0; c < COLUMNS; c++) assert_true(dbias[c] == (c < 2 ? 2 : 1) * ROWS * columns[c]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_half_is_widened),      TEST(floats_are_rounded_to_the_nearest_half),
        TEST(casts_that_are_refused),     TEST(sums_are_rounded_once),
        TEST(averages_are_rounded_twice), TEST(gradients_are_sums_of_floats),
    };
    return cmocka_run_group_tests_name("halves on GPUs", tests, NULL, NULL);
}
