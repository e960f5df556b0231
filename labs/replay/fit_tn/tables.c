#include <math.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/table.h"
#include "labs/replay/fit_tn/fit_tn.h"

#define LONG_NUMBER 1e9 /* longer ones are written with a power of ten */
#define POOR_SHARE 0.1  /* of the mean time: a law that errs by more fits badly */

/* What is not known stays empty. */
static void put_number(ls_table *table, int decimals, double value) {
    if (fabs(value) >= LONG_NUMBER) {
        ls_table_cell(table, "%.6g", value);
    } else {
        ls_table_number(table, decimals, value);
    }
}

enum { ENOUGH = 4 }; /* different N, for three coefficients and one to predict */

/* --- laws -------------------------------------------------------------------------------------------------------- */

/* A coefficient and its standard error; Amdahl's share in percent. */
static void put_coefficient(ls_table *table, const struct ls_fit *fit, int index, double value, double error) {
    bool share = index == 1 && fit->law == LS_LAW_AMDAHL;
    if (index >= fit->coefficients) {
        ls_table_cell(table, "%s", "");
        ls_table_cell(table, "%s", "");
    } else if (share) {
        ls_table_cell(table, "%.2f %%", 100 * value);
        if (isnan(error)) ls_table_cell(table, "%s", "");
        if (!isnan(error)) ls_table_cell(table, "%.2f %%", 100 * error);
    } else {
        put_number(table, 3, value);
        put_number(table, 3, error);
    }
}

static void put_half(ls_table *table, double n) {
    if (isinf(n)) {
        ls_table_cell(table, "%s", "nowhere");
    } else if (isnan(n)) {
        ls_table_cell(table, "%s", "");
    } else {
        ls_table_cell(table, n < 100 ? "%.1f" : "%.0f", n);
    }
}

/* Different N among the points, which are sorted. */
static int count_n(const fit_tn_data *data) {
    int count = 0;
    for (int i = 0; i < data->count; i++) count += i == 0 || data->points[i].n != data->points[i - 1].n;
    return count;
}

/* What a law's coefficients cannot be. */
static const char *remark(const struct ls_fit *fit) {
    if (fit->law == LS_LAW_AMDAHL) return fit->a_ms < 0 || fit->a_ms > 1 ? " (s outside of 0 .. 1: no share)" : "";
    return fit->a_ms < -fit->a_error_ms || fit->b_ms < -fit->b_error_ms ? " (below 0: no cost)" : "";
}

static ls_status print_laws(const fit_tn_result *result, const fit_tn_data *data) {
    static const ls_column columns[] = {
        {"law", LS_LEFT},
        {"Tcomm(N), N > 1", LS_LEFT},
        {"T1\nms", LS_RIGHT},
        {"+-\nms", LS_RIGHT},
        {"a\nms (s: %)", LS_RIGHT},
        {"+-", LS_RIGHT},
        {"b\nms", LS_RIGHT},
        {"+-\nms", LS_RIGHT},
        {"free\ndegrees", LS_RIGHT},
        {"R2", LS_RIGHT},
        {"rms\nms", LS_RIGHT},
        {"left out\nms", LS_RIGHT},
        {"50 %\nat N", LS_RIGHT},
        {"", LS_LEFT},
    };
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    printf("T_N = %s + Tcomm(N) by least squares, best first\n\n", data->weak ? "T1" : "T1 / N");
    for (size_t i = 0; i < result->fit_count; i++) {
        const struct ls_fit *fit = &result->fits[i];
        ls_table_cell(table, "%s", ls_law_name(fit->law));
        ls_table_cell(table, "%s", ls_law_formula(fit->law));
        put_coefficient(table, fit, 0, fit->t1_ms, fit->t1_error_ms);
        put_coefficient(table, fit, 1, fit->a_ms, fit->a_error_ms);
        put_coefficient(table, fit, 2, fit->b_ms, fit->b_error_ms);
        ls_table_cell(table, "%d", fit->points - fit->coefficients);
        put_number(table, 5, fit->r_squared);
        put_number(table, 3, fit->rms_ms);
        put_number(table, 3, fit->left_out_ms);
        put_half(table, fit->half_efficiency_n);
        ls_table_cell(table, "%s%s", i == 0 ? "chosen" : "", remark(fit));
    }
    status = ls_table_finish(table, stdout);
    int different = count_n(data);
    double left_out_ms = result->fits[0].left_out_ms, mean_ms = fit_tn_mean_ms(data);
    if (left_out_ms > POOR_SHARE * mean_ms)
        printf(
            "\nNo law fits well: the best one misses points that are left out by %.3g ms, %.0f %% of the mean time\n",
            left_out_ms, 100 * left_out_ms / mean_ms);
    if (different < ENOUGH) printf("\nOnly %d different N: too few to tell the laws apart\n", different);
    return status;
}

static ls_status print_rivals(const fit_tn_result *result) {
    static const ls_column columns[] = {
        {"law", LS_LEFT},      {"coefficients", LS_LEFT},  {"free\ndegrees", LS_RIGHT},
        {"rms\nms", LS_RIGHT}, {"left out\nms", LS_RIGHT}, {"do the points support it?", LS_LEFT},
    };
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    printf("\nBeside other explanations\n\n");
    for (int i = 0; i < result->rival_count; i++) {
        const fit_tn_rival *rival = &result->rivals[i];
        ls_table_cell(table, "%s", rival->law);
        ls_table_cell(table, "%s", rival->coefficients);
        ls_table_cell(table, "%d", rival->degrees);
        put_number(table, 3, rival->rms_ms);
        put_number(table, 3, rival->left_out_ms);
        ls_table_cell(table, "%s", rival->verdict);
    }
    return ls_table_finish(table, stdout);
}

/* --- points ------------------------------------------------------------------------------------------------------ */

static const char *t1_share(const fit_tn_data *data) { return data->weak ? "- T1\nms" : "- T1/N\nms"; }

static ls_status print_points(const fit_tn_result *result, const fit_tn_data *data) {
    const ls_column columns[] = {
        {"N", LS_RIGHT},           {"T_N\nms", LS_RIGHT},      {t1_share(data), LS_RIGHT},
        {"= Tcomm\nms", LS_RIGHT}, {"law says\nms", LS_RIGHT}, {"residual\nms", LS_RIGHT},
        {"residual\n%", LS_RIGHT}, {"speed-up", LS_RIGHT},     {"efficiency\n%", LS_RIGHT},
    };
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    printf("\nThe points beside the chosen law\n\n");
    for (int i = 0; i < data->count; i++) {
        const struct ls_fit_point *point = &data->points[i];
        double efficiency = fit_tn_efficiency(result, data, point->n, point->ms);
        double ideal_ms = result->t1_ms / (data->weak ? 1 : point->n), residual_ms = result->fits[0].residual_ms[i];
        ls_table_cell(table, "%d", point->n);
        put_number(table, 3, point->ms);
        put_number(table, 3, ideal_ms);
        put_number(table, 3, point->ms - ideal_ms);
        put_number(table, 3, point->ms - residual_ms);
        put_number(table, 3, residual_ms);
        put_number(table, 2, 100 * residual_ms / point->ms);
        put_number(table, 2, efficiency * point->n);
        put_number(table, 1, 100 * efficiency);
    }
    return ls_table_finish(table, stdout);
}

static ls_status print_predictions(const fit_tn_result *result, const fit_tn_data *data, const ls_int_list *predict) {
    static const ls_column columns[] = {
        {"N", LS_RIGHT}, {"T_N\nms", LS_RIGHT}, {"speed-up", LS_RIGHT}, {"efficiency\n%", LS_RIGHT}, {"", LS_LEFT}};
    ls_table *table;
    if (predict->count == 0) return LS_OK;
    ls_status status = ls_table_create(&table, columns, sizeof columns / sizeof *columns);
    if (status != LS_OK) return status;
    int most = data->points[data->count - 1].n;
    printf("\nWhat the law '%s' says of other N: a prediction, beyond N = %d an extrapolation, and a far one beyond "
           "%d\n\n",
           ls_law_name(result->fits[0].law), most, FIT_TN_FAR * most);
    for (int i = 0; i < predict->count; i++) {
        int n = predict->values[i];
        double ms = ls_fit_ms(&result->fits[0], n), efficiency = fit_tn_efficiency(result, data, n, ms);
        ls_table_cell(table, "%d", n);
        put_number(table, 3, ms);
        put_number(table, 2, efficiency * n);
        put_number(table, 1, 100 * efficiency);
        ls_table_cell(table, "%s", fit_tn_beyond(data, n));
    }
    return ls_table_finish(table, stdout);
}

static void print_legend(const fit_tn_data *data) {
    printf("\n"
           "+-            standard error, from the residuals and the free degrees (points - coefficients)\n"
           "R2            share of the times' variance that the law explains; rms: of the residuals\n"
           "left out      root mean square error on each N > 1 by the law fitted to the other points: it chooses\n"
           "50 %% at N     where the efficiency %s falls to one half\n"
           "speed-up      %s\n",
           data->weak ? "T1 / T_N" : "T1 / (N T_N)",
           data->weak ? "N T1 / T_N, since N devices do N times the work" : "T1 / T_N; efficiency: that / N");
}

ls_status fit_tn_print(const fit_tn_result *result, const fit_tn_data *data, const fit_tn_settings *settings) {
    printf("%s: %d points, %s\n\n", data->what, data->count, data->how);
    ls_status status = print_laws(result, data);
    if (status == LS_OK) status = print_points(result, data);
    if (status == LS_OK) status = print_predictions(result, data, &settings->predict);
    if (status == LS_OK) status = print_rivals(result);
    if (status == LS_OK) print_legend(data);
    return status;
}
