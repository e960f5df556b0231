/* Batch norm against its formulas in double: from one value a channel and rank to several slices a channel and several
 * groups a slice of a GPU, in planes that can be read by fours and others; on one device, and as the operations for a
 * batch that is distributed over several ranks, where one process runs all of them and copies the numbers itself.
 * (Halves: test_half_layers.c.) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/kernels/batchnorm_runs.h"

/* --- the formulas, in double -------------------------------------------------------------------------------------- */

struct reference {
    double *y, *dx;
    double mean, m2, invstd, running_mean, running_var, dgamma, dbeta;
};

static size_t place(const struct batchnorm *b, size_t i, size_t c) {
    size_t plane = (size_t)b->s.plane;
    return (i / plane * b->channels + c) * plane + i % plane;
}

/* For channel c; `before` is the state before the operations have run. The ReLU's mask is read from b->y, since a value
 * that is 0 except for rounding may have either sign. */
static void refer_channel(const struct batchnorm *b, const struct batchnorm *before, size_t c, struct reference *r) {
    size_t m = (size_t)b->s.batch * (size_t)b->s.plane;
    const float *x = b->x, *y_stored = b->y, *dy = b->dy;
    double n = (double)m, gamma = (double)b->gamma[c], sums[2] = {0, 0};
    r->mean = r->m2 = 0;
    for (size_t i = 0; i < m; i++) r->mean += (double)x[place(b, i, c)] / n;
    for (size_t i = 0; i < m; i++) r->m2 += pow((double)x[place(b, i, c)] - r->mean, 2);
    r->invstd = 1 / sqrt(r->m2 / n + 1e-5);
    r->running_mean = 0.9 * (double)before->running_mean[c] + 0.1 * r->mean;
    r->running_var = 0.9 * (double)before->running_var[c] + 0.1 * r->m2 / (n - 1);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < m; i++) {
            size_t at = place(b, i, c);
            double xhat = ((double)x[at] - r->mean) * r->invstd, y = gamma * xhat + (double)b->beta[c];
            double d = b->s.relu && y_stored[at] <= 0 ? 0 : (double)dy[at];
            r->y[at] = b->s.relu && y <= 0 ? 0 : y;
            r->dx[at] = gamma * r->invstd * (d - sums[0] / n - xhat * sums[1] / n);
            sums[0] += pass == 0 ? d : 0;
            sums[1] += pass == 0 ? d * xhat : 0;
        }
    }
    r->dbeta = sums[0] + (b->accumulate ? (double)before->dbeta[c] : 0);
    r->dgamma = sums[1] + (b->accumulate ? (double)before->dgamma[c] : 0);
}

static void expect_reference(const struct batchnorm *b, const struct batchnorm *before) {
    struct reference r = {.y = calloc(b->count + 1, sizeof(double)), .dx = calloc(b->count + 1, sizeof(double))};
    assert_true(r.y && r.dx);
    double m = (double)b->s.batch * b->s.plane, terms = 100 + (m > 1000 ? 4 * m : kernel_unless_in_order(4 * m)),
           scale = 1;
    for (size_t c = 0; c < b->channels; c++) {
        refer_channel(b, before, c, &r);
        scale = fmax(scale, r.invstd * r.invstd);
        kernel_expect_sum("mean", &b->mean[c], &r.mean, 1, 16);
        kernel_expect_sum("invstd", &b->invstd[c], &r.invstd, 1, 16 * fmax(1, r.invstd * r.invstd));
        kernel_expect_sum("running_mean", &b->running_mean[c], &r.running_mean, 1, 16);
        kernel_expect_sum("running_var", &b->running_var[c], &r.running_var, 1, 16);
        kernel_expect_sum("dgamma", &b->dgamma[c], &r.dgamma, 1, terms);
        kernel_expect_sum("dbeta", &b->dbeta[c], &r.dbeta, 1, terms);
    }
    kernel_expect_sum("y", b->y, r.y, b->count, 16);
    kernel_expect_sum("dx", b->dx, r.dx, b->count, 100 * scale);
    free(r.y), free(r.dx);
}

/* --- one device, and one rank ------------------------------------------------------------------------------------- */

/* On one device, and as the operations for several ranks with a single rank: the same bits, except for dx, because with
 * ranks the sums are rounded to float. */
static void check(struct ls_batchnorm_shape s, bool accumulate) {
    struct batchnorm whole = batchnorm_make(s, 3, accumulate), piece = batchnorm_make(s, 3, accumulate);
    struct batchnorm before = batchnorm_make(s, 3, accumulate);
    size_t small = whole.channels * sizeof(float);
    assert_int_equal(batchnorm_train(&whole), LS_OK);
    assert_int_equal(batchnorm_backward(&whole), LS_OK);
    expect_reference(&whole, &before);
    assert_int_equal(batchnorm_statistics(&piece), LS_OK);
    assert_int_equal(batchnorm_merge(&piece), LS_OK);
    assert_int_equal(batchnorm_normalize(&piece), LS_OK);
    assert_int_equal(batchnorm_sums(&piece), LS_OK);
    assert_int_equal(batchnorm_input_gradient(&piece), LS_OK);
    assert_true(*piece.m == (double)s.batch * s.plane);
    kernel_expect_same("mean", piece.mean, whole.mean, small);
    kernel_expect_same("invstd", piece.invstd, whole.invstd, small);
    kernel_expect_same("running_mean", piece.running_mean, whole.running_mean, small);
    kernel_expect_same("running_var", piece.running_var, whole.running_var, small);
    kernel_expect_same("y", piece.y, whole.y, whole.count * sizeof(float));
    kernel_expect_same("dgamma", piece.dgamma, whole.dgamma, small);
    kernel_expect_same("dbeta", piece.dbeta, whole.dbeta, small);
    kernel_expect_close("dx", piece.dx, whole.dx, whole.count, 1e-6, 1e-6);
}

TEST_CASE(formulas) {
    static const int shapes[][3] = {/* batch, channels, plane */
                                    {2, 1, 1},   {4, 3, 1},   {1, 3, 50},  {3, 2, 16},   {4, 3, 33}, {7, 4, 33},
                                    {33, 5, 49}, {2, 3, 784}, {5, 1, 999}, {40, 2, 196}, {3, 300, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int turn = 0; turn < (kernel_is_on(ON_FAST_OTHERWISE) ? 2 : 4); turn++) {
            check(batchnorm_shape(shapes[i][0], shapes[i][1], shapes[i][2], turn % 2 == 0, LS_FP32), turn % 3 == 1);
        }
    }
}

/* The largest number of slices, each of several groups, by fours and one by one; and so many channels that each has one
 * slice. */
TEST_CASE(large_ones) {
    check(batchnorm_shape(5, 1, 420004, true, LS_FP32), false);
    check(batchnorm_shape(3, 1, 700003, false, LS_FP32), false);
    check(batchnorm_shape(2, 1100, 100, true, LS_FP32), false);
}

/* With the running statistics, which differ from those of the batch. */
TEST_CASE(evaluation) {
    for (int relu = 0; relu < 2; relu++) {
        struct batchnorm b = batchnorm_make(batchnorm_shape(4, 3, 33, relu, LS_FP32), 3, false);
        memcpy(b.mean, b.running_mean, b.channels * sizeof *b.mean);
        assert_int_equal(batchnorm_eval(&b), LS_OK);
        for (size_t i = 0; i < b.count; i++) {
            size_t c = i / 33 % 3;
            double invstd = 1 / sqrt((double)b.running_var[c] + 1e-5);
            double y =
                (double)b.gamma[c] * ((double)((float *)b.x)[i] - (double)b.mean[c]) * invstd + (double)b.beta[c];
            if (relu && y < 0) y = 0;
            kernel_expect_sum("y", &((float *)b.y)[i], &y, 1, 100);
        }
    }
}

/* A mean that is large compared with the deviations must not swallow them. */
TEST_CASE(far_from_zero) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(9, 2, 1000, false, LS_FP32), 1000, false);
    struct reference r = {.y = calloc(b.count, sizeof(double)), .dx = calloc(b.count, sizeof(double))};
    assert_true(r.y && r.dx);
    assert_int_equal(batchnorm_statistics(&b), LS_OK);
    for (size_t c = 0; c < b.channels; c++) {
        refer_channel(&b, &b, c, &r); /* (no ReLU: y is not read) */
        assert_true(fabs(b.statistics[c] - r.mean) <= 1e-4);
        assert_true(fabs(b.statistics[b.channels + c] - r.m2) <= 1e-5 * r.m2);
    }
    free(r.y), free(r.dx);
}

/* --- several ranks ------------------------------------------------------------------------------------------------ */

enum { MAX_RANKS = 5 };

/* The number of samples of each rank, in order. */
struct split {
    int ranks, batches[MAX_RANKS];
};

/* On one device, or a rank: running statistics that do not begin at zero. */
static struct batchnorm make_half_way(struct ls_batchnorm_shape s) {
    struct batchnorm b = batchnorm_make(s, 3, false);
    for (size_t c = 0; c < b.channels; c++) b.running_mean[c] = b.running_var[c] = 0.5f;
    return b;
}

/* Every rank merges by itself, and all must get the same bits; the last rank's are kept. */
static void merge_on_every_rank(struct batchnorm *b, const struct split *split, const double *gathered) {
    size_t nbytes = b->channels * sizeof(float);
    for (int r = 0; r < split->ranks; r++) {
        struct batchnorm own = make_half_way(b->s);
        ls_batchnorm_merge(kernel_stream(), b->s, own.mean, own.invstd, b->m, own.running_mean, own.running_var,
                           gathered, split->ranks);
        kernel_done();
        float *const got[] = {own.mean, own.invstd, own.running_mean, own.running_var};
        float **const kept[] = {&b->mean, &b->invstd, &b->running_mean, &b->running_var};
        for (int i = 0; i < 4; i++) {
            if (r > 0) kernel_expect_same("statistics", got[i], *kept[i], nbytes);
            *kept[i] = got[i];
        }
    }
}

static void run_split(struct batchnorm *b, const struct split *split) {
    ls_stream *stream = kernel_stream();
    size_t each = ls_batchnorm_statistics_count(&b->s), at = 0, starts[MAX_RANKS];
    double *gathered = kernel_bytes((size_t)split->ranks * each * sizeof *gathered);
    float *x = b->x, *dy = b->dy, *y = b->y, *dx = b->dx, *total = memset(b->sums, 0, 2 * b->channels * sizeof *total);
    struct ls_batchnorm_shape s = b->s;
    for (int r = 0; r < split->ranks; r++, at += ls_batchnorm_count(&s)) {
        s.batch = split->batches[r], starts[r] = at;
        ls_batchnorm_statistics(stream, s, gathered + (size_t)r * each, x + at);
        kernel_done();
    }
    assert_int_equal(at, b->count);
    merge_on_every_rank(b, split, gathered);
    assert_true(*b->m == (double)b->s.batch * b->s.plane);
    for (int r = 0; r < split->ranks; r++) {
        float *sums = kernel_floats(2 * b->channels);
        s.batch = split->batches[r], at = starts[r];
        ls_batchnorm_normalize(stream, s, y + at, x + at, b->gamma, b->beta, b->mean, b->invstd);
        kernel_done();
        ls_batchnorm_sums(stream, s, sums, b->dgamma, b->dbeta, dy + at, x + at, b->gamma, b->beta, b->mean, b->invstd,
                          r > 0);
        kernel_done();
        for (size_t i = 0; i < 2 * b->channels; i++) total[i] += sums[i];
    }
    for (int r = 0; r < split->ranks; r++) {
        s.batch = split->batches[r], at = starts[r];
        ls_batchnorm_input_gradient(stream, s, dx + at, dy + at, x + at, b->gamma, b->beta, b->mean, b->invstd, total,
                                    b->m);
        kernel_done();
    }
}

/* Pieces of a batch give the results of the batch on one device: the forward pass to a unit in the last place, the
 * gradients up to the rounding of the ranks' sums. */
static void check_split(struct split split, int plane, bool relu) {
    int batch = 0;
    for (int r = 0; r < split.ranks; r++) batch += split.batches[r];
    struct ls_batchnorm_shape s = batchnorm_shape(batch, 3, plane, relu, LS_FP32);
    struct batchnorm whole = make_half_way(s), pieces = make_half_way(s), before = make_half_way(s);
    assert_int_equal(batchnorm_train(&whole) | batchnorm_backward(&whole), LS_OK);
    double rtol = 2e-7 + kernel_unless_in_order(1e-7);
    run_split(&pieces, &split);
    expect_reference(&whole, &before);
    expect_reference(&pieces, &before);
    kernel_expect_close("mean", pieces.mean, whole.mean, 3, rtol, 0);
    kernel_expect_close("invstd", pieces.invstd, whole.invstd, 3, rtol, 0);
    kernel_expect_close("running_mean", pieces.running_mean, whole.running_mean, 3, rtol, 0);
    kernel_expect_close("running_var", pieces.running_var, whole.running_var, 3, rtol, 0);
    kernel_expect_close("y", pieces.y, whole.y, whole.count, 0, 3e-6);
    kernel_expect_close("dgamma", pieces.dgamma, whole.dgamma, 3, 1e-6, 1e-5);
    kernel_expect_close("dbeta", pieces.dbeta, whole.dbeta, 3, 1e-6, 1e-5);
}

TEST_CASE(pieces_are_the_whole_batch) {
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

/* One device would reject this batch; the number of values over all ranks is the criterion. */
TEST_CASE(one_value_per_channel_is_enough_on_each_of_two_ranks) {
    for (int relu = 0; relu < 2; relu++) {
        check_split((struct split){2, {1, 1}}, 1, relu);
        check_split((struct split){3, {1, 0, 1}}, 1, relu);
        check_split((struct split){5, {1, 1, 1, 1, 1}}, 1, relu);
    }
}

TEST_CASE(sums_accumulate_in_the_gradients_only) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(4, 3, 9, true, LS_FP32), 3, false);
    assert_int_equal(batchnorm_train(&b) | batchnorm_sums(&b), LS_OK);
    float *first = kernel_copy(b.sums, 6);
    b.accumulate = true;
    assert_int_equal(batchnorm_sums(&b), LS_OK);
    kernel_expect_same("sums", b.sums, first, 6 * sizeof(float));
    for (int c = 0; c < 3; c++) {
        assert_true(b.dbeta[c] == 2 * first[c] && b.dgamma[c] == 2 * first[3 + c] && b.dbeta[c] != 0);
    }
}

TEST_CASE(dx_may_take_the_place_of_dy) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(4, 3, 33, true, LS_FP32), 3, false);
    assert_int_equal(batchnorm_train(&b) | batchnorm_backward(&b), LS_OK); /* in place */
    float *dx = kernel_floats(b.count), *dy = kernel_copy(b.dy, b.count);
    ls_batchnorm_backward(kernel_stream(), b.s, dx, b.dgamma, b.dbeta, dy, b.x, b.gamma, b.beta, b.mean, b.invstd,
                          false);
    kernel_done();
    kernel_expect_same("dx", b.dx, dx, b.count * sizeof *dx);
    *b.m = 4 * 33;
    assert_int_equal(batchnorm_sums(&b) | batchnorm_input_gradient(&b), LS_OK);
    ls_batchnorm_input_gradient(kernel_stream(), b.s, dy, dy, b.x, b.gamma, b.beta, b.mean, b.invstd, b.sums, b.m);
    kernel_done();
    kernel_expect_same("the input gradient", dy, b.dx, b.count * sizeof *dx);
}

/* --- too few values ----------------------------------------------------------------------------------------------- */

/* A rank without samples adds nothing. */
TEST_CASE(an_empty_batch) {
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct ls_batchnorm_shape s = batchnorm_shape(0, 3, 5, true, LS_FP32);
        struct batchnorm b = batchnorm_make(s, 0, accumulate), before = batchnorm_make(s, 0, accumulate);
        for (size_t c = 0; c < b.channels; c++) b.mean[c] = b.invstd[c] = 1;
        *b.m = 2;
        assert_int_equal(batchnorm_statistics(&b), LS_OK);
        for (size_t i = 0; i < ls_batchnorm_statistics_count(&b.s); i++) assert_true(b.statistics[i] == 0);
        assert_int_equal(batchnorm_merge(&b), LS_OK); /* no other rank does either: the statistics stay */
        assert_true(*b.m == 0);
        for (size_t c = 0; c < b.channels; c++) assert_true(b.mean[c] == 1 && b.invstd[c] == 1);
        kernel_expect_same("running_mean", b.running_mean, before.running_mean, b.channels * sizeof(float));
        kernel_expect_same("running_var", b.running_var, before.running_var, b.channels * sizeof(float));
        assert_int_equal(batchnorm_normalize(&b) | batchnorm_sums(&b), LS_OK);
        for (size_t i = 0; i < 2 * b.channels; i++) assert_true(b.sums[i] == 0);
        assert_int_equal(batchnorm_input_gradient(&b) | batchnorm_backward(&b), LS_OK);
        for (size_t c = 0; c < b.channels; c++) {
            assert_true(b.dgamma[c] == (accumulate ? before.dgamma[c] : 0));
            assert_true(b.dbeta[c] == (accumulate ? before.dbeta[c] : 0));
        }
    }
}

TEST_CASE(one_value_is_an_error) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(1, 2, 1, false, LS_FP32), 0, false);
    assert_int_equal(batchnorm_train(&b), LS_ERR_INVALID);
    scratch_expect_error("more than one value per channel", "this batch has 1");
}

/* A GPU detects this only while it runs: the host gets the error when it waits. */
TEST_CASE(one_value_over_all_ranks_is_an_error) {
    static const int channels[] = {3, 300};
    for (int i = 0; i < 2; i++) {
        struct ls_batchnorm_shape s = batchnorm_shape(1, channels[i], 1, false, LS_FP32), none = s;
        struct batchnorm b = batchnorm_make(s, 0, false), before = batchnorm_make(s, 0, false);
        size_t each = ls_batchnorm_statistics_count(&s), small = b.channels * sizeof(float);
        double *gathered = kernel_bytes(2 * each * sizeof *gathered);
        none.batch = 0;
        ls_batchnorm_statistics(kernel_stream(), s, gathered, b.x);
        kernel_done();
        ls_batchnorm_statistics(kernel_stream(), none, gathered + each, b.x);
        kernel_done();
        ls_batchnorm_merge(kernel_stream(), s, b.mean, b.invstd, b.m, b.running_mean, b.running_var, gathered, 2);
        assert_int_equal(ls_stream_synchronize(kernel_stream()), LS_ERR_INVALID);
        scratch_expect_error("more than one value per channel", "this batch has 1");
        kernel_expect_same("running_mean", b.running_mean, before.running_mean, small);
        kernel_expect_same("running_var", b.running_var, before.running_var, small);
    }
}

/* The lane's scratch memory limits the channels. */
TEST_CASE(too_many_channels_are_an_error) {
    struct batchnorm b = batchnorm_make(batchnorm_shape(2, 300000, 1, false, LS_FP32), 0, false);
    assert_int_equal(batchnorm_train(&b), LS_ERR_UNSUPPORTED);
    scratch_expect_error("batchnorm_train of 300000 channels", "room for 262144");
}

int main(void) {
    static const struct kernel_test tests[] = {
        ROW(formulas),
        ROW_ON(ON_FAST, large_ones),
        ROW(evaluation),
        ROW(far_from_zero),
        ROW_ON(EACH_ONCE, pieces_are_the_whole_batch),
        ROW(one_value_per_channel_is_enough_on_each_of_two_ranks),
        ROW(sums_accumulate_in_the_gradients_only),
        ROW(dx_may_take_the_place_of_dy),
        ROW(an_empty_batch),
        ROW(one_value_is_an_error),
        ROW(one_value_over_all_ranks_is_an_error),
        ROW_ON(ON_FAST, too_many_channels_are_an_error),
    };
    return RUN_EVERYWHERE("batch norm", tests);
}
