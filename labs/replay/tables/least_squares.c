/* least_squares — the Levenberg-Marquardt method in the logarithms of the parameters.
 *   idea  : near p the residuals are a linear function of it, r + J s, whose squares are least where (J'J + damping
 *           diag(J'J)) s = -J'r. With little damping that is a Gauss-Newton step, with much a short gradient step. A
 *           step that lowers the sum is accepted and the damping reduced; any other is rejected and the damping raised
 *   logs  : parameters are rates: they stay positive, and steps are relative
 *   slopes: by central differences, which a replay's kinks (where another path becomes the longest) disturb less than
 *           one-sided ones
 *   cost  : 2 p + 1 calls a round, and some tens of rounds */
#include "labs/replay/tables/least_squares.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/log.h"

enum { MOST_ROUNDS = 60 };
#define DIFFERENCE 2e-3
#define ENOUGH 1e-10 /* relative fall of the sum in a round */
#define MOST_DAMPING 1e9

enum { P = TABLES_FIT_PARAMETERS };

struct search {
    struct tables_fit *fit;
    tables_residuals_fn residuals;
    void *context;
    double log_value[P];
    double slope[TABLES_FIT_POINTS][P];
    double normal[P][P], downhill[P]; /* J'J and -J'r */
};

static ls_status evaluate(struct search *s, const double *log_value, double *residual, double *sum) {
    double value[P];
    for (int k = 0; k < s->fit->parameters; k++) value[k] = exp(log_value[k]);
    s->fit->calls++;
    ls_status status = s->residuals(s->context, value, residual);
    *sum = 0;
    for (int i = 0; status == LS_OK && i < s->fit->points; i++) *sum += residual[i] * residual[i];
    if (status == LS_OK && !isfinite(*sum))
        status = ls_fail(LS_ERR_INVALID, "the fit reached a value that is not finite");
    return status;
}

static ls_status find_slopes(struct search *s) {
    double up[TABLES_FIT_POINTS], down[TABLES_FIT_POINTS], moved[P], sum;
    ls_status status = LS_OK;
    for (int k = 0; status == LS_OK && k < s->fit->parameters; k++) {
        memcpy(moved, s->log_value, sizeof moved);
        moved[k] += DIFFERENCE;
        status = evaluate(s, moved, up, &sum);
        moved[k] -= 2 * DIFFERENCE;
        if (status == LS_OK) status = evaluate(s, moved, down, &sum);
        for (int i = 0; status == LS_OK && i < s->fit->points; i++)
            s->slope[i][k] = (up[i] - down[i]) / (2 * DIFFERENCE);
    }
    for (int k = 0; k < s->fit->parameters; k++) {
        s->downhill[k] = 0;
        for (int i = 0; i < s->fit->points; i++) s->downhill[k] -= s->slope[i][k] * s->fit->residual[i];
        for (int l = 0; l < s->fit->parameters; l++) {
            s->normal[k][l] = 0;
            for (int i = 0; i < s->fit->points; i++) s->normal[k][l] += s->slope[i][k] * s->slope[i][l];
        }
    }
    return status;
}

/* Solves a x = b for a symmetric positive definite matrix by Cholesky decomposition; false: it is not positive
 * definite. */
static bool solve(int n, double a[P][P], const double *b, double *x) {
    double lower[P][P] = {{0}};
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++) {
            double rest = a[i][j];
            for (int k = 0; k < j; k++) rest -= lower[i][k] * lower[j][k];
            if (i == j && !(rest > 0)) return false;
            lower[i][j] = i == j ? sqrt(rest) : rest / lower[j][j];
        }
    }
    for (int i = 0; i < n; i++) {
        x[i] = b[i];
        for (int k = 0; k < i; k++) x[i] -= lower[i][k] * x[k];
        x[i] /= lower[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++) x[i] -= lower[k][i] * x[k];
        x[i] /= lower[i][i];
    }
    return true;
}

/* Tries a step with this damping, and accepts it if it lowers the sum. */
static ls_status try_step(struct search *s, double damping, bool *better) {
    double damped[P][P], step[P], moved[P], residual[TABLES_FIT_POINTS], sum;
    memcpy(damped, s->normal, sizeof damped);
    for (int k = 0; k < s->fit->parameters; k++) damped[k][k] *= 1 + damping;
    *better = false;
    if (!solve(s->fit->parameters, damped, s->downhill, step)) return LS_OK;
    for (int k = 0; k < s->fit->parameters; k++) moved[k] = s->log_value[k] + fmax(-1, fmin(1, step[k]));
    ls_status status = evaluate(s, moved, residual, &sum);
    if (status != LS_OK || !(sum < s->fit->sum)) return status;
    *better = true;
    s->fit->sum = sum;
    memcpy(s->log_value, moved, sizeof moved);
    memcpy(s->fit->residual, residual, sizeof residual);
    return LS_OK;
}

/* The square roots of the inverse matrix's diagonal, times the residuals' own spread. */
static void find_errors(struct search *s) {
    struct tables_fit *fit = s->fit;
    for (int k = 0; k < fit->parameters; k++) {
        double unit[P] = {0}, column[P] = {0};
        unit[k] = 1;
        bool known = fit->degrees_of_freedom > 0 && solve(fit->parameters, s->normal, unit, column);
        fit->error[k] = known ? sqrt(column[k] * fit->sum / fit->degrees_of_freedom) : NAN;
    }
}

ls_status tables_fit_least_squares(struct tables_fit *fit, tables_residuals_fn residuals, void *context) {
    struct search s = {.fit = fit, .residuals = residuals, .context = context};
    double damping = 1e-3;
    fit->degrees_of_freedom = fit->points - fit->parameters;
    fit->calls = fit->rounds = 0;
    if (fit->degrees_of_freedom < 0)
        return ls_fail(LS_ERR_INVALID, "a fit cannot have %d parameters with %d points", fit->parameters, fit->points);
    for (int k = 0; k < fit->parameters; k++) s.log_value[k] = log(fit->value[k]);
    ls_status status = evaluate(&s, s.log_value, fit->residual, &fit->sum);
    if (status == LS_OK) status = find_slopes(&s);
    while (status == LS_OK && fit->rounds < MOST_ROUNDS && damping < MOST_DAMPING) {
        double before = fit->sum;
        bool better;
        status = try_step(&s, damping, &better);
        damping = better ? damping / 10 : damping * 10;
        if (status != LS_OK || !better) continue;
        fit->rounds++;
        status = find_slopes(&s);
        if (before - fit->sum <= ENOUGH * before) break;
    }
    for (int k = 0; k < fit->parameters; k++) fit->value[k] = exp(s.log_value[k]);
    if (status == LS_OK) find_errors(&s);
    return status;
}
