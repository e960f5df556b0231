/* fit — least squares of T_N = T1 / N + Tcomm(N).
 *   idea  : every law is linear in its coefficients (Amdahl's in T1 and T1 s), so a fit is one overdetermined system
 *           A x = t with a row per point and a column per coefficient; fit_solve.c solves it, in long double
 *   errors: v (A'A)^-1 with v = squared residuals / degrees of freedom; of s = c / T1 by the usual expansion
 *   choice: leave one N out. A law that contains another never has larger residuals; it has a smaller error on an N
 *           that it was not fitted to only if its extra term is real. All points of an N are left out together (weight
 *           0), since one would give the others away. Those of N = 1 are never left out: T1 is measured and needs no
 *           prediction. With N = 1, 2, 4 no law of three coefficients can be judged this way, and the others precede it
 *   cost  : points x coefficients^2, times the number of different N
 *   fails : if a column is a combination of others to within 1e-12, the coefficients are not determined: refused */
#include "labs/replay/engine/fit.h"

#include <math.h>

#include "common/base/log.h"

#define MOST_N 1e6      /* of a point */
#define MOST_HALF_N 1e9 /* of half_efficiency_n */
#define ROUNDING 1e-9   /* of the mean time: errors that differ by less are equal */

static const struct {
    const char *name, *formula;
    int coefficients;
} laws[] = {
#define LAW_ROW(name, text, formula, count) {text, formula, 1 + (count)},
    LS_LAW_MAP(LAW_ROW)
#undef LAW_ROW
};

const char *ls_law_name(ls_law law) { return laws[law].name; }
const char *ls_law_formula(ls_law law) { return laws[law].formula; }

/* The factors of the coefficients in T_N. */
static void factors(long double row[LS_FIT_COLUMNS], ls_law law, bool weak, double n) {
    long double talks = n > 1 ? 1 : 0;
    row[0] = weak ? 1 : 1 / (long double)n;
    row[1] = law == LS_LAW_AMDAHL ? 1 - 1 / (long double)n : talks;
    row[2] = law == LS_LAW_RING        ? 1 - 1 / (long double)n
             : law == LS_LAW_LINEAR    ? (long double)n - 1
             : law == LS_LAW_LOGARITHM ? log2l((long double)n)
                                       : 0;
}

double ls_fit_ms(const struct ls_fit *fit, double n) {
    long double row[LS_FIT_COLUMNS];
    factors(row, fit->law, fit->weak, n);
    double a_ms = fit->law == LS_LAW_AMDAHL ? fit->a_ms * fit->t1_ms : fit->a_ms;
    return (double)(row[0] * fit->t1_ms + row[1] * a_ms + row[2] * fit->b_ms);
}

double ls_fit_efficiency(const struct ls_fit *fit, double n) {
    return fit->t1_ms / ((fit->weak ? 1 : n) * ls_fit_ms(fit, n));
}

/* --- one law ----------------------------------------------------------------------------------------------------- */

/* Finds the coefficients alone; false: the points (without those of N = left_out) do not determine them. `rows` gets
 * the system. */
static bool find_coefficients(struct ls_fit *fit, struct ls_fit_row rows[LS_FIT_MAX_POINTS],
                              const struct ls_fit_point *points, size_t count, int left_out) {
    long double c[LS_FIT_COLUMNS] = {0};
    for (size_t i = 0; i < count; i++) {
        rows[i] = (struct ls_fit_row){.t = points[i].ms, .weight = points[i].n == left_out ? 0 : 1};
        factors(rows[i].x, fit->law, fit->weak, points[i].n);
    }
    if (!ls_fit_solve(c, rows, (int)count, fit->coefficients)) return false;
    fit->t1_ms = (double)c[0];
    fit->a_ms = (double)(fit->law == LS_LAW_AMDAHL ? c[1] / c[0] : c[1]);
    fit->b_ms = (double)c[2];
    return true;
}

/* (A'A)^-1. Its column j follows from the part of A's column j that no combination d of the others explains: that
 * part's squared length is 1 / [j][j], and [i][j] = -d_i [j][j]. */
static void find_covariance(long double covariance[LS_FIT_COLUMNS][LS_FIT_COLUMNS], const struct ls_fit_row *rows,
                            int count, int columns) {
    for (int j = 0; j < columns; j++) {
        struct ls_fit_row others[LS_FIT_MAX_POINTS];
        long double d[LS_FIT_COLUMNS] = {0}, square = 0;
        for (int i = 0; i < count; i++) {
            others[i] = (struct ls_fit_row){.t = rows[i].x[j], .weight = 1};
            for (int k = 0, to = 0; k < columns; k++)
                if (k != j) others[i].x[to++] = rows[i].x[k];
        }
        (void)ls_fit_solve(d, others, count, columns - 1); /* cannot fail, since all columns together have passed */
        for (int i = 0; i < count; i++) {
            long double left = others[i].t;
            for (int k = 0; k < columns - 1; k++) left -= d[k] * others[i].x[k];
            square += left * left;
        }
        for (int i = 0; i < columns; i++) covariance[i][j] = (i == j ? 1 : -d[i - (i > j)]) / square;
    }
}

static void judge_residuals(struct ls_fit *fit, const struct ls_fit_row *rows, const struct ls_fit_point *points) {
    long double mean = 0, about_mean = 0, squares = 0, c[LS_FIT_COLUMNS][LS_FIT_COLUMNS] = {{0}};
    for (int i = 0; i < fit->points; i++) mean += points[i].ms / (long double)fit->points;
    for (int i = 0; i < fit->points; i++) {
        long double residual = points[i].ms - (long double)ls_fit_ms(fit, points[i].n);
        fit->residual_ms[i] = (double)residual;
        squares += residual * residual;
        about_mean += (points[i].ms - mean) * (points[i].ms - mean);
    }
    fit->rms_ms = (double)sqrtl(squares / fit->points);
    fit->r_squared = about_mean > 0 ? (double)(1 - squares / about_mean) : NAN;
    int degrees = fit->points - fit->coefficients;
    long double variance = degrees > 0 ? squares / degrees : (long double)NAN;
    find_covariance(c, rows, fit->points, fit->coefficients);
    fit->t1_error_ms = (double)sqrtl(variance * c[0][0]);
    fit->a_error_ms = fit->coefficients > 1 ? (double)sqrtl(variance * c[1][1]) : 0;
    fit->b_error_ms = fit->coefficients > 2 ? (double)sqrtl(variance * c[2][2]) : 0;
    if (fit->law == LS_LAW_AMDAHL) {
        long double s = fit->a_ms, spread = c[1][1] - 2 * s * c[0][1] + s * s * c[0][0];
        fit->a_error_ms = (double)(sqrtl(variance * fmaxl(spread, 0)) / fabsl((long double)fit->t1_ms));
    }
}

/* Whether points[i] is the first of its N. */
static bool is_first(const struct ls_fit_point *points, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (points[k].n == points[i].n) return false;
    return true;
}

static double left_out_error(const struct ls_fit *fit, const struct ls_fit_point *points) {
    long double squares = 0;
    int predicted = 0;
    for (int i = 0; i < fit->points; i++) {
        struct ls_fit others = *fit;
        struct ls_fit_row rows[LS_FIT_MAX_POINTS];
        if (points[i].n == 1 || !is_first(points, (size_t)i)) continue;
        if (!find_coefficients(&others, rows, points, (size_t)fit->points, points[i].n)) return NAN;
        double predicted_ms = ls_fit_ms(&others, points[i].n);
        for (int k = i; k < fit->points; k++) {
            if (points[k].n != points[i].n) continue;
            squares += ((long double)points[k].ms - predicted_ms) * ((long double)points[k].ms - predicted_ms);
            predicted++;
        }
    }
    return predicted > 0 ? (double)sqrtl(squares / predicted) : NAN;
}

/* If an extrapolated law gives steps no time, that is not a loss of efficiency. */
static bool is_below_half(const struct ls_fit *fit, double n) {
    return ls_fit_ms(fit, n) > 0 && ls_fit_efficiency(fit, n) <= 0.5;
}

/* Steps outwards until efficiency has passed one half, then halves the last step: Tcomm need not be monotone. */
static double half_efficiency(const struct ls_fit *fit) {
    double above = 1 + 1e-12, below = above;
    if (!(fit->t1_ms > 0)) return NAN;
    if (is_below_half(fit, above)) return 1;
    while (!is_below_half(fit, below)) {
        if (below >= MOST_HALF_N) return INFINITY;
        above = below;
        below = fmin(above * 1.01, MOST_HALF_N);
    }
    for (int i = 0; i < 200; i++) {
        double middle = above + (below - above) / 2;
        if (is_below_half(fit, middle)) {
            below = middle;
        } else {
            above = middle;
        }
    }
    return below;
}

/* False: the points do not determine the law. */
static bool try_law(struct ls_fit *fit, ls_law law, bool weak, const struct ls_fit_point *points, size_t count) {
    struct ls_fit_row rows[LS_FIT_MAX_POINTS];
    *fit = (struct ls_fit){.law = law, .weak = weak, .points = (int)count, .coefficients = laws[law].coefficients};
    if (!find_coefficients(fit, rows, points, count, 0)) return false;
    judge_residuals(fit, rows, points);
    fit->left_out_ms = left_out_error(fit, points);
    fit->half_efficiency_n = half_efficiency(fit);
    return true;
}

static bool is_time(double ms) { return isfinite(ms) && ms > 0; }

static ls_status check_count(size_t count) {
    if (count >= 1 && count <= LS_FIT_MAX_POINTS) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "a fit takes 1 to %d points, but there are %zu", LS_FIT_MAX_POINTS, count);
}

static ls_status check_point(int n, double ms) {
    if (n < 1 || n > MOST_N) return ls_fail(LS_ERR_INVALID, "a point has N = %d; expected 1 to 1e6", n);
    if (is_time(ms)) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "the time of N = %d is %g ms; expected a positive number", n, ms);
}

static ls_status check(const struct ls_fit_point *points, size_t count) {
    ls_status status = check_count(count);
    for (size_t i = 0; status == LS_OK && i < count; i++) status = check_point(points[i].n, points[i].ms);
    return status;
}

/* --- all laws ---------------------------------------------------------------------------------------------------- */

/* Whether `fit` is a better choice than `other`. Without N = 1 the constant law and Amdahl's are the same, up to
 * rounding. */
static bool is_better(const struct ls_fit *fit, const struct ls_fit *other, double rounding_ms) {
    bool known = !isnan(fit->left_out_ms), other_known = !isnan(other->left_out_ms);
    if (known != other_known) return known;
    double less_ms = other->left_out_ms - fit->left_out_ms;
    if (known && fabs(less_ms) > rounding_ms) return less_ms > 0;
    if (fit->coefficients != other->coefficients) return fit->coefficients < other->coefficients;
    return other->rms_ms - fit->rms_ms > rounding_ms;
}

static ls_status fit_laws(struct ls_fit *fits, size_t *fit_count, bool weak, const struct ls_fit_point *points,
                          size_t count) {
    double mean_ms = 0;
    *fit_count = 0;
    ls_status status = check(points, count);
    if (status != LS_OK) return status;
    for (size_t i = 0; i < count; i++) mean_ms += points[i].ms / (double)count;
    for (int law = 0; law < LS_LAW_COUNT; law++) {
        struct ls_fit fit;
        if ((weak && law == LS_LAW_AMDAHL) || !try_law(&fit, (ls_law)law, weak, points, count)) continue;
        size_t at = (*fit_count)++;
        for (; at > 0 && is_better(&fit, &fits[at - 1], ROUNDING * mean_ms); at--) fits[at] = fits[at - 1];
        fits[at] = fit;
    }
    return *fit_count > 0 ? LS_OK : ls_fail(LS_ERR_INVALID, "the points do not determine any law");
}

ls_status ls_fit_all(struct ls_fit fits[LS_LAW_COUNT], size_t *fit_count, const struct ls_fit_point *points,
                     size_t count) {
    return fit_laws(fits, fit_count, false, points, count);
}

ls_status ls_fit_weak(struct ls_fit fits[LS_LAW_COUNT], size_t *fit_count, const struct ls_fit_point *points,
                      size_t count) {
    return fit_laws(fits, fit_count, true, points, count);
}

/* --- the finer law ------------------------------------------------------------------------------------------------ */

static double fixed_of(const struct ls_fine_point *point) { return point->ms - point->alone_ms - point->exposed_ms; }

/* The mean of the remainder over the points with N > 1 other than N = left_out; NAN if there are none. */
static double mean_fixed(const struct ls_fine_point *points, size_t count, int left_out) {
    double sum = 0;
    int taken = 0;
    for (size_t i = 0; i < count; i++) {
        if (points[i].n == 1 || points[i].n == left_out) continue;
        sum += fixed_of(&points[i]);
        taken++;
    }
    return taken > 0 ? sum / taken : NAN;
}

ls_status ls_fit_fine(struct ls_fine_fit *fit, const struct ls_fine_point *points, size_t count) {
    double squares = 0, left_out_squares = 0;
    *fit = (struct ls_fine_fit){.points = 0};
    ls_status status = check_count(count);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        status = check_point(points[i].n, points[i].ms);
        if (status == LS_OK && !isfinite(points[i].alone_ms + points[i].exposed_ms))
            status =
                ls_fail(LS_ERR_INVALID, "T1(b/N) or the exposed communication of N = %d is not known", points[i].n);
    }
    if (status != LS_OK) return status;
    fit->fixed_ms = mean_fixed(points, count, 1);
    if (isnan(fit->fixed_ms)) return ls_fail(LS_ERR_INVALID, "the finer law needs a point with N > 1");
    for (size_t i = 0; i < count; i++) {
        if (points[i].n == 1) continue;
        fit->points++;
        fit->residual_ms[i] = fixed_of(&points[i]) - fit->fixed_ms;
        squares += fit->residual_ms[i] * fit->residual_ms[i];
        double error = fixed_of(&points[i]) - mean_fixed(points, count, points[i].n);
        left_out_squares += error * error;
    }
    fit->rms_ms = sqrt(squares / fit->points);
    fit->left_out_ms = sqrt(left_out_squares / fit->points);
    fit->fixed_error_ms = fit->points > 1 ? sqrt(squares / (fit->points - 1) / fit->points) : NAN;
    return LS_OK;
}
