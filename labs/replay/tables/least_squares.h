/* Least squares in a few positive parameters: sum over i of residual_i(p)^2, by the Levenberg-Marquardt method. */
#ifndef LABS_REPLAY_TABLES_LEAST_SQUARES_H
#define LABS_REPLAY_TABLES_LEAST_SQUARES_H

#include "common/base/status.h"

enum { TABLES_FIT_PARAMETERS = 4, TABLES_FIT_POINTS = 16 };

/* Fills in `count` residuals of these parameters. */
typedef ls_status (*tables_residuals_fn)(void *context, const double *parameters, double *residuals);

struct tables_fit {
    int parameters, points;
    double value[TABLES_FIT_PARAMETERS];   /* the start before the fit, the result after it; all > 0 */
    double error[TABLES_FIT_PARAMETERS];   /* relative standard errors; NAN without a degree of freedom */
    double residual[TABLES_FIT_POINTS];    /* at the result */
    double sum;                            /* of their squares */
    int degrees_of_freedom, rounds, calls; /* rounds of the search, calls of the function */
};

/* Deterministic. LS_ERR_INVALID: a residual that is not finite, or fewer points than parameters. */
ls_status tables_fit_least_squares(struct tables_fit *fit, tables_residuals_fn residuals, void *context);

#endif
