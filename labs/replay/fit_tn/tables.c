#include <stdio.h>

#include "common/base/log.h"
#include "labs/replay/fit_tn/fit_tn.h"

/* --- laws -------------------------------------------------------------------------------------------------------- */

/* A remark on impossible coefficients of a law. */
static const char *remark(const struct ls_fit *fit) {
    if (fit->law == LS_LAW_AMDAHL) return fit->a_ms < 0 || fit->a_ms > 1 ? " (s outside of 0 .. 1: no share)" : "";
    return fit->a_ms < -fit->a_error_ms || fit->b_ms < -fit->b_error_ms ? " (below 0: no cost)" : "";
}

/* A line of the table of laws: the fit, and remarks on it. */
struct line {
    const struct ls_fit *fit;
    bool chosen;
};

BENCH_MADE_TEXT_OF(remarks_of, struct line, true, "%s%s", row->chosen ? "chosen" : "", remark(row->fit))

static const bench_column laws[] = {
    BENCH_OF(struct line, fit, fit_tn_law_columns),
    BENCH_OF(struct line, fit, fit_tn_quality_columns),
    {.head = "", .text = remarks_of},
    {.kind = BENCH_END},
};

static ls_status print_laws(const fit_tn_result *result, const fit_tn_data *data) {
    bench_table table = {.columns = laws};
    printf("T_N = %s + Tcomm(N) by least squares, best first\n\n", data->weak ? "T1" : "T1 / N");
    for (size_t i = 0; i < result->fit_count; i++) bench_table_line(&table, &(struct line){&result->fits[i], i == 0});
    ls_status status = bench_table_finish(&table, stdout);
    char doubts[FIT_TN_TEXT];
    fit_tn_doubts(result, data, doubts);
    if (doubts[0]) printf("\n%s\n", doubts);
    return status;
}

static ls_status print_rivals(const fit_tn_result *result) {
    printf("\nBeside other explanations\n\n");
    return bench_print_rows(stdout, fit_tn_rival_columns, result->rivals, (size_t)result->rival_count,
                            sizeof(fit_tn_rival));
}

/* --- points ------------------------------------------------------------------------------------------------------ */

static ls_status print_points(const fit_tn_result *result, const fit_tn_data *data) {
    bench_table table = {.columns = data->weak ? fit_tn_weak_columns : fit_tn_strong_columns};
    printf("\nThe points beside the chosen law\n\n");
    for (int i = 0; i < data->count; i++) {
        fit_tn_line line = fit_tn_line_of(result, data, data->points[i].n, data->points[i].ms);
        line.residual_ms = result->fits[0].residual_ms[i];
        bench_table_line(&table, &line);
    }
    return bench_table_finish(&table, stdout);
}

static ls_status print_predictions(const fit_tn_result *result, const fit_tn_data *data, const ls_int_list *predict) {
    bench_table table = {.columns = fit_tn_prediction_columns};
    if (predict->count == 0) return LS_OK;
    int most = data->points[data->count - 1].n;
    printf("\nWhat the law '%s' says of other N: a prediction, beyond N = %d an extrapolation, and a far one beyond "
           "%d\n\n",
           ls_law_name(result->fits[0].law), most, FIT_TN_FAR * most);
    for (int i = 0; i < predict->count; i++) {
        int n = predict->values[i];
        const fit_tn_line line = fit_tn_line_of(result, data, n, ls_fit_ms(&result->fits[0], n));
        bench_table_line(&table, &line);
    }
    return bench_table_finish(&table, stdout);
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
