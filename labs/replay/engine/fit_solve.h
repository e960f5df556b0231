/* Least squares of a few columns, each row with a weight. Pure arithmetic; any thread may call it. */
#ifndef LABS_REPLAY_ENGINE_FIT_SOLVE_H
#define LABS_REPLAY_ENGINE_FIT_SOLVE_H

#include <stdbool.h>

enum { LS_FIT_COLUMNS = 3, LS_FIT_MAX_POINTS = 64 };

/* A point: c[0] x[0] + c[1] x[1] + ... should equal t. */
struct ls_fit_row {
    long double x[LS_FIT_COLUMNS], t;
    long double weight; /* 0 or more: 0 leaves the row out, 3 counts as three such rows */
};

/* The coefficients c[0 .. columns-1] for which the sum of weight (t - c[0] x[0] - c[1] x[1] - ...)^2 is least, of at
 * most LS_FIT_MAX_POINTS rows and LS_FIT_COLUMNS columns. False: the rows do not determine them, because a column is 0
 * or a combination of others, to within 1e-12 of its length. */
bool ls_fit_solve(long double c[LS_FIT_COLUMNS], const struct ls_fit_row *rows, int count, int columns);

#endif
