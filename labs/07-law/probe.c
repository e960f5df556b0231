/* Tests lab 07's law and least squares. The coefficients are not compared with the reference's digits: they are right
 * if no change of any of them brings the law nearer to the points, whatever the method. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "labs/course/probe/probe.h"
#include "labs/replay/engine/fit.h"

enum { MOST_ROWS = LS_FIT_MAX_POINTS };

#define NEAR 1e-7 /* of a coefficient: rounding is far below it, and a mistake far above */

/* A number of low .. high. */
static double draw(probe *p, double low, double high) {
    float value;
    probe_draw_floats(p, &value, 1);
    return low + (high - low) * (1 + (double)value) / 2;
}

/* --- the law ------------------------------------------------------------------------------------------------------ */

static void law(probe *p) {
    static const int ns[] = {1, 2, 3, 8, 17, 300, 70000, 1000000};
    for (int weak = 0; weak < 2; weak++) {
        for (int law = 0; law < LS_LAW_COUNT; law++) {
            struct ls_fit fit = {.law = (ls_law)law, .weak = weak, .t1_ms = draw(p, 50, 150)};
            fit.a_ms = law == LS_LAW_AMDAHL ? draw(p, 0.1, 0.9) : law != LS_LAW_NONE ? draw(p, 1, 9) : 0;
            fit.b_ms = law == LS_LAW_RING || law == LS_LAW_LINEAR || law == LS_LAW_LOGARITHM ? draw(p, 1, 9) : 0;
            if (weak && law == LS_LAW_AMDAHL) continue;
            probe_case(p, "the law '%s' with T1 = %.4g, a = %.3g, b = %.3g, %s scaling", ls_law_name((ls_law)law),
                       fit.t1_ms, fit.a_ms, fit.b_ms, weak ? "weak" : "strong");
            for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
                probe_see(p, probe_name(p, "T_%d", ns[i]), "%.9g", ls_fit_ms(&fit, ns[i]));
        }
    }
}

/* --- least squares ------------------------------------------------------------------------------------------------ */

/* By how much coefficient j would have to be larger, with the others unchanged. */
static long double short_of(const struct ls_fit_row *rows, int count, int columns, const long double *c, int j) {
    long double along = 0, square = 0;
    for (int i = 0; i < count; i++) {
        long double left = rows[i].t;
        for (int k = 0; k < columns; k++) left -= c[k] * rows[i].x[k];
        along += rows[i].weight * left * rows[i].x[j];
        square += rows[i].weight * rows[i].x[j] * rows[i].x[j];
    }
    return along / square;
}

/* Calls it with a copy of exactly `count` rows, so that AddressSanitizer detects accesses past its end. */
static bool solve(probe *p, long double c[LS_FIT_COLUMNS], const struct ls_fit_row *rows, int count, int columns) {
    struct ls_fit_row *copy = malloc((size_t)count * sizeof *copy);
    probe_must(p, "memory for the rows", copy ? LS_OK : LS_ERR_NO_MEMORY);
    memcpy(copy, rows, (size_t)count * sizeof *copy);
    bool determined = ls_fit_solve(c, copy, count, columns);
    free(copy);
    probe_see(p, "what ls_fit_solve returns", "%s", determined ? "true" : "false");
    return determined;
}

static void see_least(probe *p, const struct ls_fit_row *rows, int count, int columns) {
    long double c[LS_FIT_COLUMNS] = {NAN, NAN, NAN};
    bool determined = solve(p, c, rows, count, columns);
    for (int j = 0; determined && j < columns; j++) {
        long double more = short_of(rows, count, columns, c, j);
        const char *name = probe_name(p, "whether a change of c[%d] would come nearer to the rows", j);
        if (fabsl(more) <= NEAR * (1 + fabsl(c[j]))) {
            probe_see(p, name, "no");
        } else {
            probe_see(p, name, "yes: it is %.6Lg, and %.6Lg comes nearer", c[j], c[j] + more);
        }
    }
}

/* Rows of T_N = T1 / N + a (1 for N > 1) + b (N - 1), with errors of some percent. */
static int draw_rows(probe *p, struct ls_fit_row rows[MOST_ROWS], int count) {
    double t1 = draw(p, 60, 140), a = draw(p, 1, 9), b = draw(p, 0, 2);
    for (int i = 0; i < count; i++) {
        int n = i < 3 ? i + 1 : 1 + (int)probe_draw(p, 16);
        rows[i] = (struct ls_fit_row){.x = {1.0L / n, n > 1, n - 1}, .weight = 1};
        rows[i].t = (t1 / n + (n > 1) * a + (n - 1) * b) * draw(p, 0.9, 1.1);
    }
    return count;
}

static void fit(probe *p) {
    struct ls_fit_row rows[MOST_ROWS];
    static const int counts[] = {2, 3, 4, 5, 12, 13, 17, 33, MOST_ROWS};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        probe_case(p, "T1 / N + a, %d points with errors", draw_rows(p, rows, counts[i]));
        see_least(p, rows, counts[i], 2);
    }
    probe_case(p, "T1 / N + a, N = 2, 4, 8: no point has N = 1");
    for (int i = 0, n = 2; i < 3; i++, n *= 2)
        rows[i] = (struct ls_fit_row){.x = {1.0L / n, 1}, .t = draw(p, 90, 110) / n + 2, .weight = 1};
    see_least(p, rows, 3, 2);
    probe_case(p, "T1 / N + a, points that fall faster than 1 / N: a is below 0");
    for (int i = 0; i < 3; i++) rows[i].t -= 8 * rows[i].x[1];
    see_least(p, rows, 3, 2);
    probe_case(p, "T1 / N + a, the same points in another order");
    struct ls_fit_row first = rows[0];
    rows[0] = rows[2], rows[2] = first;
    see_least(p, rows, 3, 2);
}

/* Checks that a weighted row has the same effect as that many equal rows, so that `fit` is not tested again. */
static void see_repeated(probe *p, const struct ls_fit_row *rows, const int *times, int count) {
    struct ls_fit_row once[MOST_ROWS], often[MOST_ROWS];
    long double c[LS_FIT_COLUMNS] = {0}, other[LS_FIT_COLUMNS] = {0};
    const long double unit = draw(p, 0.1, 4);
    int all = 0;
    for (int i = 0; i < count; i++) {
        once[i] = rows[i];
        once[i].weight = times[i] * unit;
        for (int k = 0; k < times[i]; k++) often[all++] = rows[i];
    }
    bool determined = solve(p, c, once, count, 2) && solve(p, other, often, all, 2);
    for (int j = 0; determined && j < 2; j++) {
        const char *name = probe_name(p, "whether c[%d] is that of rows that stand there as often", j);
        if (fabsl(c[j] - other[j]) <= NEAR * (1 + fabsl(other[j])))
            probe_see(p, name, "yes");
        else
            probe_see(p, name, "no: it is %.6Lg, and theirs is %.6Lg", c[j], other[j]);
    }
}

static void weights(probe *p) {
    struct ls_fit_row rows[MOST_ROWS];
    int times[MOST_ROWS];
    for (int round = 0; round < 5; round++) {
        int count = draw_rows(p, rows, round < 4 ? 4 + round : 20), last = count - 1;
        for (int i = 0; i < count; i++) times[i] = 1;
        probe_case(p, "T1 / N + a, %d points, the last of weight 3", count);
        times[last] = 3;
        see_repeated(p, rows, times, count);
        probe_case(p, "T1 / N + a, %d points, the last of weight 0, and far off", count);
        times[last] = 0;
        rows[last].t = 1000;
        see_repeated(p, rows, times, count);
        probe_case(p, "T1 / N + a, %d points, all of weights of their own", count);
        for (int i = 0; i < count; i++) times[i] = 1 + (int)probe_draw(p, 3);
        see_repeated(p, rows, times, count);
    }
}

static void columns(probe *p) {
    struct ls_fit_row rows[MOST_ROWS];
    for (int columns = 1; columns <= LS_FIT_COLUMNS; columns += 2) {
        for (int count = columns; count <= MOST_ROWS; count += count < 9 ? 4 : 53) {
            probe_case(p, "%s, %d points with errors", columns == 1 ? "T1 / N" : "T1 / N + a + b (N - 1)",
                       draw_rows(p, rows, count));
            if (columns == 3)
                for (int i = 0; i < count; i++) rows[i].weight = draw(p, 0.5, 2);
            see_least(p, rows, count, columns);
        }
    }
}

/* --- undetermined systems ----------------------------------------------------------------------------------------- */

static void see_refused(probe *p, const struct ls_fit_row *rows, int count, int columns) {
    long double c[LS_FIT_COLUMNS] = {0};
    (void)solve(p, c, rows, count, columns);
}

/* The remainder of the second column is this fraction of it: far above 1e-12. */
static void nearly_undetermined(probe *p, double part) {
    struct ls_fit_row rows[MOST_ROWS];
    for (int count = 4; count <= MOST_ROWS; count *= 4) {
        (void)draw_rows(p, rows, count);
        probe_case(p, "two columns, the second is the first except for a part of %.0e of it, %d points", part, count);
        for (int i = 0; i < count; i++) rows[i].x[1] = rows[i].x[0] * (1 + (long double)(i % 2 ? part : -part));
        see_refused(p, rows, count, 2);
    }
}

static void undetermined(probe *p) {
    struct ls_fit_row rows[MOST_ROWS];
    int count = draw_rows(p, rows, 6);
    probe_case(p, "T1 / N + a, 6 points of different N");
    see_refused(p, rows, count, 2);
    probe_case(p, "T1 / N + a, all points of N = 3");
    for (int i = 0; i < count; i++) rows[i].x[0] = 1.0L / 3, rows[i].x[1] = 1;
    see_refused(p, rows, count, 2);
    probe_case(p, "T1 / N + a, all but one of the points weigh 0");
    (void)draw_rows(p, rows, 6);
    for (int i = 0; i < count; i++) rows[i].weight = i == 1;
    see_refused(p, rows, count, 2);
    probe_case(p, "three columns, of which the last is a sum of the others");
    (void)draw_rows(p, rows, 6);
    double u = draw(p, 1, 3), v = draw(p, 1, 3);
    for (int i = 0; i < count; i++) rows[i].x[2] = u * rows[i].x[0] + v * rows[i].x[1];
    see_refused(p, rows, count, 3);
    probe_case(p, "the same, and the last point weighs 0");
    rows[count - 1].weight = 0;
    see_refused(p, rows, count, 3);
    rows[count - 1].weight = 1;
    probe_case(p, "three columns, of which the second is 0");
    for (int i = 0; i < count; i++) rows[i].x[1] = 0, rows[i].x[2] = i;
    see_refused(p, rows, count, 3);
    for (double part = 1e-2; part > 5e-6; part /= 10) nearly_undetermined(p, part);
    const long double units[] = {1e-14L, 1e14L};
    for (int k = 0; k < 2; k++) {
        probe_case(p, "T1 / N + a, columns in units of %.0e", (double)units[k]);
        (void)draw_rows(p, rows, 6);
        for (int i = 0; i < count; i++) rows[i].x[0] *= units[k], rows[i].x[1] *= units[k];
        see_refused(p, rows, count, 2);
        probe_case(p, "the same, and the second column is a third of the first");
        for (int i = 0; i < count; i++) rows[i].x[1] = rows[i].x[0] / 3;
        see_refused(p, rows, count, 2);
    }
    probe_case(p, "three columns, two points");
    see_refused(p, rows, draw_rows(p, rows, 2), 3);
}

/* --- both --------------------------------------------------------------------------------------------------------- */

/* Exact points of each law: that law is chosen, since it alone predicts the points that are left out. */
static void chosen(probe *p) {
    static const int ns[] = {1, 2, 3, 4, 6, 8, 12, 16};
    enum { COUNT = sizeof ns / sizeof *ns };
    for (int law = 0; law < LS_LAW_COUNT; law++) {
        double t1 = draw(p, 60, 140), a = draw(p, 1, 9), b = draw(p, 1, 3), s = draw(p, 0.1, 0.5);
        struct ls_fit fits[LS_LAW_COUNT];
        struct ls_fit_point points[COUNT];
        size_t count = 0;
        for (int i = 0; i < COUNT; i++) {
            double n = ns[i], more = law == LS_LAW_RING ? b * 5 * (n - 1) / n : law == LS_LAW_LINEAR ? b * (n - 1) : 0;
            if (law == LS_LAW_LOGARITHM) more = b * log2(n);
            if (law != LS_LAW_NONE) more += a;
            if (law == LS_LAW_AMDAHL) more = t1 * s * (n - 1) / n;
            points[i] = (struct ls_fit_point){ns[i], t1 / n + (n > 1 ? more : 0)};
        }
        probe_case(p, "8 exact points of the law '%s', T1 = %.4g ms", ls_law_name((ls_law)law), t1);
        probe_must(p, "the fit", ls_fit_all(fits, &count, points, COUNT));
        probe_see_count(p, "laws that can be fitted", count);
        probe_see(p, "the law that is chosen", "%s", ls_law_name(fits[0].law));
        probe_see(p, "whether its T1 is that of the points", "%s", fabs(fits[0].t1_ms - t1) <= 1e-6 ? "yes" : "no");
        const struct ls_fit *worst = &fits[count - 1];
        probe_see(p, "whether the worst law misses points that are left out by more than those it has seen", "%s",
                  worst->left_out_ms > worst->rms_ms + 1e-6 ? "yes" : "no");
    }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"law", law},         {"fit", fit},       {"weights", weights},
                                         {"columns", columns}, {"chosen", chosen}, {"undetermined", undetermined},
                                         {NULL, NULL}};
    return probe_main(argc, argv, checks);
}
