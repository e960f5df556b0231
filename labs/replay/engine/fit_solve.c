/* fit_solve — weighted least squares by Gram-Schmidt orthogonalization.
 *   idea  : with one column the best coefficient is <x, t> / <x, x>, where <u, v> is the sum of weight u v over the
 *           rows; the remainder of t is then orthogonal to x. With several columns, the part along the first is
 *           subtracted from all later columns and from t, then the part along the second, and so on: each is a problem
 *           of one column. The last coefficient is then known, and from it the one before
 *   why   : the condition number enters once, not squared as in the normal equations
 *   cost  : rows x columns^2
 *   fails : if nothing is left of a column, it was a combination of earlier ones */
#include "labs/replay/engine/fit_solve.h"

#define LEAST_LEFT 1e-12L /* of a column's length */

static long double product(const struct ls_fit_row *rows, int count, const long double *u, const long double *v) {
    long double sum = 0;
    for (int i = 0; i < count; i++) sum += rows[i].weight * u[i] * v[i];
    return sum;
}

bool ls_fit_solve(long double c[LS_FIT_COLUMNS], const struct ls_fit_row *rows, int count, int columns) {
    long double left[LS_FIT_COLUMNS + 1][LS_FIT_MAX_POINTS]; /* of each column, and of t */
    long double along[LS_FIT_COLUMNS][LS_FIT_COLUMNS + 1];   /* how much of the first lay in the second */
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < columns; k++) left[k][i] = rows[i].x[k];
        left[columns][i] = rows[i].t;
    }
    for (int k = 0; k < columns; k++) {
        long double whole = 0, square = product(rows, count, left[k], left[k]);
        for (int i = 0; i < count; i++) whole += rows[i].weight * rows[i].x[k] * rows[i].x[k];
        if (!(square > LEAST_LEFT * LEAST_LEFT * whole)) return false;
        for (int j = k + 1; j <= columns; j++) {
            along[k][j] = product(rows, count, left[k], left[j]) / square;
            for (int i = 0; i < count; i++) left[j][i] -= along[k][j] * left[k][i];
        }
    }
    for (int k = columns - 1; k >= 0; k--) {
        c[k] = along[k][columns];
        for (int j = k + 1; j < columns; j++) c[k] -= along[k][j] * c[j];
    }
    return true;
}
