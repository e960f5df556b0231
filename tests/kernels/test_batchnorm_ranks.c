/* Batch norm whose batch lies on several ranks, as operations with nothing between them: here one process plays all
 * ranks and moves the numbers itself. Against a reference in double over the whole batch, and against the operations
 * for one device. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/kernels/fixture.h"

enum { CHANNELS = 3, MAX_RANKS = 5, RUNNING_MEAN = 2 * CHANNELS, RUNNING_VAR = 3 * CHANNELS };

/* A batch and what becomes of it: computed whole, or rank by rank. statistics = mean, invstd, running mean, running
 * var. */
struct pass {
    struct ls_batchnorm_shape s;
    size_t count;
    float *y, *dx, *statistics, *dgamma, *dbeta;
};

/* What both ways start from. */
struct data {
    float *x, *dy, *gamma, *beta;
};

static struct pass make_pass(int batch, int plane, bool relu) {
    struct pass p = {.s = {batch, CHANNELS, plane, 0.1f, 1e-5f, relu, LS_FP32}};
    p.count = ls_batchnorm_count(&p.s);
    p.y = kernel_floats(p.count);
    p.dx = kernel_floats(p.count);
    p.statistics = kernel_floats(4 * CHANNELS);
    p.dgamma = kernel_floats(CHANNELS);
    p.dbeta = kernel_floats(CHANNELS);
    for (int i = RUNNING_MEAN; i < 4 * CHANNELS; i++) p.statistics[i] = 0.5f;
    return p;
}

/* Far from zero: there, squares of values instead of deviations would cancel. */
static struct data make_data(size_t count) {
    struct data d = {kernel_random(count, 1), kernel_random(count, 2), kernel_random(CHANNELS, 3),
                     kernel_random(CHANNELS, 4)};
    for (size_t i = 0; i < count; i++) d.x[i] += 3;
    return d;
}

static void run_whole(struct pass *p, const struct data *d) {
    float *mean = p->statistics, *invstd = mean + CHANNELS;
    ls_batchnorm_train(kernel_stream(), p->s, p->y, d->x, d->gamma, d->beta, mean, invstd, p->statistics + RUNNING_MEAN,
                       p->statistics + RUNNING_VAR);
    kernel_done();
    ls_batchnorm_backward(kernel_stream(), p->s, p->dx, p->dgamma, p->dbeta, d->dy, d->x, d->gamma, d->beta, mean,
                          invstd, false);
    kernel_done();
}

/* --- rank by rank ------------------------------------------------------------------------------------------------ */

/* `batches` says how many samples each rank has, in order. */
struct split {
    int ranks, batches[MAX_RANKS];
};

/* Every rank merges for itself, and all must come to the same bits; the last one's are kept. */
static void merge_on_every_rank(struct pass *p, const struct split *split, const double *gathered, double *count) {
    for (int r = 0; r < split->ranks; r++) {
        float *own = kernel_floats(4 * CHANNELS);
        for (int i = RUNNING_MEAN; i < 4 * CHANNELS; i++) own[i] = 0.5f;
        ls_batchnorm_merge(kernel_stream(), p->s, own, own + CHANNELS, count, own + RUNNING_MEAN, own + RUNNING_VAR,
                           gathered, split->ranks);
        kernel_done();
        if (r > 0) kernel_expect_same("statistics", own, p->statistics, 4 * CHANNELS * sizeof *own);
        memcpy(p->statistics, own, 4 * CHANNELS * sizeof *own);
    }
}

static void run_split(struct pass *p, const struct data *d, const struct split *split) {
    ls_stream *stream = kernel_stream();
    size_t each = ls_batchnorm_statistics_count(&p->s), image = (size_t)(CHANNELS * p->s.plane);
    double *gathered = kernel_bytes((size_t)split->ranks * each * sizeof *gathered),
           *count = kernel_bytes(sizeof *count);
    float *mean = p->statistics, *invstd = mean + CHANNELS, *total = kernel_floats(2 * CHANNELS);
    struct ls_batchnorm_shape s = p->s;
    size_t at = 0;
    for (int r = 0; r < split->ranks; r++, at += (size_t)s.batch * image) {
        s.batch = split->batches[r];
        ls_batchnorm_statistics(stream, s, gathered + (size_t)r * each, d->x + at);
        kernel_done();
    }
    assert_int_equal(at, p->count);
    merge_on_every_rank(p, split, gathered, count);
    assert_true(*count == (double)p->s.batch * p->s.plane);
    memset(total, 0, 2 * CHANNELS * sizeof *total);
    at = 0;
    for (int r = 0; r < split->ranks; r++, at += (size_t)s.batch * image) {
        float *sums = kernel_floats(2 * CHANNELS);
        s.batch = split->batches[r];
        ls_batchnorm_normalize(stream, s, p->y + at, d->x + at, d->gamma, d->beta, mean, invstd);
        kernel_done();
        ls_batchnorm_sums(stream, s, sums, p->dgamma, p->dbeta, d->dy + at, d->x + at, d->gamma, d->beta, mean, invstd,
                          r > 0);
        kernel_done();
        for (int i = 0; i < 2 * CHANNELS; i++) total[i] += sums[i];
    }
    at = 0;
    for (int r = 0; r < split->ranks; r++, at += (size_t)s.batch * image) {
        s.batch = split->batches[r];
        ls_batchnorm_input_gradient(stream, s, p->dx + at, d->dy + at, d->x + at, d->gamma, d->beta, mean, invstd,
                                    total, count);
        kernel_done();
    }
}

/* --- the reference ------------------------------------------------------------------------------------------------ */

static void expect_reference(const struct pass *p, const struct data *d) {
    int plane = p->s.plane, m = p->s.batch * plane;
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, m2 = 0, dbeta = 0, dgamma = 0, gamma = (double)d->gamma[c];
#define PLACE(i) ((size_t)(((i) / plane * CHANNELS + c) * plane + (i) % plane))
        for (int i = 0; i < m; i++) mean += (double)d->x[PLACE(i)] / m;
        for (int i = 0; i < m; i++) m2 += pow((double)d->x[PLACE(i)] - mean, 2);
        double invstd = 1 / sqrt(m2 / m + 1e-5);
        double want[] = {mean, invstd, 0.9 * 0.5 + 0.1 * mean, 0.9 * 0.5 + 0.1 * m2 / (m - 1)};
        for (int i = 0; i < 4; i++) {
            kernel_expect_sum("statistics", &p->statistics[i * CHANNELS + c], &want[i], 1, 16 * want[i] * want[i]);
        }
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < m; i++) {
                double xhat = ((double)d->x[PLACE(i)] - mean) * invstd, y = gamma * xhat + (double)d->beta[c];
                bool passes = !p->s.relu || y > 0;
                double dy = passes ? (double)d->dy[PLACE(i)] : 0, out = passes ? y : 0;
                double dx = gamma * invstd * (dy - dbeta / m - xhat * dgamma / m);
                if (pass == 1) {
                    kernel_expect_sum("y", &p->y[PLACE(i)], &out, 1, 100);
                    kernel_expect_sum("dx", &p->dx[PLACE(i)], &dx, 1, 100 * (1 + invstd * invstd));
                }
                dbeta += pass == 0 ? dy : 0;
                dgamma += pass == 0 ? dy * xhat : 0;
            }
        }
#undef PLACE
        kernel_expect_sum("dgamma", &p->dgamma[c], &dgamma, 1, 100);
        kernel_expect_sum("dbeta", &p->dbeta[c], &dbeta, 1, 100);
    }
}

/* Pieces of a batch give what the batch gives on one device: the forward pass to a unit in the last place, the
 * gradients to the rounding of the ranks' sums. */
static void check_split(struct split split, int plane, bool relu) {
    int batch = 0;
    for (int r = 0; r < split.ranks; r++) batch += split.batches[r];
    struct pass whole = make_pass(batch, plane, relu), pieces = make_pass(batch, plane, relu);
    struct data d = make_data(whole.count);
    run_whole(&whole, &d);
    run_split(&pieces, &d, &split);
    expect_reference(&whole, &d);
    expect_reference(&pieces, &d);
    kernel_expect_close("statistics", pieces.statistics, whole.statistics, 4 * CHANNELS, 2e-7, 0);
    kernel_expect_close("y", pieces.y, whole.y, whole.count, 0, 3e-6);
    kernel_expect_close("dgamma", pieces.dgamma, whole.dgamma, CHANNELS, 1e-6, 1e-5);
    kernel_expect_close("dbeta", pieces.dbeta, whole.dbeta, CHANNELS, 1e-6, 1e-5);
}

static void pieces_are_the_whole_batch(void **state) {
    (void)state;
    static const int planes[] = {1, 2, 7, 16, 33};
    static const struct split splits[] = {
        {1, {4}}, {2, {2, 2}}, {2, {3, 1}}, {3, {3, 3, 2}}, {4, {3, 3, 3, 0}}, {5, {0, 2, 0, 3, 0}}, {3, {0, 0, 4}},
    };
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        for (int j = 0; j < 5; j++) {
            check_split(splits[i], planes[j], false);
            check_split(splits[i], planes[j], true);
        }
    }
}

/* On one device that would be refused; what counts is the number of values over all ranks. */
static void one_value_per_channel_is_enough_on_each_of_two_ranks(void **state) {
    (void)state;
    for (int relu = 0; relu < 2; relu++) {
        check_split((struct split){2, {1, 1}}, 1, relu);
        check_split((struct split){3, {1, 0, 1}}, 1, relu);
        check_split((struct split){5, {1, 1, 1, 1, 1}}, 1, relu);
    }
}

/* One rank alone goes through the same arithmetic as the operations for one device: the same bits, not only close
 * ones. */
static void a_single_piece_has_the_bits_of_the_plain_operations(void **state) {
    (void)state;
    struct pass whole = make_pass(5, 33, true), piece = make_pass(5, 33, true);
    struct data d = make_data(whole.count);
    run_whole(&whole, &d);
    run_split(&piece, &d, &(struct split){1, {5}});
    kernel_expect_same("statistics", piece.statistics, whole.statistics, 4 * CHANNELS * sizeof(float));
    kernel_expect_same("y", piece.y, whole.y, whole.count * sizeof(float));
    kernel_expect_same("dgamma", piece.dgamma, whole.dgamma, CHANNELS * sizeof(float));
    kernel_expect_same("dbeta", piece.dbeta, whole.dbeta, CHANNELS * sizeof(float));
    kernel_expect_close("dx", piece.dx, whole.dx, whole.count, 1e-6, 1e-7); /* there, the sums stay in double */
}

/* One is refused; none, which is what all ranks' shares of a micro-batch may be, changes nothing. */
static void too_few_values_over_all_ranks_leave_no_trace(void **state) {
    (void)state;
    struct pass p = make_pass(1, 1, false);
    struct data d = make_data(p.count);
    double *gathered = kernel_bytes(2 * 7 * sizeof *gathered), *count = kernel_bytes(sizeof *count);
    for (int values = 0; values < 2; values++) {
        p.s.batch = values;
        ls_batchnorm_statistics(kernel_stream(), p.s, gathered, d.x);
        kernel_done();
        p.s.batch = 0;
        ls_batchnorm_statistics(kernel_stream(), p.s, gathered + 7, d.x);
        kernel_done();
        ls_batchnorm_merge(kernel_stream(), p.s, p.statistics, p.statistics + CHANNELS, count,
                           p.statistics + RUNNING_MEAN, p.statistics + RUNNING_VAR, gathered, 2);
        ls_status done = ls_stream_synchronize(kernel_stream());
        assert_true(values == 1 ? done == LS_ERR_INVALID : done == LS_OK && *count == 0);
        if (done != LS_OK) scratch_expect_error("more than one value per channel", "this batch has 1");
        for (int i = RUNNING_MEAN; i < 4 * CHANNELS; i++) assert_true(p.statistics[i] == 0.5f);
    }
}

static void sums_accumulate_in_the_gradients_only(void **state) {
    (void)state;
    struct pass p = make_pass(4, 9, true);
    struct data d = make_data(p.count);
    float *sums[2] = {kernel_floats(2 * CHANNELS), kernel_floats(2 * CHANNELS)};
    run_whole(&p, &d);
    for (int again = 0; again < 2; again++) {
        ls_batchnorm_sums(kernel_stream(), p.s, sums[again], p.dgamma, p.dbeta, d.dy, d.x, d.gamma, d.beta,
                          p.statistics, p.statistics + CHANNELS, again);
        kernel_done();
    }
    kernel_expect_same("sums", sums[1], sums[0], 2 * CHANNELS * sizeof(float));
    for (int c = 0; c < CHANNELS; c++) {
        assert_true(p.dbeta[c] == 2 * sums[0][c] && p.dgamma[c] == 2 * sums[0][CHANNELS + c] && p.dbeta[c] != 0);
    }
}

static void the_input_gradient_may_take_the_place_of_dy(void **state) {
    (void)state;
    struct pass p = make_pass(4, 33, true);
    struct data d = make_data(p.count);
    double count = 4 * 33;
    float *sums = kernel_random(2 * CHANNELS, 5), *dy = kernel_copy(d.dy, p.count);
    run_whole(&p, &d);
    float *statistics = p.statistics;
    ls_batchnorm_input_gradient(kernel_stream(), p.s, p.dx, dy, d.x, d.gamma, d.beta, statistics, statistics + CHANNELS,
                                sums, &count);
    kernel_done();
    ls_batchnorm_input_gradient(kernel_stream(), p.s, dy, dy, d.x, d.gamma, d.beta, statistics, statistics + CHANNELS,
                                sums, &count);
    kernel_done();
    kernel_expect_same("dx", dy, p.dx, p.count * sizeof(float));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kernel_setup, kernel_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(pieces_are_the_whole_batch),
        TEST(one_value_per_channel_is_enough_on_each_of_two_ranks),
        TEST(a_single_piece_has_the_bits_of_the_plain_operations),
        TEST(too_few_values_over_all_ranks_leave_no_trace),
        TEST(sums_accumulate_in_the_gradients_only),
        TEST(the_input_gradient_may_take_the_place_of_dy),
    };
    return cmocka_run_group_tests_name("batchnorm_ranks", tests, NULL, NULL);
}
