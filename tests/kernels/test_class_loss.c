/* Cross entropy over classes that are split, and embeddings of parts of a vocabulary: PyTorch's numbers
 * (tests/golden/parallel_cross_entropy) and the combined results of 1 to 5 ranks' parts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"

enum { ROWS = 8, CLASSES = 12, MOST_PARTS = 5 };

static struct ls_class_part part_of(size_t whole, size_t rank, size_t ranks) {
    struct ls_class_part part = {.whole = whole};
    while (part.room * ranks < whole) part.room++;
    part.first = rank * part.room;
    for (size_t c = 0; c < whole; c++) part.count += c / part.room == rank;
    return part;
}

/* The part's columns; padding must not be read. */
static float *columns_of(const float *logits, struct ls_class_part part, size_t rows) {
    float *columns = kernel_floats(rows * part.room);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < part.room; c++)
            columns[r * part.room + c] = c < part.count ? logits[r * part.whole + part.first + c] : 1e30f;
    return columns;
}

static void expect_near(const char *what, float got, float want, double scale) {
    if (!(fabs((double)got - (double)want) <= 1e-6 * fmax(scale, fabs((double)want))))
        fail_msg("%s is %.9g, not %.9g", what, (double)got, (double)want);
}

/* Each part's maxima, then its sums, relative to the maxima over all parts, then the loss and its gradient. */
static void check_parts(const float *logits, const int64_t *labels, size_t rows, size_t classes, size_t ranks,
                        const float *loss, const float *dlogits, float scale) {
    float *mine[MOST_PARTS], *maxima[MOST_PARTS], *sums[MOST_PARTS], *got = kernel_floats(1);
    for (size_t r = 0; r < ranks; r++) {
        struct ls_class_part part = part_of(classes, r, ranks);
        mine[r] = columns_of(logits, part, rows);
        maxima[r] = kernel_floats(rows);
        sums[r] = kernel_floats(2 * rows);
        ls_class_maxima(kernel_stream(), maxima[r], mine[r], rows, part);
        kernel_done();
    }
    for (size_t r = 1; r < ranks; r++)
        for (size_t i = 0; i < rows; i++) maxima[0][i] = fmaxf(maxima[0][i], maxima[r][i]);
    for (size_t r = 0; r < ranks; r++) {
        ls_class_sums(kernel_stream(), sums[r], mine[r], maxima[0], labels, rows, part_of(classes, r, ranks));
        kernel_done();
    }
    for (size_t r = 1; r < ranks; r++)
        for (size_t i = 0; i < 2 * rows; i++) sums[0][i] += sums[r][i];
    for (size_t r = 0; r < ranks; r++) {
        struct ls_class_part part = part_of(classes, r, ranks);
        ls_class_loss(kernel_stream(), got, mine[r], mine[r], maxima[0], sums[0], labels, rows, part, scale);
        kernel_done();
        expect_near("the loss", *got, *loss, 1);
        for (size_t i = 0; i < rows * part.room; i++) {
            size_t row = i / part.room, c = i % part.room;
            float want = c < part.count ? dlogits[row * classes + part.first + c] : 0;
            expect_near("a gradient", mine[r][i], want, (double)scale);
        }
    }
}

TEST_CASE(parts_are_pytorchs_whole) {
    kernel_golden_open("parallel_cross_entropy");
    const float *logits = kernel_golden("logits", ROWS * CLASSES), *loss = kernel_golden("loss", 1),
                *dlogits = kernel_golden("dlogits", ROWS * CLASSES);
    const int64_t *labels = kernel_golden_labels(ROWS);
    for (size_t ranks = 1; ranks <= MOST_PARTS; ranks++)
        check_parts(logits, labels, ROWS, CLASSES, ranks, loss, dlogits, 1.0f / ROWS);
}

TEST_CASE(what_parts_tell_each_other_is_pytorchs) {
    kernel_golden_open("parallel_cross_entropy");
    const float *logits = kernel_golden("logits", ROWS * CLASSES);
    const int64_t *labels = kernel_golden_labels(ROWS);
    for (size_t ranks = 2; ranks <= 4; ranks++) {
        char name[40];
        float *largest = kernel_floats(ROWS), *maxima = kernel_floats(ROWS), *sums = kernel_floats(2 * ROWS);
        snprintf(name, sizeof name, "W%zu.local_max", ranks);
        const float *want_max = kernel_golden(name, ranks * ROWS);
        snprintf(name, sizeof name, "W%zu.local_sumexp", ranks);
        const float *want_sum = kernel_golden(name, ranks * ROWS);
        snprintf(name, sizeof name, "W%zu.local_target_logit", ranks);
        const float *want_target = kernel_golden(name, ranks * ROWS);
        for (size_t i = 0; i < ROWS; i++) {
            largest[i] = -INFINITY;
            for (size_t r = 0; r < ranks; r++) largest[i] = fmaxf(largest[i], want_max[r * ROWS + i]);
        }
        for (size_t r = 0; r < ranks; r++) {
            struct ls_class_part part = part_of(CLASSES, r, ranks);
            const float *mine = columns_of(logits, part, ROWS);
            ls_class_maxima(kernel_stream(), maxima, mine, ROWS, part);
            ls_class_sums(kernel_stream(), sums, mine, largest, labels, ROWS, part);
            kernel_done();
            for (size_t i = 0; i < ROWS; i++) {
                expect_near("a maximum", maxima[i], want_max[r * ROWS + i], 1);
                expect_near("a sum", sums[i], want_sum[r * ROWS + i], 1);
                expect_near("a label's logit", sums[ROWS + i], want_target[r * ROWS + i], 1);
            }
        }
    }
}

/* Compared with ls_cross_entropy, for more classes than a warp has threads. */
TEST_CASE(parts_are_the_whole) {
    static const size_t shapes[][2] = {{1, 1}, {3, 2}, {5, 31}, {33, 65}, {4, 1031}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        size_t rows = shapes[s][0], classes = shapes[s][1];
        float *logits = kernel_random(rows * classes, s), *loss = kernel_floats(1),
              *dlogits = kernel_floats(rows * classes);
        int64_t *labels = kernel_bytes(rows * sizeof *labels);
        for (size_t r = 0; r < rows; r++) labels[r] = (int64_t)((r * r + 7) % classes);
        ls_cross_entropy(kernel_stream(), loss, dlogits, logits, labels, rows, classes, 0.25f);
        kernel_done();
        for (size_t ranks = 1; ranks <= MOST_PARTS; ranks++)
            check_parts(logits, labels, rows, classes, ranks, loss, dlogits, 0.25f);
    }
}

TEST_CASE(a_part_has_a_nan_and_none_has_the_label) {
    struct ls_class_part part = part_of(5, 1, 2);
    float *logits = kernel_random(2 * part.room, 1), *maxima = kernel_floats(2), *sums = kernel_floats(4);
    int64_t *labels = kernel_bytes(2 * sizeof *labels);
    logits[1] = NAN;
    labels[0] = 0, labels[1] = 5;
    ls_class_maxima(kernel_stream(), maxima, logits, 2, part);
    kernel_done();
    assert_true(isnan(maxima[0]) && !isnan(maxima[1]));
    ls_class_sums(kernel_stream(), sums, logits, maxima, labels, 2, part);
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
    scratch_expect_error("label", "5");
}

/* A rank's table has only its own tokens; the ranks' rows add up to those of the whole table, and so do gradients. */
TEST_CASE(embeddings_of_parts_are_the_whole) {
    enum { CONTEXT = 6, TOKENS = 11 };
    for (size_t channels = 3; channels <= 8; channels += 5)
        for (size_t ranks = 1; ranks <= MOST_PARTS; ranks++) {
            size_t rows = 3 * CONTEXT, n = rows * channels;
            int32_t *tokens = kernel_bytes(rows * sizeof *tokens);
            for (size_t r = 0; r < rows; r++) tokens[r] = (int32_t)(r * r % TOKENS);
            float *table = kernel_random((TOKENS + MOST_PARTS) * channels, 1),
                  *positions = kernel_random(CONTEXT * channels, 2), *y = kernel_floats(n), *sum = kernel_floats(n),
                  *own = kernel_floats(n), *dy = kernel_random(n, 3), *dtable = kernel_floats(TOKENS * channels);
            ls_embedding_forward(kernel_stream(), LS_FP32, y, tokens, table, positions, rows, CONTEXT, TOKENS,
                                 channels);
            ls_embedding_backward(kernel_stream(), LS_FP32, dtable, dy, tokens, rows, TOKENS, channels, false);
            kernel_done();
            for (size_t i = 0; i < n; i++) sum[i] = 0;
            for (size_t r = 0; r < ranks; r++) {
                struct ls_class_part part = part_of(TOKENS, r, ranks);
                float *of_part = kernel_copy(table + part.first * channels, part.room * channels),
                      *gradient = kernel_floats(part.room * channels);
                ls_embedding_part_forward(kernel_stream(), LS_FP32, own, tokens, of_part, r == 0 ? positions : NULL,
                                          rows, CONTEXT, part, channels);
                ls_embedding_part_backward(kernel_stream(), LS_FP32, gradient, dy, tokens, rows, part, channels, false);
                kernel_done();
                for (size_t i = 0; i < n; i++) sum[i] += own[i];
                kernel_expect_same("a part's gradient", gradient, dtable + part.first * channels,
                                   part.count * channels * sizeof(float));
                for (size_t i = part.count * channels; i < part.room * channels; i++) assert_true(gradient[i] == 0);
            }
            kernel_expect_same("the sum", sum, y, n * sizeof(float));
        }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(parts_are_pytorchs_whole),
        ROW(what_parts_tell_each_other_is_pytorchs),
        ROW(parts_are_the_whole),
        ROW(a_part_has_a_nan_and_none_has_the_label),
        ROW(embeddings_of_parts_are_the_whole),
    };
    return RUN_EVERYWHERE("classes that are cut", tests);
}
