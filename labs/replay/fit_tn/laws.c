/* laws: the fits, and the chosen one beside its rivals.
 *
 * Rivals explain the same points differently: Amdahl's law (a share of the work that more devices do not shorten), the
 * other scaling (did each device get its own batch?), and the finer law, which knows one device's time for b/N samples
 * and the communication that the step waits for. The measure is the error on an N that the law was not fitted to. A
 * rival is supported if its error is at most twice the least one, or 2 % of the mean time, by which medians of good
 * runs differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "labs/replay/fit_tn/fit_tn.h"

#define TWICE 2.0
#define SMALL_SHARE 0.02
#define POOR_SHARE 0.1 /* of the mean time: a law with a larger error fits badly */

enum { ENOUGH = 4 }; /* different N: three for the coefficients and one to predict */

double fit_tn_efficiency(const fit_tn_result *result, const fit_tn_data *data, int n, double ms) {
    return result->t1_ms / ((data->weak ? 1 : n) * ms);
}

const char *fit_tn_beyond(const fit_tn_data *data, int n) {
    int most = data->points[data->count - 1].n;
    return n > FIT_TN_FAR * most ? "extrapolated far" : n > most ? "extrapolated" : "";
}

double fit_tn_mean_ms(const fit_tn_data *data) {
    double mean_ms = 0;
    for (int i = 0; i < data->count; i++) mean_ms += data->points[i].ms / data->count;
    return mean_ms;
}

/* Different N among the points, which are sorted. */
static int count_n(const fit_tn_data *data) {
    int count = 0;
    for (int i = 0; i < data->count; i++) count += i == 0 || data->points[i].n != data->points[i - 1].n;
    return count;
}

void fit_tn_doubts(const fit_tn_result *result, const fit_tn_data *data, char text[FIT_TN_TEXT]) {
    double left_out_ms = result->fits[0].left_out_ms, mean_ms = fit_tn_mean_ms(data);
    int length = 0, different = count_n(data);
    text[0] = '\0';
    if (left_out_ms > POOR_SHARE * mean_ms) {
        length = snprintf(text, FIT_TN_TEXT,
                          "No law fits well: the best one misses points that are left out by %.3g ms, %.0f %% of the "
                          "mean time",
                          left_out_ms, 100 * left_out_ms / mean_ms);
    }
    if (different < ENOUGH && length < FIT_TN_TEXT) {
        snprintf(text + length, (size_t)(FIT_TN_TEXT - length), "%sOnly %d different N: too few to tell the laws apart",
                 length > 0 ? ". " : "", different);
    }
}

/* --- rivals ------------------------------------------------------------------------------------------------------ */

static void put_coefficients(fit_tn_rival *rival, const struct ls_fit *fit) {
    if (fit->law == LS_LAW_AMDAHL) {
        snprintf(rival->coefficients, sizeof rival->coefficients, "T1 = %.4g ms, s = %.3g %%", fit->t1_ms,
                 100 * fit->a_ms);
    } else if (fit->coefficients == 1) {
        snprintf(rival->coefficients, sizeof rival->coefficients, "T1 = %.4g ms", fit->t1_ms);
    } else if (fit->coefficients == 2) {
        snprintf(rival->coefficients, sizeof rival->coefficients, "T1 = %.4g, a = %.3g ms", fit->t1_ms, fit->a_ms);
    } else {
        snprintf(rival->coefficients, sizeof rival->coefficients, "T1 = %.4g, a = %.3g, b = %.3g ms", fit->t1_ms,
                 fit->a_ms, fit->b_ms);
    }
}

static void add_law(fit_tn_result *result, const struct ls_fit *fit, const char *name) {
    fit_tn_rival *rival = &result->rivals[result->rival_count++];
    if (fit->law == LS_LAW_AMDAHL) {
        double error = isnan(fit->a_error_ms) ? 0 : fit->a_error_ms;
        snprintf(rival->law, sizeof rival->law, "%s: T1 (s + (1 - s) / N)", name);
        rival->is_impossible = fit->a_ms < -error || fit->a_ms > 1 + error;
    } else {
        bool free = fit->law == LS_LAW_NONE;
        snprintf(rival->law, sizeof rival->law, "%s: %s%s%s", name, fit->weak ? "T1" : "T1 / N", free ? "" : " + ",
                 free ? "" : ls_law_formula(fit->law));
    }
    put_coefficients(rival, fit);
    rival->degrees = fit->points - fit->coefficients;
    rival->rms_ms = fit->rms_ms;
    rival->left_out_ms = fit->left_out_ms;
}

static void add_amdahl(fit_tn_result *result) {
    for (size_t i = 1; i < result->fit_count; i++)
        if (result->fits[i].law == LS_LAW_AMDAHL) add_law(result, &result->fits[i], "Amdahl");
}

/* Adds the other scaling with a Tcomm that does not fall: a falling one would imitate the 1/N of the rival's law. */
static ls_status add_other_scaling(fit_tn_result *result, const fit_tn_data *data) {
    struct ls_fit fits[LS_LAW_COUNT];
    size_t count = 0;
    ls_status (*fit_laws)(struct ls_fit *, size_t *, const struct ls_fit_point *, size_t) =
        data->weak ? ls_fit_all : ls_fit_weak;
    ls_status status = fit_laws(fits, &count, data->points, (size_t)data->count);
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        if (fits[i].law == LS_LAW_AMDAHL || fits[i].a_ms < 0 || fits[i].b_ms < 0) continue;
        add_law(result, &fits[i], data->weak ? "strong scaling" : "weak scaling");
        break;
    }
    return status;
}

static ls_status add_finer(fit_tn_result *result, const fit_tn_data *data) {
    struct ls_fine_fit fit;
    if (!data->has_finer) return LS_OK;
    ls_status status = ls_fit_fine(&fit, data->finer, (size_t)data->count);
    if (status != LS_OK) return status;
    fit_tn_rival *rival = &result->rivals[result->rival_count++];
    snprintf(rival->law, sizeof rival->law, "finer: T1(b/N) + exposed + fixed");
    snprintf(rival->coefficients, sizeof rival->coefficients, "fixed = %.3g ms", fit.fixed_ms);
    rival->degrees = fit.points - 1;
    rival->rms_ms = fit.rms_ms;
    rival->left_out_ms = fit.left_out_ms;
    return LS_OK;
}

static void judge(fit_tn_result *result, const fit_tn_data *data) {
    double least_ms = INFINITY, mean_ms = fit_tn_mean_ms(data);
    for (int i = 0; i < result->rival_count; i++) least_ms = fmin(least_ms, result->rivals[i].left_out_ms);
    for (int i = 0; i < result->rival_count; i++) {
        fit_tn_rival *rival = &result->rivals[i];
        double error_ms = rival->left_out_ms;
        const char *verdict = error_ms <= TWICE * least_ms        ? "yes: at most twice the least error"
                              : error_ms <= SMALL_SHARE * mean_ms ? "yes: less than 2 % of the mean time"
                                                                  : NULL;
        if (error_ms == least_ms) verdict = "yes: the least error";
        if (isnan(error_ms)) verdict = "too few points to tell";
        if (rival->is_impossible) verdict = "no: s is no share, outside of 0 .. 1";
        if (verdict) {
            snprintf(rival->verdict, sizeof rival->verdict, "%s", verdict);
        } else {
            snprintf(rival->verdict, sizeof rival->verdict, "no: off by %.3g %% of the mean time",
                     100 * error_ms / mean_ms);
        }
    }
}

ls_status fit_tn_fit(fit_tn_result *result, const fit_tn_data *data) {
    *result = (fit_tn_result){.fit_count = 0};
    ls_status status =
        (data->weak ? ls_fit_weak : ls_fit_all)(result->fits, &result->fit_count, data->points, (size_t)data->count);
    if (status != LS_OK) return status;
    result->t1_ms = isnan(data->t1_ms) ? result->fits[0].t1_ms : data->t1_ms;
    add_law(result, &result->fits[0], "chosen");
    add_amdahl(result);
    status = add_other_scaling(result, data);
    if (status == LS_OK) status = add_finer(result, data);
    judge(result, data);
    return status;
}
