/* fit: exact data of each law are recovered, figures computed by hand, and data that determine no law. */
#include <math.h>

#include "labs/replay/engine/fit.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"

/* The course's figures. */
static const struct ls_fit_point course_ddp[] = {{1, 100}, {2, 52}, {4, 28}, {8, 15}};
static const struct ls_fit_point course_dp[] = {{1, 100}, {2, 60}, {4, 40}, {8, 30}};

static void expect_near(double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("%.17g is not %.17g to %g", got, wanted, tolerance);
}

/* The fit of one law by ls_fit_all; LS_ERR_INVALID if there is none. */
static ls_status fit_law(struct ls_fit *fit, ls_law law, const struct ls_fit_point *points, size_t count) {
    struct ls_fit fits[LS_LAW_COUNT];
    size_t fit_count = 0;
    ls_status status = ls_fit_all(fits, &fit_count, points, count);
    for (size_t i = 0; i < fit_count; i++) {
        if (fits[i].law != law) continue;
        *fit = fits[i];
        return LS_OK;
    }
    return status == LS_OK ? LS_ERR_INVALID : status;
}

/* --- exact data ---- */

/* T_N by the laws' formulas, not as fit.c computes them. */
static double law_ms(ls_law law, bool weak, double n) {
    double t1 = 80, a = 1.5, b = 0.75, s = 0.125, first = weak ? t1 : t1 / n;
    if (n == 1) return t1;
    switch (law) {
    case LS_LAW_CONSTANT: return first + a;
    case LS_LAW_RING: return first + a + b * (n - 1) / n;
    case LS_LAW_LINEAR: return first + a + b * (n - 1);
    case LS_LAW_LOGARITHM: return first + a + b * log2(n);
    case LS_LAW_AMDAHL: return t1 * (s + (1 - s) / n);
    default: return first;
    }
}

static void expect_coefficients(const struct ls_fit *fit) {
    expect_near(fit->t1_ms, 80, 1e-9);
    expect_near(fit->a_ms, fit->law == LS_LAW_AMDAHL ? 0.125 : fit->coefficients > 1 ? 1.5 : 0, 1e-9);
    expect_near(fit->b_ms, fit->coefficients > 2 ? 0.75 : 0, 1e-9);
    expect_near(fit->rms_ms, 0, 1e-9);
    expect_near(fit->left_out_ms, 0, 1e-9);
    expect_near(fit->r_squared, fit->weak && fit->law == LS_LAW_NONE ? fit->r_squared : 1, 1e-12);
}

TEST(test_exact_data_give_their_coefficients_back) {
    static const int ns[] = {1, 2, 3, 4, 6, 8, 16};
    for (int law = 0; law < LS_LAW_COUNT; law++) {
        struct ls_fit_point points[COUNT_OF(ns)];
        struct ls_fit fit;
        for (size_t i = 0; i < COUNT_OF(ns); i++)
            points[i] = (struct ls_fit_point){ns[i], law_ms((ls_law)law, false, ns[i])};
        assert_int_equal(fit_law(&fit, (ls_law)law, points, COUNT_OF(ns)), LS_OK);
        assert_int_equal(fit.law, law);
        assert_int_equal(fit.points, 7);
        expect_coefficients(&fit);
        for (size_t i = 0; i < COUNT_OF(ns); i++) expect_near(fit.residual_ms[i], 0, 1e-9);
        expect_near(ls_fit_ms(&fit, 64), law_ms((ls_law)law, false, 64), 1e-9);
    }
}

static void expect_chosen(ls_law law, bool weak, double unit) {
    static const int ns[] = {1, 2, 3, 4, 6, 8, 16};
    struct ls_fit_point points[COUNT_OF(ns)];
    struct ls_fit fits[LS_LAW_COUNT];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(ns); i++) points[i] = (struct ls_fit_point){ns[i], law_ms(law, weak, ns[i]) * unit};
    if (weak) {
        assert_int_equal(ls_fit_weak(fits, &count, points, COUNT_OF(ns)), LS_OK);
    } else {
        assert_int_equal(ls_fit_all(fits, &count, points, COUNT_OF(ns)), LS_OK);
    }
    assert_int_equal(count, weak ? LS_LAW_COUNT - 1 : LS_LAW_COUNT);
    assert_int_equal(fits[0].law, law);
    assert_int_equal(fits[0].weak, weak);
    if (unit == 1) expect_coefficients(&fits[0]);
}

/* A law that can equal another (a ring without b is constant) must not be chosen over the one with fewer coefficients,
 * although rounding may favour it; hence the many units. */
TEST(test_the_law_that_made_the_data_is_chosen) {
    for (int weak = 0; weak < 2; weak++)
        for (int law = 0; law < LS_LAW_COUNT; law++)
            for (int i = 0; i < 32; i++)
                if (!(weak && law == LS_LAW_AMDAHL)) expect_chosen((ls_law)law, weak, 1 + i / 64.0);
}

/* A thousand times as long, or a thousandth: the columns' scale does not matter. */
TEST(test_units_do_not_matter) {
    for (int power = -6; power <= 6; power += 3) {
        double unit = pow(10, power);
        struct ls_fit_point points[4];
        struct ls_fit fit;
        for (size_t i = 0; i < 4; i++) points[i] = (struct ls_fit_point){course_ddp[i].n, course_ddp[i].ms * unit};
        assert_int_equal(fit_law(&fit, LS_LAW_LOGARITHM, points, 4), LS_OK);
        struct ls_fit plain;
        assert_int_equal(fit_law(&plain, LS_LAW_LOGARITHM, course_ddp, 4), LS_OK);
        expect_near(fit.b_ms / unit, plain.b_ms, 1e-12);
        expect_near(fit.left_out_ms / unit, plain.left_out_ms, 1e-12);
        expect_near(fit.half_efficiency_n, plain.half_efficiency_n, 1e-6);
    }
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

/* Constant law, course's DDP. Columns u = (1, 1/2, 1/4, 1/8) and v = (0, 1, 1, 1), t = (100, 52, 28, 15):
 *     uu = 85/64, uv = 7/8, vv = 3, ut = 100 + 26 + 7 + 15/8 = 134.875, vt = 95
 *     D = uu vv - uv^2 = 255/64 - 49/64 = 206/64
 *     T1 = (vv ut - uv vt) / D = (404.625 - 83.125) 64/206 = 321.5 * 64/206
 *     a  = (uu vt - uv ut) / D = (126.171875 - 118.015625) 64/206 = 8.15625 * 64/206
 * residuals r = t - T1 u - a v, s^2 = rr / 2, errors^2 = s^2 vv / D and s^2 uu / D. */
TEST(test_a_regression_worked_out_by_hand) {
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_CONSTANT, course_ddp, 4), LS_OK);
    double t1 = 321.5 * 64 / 206, a = 8.15625 * 64 / 206, squares = 0;
    expect_near(fit.t1_ms, t1, 1e-11);
    expect_near(fit.a_ms, a, 1e-11);
    expect_near(fit.b_ms, 0, 0);
    for (int i = 0; i < 4; i++) {
        double residual = course_ddp[i].ms - t1 / course_ddp[i].n - (i > 0 ? a : 0);
        expect_near(fit.residual_ms[i], residual, 1e-11);
        squares += residual * residual;
    }
    expect_near(fit.rms_ms, sqrt(squares / 4), 1e-11);
    expect_near(fit.t1_error_ms, sqrt(squares / 2 * 3 * 64 / 206), 1e-11);
    expect_near(fit.a_error_ms, sqrt(squares / 2 * (85.0 / 64) * 64 / 206), 1e-11);
    expect_near(fit.b_error_ms, 0, 0);
    /* mean 48.75; about it 51.25^2 + 3.25^2 + 20.75^2 + 33.75^2 = 4206.75 */
    expect_near(fit.r_squared, 1 - squares / 4206.75, 1e-12);
    /* N Tcomm = T1: N = T1 / a */
    expect_near(fit.half_efficiency_n, t1 / a, 1e-8);
}

/* Three points, the law without communication: T1 from (100, 60, 40) at 1/N is sum(t/N) / sum(1/N^2). */
TEST(test_leave_one_out_by_hand) {
    static const struct ls_fit_point points[] = {{1, 100}, {2, 60}, {4, 40}};
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_NONE, points, 3), LS_OK);
    expect_near(fit.t1_ms, (100 + 30 + 10) / (1 + 0.25 + 0.0625), 1e-10);
    double without_2 = (100 + 10) / 1.0625, without_4 = (100 + 30) / 1.25; /* N = 1 is never left out */
    double errors[] = {60 - without_2 / 2, 40 - without_4 / 4};
    expect_near(fit.left_out_ms, sqrt((errors[0] * errors[0] + errors[1] * errors[1]) / 2), 1e-10);
}

/* Points of the same N are left out together: with one of them kept, the error would be nearly 0. */
TEST(test_points_of_one_n_are_left_out_together) {
    static const struct ls_fit_point points[] = {{1, 100}, {4, 40}, {4, 42}};
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_NONE, points, 3), LS_OK);
    expect_near(fit.left_out_ms, sqrt((15.0 * 15 + 17 * 17) / 2), 1e-10);
    assert_int_equal(fit_law(&fit, LS_LAW_CONSTANT, points, 3), LS_OK);
    expect_near(fit.a_ms, 16, 1e-10);
    assert_true(isnan(fit.left_out_ms));
}

TEST(test_amdahls_share_and_its_error) {
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_AMDAHL, course_dp, 4), LS_OK);
    expect_near(fit.t1_ms, 100, 1e-10); /* 100, 60, 40, 30 is exactly Amdahl's law with a serial fifth */
    expect_near(fit.a_ms, 0.2, 1e-12);
    expect_near(fit.half_efficiency_n, 6, 1e-9); /* 1 + 1 / s */
    /* the share is c / T1; its error is checked by moving the points */
    static const struct ls_fit_point noisy[] = {{1, 101}, {2, 59}, {4, 41}, {8, 30}};
    assert_int_equal(fit_law(&fit, LS_LAW_AMDAHL, noisy, 4), LS_OK);
    double squares = 4 * fit.rms_ms * fit.rms_ms, variance = 0, step = 1e-4;
    for (int i = 0; i < 4; i++) { /* by differences: the variance of s is s^2 times the sum of (ds / dt_i)^2 */
        struct ls_fit_point moved[4] = {noisy[0], noisy[1], noisy[2], noisy[3]};
        struct ls_fit other;
        moved[i].ms += step;
        assert_int_equal(fit_law(&other, LS_LAW_AMDAHL, moved, 4), LS_OK);
        variance += (other.a_ms - fit.a_ms) / step * (other.a_ms - fit.a_ms) / step * squares / 2;
    }
    expect_near(fit.a_error_ms, sqrt(variance), 1e-6 * sqrt(variance) + 1e-9);
}

/* The errors of a law with three coefficients, by differences as above. */
TEST(test_standard_errors_are_what_moved_points_move) {
    static const struct ls_fit_point points[] = {{1, 100}, {2, 53}, {4, 27}, {8, 16}, {16, 9.5}, {16, 10}};
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_LOGARITHM, points, 6), LS_OK);
    double variance = 6 * fit.rms_ms * fit.rms_ms / 3, t1 = 0, a = 0, b = 0; /* 6 - 3 degrees of freedom */
    for (int i = 0; i < 6; i++) {
        struct ls_fit_point moved[6];
        struct ls_fit other;
        for (int k = 0; k < 6; k++) moved[k] = points[k];
        moved[i].ms += 1; /* the coefficients are linear in the times */
        assert_int_equal(fit_law(&other, LS_LAW_LOGARITHM, moved, 6), LS_OK);
        t1 += (other.t1_ms - fit.t1_ms) * (other.t1_ms - fit.t1_ms);
        a += (other.a_ms - fit.a_ms) * (other.a_ms - fit.a_ms);
        b += (other.b_ms - fit.b_ms) * (other.b_ms - fit.b_ms);
    }
    expect_near(fit.t1_error_ms, sqrt(variance * t1), 1e-9);
    expect_near(fit.a_error_ms, sqrt(variance * a), 1e-9);
    expect_near(fit.b_error_ms, sqrt(variance * b), 1e-9);
}

/* --- where efficiency is one half ---- */

TEST(test_half_efficiency_in_closed_form) {
    static const struct {
        ls_law law;
        struct ls_fit_point points[3];
        double n;
    } cases[] = {
        /* N (a + b (N - 1) / N) = T1: N = (T1 + b) / (a + b) */
        {LS_LAW_RING, {{1, 60}, {2, 30 + 2 + 2}, {4, 15 + 2 + 3}}, 64.0 / 6},
        /* b N^2 + (a - b) N = T1, here N^2 + 2 N = 80 */
        {LS_LAW_LINEAR, {{1, 80}, {2, 40 + 3 + 1}, {4, 20 + 3 + 3}}, 8},
        /* N (a + b log2 N) = T1, here N (1 + log2 N) = 32 */
        {LS_LAW_LOGARITHM, {{1, 32}, {2, 16 + 1 + 1}, {4, 8 + 1 + 2}}, 8},
        /* 3.2 N - N^2 / 10 = 20 has two solutions, the first of which counts: 16 - sqrt(56) */
        {LS_LAW_LINEAR, {{1, 20}, {2, 10 + 3.0}, {4, 5 + 2.8}}, 16 - 7.4833147735478827},
        {LS_LAW_CONSTANT, {{1, 10}, {2, 5 + 12}, {4, 2.5 + 12}}, 1},
        {LS_LAW_CONSTANT, {{1, 10}, {2, 5}, {4, 2.5}}, INFINITY},
        {LS_LAW_NONE, {{1, 10}, {2, 5}, {4, 2.5}}, INFINITY},
        {LS_LAW_CONSTANT, {{1, 1e9}, {2, 5e8 + 2}, {4, 2.5e8 + 2}}, 5e8},
        {LS_LAW_CONSTANT, {{1, 1e9}, {2, 5e8 + 0.5}, {4, 2.5e8 + 0.5}}, INFINITY}, /* 2e9: too far */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct ls_fit fit;
        assert_int_equal(fit_law(&fit, cases[i].law, cases[i].points, 3), LS_OK);
        if (isinf(cases[i].n)) {
            if (!isinf(fit.half_efficiency_n)) fail_msg("case %zu: N = %g", i, fit.half_efficiency_n);
        } else {
            expect_near(fit.half_efficiency_n, cases[i].n, cases[i].n == 1 ? 0 : 1e-7 * cases[i].n);
            if (cases[i].n > 1) expect_near(ls_fit_efficiency(&fit, fit.half_efficiency_n), 0.5, 1e-9);
        }
    }
}

/* Without N = 1 the constant law and Amdahl's are the same, T1 (1 - s) / N + T1 s: rounding must not choose between
 * them. */
TEST(test_equal_laws_are_in_order) {
    static const struct ls_fit_point points[][4] = {
        {{6, 92.3258}, {1000000, 117.515}, {2, 55.4041}, {1000000, 63.9841}},
        {{4, 74.4954}, {5, 136.646}, {2, 53.6738}, {3, 156.266}},
        {{7, 162.988}, {16, 120.927}, {1000, 83.4711}, {64, 104.163}}};
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        struct ls_fit fits[LS_LAW_COUNT];
        size_t count = 0;
        assert_int_equal(ls_fit_all(fits, &count, points[i], 4), LS_OK);
        for (size_t k = 1; k < count; k++) {
            assert_int_not_equal(fits[k].law, LS_LAW_CONSTANT);
            if (fits[k].law == LS_LAW_AMDAHL) expect_near(fits[k].left_out_ms, fits[0].left_out_ms, 1e-9);
        }
    }
}

/* --- data that determine too little ---- */

TEST_IN(scratch, test_too_few_points_are_refused) {
    static const struct ls_fit_point twice[] = {{2, 50}, {2, 51}, {2, 52}};
    static const struct ls_fit_point without_one[] = {{2, 52}, {4, 28}, {8, 15}, {16, 9}};
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_NONE, twice, 3), LS_OK);
    expect_near(fit.t1_ms, 102, 1e-10);
    assert_int_equal(fit_law(&fit, LS_LAW_CONSTANT, twice, 3), LS_ERR_INVALID);
    assert_int_equal(fit_law(&fit, LS_LAW_RING, without_one, 4), LS_ERR_INVALID);
    assert_int_equal(fit_law(&fit, LS_LAW_LINEAR, without_one, 4), LS_OK);
    assert_int_equal(fit_law(&fit, LS_LAW_LINEAR, course_ddp, 2), LS_ERR_INVALID);
    assert_int_equal(fit_law(&fit, LS_LAW_NONE, course_ddp, 0), LS_ERR_INVALID);
    scratch_expect_error("there are 0", NULL);
    static const struct ls_fit_point many[LS_FIT_MAX_POINTS + 1];
    assert_int_equal(fit_law(&fit, LS_LAW_NONE, many, COUNT_OF(many)), LS_ERR_INVALID);
    scratch_expect_error("there are 65", NULL);
}

TEST_IN(scratch, test_without_a_degree_of_freedom_errors_are_unknown) {
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_LINEAR, course_ddp, 3), LS_OK);
    assert_true(isnan(fit.t1_error_ms) && isnan(fit.a_error_ms) && isnan(fit.b_error_ms) && isnan(fit.left_out_ms));
    struct ls_fit fits[LS_LAW_COUNT];
    size_t count = 0;
    assert_int_equal(ls_fit_all(fits, &count, course_ddp, 2), LS_OK);
    assert_int_equal(count, 3); /* free, constant, Amdahl */
    assert_int_equal(fits[0].law, LS_LAW_NONE);
    assert_false(isnan(fits[0].left_out_ms));
    assert_true(isnan(fits[1].left_out_ms) && isnan(fits[2].left_out_ms));
}

TEST_IN(scratch, test_times_that_are_no_times_are_refused) {
    static const struct ls_fit_point wrong[] = {{1, NAN}, {1, INFINITY}, {1, 0},      {1, -1},
                                                {0, 1},   {-3, 1},       {1000001, 1}};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct ls_fit_point points[] = {{1, 100}, {2, 50}, wrong[i]};
        struct ls_fit fit, fits[LS_LAW_COUNT];
        size_t count = 9;
        assert_int_equal(fit_law(&fit, LS_LAW_NONE, points, 3), LS_ERR_INVALID);
        scratch_expect_error(wrong[i].n == 1 ? "the time of N = 1" : "expected 1 to 1e6", NULL);
        assert_int_equal(ls_fit_all(fits, &count, points, 3), LS_ERR_INVALID);
        scratch_expect_error(NULL, NULL);
        assert_int_equal(count, 0);
    }
    /* equal times: no variance to explain */
    static const struct ls_fit_point equal[] = {{2, 7}, {2, 7}};
    struct ls_fit fit;
    assert_int_equal(fit_law(&fit, LS_LAW_NONE, equal, 2), LS_OK);
    assert_true(isnan(fit.r_squared));
}

/* --- the course's figures, and the finer law ---- */

TEST(test_what_the_courses_figures_say) {
    struct ls_fit fits[LS_LAW_COUNT];
    size_t count = 0;
    assert_int_equal(ls_fit_all(fits, &count, course_ddp, 4), LS_OK);
    assert_int_equal(count, LS_LAW_COUNT);
    assert_int_equal(fits[0].law, LS_LAW_CONSTANT); /* two and a half milliseconds, whatever N */
    assert_int_equal(fits[count - 1].law, LS_LAW_NONE);
    assert_int_equal(ls_fit_all(fits, &count, course_dp, 4), LS_OK);
    assert_int_equal(fits[0].law, LS_LAW_AMDAHL);
    assert_int_equal(fits[1].law, LS_LAW_RING); /* the same curve with one more coefficient, which is 0 */
    expect_near(fits[1].a_ms, 0, 1e-9);
    expect_near(fits[1].b_ms, 20, 1e-9);
    for (size_t i = 1; i < count; i++) assert_true(fits[i - 1].left_out_ms <= fits[i].left_out_ms + 1e-6);
}

TEST_IN(scratch, test_the_finer_law_by_hand) {
    /* the remainder is 1, 2 and 3 ms; N = 1 does not count */
    static const struct ls_fine_point points[] = {{1, 100, 100, 0}, {2, 60, 55, 4}, {4, 40, 30, 8}, {8, 30, 18, 9}};
    struct ls_fine_fit fit;
    assert_int_equal(ls_fit_fine(&fit, points, 4), LS_OK);
    assert_int_equal(fit.points, 3);
    expect_near(fit.fixed_ms, 2, 1e-12);
    expect_near(fit.fixed_error_ms, 1 / sqrt(3), 1e-12);
    expect_near(fit.rms_ms, sqrt(2.0 / 3), 1e-12);
    expect_near(fit.left_out_ms, sqrt((1.5 * 1.5 + 0 + 1.5 * 1.5) / 3), 1e-12);
    static const double residuals[] = {0, -1, 0, 1};
    for (int i = 0; i < 4; i++) expect_near(fit.residual_ms[i], residuals[i], 1e-12);
    assert_int_equal(ls_fit_fine(&fit, points, 2), LS_OK);
    assert_true(isnan(fit.fixed_error_ms) && isnan(fit.left_out_ms));
    assert_int_equal(ls_fit_fine(&fit, points, 1), LS_ERR_INVALID);
    scratch_expect_error("needs a point with N > 1", NULL);
    static const struct ls_fine_point unknown[] = {{2, 60, NAN, 4}};
    assert_int_equal(ls_fit_fine(&fit, unknown, 1), LS_ERR_INVALID);
    scratch_expect_error("N = 2 is not known", NULL);
}
