/* fit — the law T_N = T1 / N + Tcomm(N), by least squares, and how well it holds. */
#ifndef LS_REPLAY_FIT_H
#define LS_REPLAY_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* X(NAME, text, formula of Tcomm, coefficients beside T1) */
#define LS_LAW_MAP(X)                                                                                                  \
    X(NONE, "free", "0", 0)                                                                                            \
    X(CONSTANT, "constant", "a (N > 1)", 1)                                                                            \
    X(RING, "ring", "a + b (N - 1) / N", 2)                                                                            \
    X(LINEAR, "linear", "a + b (N - 1)", 2)                                                                            \
    X(LOGARITHM, "logarithm", "a + b log2 N", 2)                                                                       \
    X(AMDAHL, "Amdahl", "T1 s (1 - 1 / N)", 1)
#define LS_LAW_ENUM(name, text, formula, count) LS_LAW_##name,
typedef enum ls_law { LS_LAW_MAP(LS_LAW_ENUM) LS_LAW_COUNT } ls_law;
#undef LS_LAW_ENUM

#define LS_FIT_MAX_POINTS 64

struct ls_fit_point {
    int n;
    double ms;
};

struct ls_fit {
    ls_law law;
    int points, coefficients;                   /* T1 counts */
    double t1_ms, a_ms, b_ms;                   /* unused ones 0; Amdahl: a_ms = s, a share */
    double t1_error_ms, a_error_ms, b_error_ms; /* standard errors; NAN without a degree of freedom */
    double r_squared, rms_ms;
    double left_out_ms;       /* root mean square error of each point predicted from the others; NAN if it cannot be */
    double half_efficiency_n; /* where T1 / (N T_N) falls to 50 %; INFINITY: nowhere below 1e9 */
    double residual_ms[LS_FIT_MAX_POINTS]; /* measured - fitted */
};

const char *ls_law_name(ls_law law);
const char *ls_law_formula(ls_law law);

/* Points with N = 1 .. 1e6, times above 0; several with the same N are fine. LS_ERR_INVALID: too few different N for the law's coefficients,
 * or a time that is not positive and finite. */
ls_status ls_fit_law(struct ls_fit *fit, ls_law law, const struct ls_fit_point *points, size_t count);

/* Fits all laws that the points allow, best (smallest left_out_ms; without one, fewest coefficients and smallest rms) first. */
ls_status ls_fit_all(struct ls_fit fits[LS_LAW_COUNT], size_t *fit_count, const struct ls_fit_point *points,
                     size_t count);

/* What a fit says of N. */
double ls_fit_ms(const struct ls_fit *fit, double n);

#endif
