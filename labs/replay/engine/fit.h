/* fit — fits the law T_N = T1 / N + Tcomm(N) by least squares, with the error of the fit.
 *
 * T_N is the time of a step on N devices that share one batch (strong scaling). If every device has its own batch, so
 * that N devices do N times the work (weak scaling), the law is T_N = T1 + Tcomm(N). One device has no peer: Tcomm(1) =
 * 0 in every law. All points have the same weight, in milliseconds: an error of 1 ms of 100 is as bad as one of 1 ms of
 * 10. All functions are pure arithmetic; any thread may call them. */
#ifndef LABS_REPLAY_ENGINE_FIT_H
#define LABS_REPLAY_ENGINE_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "labs/replay/engine/fit_solve.h"

/* X(NAME, text, formula of Tcomm for N > 1, coefficients beside T1) */
#define LS_LAW_MAP(X)                                                                                                  \
    X(NONE, "free", "0", 0)                                                                                            \
    X(CONSTANT, "constant", "a", 1)                                                                                    \
    X(RING, "ring", "a + b (N - 1) / N", 2)                                                                            \
    X(LINEAR, "linear", "a + b (N - 1)", 2)                                                                            \
    X(LOGARITHM, "logarithm", "a + b log2 N", 2)                                                                       \
    X(AMDAHL, "Amdahl", "T1 s (1 - 1 / N)", 1)
#define LS_LAW_ENUM(name, text, formula, count) LS_LAW_##name,
typedef enum ls_law { LS_LAW_MAP(LS_LAW_ENUM) LS_LAW_COUNT } ls_law;
#undef LS_LAW_ENUM

struct ls_fit_point {
    int n;
    double ms;
};

struct ls_fit {
    ls_law law;
    bool weak;                                  /* T1 is not divided by N */
    int points, coefficients;                   /* T1 counts */
    double t1_ms, a_ms, b_ms;                   /* unused ones 0; Amdahl: a_ms = s, a share */
    double t1_error_ms, a_error_ms, b_error_ms; /* standard errors; NAN without a degree of freedom; unused ones 0 */
    double r_squared; /* the part of the variance about the mean that the law explains; NAN if all times are equal */
    double rms_ms;    /* root mean square of the residuals */
    /* root mean square error of the points of each N > 1, predicted by the law fitted to all points of other N; NAN if
     * there are too few */
    double left_out_ms;
    /* the least N > 1 at which T1 / (N T_N) (weak: T1 / T_N) is 50 % or less; 1: at once; INFINITY: none below 1e9;
     * NAN: the fitted T1 is negative */
    double half_efficiency_n;
    double residual_ms[LS_FIT_MAX_POINTS]; /* given - fitted */
};

const char *ls_law_name(ls_law law);
const char *ls_law_formula(ls_law law);

/* Fits all laws that the points allow, best first: the least left_out_ms (differences below 1e-9 of the mean time do
 * not count), those without one last; among equals fewest coefficients, then least rms, then in the order above. Points
 * have N = 1 .. 1e6 and times above 0; several may have the same N. A law needs as many different N as it has
 * coefficients; the ring's also needs N = 1, without which T1 and b cannot be separated. LS_ERR_INVALID: no law can be
 * fitted, or a point is out of range. */
ls_status ls_fit_all(struct ls_fit fits[LS_LAW_COUNT], size_t *fit_count, const struct ls_fit_point *points,
                     size_t count);

/* The same for weak scaling, T1 + Tcomm(N); without Amdahl's law, which assumes a shared batch. Every law but "free"
 * needs N = 1 here, without which T1 and a cannot be separated. */
ls_status ls_fit_weak(struct ls_fit fits[LS_LAW_COUNT], size_t *fit_count, const struct ls_fit_point *points,
                      size_t count);

/* The step time at N by the fit. */
double ls_fit_ms(const struct ls_fit *fit, double n);

/* T1 / (N T_N), or T1 / T_N under weak scaling, by the fit. */
double ls_fit_efficiency(const struct ls_fit *fit, double n);

/* The finer law: T_N = T1(b/N) + exposed(N) + fixed for N > 1, where T1(b/N) is one device's step with the batch of one
 * of N devices, and exposed(N) the communication that a step waits for. Both are measured or replayed, and only `fixed`
 * is fitted. */
struct ls_fine_point {
    int n;
    double ms, alone_ms, exposed_ms;
};

struct ls_fine_fit {
    int points; /* with N > 1; those of N = 1 are not used */
    double fixed_ms, fixed_error_ms;
    double rms_ms, left_out_ms;            /* over N > 1, as above */
    double residual_ms[LS_FIT_MAX_POINTS]; /* in the order of the points; 0 for N = 1 */
};

/* LS_ERR_INVALID: no point with N > 1, or a time that is not finite (or of a step, not positive). */
ls_status ls_fit_fine(struct ls_fine_fit *fit, const struct ls_fine_point *points, size_t count);

#endif
