/* Batch norm and max-pooling of fp16 and bf16: the bits of the same operation in fp32, rounded once; statistics and
 * gradients of parameters are fp32 and have the same bits. Every possible element, infinities and NaNs included, and
 * the mask of a ReLU after batch norm. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/batchnorm_runs.h"

static const ls_dtype halves[] = {LS_FP16, LS_BF16};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct {
    const char *name;
    ls_status (*run)(struct batchnorm *b);
} operations[] = {
    {"train", batchnorm_train},
    {"backward", batchnorm_backward},
    {"statistics", batchnorm_statistics},
    {"merge", batchnorm_merge},
    {"normalize", batchnorm_normalize},
    {"sums", batchnorm_sums},
    {"input_gradient", batchnorm_input_gradient},
    {"eval", batchnorm_eval},
};

/* --- batch norm: the same in fp32, rounded ------------------------------------------------------------------------ */

/* y and dx keep these values until an operation writes them. */
static struct batchnorm make_halves(struct ls_batchnorm_shape s, bool accumulate) {
    struct batchnorm b = batchnorm_make(s, 3, accumulate);
    memcpy(b.y, b.x, ls_batchnorm_nbytes(&s));
    memcpy(b.dx, b.dy, ls_batchnorm_nbytes(&s));
    return b;
}

static struct batchnorm make_twin(const struct batchnorm *half) {
    struct ls_batchnorm_shape s = half->s;
    s.dtype = LS_FP32;
    struct batchnorm b = batchnorm_make(s, 3, half->accumulate);
    b.x = kernel_widened(half->s.dtype, half->x, b.count);
    b.y = kernel_widened(half->s.dtype, half->x, b.count);
    b.dy = kernel_widened(half->s.dtype, half->dy, b.count);
    b.dx = kernel_widened(half->s.dtype, half->dy, b.count);
    return b;
}

/* `exactly`, or within 1e-5 and a unit in the half's last place. */
static void expect_twins(const char *operation, const struct batchnorm *half, const struct batchnorm *wide,
                         bool exactly) {
    ls_dtype dtype = half->s.dtype;
    size_t n = half->count, c = half->channels;
    double unit = dtype == LS_FP16 ? 0x1p-10 : 0x1p-7;
    const struct {
        const char *name;
        const void *got, *want;
        size_t count;
    } arrays[] = {
        {"y", half->y, wide->y, n},
        {"dx", half->dx, wide->dx, n},
        {"mean", half->mean, wide->mean, c},
        {"invstd", half->invstd, wide->invstd, c},
        {"running_mean", half->running_mean, wide->running_mean, c},
        {"running_var", half->running_var, wide->running_var, c},
        {"dgamma", half->dgamma, wide->dgamma, c},
        {"dbeta", half->dbeta, wide->dbeta, c},
        {"sums", half->sums, wide->sums, 2 * c},
        {"statistics", half->statistics, wide->statistics, 2 * ls_batchnorm_statistics_count(&half->s)},
        {"m", half->m, wide->m, 2},
    };
    for (size_t i = 0; i < COUNT(arrays); i++) {
        bool elements = i < 2;
        size_t count = arrays[i].count;
        char what[100];
        snprintf(what, sizeof what, "%s's %s (%s)", operation, arrays[i].name, ls_dtype_name(dtype));
        if (exactly && elements)
            kernel_expect_same(what, arrays[i].got, kernel_rounded(dtype, arrays[i].want, count), count * 2);
        if (exactly && !elements) kernel_expect_same(what, arrays[i].got, arrays[i].want, count * sizeof(float));
        if (!exactly && elements)
            kernel_expect_close(what, kernel_widened(dtype, arrays[i].got, count), arrays[i].want, count, unit, 1e-5);
        if (!exactly && i >= 2 && i < 9) kernel_expect_close(what, arrays[i].got, arrays[i].want, count, 1e-5, 1e-5);
    }
}

/* Operations from the first on. Outputs that no operation has written yet are NaN in both. */
static void check(struct ls_batchnorm_shape s, bool accumulate, bool exactly) {
    struct batchnorm half = make_halves(s, accumulate), wide = make_twin(&half);
    for (size_t i = 0; i < COUNT(operations); i++) {
        assert_int_equal(operations[i].run(&half), LS_OK);
        assert_int_equal(operations[i].run(&wide), LS_OK);
        if (exactly || i + 1 == COUNT(operations)) expect_twins(operations[i].name, &half, &wide, exactly);
    }
}

/* Planes that are read by fours and others, also of several slices and groups; each has a ReLU in one of the types. */
TEST_CASE(halves_are_floats_rounded_once) {
    static const int shapes[][3] = {/* batch, channels, plane */
                                    {2, 1, 1}, {3, 2, 16},  {7, 4, 33},   {2, 3, 784}, {5, 1, 999},
                                    {4, 3, 7}, {4, 3, 196}, {4, 3, 1023}, {4, 3, 1024}};
    for (size_t i = 0; i < COUNT(shapes) * COUNT(halves); i++) {
        size_t shape = i / 2, half = i % 2;
        const int *s = shapes[shape];
        check(batchnorm_shape(s[0], s[1], s[2], (shape / 2 + half) % 2, halves[half]), (shape + half) % 2, true);
    }
}

/* In such planes CPUs sum in blocks, so statistics may differ in their last bits. */
TEST_CASE(long_planes_are_summed_in_blocks) {
    check(batchnorm_shape(4, 3, 2051, true, LS_FP16), false, false);
    check(batchnorm_shape(4, 3, 2051, true, LS_BF16), false, false);
}

/* All 65536 elements as x, and as dy in another order. Channels scale them up beyond the range of a half, and down into
 * the subnormal numbers. (backends.h: they have the bits of the best build.) */
TEST_CASE(every_element_goes_through) {
    enum { CHANNELS = 8, PLANE = 65536 / CHANNELS };
    static const float gamma[CHANNELS] = {1, 0.3f, -1.7f, 300, -3e-6f, 1e30f, 1e-38f, 0};
    for (int i = 0; i < 4; i++) {
        struct batchnorm b = batchnorm_make(batchnorm_shape(1, CHANNELS, PLANE, i / 2, halves[i % 2]), 0, false);
        for (uint32_t k = 0; k < 65536; k++) {
            ((uint16_t *)b.x)[k] = (uint16_t)(k * 8 + k / PLANE);
            ((uint16_t *)b.dy)[k] = (uint16_t)(k * 40503u + 12345);
        }
        for (size_t c = 0; c < CHANNELS; c++) {
            b.gamma[c] = gamma[c];
            b.mean[c] = b.running_mean[c] = (float)c * 0.1f;
            b.invstd[c] = 1 + (float)c * 0.2f;
            b.sums[c] = b.sums[CHANNELS + c] = (float)c - 3.3f;
        }
        *b.m = 100;
        assert_int_equal(batchnorm_normalize(&b) | batchnorm_eval(&b) | batchnorm_input_gradient(&b), LS_OK);
    }
}

/* --- the ReLU's mask ---------------------------------------------------------------------------------------------- */

/* One value, x = dy = 1, y = gamma. */
static struct batchnorm make_one(ls_dtype dtype, size_t channels) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(1, (int)channels, 1, true, dtype), 0, false);
    float *ones = kernel_floats(channels);
    for (size_t c = 0; c < channels; c++) {
        ones[c] = b.invstd[c] = 1;
        b.beta[c] = b.mean[c] = b.sums[c] = b.sums[channels + c] = 0;
    }
    b.x = kernel_rounded(dtype, ones, channels), b.dy = kernel_rounded(dtype, ones, channels);
    *b.m = 1;
    return b;
}

/* A value that the forward pass stored as 0 passes no gradient, even if it was positive before rounding; a value that
 * it stored as infinity does. */
static void check_mask(ls_dtype dtype, float gamma, bool passes) {
    struct batchnorm b = make_one(dtype, 1);
    *b.gamma = gamma;
    assert_int_equal(batchnorm_normalize(&b), LS_OK);
    assert_true(*kernel_widened(dtype, b.y, 1) == (passes ? kernel_round(dtype, gamma) : 0));
    assert_int_equal(batchnorm_input_gradient(&b), LS_OK); /* before the sums are written */
    if (gamma > 1) assert_true(*kernel_widened(dtype, b.dx, 1) == kernel_round(dtype, gamma));
    assert_int_equal(batchnorm_backward(&b), LS_OK);
    assert_true(*b.dbeta == (float)passes && *b.dgamma == (float)passes);
    assert_int_equal(batchnorm_sums(&b), LS_OK);
    assert_true(b.sums[0] == (float)passes && b.sums[1] == (float)passes);
}

TEST_CASE(the_mask_is_that_of_the_stored_y) {
    check_mask(LS_FP16, 0x1p-25f, false);
    check_mask(LS_FP16, 0x1.000002p-25f, true);
    check_mask(LS_FP16, 0x1p-24f, true);
    check_mask(LS_FP16, 70000, true);
    check_mask(LS_FP16, -1, false);
    check_mask(LS_BF16, 0x1p-134f, false);
    check_mask(LS_BF16, 0x1.0002p-134f, true);
    check_mask(LS_BF16, 0x1p-25f, true);
    check_mask(LS_BF16, 0x1.ffffp127f, true);
    check_mask(LS_FP32, 0x1p-149f, true);
    check_mask(LS_FP32, 0, false);
}

/* The smallest elements: y = gamma x, and dx = gamma dy if y is stored as more than 0. */
TEST_CASE(a_y_that_is_stored_as_zero_passes_nothing) {
    enum { CHANNELS = 64 };
    static const float gamma[] = {1, 0.5f, 0.25f, 0.75f, 0.50001f, 0.49999f, -0.5f, -0.50001f};
    static const struct {
        ls_dtype dtype;
        float smallest;
    } types[] = {{LS_FP32, 0x1p-149f}, {LS_FP16, 0x1p-24f}, {LS_BF16, 0x1p-133f}};
    for (size_t i = 0; i < COUNT(types); i++) {
        ls_dtype dtype = types[i].dtype;
        struct batchnorm b = make_one(dtype, CHANNELS);
        float x[CHANNELS];
        for (int c = 0; c < CHANNELS; c++) x[c] = (float)(c / 8 - 3) * types[i].smallest, b.gamma[c] = gamma[c % 8];
        b.x = kernel_rounded(dtype, x, CHANNELS);
        assert_int_equal(batchnorm_normalize(&b) | batchnorm_input_gradient(&b) | batchnorm_sums(&b), LS_OK);
        const float *y = kernel_widened(dtype, b.y, CHANNELS), *dx = kernel_widened(dtype, b.dx, CHANNELS);
        int passed = 0;
        for (int c = 0; c < CHANNELS; c++) {
            bool passes = y[c] > 0;
            passed += passes;
            if (b.dbeta[c] != (passes ? 1 : 0) || (dx[c] != 0) != passes)
                fail_msg("%s: y = %a, dbeta = %a, dx = %a", ls_dtype_name(dtype), (double)y[c], (double)b.dbeta[c],
                         (double)dx[c]);
        }
        assert_in_range(passed, 24, 30);
    }
}

/* --- types without kernels ---------------------------------------------------------------------------------------- */

TEST_CASE(integers_are_refused) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(2, 3, 4, true, LS_FP32), 0, false);
    b.s.dtype = LS_INT32;
    for (size_t i = 0; i < COUNT(operations); i++) {
        if (operations[i].run == batchnorm_merge) continue; /* has no elements */
        char said[80];
        snprintf(said, sizeof said, "batchnorm_%s has no kernels for int32", operations[i].name);
        assert_int_equal(operations[i].run(&b), LS_ERR_INVALID);
        scratch_expect_error(said, NULL);
    }
}

/* --- max-pooling -------------------------------------------------------------------------------------------------- */

/* Many ties, and values that comparisons could get wrong. */
static float *make_numbers(size_t count) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0x1p-24f, -0x1p-24f};
    float *values = kernel_random(count, 1);
    for (size_t i = 0; i < count; i++) {
        values[i] = i % 5 == 2 ? odd[i / 5 % COUNT(odd)] : (float)(int)(values[i] * 4);
    }
    return values;
}

static void check_maxpool(ls_dtype dtype, struct ls_pool_shape s) {
    struct ls_pool_shape full_shape = s;
    s.dtype = dtype;
    size_t in = ls_pool_count(&s), out = ls_pool_windows(&s);
    void *x = kernel_rounded(dtype, make_numbers(in), in), *y = kernel_elements(dtype, out);
    void *dx = kernel_elements(dtype, in), *dy = kernel_rounded(dtype, kernel_random(out, 2), out);
    float *full_y = kernel_floats(out), *full_dx = kernel_floats(in);
    uint8_t *choice = kernel_bytes(out), *full_choice = kernel_bytes(out);
    ls_stream *stream = kernel_stream();
    ls_maxpool_forward(stream, full_shape, full_y, full_choice, kernel_widened(dtype, x, in));
    kernel_done();
    ls_maxpool_forward(stream, s, y, choice, x);
    kernel_done();
    ls_maxpool_backward(stream, full_shape, full_dx, kernel_widened(dtype, dy, out), full_choice);
    kernel_done();
    ls_maxpool_backward(stream, s, dx, dy, choice);
    kernel_done();
    kernel_expect_same("choice", choice, full_choice, out);
    kernel_expect_elements("y", dtype, y, kernel_rounded(dtype, full_y, out), out);
    kernel_expect_same("dx", dx, kernel_rounded(dtype, full_dx, in), in * sizeof(uint16_t));
}

/* Planes that are processed in one go, in several rows, and in parts of a row; windows that fit and that leave a
 * remainder; none; windows of a GPU by twos, one by one, and many blocks. */
TEST_CASE(maxpool_is_that_of_fp32) {
    static const struct ls_pool_shape shapes[] = {
        {3, 14, 14, 2, LS_FP32}, {2, 7, 9, 2, LS_FP32},     {2, 4, 3, 2, LS_FP32},    {2, 70, 47, 2, LS_FP32},
        {2, 7, 512, 2, LS_FP32}, {2, 7, 513, 2, LS_FP32},   {2, 3, 1541, 2, LS_FP32}, {2, 10, 11, 3, LS_FP32},
        {2, 7, 700, 3, LS_FP32}, {1, 31, 100, 15, LS_FP32}, {2, 1, 5, 2, LS_FP32},    {2, 5, 1, 2, LS_FP32},
        {0, 4, 4, 2, LS_FP32},   {32, 28, 28, 2, LS_FP32},  {40, 14, 14, 2, LS_FP32},
    };
    for (size_t i = 0; i < COUNT(shapes) * COUNT(halves); i++) check_maxpool(halves[i % 2], shapes[i / 2]);
    for (int i = 0; i < 2 * 4 * 8; i++) {
        int size = 2 + i / 2 % 4, width = 1 + i / 8;
        check_maxpool(halves[i % 2], (struct ls_pool_shape){3, 2 * size + width % 2, width, size, LS_FP32});
    }
}

/* The first of equal values, and the last NaN, without the fp32 kernels. */
TEST_CASE(maxpool_by_hand) {
    const float x[] = {1, 1, -2, -1, 0, NAN, 3, NAN, 1, 1, -1, -2, NAN, 5, 3, 3}, dy[] = {1, 2, 4, 8};
    static const uint8_t want[] = {0, 1, 2, 1};
    const float want_dx[] = {1, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 4, 0, 0, 0};
    for (size_t d = 0; d < COUNT(halves); d++) {
        const struct ls_pool_shape s = {1, 2, 8, 2, halves[d]};
        uint8_t *choice = kernel_bytes(4);
        void *y = kernel_elements(halves[d], 4), *dx = kernel_elements(halves[d], 16);
        ls_maxpool_forward(kernel_stream(), s, y, choice, kernel_rounded(halves[d], x, 16));
        kernel_done();
        ls_maxpool_backward(kernel_stream(), s, dx, kernel_rounded(halves[d], dy, 4), choice);
        kernel_done();
        const float *wide = kernel_widened(halves[d], y, 4);
        assert_true(wide[0] == 1 && wide[1] == -1 && isnan(wide[2]) && isnan(wide[3]));
        kernel_expect_same("choice", choice, want, sizeof want);
        kernel_expect_same("dx", kernel_widened(halves[d], dx, 16), want_dx, sizeof want_dx);
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(halves_are_floats_rounded_once),
        ROW_ON(ON_BUILDS, long_planes_are_summed_in_blocks),
        ROW(every_element_goes_through),
        ROW(the_mask_is_that_of_the_stored_y),
        ROW(a_y_that_is_stored_as_zero_passes_nothing),
        ROW_ON(ON_GPUS, integers_are_refused),
        ROW(maxpool_is_that_of_fp32),
        ROW(maxpool_by_hand),
    };
    return RUN_EVERYWHERE("half layers", tests);
}
