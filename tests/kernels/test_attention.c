/* Causal attention: PyTorch's numbers, the formula in double, the mask, and both methods of keeping scores. */
#include <math.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/problems.h"

struct attention {
    struct ls_attention_shape s;
    size_t count, rows; /* elements of y; rows of scores */
    void *y, *qkv, *dy, *dqkv, *saved;
};

static struct attention make(int batch, int context, int heads, int head, ls_dtype dtype, bool tiled) {
    struct attention a = {.s = {batch, context, heads, heads * head, dtype, tiled}};
    a.count = (size_t)(batch * context * heads * head);
    a.rows = (size_t)(batch * heads * context);
    a.y = kernel_elements(dtype, a.count);
    a.qkv = kernel_rounded(dtype, kernel_random(3 * a.count, 1), 3 * a.count);
    a.dy = kernel_rounded(dtype, kernel_random(a.count, 2), a.count);
    a.dqkv = kernel_elements(dtype, 3 * a.count);
    a.saved = tiled ? kernel_floats(a.rows) : kernel_elements(dtype, a.rows * (size_t)context);
    return a;
}

static void run(struct attention *a) {
    ls_attention_forward(kernel_stream(), a->s, a->y, a->qkv, a->saved, NULL);
    kernel_done();
    ls_attention_backward(kernel_stream(), a->s, a->dqkv, a->dy, a->qkv, a->y, a->saved, NULL);
    kernel_done();
}

/* --- PyTorch's numbers -------------------------------------------------------------------------------------------- */

static void check_golden(const char *name, int batch, int context, int heads, int head, bool tiled) {
    struct attention a = make(batch, context, heads, head, LS_FP32, tiled);
    kernel_golden_open(name);
    a.qkv = kernel_golden("qkv", 3 * a.count);
    a.dy = kernel_golden("dy", a.count);
    run(&a);
    kernel_expect_close_to_largest("y", a.y, kernel_golden("y", a.count), a.count, 2e-6);
    kernel_expect_close_to_largest("dqkv", a.dqkv, kernel_golden("dqkv", 3 * a.count), 3 * a.count, 2e-6);
}

TEST_CASE(golden) {
    for (int tiled = 0; tiled < 2; tiled++) {
        check_golden("attention_b3t1c8h2", 3, 1, 2, 4, tiled);
        check_golden("attention_b2t9c12h3", 2, 9, 3, 4, tiled);
        check_golden("attention_b1t70c32h2", 1, 70, 2, 16, tiled);
    }
}

/* --- the formula in double ---------------------------------------------------------------------------------------- */

/* For one head of one sequence: channel `c` of part `part` (q, k, v; y and dy are part 0 of 1) of position t. */
struct head {
    const struct attention *a;
    const float *qkv, *dy;
    size_t b, first_channel, d;
};

static size_t place(const struct head *h, size_t t, size_t part, size_t parts) {
    size_t context = (size_t)h->a->s.context, channels = (size_t)h->a->s.channels;
    return ((h->b * context + t) * parts + part) * channels + h->first_channel;
}

static double dot(const float *x, const float *y, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

/* p[u] of position t */
static void probabilities(const struct head *h, size_t t, double *p) {
    double largest = -INFINITY, sum = 0;
    for (size_t u = 0; u <= t; u++) {
        p[u] = dot(h->qkv + place(h, t, 0, 3), h->qkv + place(h, u, 1, 3), h->d) / sqrt((double)h->d);
        largest = fmax(largest, p[u]);
    }
    for (size_t u = 0; u <= t; u++) sum += p[u] = exp(p[u] - largest);
    for (size_t u = 0; u <= t; u++) p[u] /= sum;
}

/* Adds the contributions of position t to y [count] and dqkv [3 count]. */
static void add_position(const struct head *h, size_t t, double *y, double *dqkv) {
    double p[512], mean = 0;
    const float *dy = h->dy + place(h, t, 0, 1);
    probabilities(h, t, p);
    for (size_t u = 0; u <= t; u++) {
        const float *v = h->qkv + place(h, u, 2, 3);
        for (size_t c = 0; c < h->d; c++) y[place(h, t, 0, 1) + c] += p[u] * (double)v[c];
    }
    for (size_t c = 0; c < h->d; c++) mean += (double)dy[c] * y[place(h, t, 0, 1) + c];
    for (size_t u = 0; u <= t; u++) {
        double ds = p[u] * (dot(dy, h->qkv + place(h, u, 2, 3), h->d) - mean) / sqrt((double)h->d);
        for (size_t c = 0; c < h->d; c++) {
            dqkv[place(h, t, 0, 3) + c] += ds * (double)h->qkv[place(h, u, 1, 3) + c];
            dqkv[place(h, u, 1, 3) + c] += ds * (double)h->qkv[place(h, t, 0, 3) + c];
            dqkv[place(h, u, 2, 3) + c] += p[u] * (double)dy[c];
        }
    }
}

static float *as_floats(const double *values, size_t count) {
    float *floats = kernel_floats(count);
    for (size_t i = 0; i < count; i++) floats[i] = (float)values[i];
    return floats;
}

/* Within `rtol` of the largest. */
static void expect_formula(const struct attention *a, double rtol) {
    const ls_dtype dtype = a->s.dtype;
    double *y = kernel_bytes(a->count * sizeof *y), *dqkv = kernel_bytes(3 * a->count * sizeof *dqkv);
    memset(y, 0, a->count * sizeof *y);
    memset(dqkv, 0, 3 * a->count * sizeof *dqkv);
    struct head h = {.a = a, .d = ls_attention_head(&a->s)};
    h.qkv = kernel_widened(dtype, a->qkv, 3 * a->count);
    h.dy = kernel_widened(dtype, a->dy, a->count);
    for (size_t i = 0; i < a->rows; i++) {
        h.b = i / (size_t)(a->s.context * a->s.heads);
        h.first_channel = i / (size_t)a->s.context % (size_t)a->s.heads * h.d;
        add_position(&h, i % (size_t)a->s.context, y, dqkv);
    }
    kernel_expect_close_to_largest("y", kernel_widened(dtype, a->y, a->count), as_floats(y, a->count), a->count, rtol);
    kernel_expect_close_to_largest("dqkv", kernel_widened(dtype, a->dqkv, 3 * a->count), as_floats(dqkv, 3 * a->count),
                                   3 * a->count, rtol);
}

static const int shapes[][4] = {/* batch, context, heads, channels of a head */
                                {3, 1, 2, 1},  {2, 2, 1, 2},    {1, 16, 3, 35}, {2, 31, 1, 32}, {1, 33, 2, 64},
                                {1, 64, 1, 2}, {1, 17, 1, 128}, {1, 65, 2, 33}, {1, 70, 1, 65}, {1, 150, 1, 32}};
#define SHAPES (sizeof shapes / sizeof *shapes)

static struct attention make_shape(size_t i, ls_dtype dtype, bool tiled) {
    return make(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], dtype, tiled);
}

TEST_CASE(formula) {
    for (size_t i = 0; i < 2 * SHAPES; i++) {
        struct attention a = make_shape(i / 2, LS_FP32, i % 2);
        run(&a);
        expect_formula(&a, 2e-6);
    }
}

/* Rounded results, and operands that are rounded in between. */
TEST_CASE(formula_of_halves) {
    for (size_t i = 0; i < 4 * SHAPES; i++) {
        struct attention a = make_shape(i / 4, i % 4 < 2 ? LS_FP16 : LS_BF16, i % 2);
        run(&a);
        expect_formula(&a, a.s.dtype == LS_FP16 ? 0x1p-10 : 0x1p-7);
    }
}

/* exp of these scores, or of their differences, is infinite or 0. */
TEST_CASE(large_scores) {
    for (int tiled = 0; tiled < 2; tiled++) {
        struct attention a = make(1, 70, 1, 4, LS_FP32, tiled);
        for (size_t i = 0; i < 3 * a.count; i++)
            if (i / 4 % 3 < 2) ((float *)a.qkv)[i] *= 40;
        run(&a);
        expect_formula(&a, 1e-4);
    }
}

/* --- the mask ------------------------------------------------------------------------------------------------------ */

static void expect_zeros_from(const struct attention *a, size_t t) {
    const float *dqkv = kernel_widened(a->s.dtype, a->dqkv, 3 * a->count);
    for (size_t i = 3 * t * (size_t)a->s.channels; i < 3 * a->count; i++)
        if (dqkv[i] != 0) fail_msg("dqkv[%zu], of a position that none of these sees, is %g", i, (double)dqkv[i]);
}

/* Later positions have other numbers, and contribute no gradient. */
static void check_mask(int context, size_t t, int head, ls_dtype dtype, bool tiled) {
    struct attention a = make(1, context, 2, head, dtype, tiled), b = make(1, context, 2, head, dtype, tiled);
    size_t size = ls_dtype_nbytes(dtype), y = t * (size_t)a.s.channels;
    const void *other = kernel_rounded(dtype, kernel_random(3 * a.count, 7), 3 * a.count);
    memcpy((char *)b.qkv + 3 * y * size, (const char *)other + 3 * y * size, 3 * (a.count - y) * size);
    memset((char *)b.dy + y * size, 0, (a.count - y) * size);
    run(&a);
    run(&b);
    kernel_expect_same("y of earlier positions", b.y, a.y, y * size);
    expect_zeros_from(&b, t);
}

TEST_CASE(no_position_sees_a_later_one) {
    kernel_align(KERNEL_ALIGNED); /* on GPUs, matrix multiplies may add in another order at other addresses */
    for (int i = 0; i < 6; i++) {
        check_mask(2, 1, 3, problem_dtypes[i / 2], i % 2);
        check_mask(70, 37, 8, problem_dtypes[i / 2], i % 2);
        check_mask(70, 64, 35, problem_dtypes[i / 2], i % 2);
    }
}

/* --- the rest of the batch ----------------------------------------------------------------------------------------- */

/* The second of three sequences alone. (cuBLAS, which multiplies scores in memory, may use another algorithm for
 * another batch.) */
TEST_CASE(sequences_do_not_depend_on_each_other) {
    for (int tiled = 0; tiled < 2; tiled++) {
        struct attention all = make(3, 66, 2, 20, LS_FP32, tiled), one = make(1, 66, 2, 20, LS_FP32, tiled);
        if (!tiled && kernel_is_on(ON_FAST | ON_FAST_OTHERWISE)) continue;
        one.qkv = kernel_copy((const float *)all.qkv + 3 * one.count, 3 * one.count);
        one.dy = kernel_copy((const float *)all.dy + one.count, one.count);
        run(&all);
        run(&one);
        kernel_expect_same("y", one.y, (const float *)all.y + one.count, one.count * sizeof(float));
        kernel_expect_same("dqkv", one.dqkv, (const float *)all.dqkv + 3 * one.count, 3 * one.count * sizeof(float));
    }
}

/* --- sizes --------------------------------------------------------------------------------------------------------- */

TEST_CASE(tiled_memory_is_linear_in_positions) {
    for (int kind = LS_DEVICE_CPU; kind <= LS_DEVICE_CUDA; kind++) {
        struct ls_attention_shape s = {3, 1024, 4, 4 * 35, LS_BF16, true}, twice = s, scores = s;
        twice.context *= 2;
        scores.tiled = false;
        assert_int_equal(ls_attention_saved_nbytes(&s), 3 * 4 * 1024 * 4);
        assert_int_equal(ls_attention_saved_nbytes(&scores), 3 * 4 * 1024 * 1024 * 2);
        assert_int_equal(ls_attention_saved_nbytes(&twice), 2 * ls_attention_saved_nbytes(&s));
        assert_true(ls_attention_workspace_nbytes((ls_device_kind)kind, &twice) <=
                    2 * ls_attention_workspace_nbytes((ls_device_kind)kind, &s));
    }
}

/* Half of the pairs, with both methods. */
TEST_CASE(costs_are_those_of_the_triangle) {
    struct ls_op op = {.id = LS_OP_attention_forward};
    struct ls_attention_shape s = {2, 10, 3, 12, LS_FP16, true};
    op.arguments.attention_forward.shape = s;
    assert_int_equal(ls_op_flops(&op), 2 * 3 * 55 * (4 * 4 + 5));
    assert_int_equal(ls_op_bytes(&op), 4 * 2 * 10 * 12 * 2 + 2 * 3 * 10 * 4);
    op.arguments.attention_forward.shape.tiled = false;
    assert_int_equal(ls_op_flops(&op), 2 * 3 * 55 * (4 * 4 + 5));
    op.id = LS_OP_attention_backward;
    op.arguments.attention_backward.shape = s;
    assert_int_equal(ls_op_flops(&op), 2 * 3 * 55 * (8 * 4 + 3));
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(golden),
        ROW(formula),
        ROW(formula_of_halves),
        ROW(large_scores),
        ROW(no_position_sees_a_later_one),
        ROW(sequences_do_not_depend_on_each_other),
        ROW_ON(ON_BEST, tiled_memory_is_linear_in_positions),
        ROW_ON(ON_BEST, costs_are_those_of_the_triangle),
    };
    return RUN_EVERYWHERE("attention", tests);
}
