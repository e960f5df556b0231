/* The operations of networks for texts: embedding, layer norm and GELU. Against their formulas in double and PyTorch's
 * numbers (tests/golden); halves against floats, rounded once; rows that do not depend on the rest of the batch;
 * invalid tokens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/backends.h"

/* The tolerance of a float whose sum is rounded in another order. */
static void expect_floats(const char *what, const float *got, const double *want, size_t count, double scale) {
    for (size_t i = 0; i < count; i++) {
        if (fabs((double)got[i] - want[i]) <= 2e-6 * scale) continue;
        fail_msg("%s[%zu] is %.9g, not %.9g", what, i, (double)got[i], want[i]);
    }
}

static double *doubles(size_t count) {
    double *zeros = kernel_bytes(count * sizeof *zeros);
    for (size_t i = 0; i < count; i++) zeros[i] = 0;
    return zeros;
}

static int32_t *make_tokens(size_t count, size_t vocabulary) {
    int32_t *tokens = kernel_bytes(count * sizeof *tokens);
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)(i * i % 7919 % vocabulary);
    return tokens;
}

/* --- GELU ---------------------------------------------------------------------------------------------------------- */

static double tanh_of(double x) { return tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)); }
static double gelu(double x) { return 0.5 * x * (1 + tanh_of(x)); }
static double gelu_slope(double x) {
    double t = tanh_of(x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
}

static void check_gelu(size_t rows, size_t columns, bool accumulate) {
    size_t n = rows * columns;
    float *x = kernel_random(n, 1), *bias = kernel_random(columns, 2), *y = kernel_floats(n), *dy = kernel_random(n, 3);
    float *dbias = kernel_random(columns, 4), *before = kernel_copy(x, n), *dbias_before = kernel_copy(dbias, columns);
    double *want_y = doubles(n), *want_dy = doubles(n), *want_dbias = doubles(columns);
    for (size_t i = 0; i < n; i++) x[i] = before[i] *= 6;
    for (size_t i = 0; i < n; i++) {
        double sum = (double)(before[i] + bias[i % columns]);
        want_y[i] = gelu(sum);
        want_dy[i] = (double)dy[i] * gelu_slope(sum);
        want_dbias[i % columns] += want_dy[i];
    }
    for (size_t c = 0; c < columns; c++) want_dbias[c] += accumulate ? (double)dbias_before[c] : 0;
    ls_add_bias_gelu(kernel_stream(), LS_FP32, y, x, bias, rows, columns);
    kernel_done();
    ls_gelu_bias_gradient(kernel_stream(), LS_FP32, dbias, dy, x, rows, columns, accumulate);
    kernel_done();
    for (size_t i = 0; i < n; i++) assert_true(x[i] == before[i] + bias[i % columns]);
    expect_floats("y", y, want_y, n, 1);
    expect_floats("dy", dy, want_dy, n, 1);
    expect_floats("dbias", dbias, want_dbias, columns, 1 + sqrt((double)rows));
}

static const size_t shapes[][2] = {{0, 5},    {1, 1},    {3, 4},    {7, 33},  {5, 128},
                                   {300, 12}, {9, 1030}, {3, 1028}, {129, 65}};

TEST_CASE(gelu_is_its_formula) {
    for (size_t i = 0; i < COUNT_OF(shapes); i++) check_gelu(shapes[i][0], shapes[i][1], i % 2);
}

/* --- layer norm ---------------------------------------------------------------------------------------------------- */

struct layernorm {
    size_t rows, channels;
    ls_dtype dtype;
    bool accumulate;
    void *x, *y, *dy, *dx;
    float *gamma, *beta, *mean, *invstd, *dgamma, *dbeta;
};

/* The values of rows are around 3, far from 0, and differ. */
static struct layernorm make_layernorm(size_t rows, size_t channels, ls_dtype dtype, bool accumulate) {
    size_t n = rows * channels;
    struct layernorm l = {rows, channels, dtype, accumulate, NULL, NULL, NULL,
                          NULL, NULL,     NULL,  NULL,       NULL, NULL, NULL};
    float *x = kernel_random(n, 1);
    for (size_t i = 0; i < n; i++) x[i] = x[i] * (float)(1 + i / channels % 5) + 3;
    l.x = kernel_rounded(dtype, x, n), l.dy = kernel_rounded(dtype, kernel_random(n, 2), n);
    l.y = kernel_elements(dtype, n), l.dx = kernel_elements(dtype, n);
    l.gamma = kernel_random(channels, 3), l.beta = kernel_random(channels, 4);
    l.dgamma = kernel_random(channels, 5), l.dbeta = kernel_random(channels, 6);
    l.mean = kernel_floats(rows), l.invstd = kernel_floats(rows);
    return l;
}

static void run_layernorm(const struct layernorm *l) {
    ls_layernorm_forward(kernel_stream(), l->dtype, l->y, l->x, l->gamma, l->beta, l->mean, l->invstd, l->rows,
                         l->channels, 1e-5f);
    kernel_done();
    ls_layernorm_backward(kernel_stream(), l->dtype, l->dx, l->dgamma, l->dbeta, l->dy, l->x, l->gamma, l->mean,
                          l->invstd, l->rows, l->channels, l->accumulate);
    kernel_done();
}

/* Row r, and its contribution to the parameters' gradients. */
static void check_row(const struct layernorm *l, size_t r, double *want_dgamma, double *want_dbeta) {
    size_t count = l->channels;
    const float *x = (const float *)l->x + r * count, *dy = (const float *)l->dy + r * count;
    double mean = 0, variance = 0, plain = 0, with_xhat = 0, *y = doubles(count), *dx = doubles(count);
    for (size_t c = 0; c < count; c++) mean += (double)x[c] / (double)count;
    for (size_t c = 0; c < count; c++) variance += pow((double)x[c] - mean, 2) / (double)count;
    double invstd = 1 / sqrt(variance + (double)1e-5f);
    for (size_t c = 0; c < count; c++) {
        double xhat = ((double)x[c] - mean) * invstd, slope = (double)dy[c] * (double)l->gamma[c];
        plain += slope / (double)count;
        with_xhat += slope * xhat / (double)count;
        y[c] = xhat * (double)l->gamma[c] + (double)l->beta[c];
        want_dgamma[c] += (double)dy[c] * xhat;
        want_dbeta[c] += (double)dy[c];
    }
    for (size_t c = 0; c < count; c++)
        dx[c] = invstd * ((double)dy[c] * (double)l->gamma[c] - plain - ((double)x[c] - mean) * invstd * with_xhat);
    double scale = kernel_is_on(ON_NAIVE) ? 1 + sqrt((double)count) : 1; /* error of one sum; the others have many */
    expect_floats("mean", &l->mean[r], &mean, 1, 3 * scale);
    expect_floats("invstd", &l->invstd[r], &invstd, 1, invstd * scale);
    expect_floats("y", (const float *)l->y + r * count, y, count, (1 + invstd) * scale);
    expect_floats("dx", (const float *)l->dx + r * count, dx, count, invstd * (1 + invstd) * scale);
}

TEST_CASE(layernorm_is_its_formula) {
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct layernorm l = make_layernorm(shapes[i][0], shapes[i][1], LS_FP32, i % 2);
        double *want_dgamma = doubles(l.channels), *want_dbeta = doubles(l.channels);
        for (size_t c = 0; c < l.channels && l.accumulate; c++) {
            want_dgamma[c] = (double)l.dgamma[c];
            want_dbeta[c] = (double)l.dbeta[c];
        }
        run_layernorm(&l);
        for (size_t r = 0; r < l.rows; r++) check_row(&l, r, want_dgamma, want_dbeta);
        expect_floats("dgamma", l.dgamma, want_dgamma, l.channels, 2 + 2 * sqrt((double)l.rows));
        expect_floats("dbeta", l.dbeta, want_dbeta, l.channels, 2 + sqrt((double)l.rows));
    }
}

/* --- embedding ----------------------------------------------------------------------------------------------------- */

/* The same bits on all back-ends: rows in ascending order. */
static void check_embedding(size_t sequences, size_t context, size_t vocabulary, size_t channels, bool accumulate) {
    size_t rows = sequences * context, table = vocabulary * channels;
    const int32_t *tokens = make_tokens(rows, vocabulary);
    float *token_table = kernel_random(table, 1), *position_table = kernel_random(context * channels, 2);
    float *y = kernel_floats(rows * channels), *dy = kernel_random(rows * channels, 3);
    float *want_y = kernel_floats(rows * channels), *dtable = kernel_random(table, 4),
          *want = kernel_copy(dtable, table);
    for (size_t i = 0; i < table && !accumulate; i++) want[i] = 0;
    for (size_t i = 0; i < rows * channels; i++) {
        size_t r = i / channels, c = i % channels, at = (size_t)tokens[r] * channels + c;
        want_y[i] = token_table[at] + position_table[r % context * channels + c];
        want[at] += dy[i];
    }
    ls_embedding_forward(kernel_stream(), LS_FP32, y, tokens, token_table, position_table, rows, context, vocabulary,
                         channels);
    kernel_done();
    ls_embedding_backward(kernel_stream(), LS_FP32, dtable, dy, tokens, rows, vocabulary, channels, accumulate);
    kernel_done();
    kernel_expect_same("y", y, want_y, rows * channels * sizeof *y);
    kernel_expect_same("dtable", dtable, want, table * sizeof *want);
}

/* One token, few of them in many rows (several chunks of a GPU's block), and more tokens than rows. */
TEST_CASE(embedding_is_its_formula) {
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        check_embedding(0, 4, 3, 5, accumulate);
        check_embedding(2, 3, 1, 4, accumulate);
        check_embedding(7, 5, 11, 6, accumulate);
        check_embedding(1, 20, 60, 1028, accumulate);
    }
    check_embedding(4, 40, 27, 32, true);
    check_embedding(9, 60, 5, 7, false);
    check_embedding(4, 128, 3, 4, true);
}

static void enqueue_embedding(bool backward, const int32_t *tokens, void *out) {
    enum { ROWS = 3, CHANNELS = 4, VOCABULARY = 5 };
    const float *random = kernel_random(ROWS * CHANNELS, 1);
    if (backward) {
        ls_embedding_backward(kernel_stream(), LS_FP32, out, random, tokens, ROWS, VOCABULARY, CHANNELS, true);
    } else {
        ls_embedding_forward(kernel_stream(), LS_FP32, out, tokens, kernel_random(VOCABULARY * CHANNELS, 2), random,
                             ROWS, ROWS, VOCABULARY, CHANNELS);
    }
    assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
}

/* A GPU does not write that row's result; the others have theirs. */
TEST_CASE(a_token_outside_of_the_vocabulary_is_an_error) {
    static const int32_t bad[] = {5, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 2 * COUNT_OF(bad); i++) {
        int32_t *tokens = kernel_bytes(3 * sizeof *tokens);
        tokens[0] = 4, tokens[1] = bad[i / 2], tokens[2] = 0;
        float *before = kernel_random(5 * 4, 3), *out = kernel_copy(before, 5 * 4);
        enqueue_embedding(i % 2, tokens, out);
        char said[60];
        snprintf(said, sizeof said, "token %d", (int)tokens[1]);
        scratch_expect_error(said, kernel_is_on(ON_BUILDS) ? "row 1 has" : "out of range [0, 5)");
        if (kernel_is_on(ON_BUILDS)) continue;
        size_t written[2] = {0, i % 2 ? 4 : 2}; /* rows of `out`: of tokens 0 and 4, or rows 0 and 2 */
        for (size_t r = 0; r < 5; r++) {
            bool same = memcmp(out + r * 4, before + r * 4, 4 * sizeof *out) == 0;
            if (same == (r == written[0] || r == written[1])) fail_msg("case %zu, row %zu: same %d", i, r, same);
        }
    }
}

/* --- PyTorch's numbers --------------------------------------------------------------------------------------------- */

static void expect_golden(const char *tensor, const float *got, size_t count) {
    kernel_expect_close_to_largest(tensor, got, kernel_golden(tensor, count), count, 2e-6);
}

static void check_golden_layernorm(const char *name, size_t rows, size_t channels) {
    kernel_golden_open(name);
    size_t n = rows * channels;
    struct layernorm l = make_layernorm(rows, channels, LS_FP32, false);
    l.x = kernel_golden("x", n), l.dy = kernel_golden("dy", n);
    l.gamma = kernel_golden("weight", channels), l.beta = kernel_golden("bias", channels);
    run_layernorm(&l);
    expect_golden("y", l.y, n);
    expect_golden("dx", l.dx, n);
    expect_golden("dweight", l.dgamma, channels);
    expect_golden("dbias", l.dbeta, channels);
}

TEST_CASE(layernorm_is_pytorchs) {
    check_golden_layernorm("layernorm_7x128", 7, 128);
    check_golden_layernorm("layernorm_12x33", 12, 33);
}

TEST_CASE(gelu_is_pytorchs) {
    enum { ROWS = 5, COLUMNS = 37, N = ROWS * COLUMNS };
    kernel_golden_open("gelu_tanh");
    float *x = kernel_golden("x", N), *dx = kernel_golden("dy", N), *y = kernel_floats(N),
          *bias = kernel_floats(COLUMNS);
    for (int c = 0; c < COLUMNS; c++) bias[c] = 0;
    ls_add_bias_gelu(kernel_stream(), LS_FP32, y, x, bias, ROWS, COLUMNS);
    kernel_done();
    ls_gelu_bias_gradient(kernel_stream(), LS_FP32, kernel_floats(COLUMNS), dx, x, ROWS, COLUMNS, false);
    kernel_done();
    expect_golden("y", y, N);
    expect_golden("dx", dx, N);
}

/* The position table's gradient is that of a bias: kernels.h. */
TEST_CASE(embedding_is_pytorchs) {
    enum { SEQUENCES = 7, CONTEXT = 5, CHANNELS = 6, VOCABULARY = 11, ROWS = SEQUENCES * CONTEXT, N = ROWS * CHANNELS };
    kernel_golden_open("embedding_token_position");
    const int32_t *tokens = kernel_golden_tokens(ROWS);
    const float *token_table = kernel_golden("token_weight", VOCABULARY * CHANNELS),
                *position_table = kernel_golden("position_weight", CONTEXT * CHANNELS), *dy = kernel_golden("dy", N);
    float *y = kernel_floats(N), *dtable = kernel_floats(VOCABULARY * CHANNELS),
          *dposition = kernel_floats(CONTEXT * CHANNELS);
    ls_embedding_forward(kernel_stream(), LS_FP32, y, tokens, token_table, position_table, ROWS, CONTEXT, VOCABULARY,
                         CHANNELS);
    kernel_done();
    ls_embedding_backward(kernel_stream(), LS_FP32, dtable, dy, tokens, ROWS, VOCABULARY, CHANNELS, false);
    kernel_done();
    ls_bias_gradient(kernel_stream(), LS_FP32, dposition, dy, SEQUENCES, (size_t)CONTEXT * CHANNELS, false);
    kernel_done();
    expect_golden("y", y, N);
    expect_golden("dtoken_weight", dtable, VOCABULARY * CHANNELS);
    expect_golden("dposition_weight", dposition, CONTEXT * CHANNELS);
}

/* --- halves: the same in fp32, rounded once --------------------------------------------------------------------------- */

static void expect_halves(const char *what, ls_dtype dtype, const void *got, const float *wide, size_t count) {
    kernel_expect_elements(what, dtype, got, kernel_rounded(dtype, wide, count), count);
}

static void check_half_layernorm(ls_dtype dtype, size_t rows, size_t channels) {
    size_t n = rows * channels;
    struct layernorm half = make_layernorm(rows, channels, dtype, true),
                     wide = make_layernorm(rows, channels, LS_FP32, true);
    wide.x = kernel_widened(dtype, half.x, n), wide.dy = kernel_widened(dtype, half.dy, n);
    run_layernorm(&half);
    run_layernorm(&wide);
    expect_halves("layer norm's y", dtype, half.y, wide.y, n);
    expect_halves("layer norm's dx", dtype, half.dx, wide.dx, n);
    kernel_expect_same("mean", half.mean, wide.mean, rows * sizeof(float));
    kernel_expect_same("invstd", half.invstd, wide.invstd, rows * sizeof(float));
    kernel_expect_same("dgamma", half.dgamma, wide.dgamma, channels * sizeof(float));
    kernel_expect_same("dbeta", half.dbeta, wide.dbeta, channels * sizeof(float));
}

/* GELU uses the stored x, and dbias the stored dy. */
static void check_half_gelu(ls_dtype dtype, size_t rows, size_t columns) {
    size_t n = rows * columns;
    void *x = kernel_rounded(dtype, kernel_random(n, 1), n), *y = kernel_elements(dtype, n);
    void *bias = kernel_rounded(dtype, kernel_random(columns, 2), columns);
    void *dy = kernel_rounded(dtype, kernel_random(n, 3), n);
    float *sum = kernel_widened(dtype, x, n), *wide_bias = kernel_widened(dtype, bias, columns),
          *wide_y = kernel_floats(n);
    float *wide_dy = kernel_widened(dtype, dy, n), *none = kernel_floats(columns), *dbias = kernel_floats(columns);
    float *want_dbias = kernel_floats(columns);
    for (size_t i = 0; i < n; i++) sum[i] = kernel_round(dtype, sum[i] + wide_bias[i % columns]);
    for (size_t c = 0; c < columns; c++) none[c] = 0;
    ls_add_bias_gelu(kernel_stream(), dtype, y, x, bias, rows, columns);
    kernel_done();
    ls_add_bias_gelu(kernel_stream(), LS_FP32, wide_y, kernel_copy(sum, n), none, rows, columns);
    kernel_done();
    ls_gelu_bias_gradient(kernel_stream(), dtype, dbias, dy, x, rows, columns, false);
    kernel_done();
    ls_gelu_bias_gradient(kernel_stream(), LS_FP32, none, wide_dy, sum, rows, columns, false);
    kernel_done();
    ls_bias_gradient(kernel_stream(), dtype, want_dbias, dy, rows, columns, false);
    kernel_done();
    expect_halves("x", dtype, x, sum, n);
    expect_halves("GELU's y", dtype, y, wide_y, n);
    expect_halves("GELU's dy", dtype, dy, wide_dy, n);
    kernel_expect_same("dbias", dbias, want_dbias, columns * sizeof *dbias);
}

static void check_half_embedding(ls_dtype dtype, size_t rows, size_t channels) {
    enum { CONTEXT = 4, VOCABULARY = 9 };
    size_t n = rows * channels, table = VOCABULARY * channels;
    const int32_t *tokens = make_tokens(rows, VOCABULARY);
    float *token_table = kernel_random(table, 1), *position_table = kernel_random(CONTEXT * channels, 2);
    void *y = kernel_elements(dtype, n), *dy = kernel_rounded(dtype, kernel_random(n, 3), n);
    float *wide_y = kernel_floats(n), *dtable = kernel_floats(table), *want = kernel_floats(table);
    ls_embedding_forward(kernel_stream(), dtype, y, tokens, token_table, position_table, rows, CONTEXT, VOCABULARY,
                         channels);
    kernel_done();
    ls_embedding_forward(kernel_stream(), LS_FP32, wide_y, tokens, token_table, position_table, rows, CONTEXT,
                         VOCABULARY, channels);
    kernel_done();
    ls_embedding_backward(kernel_stream(), dtype, dtable, dy, tokens, rows, VOCABULARY, channels, false);
    kernel_done();
    ls_embedding_backward(kernel_stream(), LS_FP32, want, kernel_widened(dtype, dy, n), tokens, rows, VOCABULARY,
                          channels, false);
    kernel_done();
    expect_halves("embedding's y", dtype, y, wide_y, n);
    kernel_expect_same("dtable", dtable, want, table * sizeof *want);
}

TEST_CASE(halves_are_floats_rounded_once) {
    static const size_t few[][2] = {{3, 4}, {7, 33}, {5, 128}, {130, 12}};
    for (size_t i = 0; i < 2 * COUNT_OF(few); i++) {
        ls_dtype dtype = i % 2 ? LS_FP16 : LS_BF16;
        kernel_align(KERNEL_ALIGNED); /* so that a GPU sums halves and floats in the same order */
        check_half_layernorm(dtype, few[i / 2][0], few[i / 2][1]);
        check_half_gelu(dtype, few[i / 2][0], few[i / 2][1]);
        check_half_embedding(dtype, few[i / 2][0], few[i / 2][1]);
    }
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

/* The last row alone, and after others. */
TEST_CASE(a_row_has_the_same_bits_in_any_batch) {
    static const size_t few[][2] = {{9, 37}, {300, 32}, {9, 1028}};
    for (size_t i = 0; i < COUNT_OF(few); i++) {
        size_t rows = few[i][0], channels = few[i][1], last = (rows - 1) * channels;
        struct layernorm all = make_layernorm(rows, channels, LS_FP32, false),
                         one = make_layernorm(1, channels, LS_FP32, false);
        one.x = kernel_copy((float *)all.x + last, channels), one.dy = kernel_copy((float *)all.dy + last, channels);
        kernel_align(KERNEL_ALIGNED);
        run_layernorm(&all);
        run_layernorm(&one);
        kernel_expect_same("y", one.y, (float *)all.y + last, channels * sizeof(float));
        kernel_expect_same("dx", one.dx, (float *)all.dx + last, channels * sizeof(float));
        assert_true(one.mean[0] == all.mean[rows - 1] && one.invstd[0] == all.invstd[rows - 1]);
    }
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(gelu_is_its_formula),
        ROW(layernorm_is_its_formula),
        ROW(embedding_is_its_formula),
        ROW(a_token_outside_of_the_vocabulary_is_an_error),
        ROW(layernorm_is_pytorchs),
        ROW(gelu_is_pytorchs),
        ROW(embedding_is_pytorchs),
        ROW(halves_are_floats_rounded_once),
        ROW(a_row_has_the_same_bits_in_any_batch),
    };
    return RUN_EVERYWHERE("text", tests);
}
