/* The three convolutions on a GPU against the same on a CPU device: the naive rung to the bit, the fast one to what
 * rounding allows; all its ways (direct, unfolded, in pieces), all types, any stride, padding, kernel and batch, all
 * orders of threads. Runs on real GPUs too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/conv2d_plan.h"
#include "tests/base/scratch.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/transplant.h"

/* --- one shape, three operations ------------------------------------------------------------------------------------- */

/* Inputs, and what an operation writes; void: elements of s.dtype. */
struct convolution {
    struct ls_conv2d_shape s;
    size_t in, out, weights, channels;
    const void *x, *w, *bias, *dy;
    void *y, *dx;
    float *dw, *dbias;
    bool accumulate;
};

static struct convolution make_convolution(struct ls_conv2d_shape s, bool with_bias, bool accumulate) {
    struct convolution c = {.s = s, .accumulate = accumulate};
    c.in = (size_t)s.batch * (size_t)(s.in_channels * s.in_height * s.in_width);
    c.out = (size_t)s.batch * (size_t)(s.out_channels * ls_conv2d_out_height(&s) * ls_conv2d_out_width(&s));
    c.weights = (size_t)(s.out_channels * s.in_channels * s.kernel_h * s.kernel_w);
    c.channels = (size_t)s.out_channels;
    c.x = kernel_rounded(s.dtype, kernel_random(c.in, 1), c.in);
    c.w = kernel_rounded(s.dtype, kernel_random(c.weights, 2), c.weights);
    c.dy = kernel_rounded(s.dtype, kernel_random(c.out, 3), c.out);
    c.bias = with_bias ? kernel_rounded(s.dtype, kernel_random(c.channels, 4), c.channels) : NULL;
    c.y = kernel_elements(s.dtype, c.out), c.dx = kernel_elements(s.dtype, c.in);
    c.dw = accumulate ? kernel_random(c.weights, 5) : kernel_floats(c.weights);
    c.dbias = !with_bias ? NULL : accumulate ? kernel_random(c.channels, 6) : kernel_floats(c.channels);
    return c;
}

/* The operations as problems, in the order of enum. */
enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS, OPERATIONS };

static struct problem problem_of(const struct convolution *c, int operation, void *workspace) {
    struct problem p = {.output_count = 1};
    if (operation == FORWARD) {
        p.op.id = LS_OP_conv2d_forward;
        p.op.arguments.conv2d_forward =
            (struct ls_conv2d_forward_arguments){c->s, c->x, c->w, c->bias, c->y, workspace};
        p.outputs[0].memory = c->y, p.outputs[0].nbytes = c->out * ls_dtype_nbytes(c->s.dtype);
    } else if (operation == BACKWARD_DATA) {
        p.op.id = LS_OP_conv2d_backward_data;
        p.op.arguments.conv2d_backward_data =
            (struct ls_conv2d_backward_data_arguments){c->s, c->dy, c->w, c->dx, workspace};
        p.outputs[0].memory = c->dx, p.outputs[0].nbytes = c->in * ls_dtype_nbytes(c->s.dtype);
    } else {
        p.op.id = LS_OP_conv2d_backward_weights;
        p.op.arguments.conv2d_backward_weights =
            (struct ls_conv2d_backward_weights_arguments){c->s, c->x, c->dy, c->dw, c->dbias, c->accumulate, workspace};
        p.outputs[0].memory = c->dw, p.outputs[0].nbytes = c->weights * sizeof *c->dw;
        p.outputs[1].memory = c->dbias, p.outputs[1].nbytes = c->channels * sizeof *c->dbias;
        if (c->dbias) p.output_count = 2;
    }
    return p;
}

static void run_on_cpu(struct convolution *c) {
    void *workspace = kernel_bytes(ls_conv2d_workspace_nbytes(LS_DEVICE_CPU, &c->s));
    for (int i = 0; i < OPERATIONS; i++) {
        struct problem p = problem_of(c, i, workspace);
        ls_enqueue(kernel_stream(), &p.op);
        kernel_done();
    }
}

static void run_on_gpu(struct convolution *c, int rung, transplant_alignment alignment) {
    for (int i = 0; i < OPERATIONS; i++) {
        struct problem p = problem_of(c, i, NULL);
        assert_int_equal(transplant_run(&p, transplant_rungs()->rungs[rung].enqueue, alignment), LS_OK);
    }
}

/* --- comparing --------------------------------------------------------------------------------------------------------- */

/* Sums of `terms` products of numbers below 1, taken in two orders; as halves they may then be next to each other. */
static void expect_sums(const char *shape, const char *what, ls_dtype dtype, const void *got_bits,
                        const void *want_bits, size_t count, double terms) {
    const float *got = kernel_widened(dtype, got_bits, count), *want = kernel_widened(dtype, want_bits, count);
    double unit = dtype == LS_FP16 ? 0x1p-10 : dtype == LS_BF16 ? 0x1p-7 : 0;
    for (size_t i = 0; i < count; i++) {
        double tolerance = 1e-6 * (1 + 4 * sqrt(terms)) + unit * fabs((double)want[i]);
        if (fabs((double)got[i] - (double)want[i]) <= tolerance) continue;
        fail_msg("%s: %s[%zu] of %zu is %.9g, not %.9g +- %.2g", shape, what, i, count, (double)got[i], (double)want[i],
                 tolerance);
    }
}

static void expect_near(const char *shape, const struct convolution *got, const struct convolution *want) {
    const struct ls_conv2d_shape *s = &want->s;
    double area = s->kernel_h * s->kernel_w;
    double pixels = (double)s->batch * ls_conv2d_out_height(s) * ls_conv2d_out_width(s);
    expect_sums(shape, "y", s->dtype, got->y, want->y, want->out, s->in_channels * area);
    expect_sums(shape, "dx", s->dtype, got->dx, want->dx, want->in, s->out_channels * area);
    expect_sums(shape, "dw", LS_FP32, got->dw, want->dw, want->weights, pixels);
    if (want->dbias) expect_sums(shape, "dbias", LS_FP32, got->dbias, want->dbias, want->channels, pixels);
}

static void expect_same(const char *shape, const struct convolution *got, const struct convolution *want) {
    for (int i = 0; i < OPERATIONS; i++) {
        struct problem a = problem_of(got, i, NULL), b = problem_of(want, i, NULL);
        char what[200];
        snprintf(what, sizeof what, "%s: %s", shape, ls_op_name(a.op.id));
        for (int o = 0; o < b.output_count; o++)
            kernel_expect_same(what, a.outputs[o].memory, b.outputs[o].memory, b.outputs[o].nbytes);
    }
}

/* Both rungs, the fast one twice, the second time on arrays that lie otherwise. `turn` varies what does not follow from
 * the shape. */
static void check(struct ls_conv2d_shape s, int turn) {
    bool with_bias = turn % 4 != 3, accumulate = turn % 3 == 2;
    transplant_alignment here = (transplant_alignment)(turn % 3), there = (transplant_alignment)((turn + 1) % 3);
    char shape[160];
    snprintf(shape, sizeof shape, "%d x %dx%dx%d, %d of %dx%d, stride %d, padding %d, %s, turn %d", s.batch,
             s.in_channels, s.in_height, s.in_width, s.out_channels, s.kernel_h, s.kernel_w, s.stride, s.padding,
             ls_dtype_name(s.dtype), turn);
    struct convolution want = make_convolution(s, with_bias, accumulate);
    struct convolution naive = make_convolution(s, with_bias, accumulate);
    struct convolution fast = make_convolution(s, with_bias, accumulate);
    struct convolution again = make_convolution(s, with_bias, accumulate);
    run_on_cpu(&want);
    run_on_gpu(&naive, RUNG_NAIVE, here);
    run_on_gpu(&fast, RUNG_FAST, here);
    run_on_gpu(&again, RUNG_FAST, there);
    expect_same(shape, &naive, &want);
    expect_near(shape, &fast, &want);
    if (gpu_may_round("place")) { /* then only the same call on arrays that lie alike gives the same bits */
        expect_near(shape, &again, &want);
        again = make_convolution(s, with_bias, accumulate);
        run_on_gpu(&again, RUNG_FAST, here);
    }
    expect_same(shape, &again, &fast);
}

/* --- shapes ------------------------------------------------------------------------------------------------------------ */

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* batch, in_channels, in_height, in_width, out_channels, kernel_h, kernel_w, stride, padding */
static const int direct_shapes[][9] = {
    {2, 1, 28, 28, 16, 5, 5, 1, 2}, {1, 16, 14, 14, 32, 5, 5, 1, 2}, {7, 5, 6, 7, 4, 3, 3, 1, 1},
    {1, 2, 5, 41, 17, 5, 5, 1, 4},  {1, 3, 45, 3, 1, 3, 3, 1, 2},    {33, 1, 3, 3, 2, 3, 3, 1, 0},
    {2, 18, 5, 9, 31, 3, 3, 1, 1},  {1, 1, 36, 36, 3, 3, 3, 1, 1},   {0, 3, 5, 5, 4, 5, 5, 1, 2},
    {2, 4, 5, 5, 9, 5, 5, 1, 0},    {3, 2, 1, 1, 3, 3, 3, 1, 1},     {1, 2, 8, 40, 5, 5, 5, 1, 2},
};
/* What only larger ones meet; in one turn each, as they differ from the others by how they are cut alone. */
static const int large_direct_shapes[][9] = {
    /* weights' gradients: shares of several images and groups, of several strips, of chunks that memory limits;
     * images: enough threads for four channels each */
    {34, 17, 3, 5, 30, 3, 3, 1, 1}, {140, 2, 1, 3, 5, 5, 5, 1, 3},   {5, 2, 13, 70, 5, 3, 3, 1, 0},
    {26, 1, 28, 9, 3, 5, 5, 1, 2},  {1, 2120, 31, 1, 1, 3, 3, 1, 1}, {33, 6, 9, 5, 17, 5, 5, 1, 2},
};
static const int unfolded_shapes[][9] = {
    {2, 17, 5, 6, 33, 1, 1, 1, 0}, {1, 2, 4, 4, 3, 1, 1, 2, 3},   {1, 4, 4, 5, 34, 3, 3, 1, 1},
    {0, 3, 5, 5, 4, 2, 3, 1, 1},   {2, 3, 11, 9, 8, 3, 3, 2, 1},  {3, 1, 20, 20, 2, 4, 4, 1, 3},
    {33, 1, 4, 3, 2, 2, 2, 1, 0},  {2, 2, 6, 6, 40, 5, 5, 1, 2},  {1, 3, 3, 3, 5, 3, 3, 1, 3},
    {2, 1, 17, 18, 3, 5, 5, 3, 2}, {1, 1, 40, 33, 1, 1, 1, 1, 0}, {1, 2, 3, 300, 2, 2, 5, 1, 2},
};

static struct ls_conv2d_shape shape_of(const int *s, ls_dtype dtype) {
    return (struct ls_conv2d_shape){s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], dtype};
}

static void direct(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(direct_shapes); i++)
        for (int turn = 0; turn < 3; turn++) check(shape_of(direct_shapes[i], LS_FP32), (int)i + turn);
    for (size_t i = 0; i < COUNT(large_direct_shapes); i++) check(shape_of(large_direct_shapes[i], LS_FP32), (int)i);
}

static void unfolded(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(unfolded_shapes); i++)
        for (int turn = 0; turn < 3; turn++) check(shape_of(unfolded_shapes[i], LS_FP32), (int)i + turn);
}

/* Every shape in both types, or in one of them. */
static void check_halves(const int (*shapes)[9], size_t count, int types) {
    for (size_t i = 0; i < count; i++)
        for (int t = 0; t < types; t++)
            check(shape_of(shapes[i], ((int)i + t) % 2 ? LS_FP16 : LS_BF16), (int)i + 2 * t);
}

static void halves(void **state) {
    (void)state;
    check_halves(direct_shapes, COUNT(direct_shapes), 2);
    check_halves(large_direct_shapes, COUNT(large_direct_shapes), 1);
    check_halves(unfolded_shapes, COUNT(unfolded_shapes), 2);
}

static void some_halves(void **state) {
    (void)state;
    check_halves(direct_shapes, COUNT(direct_shapes), 1);
    check_halves(unfolded_shapes, COUNT(unfolded_shapes), 1);
}

/* Direct convolutions of halves are those of floats with the same values, rounded at the end: the same bits. */
static void check_rounding(const int *shape, ls_dtype dtype) {
    struct convolution half = make_convolution(shape_of(shape, dtype), true, false);
    struct convolution wide = make_convolution(shape_of(shape, LS_FP32), true, false);
    wide.x = kernel_widened(dtype, half.x, half.in), wide.w = kernel_widened(dtype, half.w, half.weights);
    wide.dy = kernel_widened(dtype, half.dy, half.out), wide.bias = kernel_widened(dtype, half.bias, half.channels);
    run_on_gpu(&half, RUNG_FAST, TRANSPLANT_ALIGNED);
    run_on_gpu(&wide, RUNG_FAST, TRANSPLANT_ALIGNED);
    kernel_expect_same("y", half.y, kernel_rounded(dtype, wide.y, wide.out), half.out * sizeof(uint16_t));
    kernel_expect_same("dx", half.dx, kernel_rounded(dtype, wide.dx, wide.in), half.in * sizeof(uint16_t));
}

static void halves_are_floats_rounded_once(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(direct_shapes); i += 2) check_rounding(direct_shapes[i], i % 4 ? LS_FP16 : LS_BF16);
    for (size_t i = 0; i < COUNT(large_direct_shapes); i += 2)
        check_rounding(large_direct_shapes[i], i % 4 ? LS_FP16 : LS_BF16);
}

static void random_shapes(void **state) {
    (void)state;
    static const int batches[] = {1, 2, 7, 33, 0};
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 120; i++) {
        int r[9];
        for (int k = 0; k < 9; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            r[k] = (int)(x >> 40);
        }
        struct ls_conv2d_shape s = {batches[r[0] % 5], 1 + r[1] % 5,
                                    1 + r[2] % 11,     1 + r[3] % 11,
                                    1 + r[4] % 6,      1 + r[5] % 5,
                                    1 + r[6] % 5,      1 + r[7] % 3,
                                    r[8] % 4,          i % 8 == 3 ? LS_FP16 : i % 8 == 7 ? LS_BF16 : LS_FP32};
        if (i % 3 == 0)
            s.kernel_h = s.kernel_w = 3 + r[5] % 2 * 2, s.stride = 1; /* what goes directly is rare otherwise */
        bool fits = s.in_height + 2 * s.padding >= s.kernel_h && s.in_width + 2 * s.padding >= s.kernel_w;
        if (fits) check(s, i);
    }
}

/* More samples than are unfolded at a time: 61 in two pieces, the second one smaller. */
static void check_pieces(ls_dtype dtype) {
    struct ls_conv2d_shape s = {61, 64, 16, 16, 3, 4, 4, 1, 2, dtype};
    struct ls_cuda_conv2d_plan plan;
    assert_true(ls_cuda_conv2d_make_plan(&s, LS_CUDA_CONV2D_UNFOLDED_NBYTES, &plan));
    assert_int_equal(plan.samples, 31);
    struct convolution want = make_convolution(s, true, true), got = make_convolution(s, true, true);
    run_on_cpu(&want);
    run_on_gpu(&got, RUNG_FAST, TRANSPLANT_ALIGNED);
    expect_near("in pieces", &got, &want);
}

static void a_batch_in_pieces(void **state) {
    (void)state;
    check_pieces(LS_FP32);
    check_pieces(LS_BF16);
}

/* --- what does not depend on values --------------------------------------------------------------------------------------- */

static void no_output_is_an_error(void **state) {
    (void)state;
    static const int bad[][9] = {
        {1, 1, 2, 9, 1, 3, 3, 1, 0}, {1, 1, 9, 2, 1, 3, 3, 1, 0},  {1, 1, 9, 9, 1, 3, 3, 0, 0},
        {1, 0, 9, 9, 1, 3, 3, 1, 0}, {1, 1, 9, 9, 1, 3, 3, 1, -1}, {1, 1, 30000, 30000, 1000, 1, 1, 1, 0},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct convolution c =
            make_convolution((struct ls_conv2d_shape){1, 1, 3, 3, 1, 1, 1, 1, 0, LS_FP32}, true, false);
        c.s = shape_of(bad[i], LS_FP32);
        assert_int_equal(ls_conv2d_workspace_nbytes(LS_DEVICE_CUDA, &c.s), 0);
        for (int rung = 0; rung < RUNG_COUNT; rung++) {
            for (int o = 0; o < OPERATIONS; o++) {
                struct problem p = problem_of(&c, o, NULL);
                ls_status status = transplant_rungs()->rungs[rung].enqueue(transplant_stream(), &p.op);
                assert_int_equal(status, LS_ERR_INVALID);
                scratch_expect_error("has no output or is too large", "conv2d of a");
                (void)ls_stream_synchronize(transplant_stream()); /* clears the failure */
            }
        }
    }
}

/* The pieces cover the batch and keep to the limit, and what a layer allocated for its largest batch is enough for
 * every other. */
static void plans_fit(void **state) {
    (void)state;
    size_t before = 0;
    for (int batch = 0; batch < 70; batch++) {
        struct ls_conv2d_shape s = {batch, 3, 9, 7, 5, 3, 2, 1, 1, LS_FP32};
        struct ls_cuda_conv2d_plan p, whole;
        const size_t limit = 11 * 20 * 72 * sizeof(float); /* eleven samples of 18 taps (20 rows) and 9 x 8 pixels */
        assert_true(ls_cuda_conv2d_make_plan(&s, limit, &p));
        assert_int_equal(p.taps, 18);
        assert_int_equal(p.rows, 20);
        assert_int_equal(p.out_plane, 72);
        assert_true(p.samples >= 1 && p.samples <= 11);
        size_t all = batch > 0 ? (size_t)batch : 1, pieces = (all + p.samples - 1) / p.samples;
        assert_int_equal(pieces, (all + 10) / 11); /* as few as can be */
        assert_true(p.unfolded_count >= p.samples * p.rows * p.out_plane && p.unfolded_count * sizeof(float) <= limit);
        assert_true(p.partial_count >= p.samples * 5 * p.rows && p.weight_count == 5 * p.rows);
        assert_true(p.unfolded_count + p.partial_count >= before);
        before = p.unfolded_count + p.partial_count;
        assert_true(ls_cuda_conv2d_make_plan(&s, 1, &p) && p.samples == 1);
        assert_true(ls_cuda_conv2d_make_plan(&s, LS_CUDA_CONV2D_UNFOLDED_NBYTES, &whole) && whole.samples == all);
        size_t floats = ls_aligned_floats(whole.unfolded_count) + ls_aligned_floats(whole.partial_count) +
                        ls_aligned_floats(whole.weight_count);
        assert_int_equal(ls_conv2d_workspace_nbytes(LS_DEVICE_CUDA, &s), floats * sizeof(float));
    }
}

/* Matrices begin where cuBLAS reads them fastest. What is unfolded has room for floats: products are folded before they
 * are rounded. */
static void plans_of_halves(void **state) {
    (void)state;
    struct ls_conv2d_shape s = {100, 3, 9, 7, 33, 3, 3, 1, 1, LS_FP32};
    struct ls_cuda_conv2d_plan p;
    const size_t limit = 11 * 32 * 63 * sizeof(float); /* eleven samples of 27 taps and one of ones in 32 rows */
    assert_true(ls_cuda_conv2d_make_plan(&s, limit, &p));
    assert_true(!p.is_direct && p.rows == 28 && p.weight_count == 33 * 28);
    s.dtype = LS_BF16;
    assert_true(ls_cuda_conv2d_make_plan(&s, limit, &p));
    assert_true(!p.is_direct && p.rows == 32 && p.weight_count == 33 * 32 / 2);
    assert_true(p.samples == 10 && p.unfolded_count == 11 * 32 * 63); /* 11 at a time, 100 in ten equal pieces */
}

/* The shares cover all lines, are as many as an H100 has multiprocessors, and what a layer allocated for its largest
 * batch is enough for every other. */
static void check_shares(struct ls_conv2d_shape s, size_t most) {
    size_t before = 0;
    for (s.batch = 0; s.batch < 300; s.batch++) {
        struct ls_cuda_conv2d_plan p;
        assert_true(ls_cuda_conv2d_make_plan(&s, 1, &p)); /* unfolds nothing */
        assert_true(p.is_direct && p.unfolded_count == 0 && p.weight_count == 0);
        size_t quads = (size_t)(ls_conv2d_out_width(&s) + 3) / 4;
        assert_true(p.strip_quads <= 8 && p.strips * p.strip_quads >= quads && (p.strips - 1) * p.strip_quads < quads);
        size_t lines = (size_t)s.batch * p.strips * (size_t)ls_conv2d_out_height(&s);
        assert_true(p.shares <= most && p.shares * p.share_lines >= lines);
        assert_true(p.shares == 0 ? lines == 0 : (p.shares - 1) * p.share_lines < lines);
        assert_true(lines < most || 2 * p.shares > most);
        assert_true(p.partial_count >= p.shares * (size_t)s.out_channels * p.rows && p.partial_count >= before);
        assert_int_equal(ls_conv2d_workspace_nbytes(LS_DEVICE_CUDA, &s),
                         ls_aligned_floats(p.partial_count) * sizeof(float));
        before = p.partial_count;
    }
}

static void shares_of_lines(void **state) {
    (void)state;
    check_shares((struct ls_conv2d_shape){0, 1, 28, 28, 16, 5, 5, 1, 2, LS_FP32}, 132);
    check_shares((struct ls_conv2d_shape){0, 16, 14, 14, 32, 5, 5, 1, 2, LS_BF16}, 132);
    check_shares((struct ls_conv2d_shape){0, 33, 7, 70, 29, 3, 3, 1, 0, LS_FP32}, 44);
    check_shares((struct ls_conv2d_shape){0, 5000, 3, 3, 2, 3, 3, 1, 1, LS_FP32}, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)
#define TEST_SO(name, setting)                                                                                         \
    cmocka_unit_test_prestate_setup_teardown(name, transplant_setup, transplant_teardown, (void *)(uintptr_t)(setting))

int main(void) {
    struct CMUnitTest tests[] = {
        TEST(direct),
        TEST_SO(direct, "CUDA_ON_CPU_THREADS=descending"),
        TEST_SO(direct, "CUDA_ON_CPU_THREADS=random:1"),
        TEST(unfolded),
        TEST_SO(unfolded, "CUDA_ON_CPU_THREADS=descending CUDA_ON_CPU_ROUNDING=slices:4,flush"),
        TEST_SO(unfolded, "CUDA_ON_CPU_THREADS=random:1 CUDA_ON_CPU_ROUNDING=slices:8,place"),
        TEST(halves),
        TEST_SO(some_halves, "CUDA_ON_CPU_THREADS=random:1 CUDA_ON_CPU_ROUNDING=slices:2,place,cut,flush"),
        TEST(halves_are_floats_rounded_once),
        TEST(random_shapes),
        TEST(a_batch_in_pieces),
        TEST(no_output_is_an_error),
        TEST(plans_fit),
        TEST(plans_of_halves),
        TEST(shares_of_lines),
    };
    transplant_leave_out(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests_name("conv2d on GPUs", tests, NULL, NULL);
}
