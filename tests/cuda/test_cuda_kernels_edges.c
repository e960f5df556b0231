/* What the walk of test_cuda_kernels.c does not reach: large sizes, which take several stages, numbers that are none,
 * labels out of range, found_inf, operations in place, and the steps of optimizers with PyTorch's numbers. Runs on
 * real GPUs too. */
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

/* --- problems made here ------------------------------------------------------------------------------------------- */

static void add_output(struct problem *p, void *memory, size_t nbytes) {
    p->outputs[p->output_count].memory = memory;
    p->outputs[p->output_count++].nbytes = nbytes;
}

static void run_rung(int rung, const struct problem *problem, transplant_alignment alignment) {
    ls_status status = transplant_run(problem, transplant_rungs()->rungs[rung].enqueue, alignment);
    if (status != LS_OK) fail_msg("%s: %s", ls_op_name(problem->op.id), ls_status_text(status));
}

static void run_on_cpu(const struct problem *problem) {
    ls_enqueue(kernel_stream(), &problem->op);
    kernel_done();
}

/* Random numbers, every 7th of which is something that comparisons, sums or masks could get wrong. */
static float *make_numbers(size_t count, uint64_t seed) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-42f, -1e-42f};
    float *values = kernel_random(count, seed);
    for (size_t i = seed % 3; i < count; i += 7) values[i] = odd[(i / 7 + seed) % (sizeof odd / sizeof *odd)];
    return values;
}

/* The same bits, but that a NaN may be any NaN. */
static void expect_same_numbers(const char *what, const float *got, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) == 0 || (isnan(got[i]) && isnan(want[i]))) continue;
        fail_msg("%s[%zu] is %a, not %a", what, i, (double)got[i], (double)want[i]);
    }
}

/* --- elementwise operations on any numbers ------------------------------------------------------------------------ */

enum { ODD = 7 * 77 };

static struct problem make_odd(ls_op_id id, ls_dtype dtype) {
    struct problem p = {.op.id = id, .dtype = dtype};
    float *y = make_numbers(ODD, 1), *x = make_numbers(ODD, 2), *z = make_numbers(ODD, 3);
    void *results = kernel_rounded(dtype, y, ODD), *values = kernel_rounded(dtype, x, ODD);
    switch ((int)id) {
    case LS_OP_scale: p.op.arguments.scale = (struct ls_scale_arguments){y, INFINITY, ODD}; break;
    case LS_OP_divide: p.op.arguments.divide = (struct ls_divide_arguments){y, 3e-42f, ODD}; break;
    case LS_OP_scale_by:
        p.op.arguments.scale_by = (struct ls_scale_by_arguments){y, kernel_copy(&(float){NAN}, 1), ODD};
        break;
    case LS_OP_cast: p.op.arguments.cast = (struct ls_cast_arguments){dtype, results, LS_FP32, x, ODD}; break;
    case LS_OP_cast_divide:
        p.op.arguments.cast_divide = (struct ls_cast_divide_arguments){dtype, results, x, 3e-42f, ODD};
        break;
    case LS_OP_add_bias: p.op.arguments.add_bias = (struct ls_add_bias_arguments){dtype, results, values, 7, 77}; break;
    case LS_OP_add_bias_relu:
        p.op.arguments.add_bias_relu = (struct ls_add_bias_relu_arguments){dtype, results, values, 7, 77};
        break;
    case LS_OP_relu_forward: p.op.arguments.relu_forward = (struct ls_relu_forward_arguments){y, x, ODD}; break;
    case LS_OP_relu_backward: p.op.arguments.relu_backward = (struct ls_relu_backward_arguments){y, x, z, ODD}; break;
    default: fail_msg("no such problem");
    }
    add_output(&p, op_has_dtype(id) ? results : y, ODD * (op_has_dtype(id) ? ls_dtype_nbytes(dtype) : sizeof *y));
    return p;
}

static void check_odd(ls_op_id id, ls_dtype dtype, int rung, transplant_alignment alignment) {
    struct problem want = make_odd(id, dtype), got = make_odd(id, dtype);
    run_on_cpu(&want);
    run_rung(rung, &got, alignment);
    expect_same_numbers(ls_op_name(id), kernel_widened(dtype, got.outputs[0].memory, ODD),
                        kernel_widened(dtype, want.outputs[0].memory, ODD), ODD);
}

static void any_number_goes_through(void **state) {
    (void)state;
    static const ls_op_id ids[] = {LS_OP_scale,        LS_OP_divide,        LS_OP_scale_by,
                                   LS_OP_relu_forward, LS_OP_relu_backward, LS_OP_cast,
                                   LS_OP_cast_divide,  LS_OP_add_bias,      LS_OP_add_bias_relu};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        int first = ids[i] == LS_OP_cast_divide, last = op_has_dtype(ids[i]) ? PROBLEM_DTYPES : 1;
        for (int d = first; d < last; d++) {
            for (int alignment = 0; alignment < TRANSPLANT_ALIGNMENTS; alignment++) {
                check_odd(ids[i], problem_dtypes[d], RUNG_NAIVE, (transplant_alignment)alignment);
                check_odd(ids[i], problem_dtypes[d], RUNG_FAST, (transplant_alignment)alignment);
            }
        }
    }
}

/* More sources than travel with one launch. */
static void many_sources(void **state) {
    (void)state;
    enum { SOURCES = 150, N = 37, SHARED = 9 };
    float *arrays[SHARED];
    for (int s = 0; s < SHARED; s++) arrays[s] = kernel_random(N, (uint64_t)s + 2);
    const float **sources = kernel_bytes(SOURCES * sizeof *sources);
    for (int s = 0; s < SOURCES; s++) sources[s] = arrays[s * s % SHARED];
    float *want = kernel_random(N, 1);
    ls_reduce_add(kernel_stream(), want, sources, SOURCES, N);
    kernel_done();
    for (int rung = 0; rung < RUNG_COUNT; rung++) {
        struct problem p = {.op.id = LS_OP_reduce_add};
        float *y = kernel_random(N, 1);
        p.op.arguments.reduce_add = (struct ls_reduce_add_arguments){y, sources, SOURCES, N};
        add_output(&p, y, N * sizeof *y);
        run_rung(rung, &p, TRANSPLANT_ALIGNED);
        kernel_expect_same("reduce_add", y, want, N * sizeof *y);
    }
}

/* --- large sizes -------------------------------------------------------------------------------------------------- */

static struct problem make_large(ls_op_id id, size_t rows, size_t columns, ls_dtype dtype) {
    struct problem p = {.op.id = id, .dtype = dtype};
    size_t count = rows * columns;
    float *y = kernel_random(count, 1), *out = kernel_random(columns, 2), *x = kernel_random(count, 3);
    void *results = kernel_rounded(dtype, y, count), *values = kernel_rounded(dtype, x, count);
    int64_t *labels = kernel_bytes(rows * sizeof *labels);
    for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r * 5 % columns);
    switch ((int)id) {
    case LS_OP_bias_gradient:
        p.op.arguments.bias_gradient = (struct ls_bias_gradient_arguments){dtype, out, values, rows, columns, true};
        add_output(&p, out, columns * sizeof *out);
        break;
    case LS_OP_relu_bias_gradient:
        p.op.arguments.relu_bias_gradient =
            (struct ls_relu_bias_gradient_arguments){dtype, out, results, values, rows, columns, false};
        add_output(&p, out, columns * sizeof *out);
        add_output(&p, results, count * ls_dtype_nbytes(dtype));
        break;
    case LS_OP_cross_entropy:
        p.op.arguments.cross_entropy = (struct ls_cross_entropy_arguments){out, y, x, labels, rows, columns, 1.0f / 64};
        add_output(&p, out, sizeof *out);
        add_output(&p, y, count * sizeof *y);
        break;
    case LS_OP_squared_error:
        p.op.arguments.squared_error =
            (struct ls_squared_error_arguments){out, y, x, kernel_random(count, 4), count, 1.0f / (float)count};
        add_output(&p, out, sizeof *out);
        add_output(&p, y, count * sizeof *y);
        break;
    default: fail_msg("no such problem");
    }
    return p;
}

/* The first output, of floats, within 1e-5 of the largest of it, the others' elements within 1e-6. */
static void check_large(ls_op_id id, size_t rows, size_t columns, ls_dtype dtype) {
    struct problem want = make_large(id, rows, columns, dtype);
    run_on_cpu(&want);
    for (int alignment = 0; alignment < 2; alignment++) {
        struct problem got = make_large(id, rows, columns, dtype), again = make_large(id, rows, columns, dtype);
        run_rung(RUNG_FAST, &got, (transplant_alignment)alignment);
        run_rung(RUNG_FAST, &again, (transplant_alignment)!alignment); /* the order of a sum does not depend on it */
        for (int i = 0; i < got.output_count; i++) {
            size_t nbytes = got.outputs[i].nbytes;
            const void *a = got.outputs[i].memory, *b = want.outputs[i].memory;
            kernel_expect_same("again", again.outputs[i].memory, a, nbytes);
            if (i == 0) kernel_expect_close_to_largest(ls_op_name(id), a, b, nbytes / sizeof(float), 1e-5);
            if (i == 0) continue;
            size_t count = nbytes / ls_dtype_nbytes(dtype);
            kernel_expect_close(ls_op_name(id), kernel_widened(dtype, a, count), kernel_widened(dtype, b, count), count,
                                1e-6, 1e-7);
        }
    }
}

static void large_sums(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{129, 3}, {3000, 10}, {20000, 4}, {300, 260}, {128, 1028}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        check_large(LS_OP_bias_gradient, shapes[s][0], shapes[s][1], LS_FP32);
        check_large(LS_OP_relu_bias_gradient, shapes[s][0], shapes[s][1], LS_FP32);
        check_large(LS_OP_squared_error, shapes[s][0], shapes[s][1], LS_FP32);
        check_large(LS_OP_bias_gradient, shapes[s][0], shapes[s][1], s % 2 ? LS_BF16 : LS_FP16);
        check_large(LS_OP_relu_bias_gradient, shapes[s][0], shapes[s][1], s % 2 ? LS_FP16 : LS_BF16);
    }
}

/* A thread to a row up to 32 classes, then a warp, from 1024 classes on a block: in one block, in several, and in
 * several turns. */
static void large_cross_entropy(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{256, 32}, {257, 32}, {1000, 10},  {(1024 + 1) * 256 + 3, 2},
                                       {64, 33},  {65, 33},  {8300, 33},  {64, 1023},
                                       {1, 1024}, {7, 1500}, {1100, 1025}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        check_large(LS_OP_cross_entropy, shapes[s][0], shapes[s][1], LS_FP32);
}

/* A tensor of many chunks, whose last is shorter, behind one without any. */
static struct problem make_many_squares(void) {
    static const size_t counts[] = {3, 0, 1100003};
    enum { TENSORS = sizeof counts / sizeof *counts };
    struct problem p = {.op.id = LS_OP_square_sum_list};
    struct ls_update_tensor *list = memset(kernel_bytes(TENSORS * sizeof *list), 0, TENSORS * sizeof *list);
    size_t chunks = 0, total = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        list[i].gradient = kernel_random(counts[i], i + 1);
        list[i].count = counts[i];
        list[i].first_chunk = chunks;
        chunks += (counts[i] + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        total += counts[i];
    }
    double *sum = kernel_bytes(sizeof *sum);
    p.op.arguments.square_sum_list = (struct ls_square_sum_list_arguments){sum, list, TENSORS, chunks, total};
    add_output(&p, sum, sizeof *sum);
    return p;
}

static void square_sum_of_many(void **state) {
    (void)state;
    struct problem want = make_many_squares();
    run_on_cpu(&want);
    const double *sum = want.outputs[0].memory;
    struct problem first = make_many_squares();
    run_rung(RUNG_FAST, &first, TRANSPLANT_ALIGNED);
    const double *got = first.outputs[0].memory;
    assert_true(*sum > 300000 && fabs(*got - *sum) <= 1e-12 * *sum);
    struct problem shifted = make_many_squares();
    run_rung(RUNG_FAST, &shifted, TRANSPLANT_SHIFTED);
    kernel_expect_same("square_sum_list", shifted.outputs[0].memory, got, sizeof *got);
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

static void check_bad_label(int rung, size_t classes, int64_t bad) {
    struct problem p = {.op.id = LS_OP_cross_entropy};
    int64_t *labels = kernel_bytes(2 * sizeof *labels);
    labels[0] = 2;
    labels[1] = bad;
    float *loss = kernel_floats(1), *d = kernel_floats(2 * classes);
    p.op.arguments.cross_entropy =
        (struct ls_cross_entropy_arguments){loss, d, kernel_random(2 * classes, 1), labels, 2, classes, 1};
    add_output(&p, loss, sizeof *loss);
    add_output(&p, d, 2 * classes * sizeof *d);
    assert_int_equal(transplant_run(&p, transplant_rungs()->rungs[rung].enqueue, TRANSPLANT_ALIGNED), LS_ERR_INVALID);
    char label[32], range[32];
    snprintf(label, sizeof label, "label %lld", (long long)bad);
    snprintf(range, sizeof range, "outside of [0, %zu)", classes);
    scratch_expect_error(label, range);
}

static void a_label_out_of_range_is_an_error(void **state) {
    (void)state;
    static const size_t classes[] = {3, 32, 33, 1024};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (int rung = 0; rung < RUNG_COUNT; rung++) {
            check_bad_label(rung, classes[i], (int64_t)classes[i]);
            check_bad_label(rung, classes[i], -1);
            check_bad_label(rung, classes[i], INT64_MAX);
        }
    }
}

static void check_in_place(struct problem apart, struct problem in_place) {
    run_rung(RUNG_FAST, &apart, TRANSPLANT_ALIGNED);
    run_rung(RUNG_FAST, &in_place, TRANSPLANT_ALIGNED);
    for (int i = 0; i < apart.output_count; i++) {
        kernel_expect_same(ls_op_name(apart.op.id), in_place.outputs[i].memory, apart.outputs[i].memory,
                           apart.outputs[i].nbytes);
    }
}

static void operations_in_place(void **state) {
    (void)state;
    enum { ROWS = 70, CLASSES = 37, N = ROWS * CLASSES };
    static const size_t losses[][2] = {{300, 10}, {257, 32}, {ROWS, CLASSES}, {3, 1100}};
    for (size_t l = 0; l < sizeof losses / sizeof *losses; l++) {
        struct problem apart = make_large(LS_OP_cross_entropy, losses[l][0], losses[l][1], LS_FP32), in_place;
        in_place = make_large(LS_OP_cross_entropy, losses[l][0], losses[l][1], LS_FP32);
        in_place.op.arguments.cross_entropy.dlogits = (float *)(uintptr_t)in_place.op.arguments.cross_entropy.logits;
        in_place.outputs[1].memory = in_place.op.arguments.cross_entropy.dlogits;
        check_in_place(apart, in_place);
    }
    struct problem apart = make_large(LS_OP_squared_error, ROWS, CLASSES, LS_FP32), in_place;
    in_place = make_large(LS_OP_squared_error, ROWS, CLASSES, LS_FP32);
    in_place.op.arguments.squared_error.dprediction =
        (float *)(uintptr_t)in_place.op.arguments.squared_error.prediction;
    in_place.outputs[1].memory = in_place.op.arguments.squared_error.dprediction;
    check_in_place(apart, in_place);
    apart = make_problem(LS_OP_relu_backward, N, LS_FP32);
    in_place = make_problem(LS_OP_relu_backward, N, LS_FP32);
    in_place.op.arguments.relu_backward.dx = (float *)(uintptr_t)in_place.op.arguments.relu_backward.dy;
    in_place.outputs[0].memory = in_place.op.arguments.relu_backward.dx;
    check_in_place(apart, in_place);
    apart = make_problem(LS_OP_relu_forward, N, LS_FP32);
    in_place = make_problem(LS_OP_relu_forward, N, LS_FP32);
    in_place.op.arguments.relu_forward.y = (float *)(uintptr_t)in_place.op.arguments.relu_forward.x;
    in_place.outputs[0].memory = in_place.op.arguments.relu_forward.y;
    check_in_place(apart, in_place);
}

/* Ties, NaNs in every place, rows of -infinity: the first of the largest, as on the CPU. */
static void check_odd_rows(size_t classes) {
    enum { ROWS = 9000 };
    float *logits = kernel_random(ROWS * classes, 1);
    for (size_t i = 0; i < ROWS * classes; i++) logits[i] = (float)(int)(logits[i] * 3); /* many ties */
    for (size_t r = 0; r < ROWS; r++) {
        if (r % 4 == 1) logits[r * classes + r / 4 % classes] = NAN;
        for (size_t c = 0; c < classes && r % 8 >= 6; c++) logits[r * classes + c] = r % 8 == 6 ? -INFINITY : NAN;
    }
    for (int64_t answer = 0; answer < 6; answer++) {
        const size_t rows = answer == 5 ? 7 : answer == 4 ? ROWS : 400; /* one block, several, more than there may be */
        int64_t *labels = kernel_bytes(ROWS * sizeof *labels), *want = kernel_bytes(sizeof *want);
        for (int r = 0; r < ROWS; r++) labels[r] = answer % 5;
        *want = 3;
        ls_count_correct(kernel_stream(), want, logits, labels, rows, classes);
        kernel_done();
        assert_true(*want > 3);
        for (int rung = 0; rung < RUNG_COUNT; rung++) {
            struct problem p = {.op.id = LS_OP_count_correct};
            int64_t *correct = kernel_bytes(sizeof *correct);
            *correct = 3;
            p.op.arguments.count_correct = (struct ls_count_correct_arguments){correct, logits, labels, rows, classes};
            add_output(&p, correct, sizeof *correct);
            run_rung(rung, &p, TRANSPLANT_SHIFTED);
            assert_int_equal(*correct, *want);
        }
    }
}

/* More rows than all blocks take in one turn. */
static void correct_answers_of_many_rows(void **state) {
    (void)state;
    enum { ROWS = 1025 * 256 + 3, CLASSES = 2 };
    float *logits = kernel_random(ROWS * CLASSES, 1);
    int64_t *labels = kernel_bytes(ROWS * sizeof *labels), want = 0, *correct = kernel_bytes(sizeof *correct);
    *correct = 0;
    for (size_t r = 0; r < ROWS; r++) {
        labels[r] = (int64_t)(r % CLASSES);
        if (r >= 1024 * 256) logits[r * CLASSES + 1 - r % CLASSES] = 2; /* those of the second turn are all wrong */
        want += labels[r] == (logits[r * CLASSES + 1] > logits[r * CLASSES]);
    }
    struct problem p = {.op.id = LS_OP_count_correct};
    p.op.arguments.count_correct = (struct ls_count_correct_arguments){correct, logits, labels, ROWS, CLASSES};
    add_output(&p, correct, sizeof *correct);
    run_rung(RUNG_FAST, &p, TRANSPLANT_ALIGNED);
    assert_int_equal(*correct, want);
}

static void correct_answers_of_odd_rows(void **state) {
    (void)state;
    static const size_t classes[] = {5, 32, 33, 41};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) check_odd_rows(classes[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, transplant_setup, transplant_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(any_number_goes_through),
        TEST(many_sources),
        TEST(large_sums),
        TEST(large_cross_entropy),
        TEST(square_sum_of_many),
        TEST(a_label_out_of_range_is_an_error),
        TEST(operations_in_place),
        TEST(correct_answers_of_odd_rows),
        TEST(correct_answers_of_many_rows),
    };
    return cmocka_run_group_tests_name("kernels of GPUs at the edges", tests, NULL, NULL);
}
