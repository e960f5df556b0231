/* Cases that test_ops.c does not reach: sizes that need several stages of a GPU, NaNs, ties, more sources than one
 * launch can pass. */
#include <math.h>
#include <string.h>

#include "tests/base/test.h"
#include "tests/kernels/backends.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- any numbers: the best build's bits (backends.h) --------------------------------------------------------------- */

enum { ROWS = 7, COLUMNS = 77, ODD = ROWS * COLUMNS };

/* Random numbers, every 7th of which is a value that comparisons, sums or masks could get wrong. */
static float *make_numbers(uint64_t seed) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-42f, -1e-42f};
    float *values = kernel_random(ODD, seed);
    for (size_t i = seed % 3; i < ODD; i += 7) values[i] = odd[(i / 7 + seed) % COUNT(odd)];
    return values;
}

static void *make_elements(ls_dtype dtype, uint64_t seed) { return kernel_rounded(dtype, make_numbers(seed), ODD); }

TEST_CASE(any_number_goes_through) {
    ls_stream *stream = kernel_stream();
    for (int i = 0; i < KERNEL_IN_TURN; i++) {
        kernel_align((kernel_alignment)i);
        ls_scale(stream, make_numbers(1), INFINITY, ODD), kernel_done();
        ls_divide(stream, make_numbers(1), 3e-42f, ODD), kernel_done();
        ls_scale_by(stream, make_numbers(1), kernel_copy(&(float){NAN}, 1), ODD), kernel_done();
        ls_relu_forward(stream, LS_FP32, kernel_floats(ODD), make_numbers(2), ODD), kernel_done();
        ls_relu_backward(stream, LS_FP32, kernel_floats(ODD), make_numbers(2), make_numbers(3), ODD), kernel_done();
        for (int d = 0; d < 3; d++) {
            const ls_dtype dtype = (const ls_dtype[]){LS_FP32, LS_FP16, LS_BF16}[d];
            ls_cast(stream, dtype, kernel_elements(dtype, ODD), LS_FP32, make_numbers(2), ODD), kernel_done();
            ls_add_bias(stream, dtype, make_elements(dtype, 1), make_elements(dtype, 2), ROWS, COLUMNS), kernel_done();
            ls_add_bias_relu(stream, dtype, make_elements(dtype, 1), make_elements(dtype, 2), ROWS, COLUMNS);
            kernel_done();
            if (dtype == LS_FP32) continue;
            ls_cast_divide(stream, dtype, kernel_elements(dtype, ODD), make_numbers(2), 3e-42f, ODD), kernel_done();
        }
    }
}

TEST_CASE(many_sources) {
    enum { SOURCES = 150, N = 37, SHARED = 9 };
    float *arrays[SHARED], *y = kernel_random(N, 1), *want = kernel_copy(y, N);
    const float *sources[SOURCES];
    for (int s = 0; s < SHARED; s++) arrays[s] = kernel_random(N, (uint64_t)s + 2);
    for (int s = 0; s < SOURCES; s++) {
        sources[s] = arrays[s * s % SHARED];
        for (int i = 0; i < N; i++) want[i] += sources[s][i];
    }
    ls_reduce_add(kernel_stream(), y, sources, SOURCES, N);
    kernel_done();
    kernel_expect_same("reduce_add", y, want, N * sizeof *y);
}

/* --- large sizes -------------------------------------------------------------------------------------------------- */

/* A sum, or the sums of columns, and the results for each element. */
struct large {
    float *sums;
    void *elements;
};

static struct large run(ls_op_id id, size_t rows, size_t columns, ls_dtype dtype) {
    size_t count = rows * columns;
    float *sums = kernel_random(columns, 2), *x = kernel_random(count, 3);
    void *elements = kernel_rounded(dtype, kernel_random(count, 1), count), *values = kernel_rounded(dtype, x, count);
    int64_t *labels = kernel_bytes(rows * sizeof *labels);
    for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)(r * 5 % columns);
    if (id == LS_OP_bias_gradient) ls_bias_gradient(kernel_stream(), dtype, sums, values, rows, columns, true);
    if (id == LS_OP_relu_bias_gradient)
        ls_relu_bias_gradient(kernel_stream(), dtype, sums, elements, values, rows, columns, false);
    if (id == LS_OP_cross_entropy)
        ls_cross_entropy(kernel_stream(), sums, elements, x, labels, rows, columns, 1.0f / 64);
    if (id == LS_OP_squared_error)
        ls_squared_error(kernel_stream(), sums, elements, x, kernel_random(count, 4), count, 1.0f / (float)count);
    kernel_done();
    return (struct large){sums, elements};
}

/* Sums within 1e-5 of the largest of them, elements within 1e-6. The order of a sum does not depend on the position of
 * arrays. */
static void check_large(ls_op_id id, size_t rows, size_t columns, ls_dtype dtype) {
    size_t count = rows * columns, sums = id == LS_OP_cross_entropy || id == LS_OP_squared_error ? 1 : columns;
    kernel_use_best(true);
    struct large want = run(id, rows, columns, dtype);
    kernel_use_best(false);
    struct large got[2];
    for (int alignment = 0; alignment < 2; alignment++) {
        kernel_align((kernel_alignment)alignment);
        got[alignment] = run(id, rows, columns, dtype);
    }
    kernel_expect_same("sums again", got[1].sums, got[0].sums, sums * sizeof(float));
    kernel_expect_same("elements again", got[1].elements, got[0].elements, count * ls_dtype_nbytes(dtype));
    kernel_expect_close_to_largest(ls_op_name(id), got[0].sums, want.sums, sums, 1e-5);
    kernel_expect_close(ls_op_name(id), kernel_widened(dtype, got[0].elements, count),
                        kernel_widened(dtype, want.elements, count), count, 1e-6, 1e-7);
}

TEST_CASE(large_sums) {
    static const size_t shapes[][2] = {{129, 3}, {3000, 10}, {20000, 4}, {300, 260}, {128, 1028}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        check_large(LS_OP_bias_gradient, shapes[s][0], shapes[s][1], LS_FP32);
        check_large(LS_OP_relu_bias_gradient, shapes[s][0], shapes[s][1], LS_FP32);
        check_large(LS_OP_squared_error, shapes[s][0], shapes[s][1], LS_FP32);
        check_large(LS_OP_bias_gradient, shapes[s][0], shapes[s][1], s % 2 ? LS_BF16 : LS_FP16);
        check_large(LS_OP_relu_bias_gradient, shapes[s][0], shapes[s][1], s % 2 ? LS_FP16 : LS_BF16);
    }
}

/* One thread for a row up to 32 classes, then a warp, from 1024 classes on a block: in one block, in several, and in
 * several turns. */
TEST_CASE(large_cross_entropy) {
    static const size_t shapes[][2] = {{256, 32}, {257, 32}, {1000, 10},  {(1024 + 1) * 256 + 3, 2},
                                       {64, 33},  {65, 33},  {8200, 33},  {64, 1023},
                                       {1, 1024}, {7, 1500}, {1030, 1025}};
    for (size_t s = 0; s < COUNT(shapes); s++) check_large(LS_OP_cross_entropy, shapes[s][0], shapes[s][1], LS_FP32);
}

/* A tensor of many chunks, the last of which is shorter, after an empty one. */
TEST_CASE(square_sum_of_many) {
    static const size_t counts[] = {3, 0, 200003};
    struct ls_update_tensor *list = memset(kernel_bytes(3 * sizeof *list), 0, 3 * sizeof *list);
    size_t chunks = 0, total = 0;
    double want = 0, *sum = kernel_bytes(sizeof *sum), first = 0;
    for (size_t i = 0; i < COUNT(counts); i++) {
        list[i] = (struct ls_update_tensor){
            .gradient = kernel_random(counts[i], i + 1), .count = counts[i], .first_chunk = chunks};
        for (size_t k = 0; k < counts[i]; k++) want += (double)list[i].gradient[k] * (double)list[i].gradient[k];
        chunks += (counts[i] + LS_UPDATE_CHUNK - 1) / LS_UPDATE_CHUNK;
        total += counts[i];
    }
    for (int alignment = 0; alignment < 2; alignment++) {
        kernel_align((kernel_alignment)alignment);
        ls_square_sum_list(kernel_stream(), sum, list, 3, chunks, total);
        kernel_done();
        assert_true(want > 60000 && fabs(*sum - want) <= 1e-12 * want);
        assert_true(alignment == 0 || *sum == first);
        first = *sum;
    }
}

/* --- correct answers ---------------------------------------------------------------------------------------------- */

/* Ties, NaNs in every position, rows of -infinity; one block of a GPU, several, and more rows than all blocks process
 * in one turn. */
static void check_odd_rows(size_t classes) {
    enum { MANY = 8200, FEW = 400 };
    float *logits = kernel_random(MANY * classes, 1);
    for (size_t i = 0; i < MANY * classes; i++) logits[i] = (float)(int)(logits[i] * 3); /* many ties */
    for (size_t r = 0; r < MANY; r++) {
        if (r % 4 == 1) logits[r * classes + r / 4 % classes] = NAN;
        for (size_t c = 0; c < classes && r % 8 >= 6; c++) logits[r * classes + c] = r % 8 == 6 ? -INFINITY : NAN;
    }
    const float *few = kernel_copy(logits, FEW * classes);
    for (int64_t answer = 0; answer < 6; answer++) {
        const size_t rows = answer == 5 ? 7 : answer == 4 ? MANY : FEW;
        int64_t *labels = kernel_bytes(rows * sizeof *labels), *correct = kernel_bytes(sizeof *correct);
        *correct = 3;
        for (size_t r = 0; r < rows; r++) labels[r] = answer % 5;
        ls_count_correct(kernel_stream(), correct, rows == MANY ? logits : few, labels, rows, classes);
        kernel_done();
        assert_true(*correct > 3);
    }
}

TEST_CASE(correct_answers_of_odd_rows) {
    static const size_t classes[] = {5, 32, 33, 41};
    for (size_t i = 0; i < COUNT(classes); i++) check_odd_rows(classes[i]);
}

TEST_CASE(correct_answers_of_many_rows) {
    enum { MANY = 1025 * 256 + 3, CLASSES = 2 };
    float *logits = kernel_random(MANY * CLASSES, 1);
    int64_t *labels = kernel_bytes(MANY * sizeof *labels), want = 0, *correct = kernel_bytes(sizeof *correct);
    *correct = 0;
    for (size_t r = 0; r < MANY; r++) {
        labels[r] = (int64_t)(r % CLASSES);
        if (r >= 1024 * 256) logits[r * CLASSES + 1 - r % CLASSES] = 2; /* all rows of the second turn are wrong */
        want += labels[r] == (logits[r * CLASSES + 1] > logits[r * CLASSES]);
    }
    ls_count_correct(kernel_stream(), correct, logits, labels, MANY, CLASSES);
    kernel_done();
    assert_int_equal(*correct, want);
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(any_number_goes_through),
        ROW(many_sources),
        ROW_ON(EACH_ONCE, large_sums),
        ROW_ON(ON_FAST, large_cross_entropy),
        ROW_ON(ON_BUILDS | ON_FAST, square_sum_of_many),
        ROW_ON(EACH_ONCE, correct_answers_of_odd_rows),
        ROW_ON(ON_BUILDS | ON_FAST, correct_answers_of_many_rows),
    };
    return RUN_EVERYWHERE("large and odd", tests);
}
