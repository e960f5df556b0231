/* files: the results as JSON, and as a CSV from which plots/tn_fit.gp draws: a row per point, per position on a curve,
 * per prediction; the texts are in every row, since gnuplot has no other source for them. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/named_files.h"
#include "labs/bench/shared/child.h"
#include "labs/bench/shared/output.h"
#include "labs/replay/engine/library.h"
#include "labs/replay/fit_tn/fit_tn.h"

#define SCRIPT "plots/tn_fit.gp"
#define GNUPLOT_S 60.0

enum { PLACES = 50 }; /* of a curve */

/* --- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *object_of(const bench_column *columns, const void *row) {
    cJSON *object = cJSON_CreateObject();
    bench_add_columns(object, columns, row);
    return object;
}

static cJSON *fit_object(const struct ls_fit *fit) {
    cJSON *object = object_of(fit_tn_law_columns, fit);
    bool amdahl = fit->law == LS_LAW_AMDAHL;
    if (fit->coefficients > 1) bench_add_number(object, amdahl ? "s" : "a_ms", fit->a_ms);
    if (fit->coefficients > 1) bench_add_number(object, amdahl ? "s_error" : "a_error_ms", fit->a_error_ms);
    if (fit->coefficients > 2) bench_add_number(object, "b_ms", fit->b_ms);
    if (fit->coefficients > 2) bench_add_number(object, "b_error_ms", fit->b_error_ms);
    bench_add_columns(object, fit_tn_quality_columns, fit);
    cJSON_AddItemToObject(object, "residual_ms", cJSON_CreateDoubleArray(fit->residual_ms, fit->points));
    return object;
}

/* The data to write. */
struct everything {
    const fit_tn_result *result;
    const fit_tn_data *data;
    const ls_int_list *predict;
};

static ls_status put_json(FILE *file, const void *of) {
    const struct everything *all = of;
    const fit_tn_result *result = all->result;
    const fit_tn_data *data = all->data;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "program", "fit_tn");
    cJSON_AddStringToObject(object, "what", data->what);
    cJSON_AddStringToObject(object, "how", data->how);
    cJSON_AddStringToObject(object, "scaling", data->weak ? "weak" : "strong");
    bench_add_number(object, "t1_ms", result->t1_ms);
    cJSON *points = cJSON_AddArrayToObject(object, "points");
    for (int i = 0; i < data->count; i++) {
        const fit_tn_line line = fit_tn_line_of(result, data, data->points[i].n, data->points[i].ms);
        cJSON_AddItemToArray(points, object_of(fit_tn_strong_columns, &line)); /* both scalings have the same names */
    }
    cJSON *fits = cJSON_AddArrayToObject(object, "laws");
    for (size_t i = 0; i < result->fit_count; i++) cJSON_AddItemToArray(fits, fit_object(&result->fits[i]));
    cJSON *rivals = cJSON_AddArrayToObject(object, "explanations");
    for (int i = 0; i < result->rival_count; i++)
        cJSON_AddItemToArray(rivals, object_of(fit_tn_rival_columns, &result->rivals[i]));
    cJSON *predictions = cJSON_AddArrayToObject(object, "predictions");
    for (int i = 0; i < all->predict->count; i++) {
        int n = all->predict->values[i];
        const fit_tn_line line = fit_tn_line_of(result, data, n, ls_fit_ms(&result->fits[0], n));
        cJSON_AddItemToArray(predictions, object_of(fit_tn_prediction_columns, &line));
    }
    return bench_put_json(file, object);
}

/* --- the picture ------------------------------------------------------------------------------------------------- */

static void put_row(FILE *file, const struct everything *all, const char *kind, const struct ls_fit *fit, double n,
                    double ms, double residual_ms) {
    char doubts[FIT_TN_TEXT];
    fit_tn_doubts(all->result, all->data, doubts);
    fprintf(file, "%s,", kind);
    bench_put_text(file, ls_law_name(fit->law));
    bench_put_number(file, n);
    bench_put_number(file, ms);
    bench_put_number(file, residual_ms);
    bench_put_number(file, fit->half_efficiency_n);
    fputc(',', file);
    bench_put_text(file, all->data->what);
    fputc(',', file);
    bench_put_text(file, all->data->how);
    fprintf(file, ",%s,", all->data->weak ? "weak" : "strong");
    bench_put_text(file, doubts);
    fputc('\n', file);
}

static ls_status put_picture(FILE *file, const void *of) {
    const struct everything *all = of;
    const fit_tn_data *data = all->data;
    const ls_int_list *predict = all->predict;
    double most = data->points[data->count - 1].n;
    for (int i = 0; i < predict->count; i++) most = fmax(most, predict->values[i]);
    fputs("kind,law,n,step_ms,residual_ms,half_efficiency_n,what,how,scaling,doubts\n", file);
    for (size_t k = 0; k < all->result->fit_count; k++) {
        const struct ls_fit *fit = &all->result->fits[k];
        for (int i = 0; i < data->count; i++)
            put_row(file, all, "point", fit, data->points[i].n, data->points[i].ms, fit->residual_ms[i]);
        /* equally spaced on a logarithmic axis; from just above N = 1 on, where the laws have a step */
        for (int i = 0; i <= PLACES; i++) {
            double n = fmax(pow(most, (double)i / PLACES), 1 + 1e-9);
            put_row(file, all, "curve", fit, n, ls_fit_ms(fit, n), NAN);
        }
        for (int i = 0; i < predict->count; i++)
            put_row(file, all, "prediction", fit, predict->values[i], ls_fit_ms(fit, predict->values[i]), NAN);
    }
    return LS_OK;
}

/* The file beside the picture: FILE.png as FILE.csv. False: the name is too long. */
static bool name_beside(char path[BENCH_PATH_CAPACITY], const char *png, const char *ending) {
    int stem = (int)(strlen(png) - strlen(".png"));
    return snprintf(path, BENCH_PATH_CAPACITY, "%.*s%s", stem, png, ending) < BENCH_PATH_CAPACITY;
}

/* FILE.csv, and gnuplot's FILE.png and FILE.svg. */
static ls_status draw(const char *png, const struct everything *all) {
    static bench_output output;
    char script[LS_SHIPPED_PATH], folder[BENCH_PATH_CAPACITY], data[BENCH_PATH_CAPACITY], lib[BENCH_PATH_CAPACITY + 16];
    if (!name_beside(data, png, ".csv")) return ls_fail(LS_ERR_IO, "--plot: the path is too long: %.60s...", png);
    snprintf(folder, sizeof folder, "%s", png);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    ls_status status = LS_OK;
    if (!ls_shipped_find(script, SCRIPT))
        status = ls_fail(LS_ERR_IO, "--plot: there is no " SCRIPT " here; run fit_tn in the project's folder");
    if (status == LS_OK) status = bench_write_to(data, put_picture, all);
    if (status != LS_OK) return status;
    /* the folder above plots/, in which the script looks for the files it loads */
    snprintf(lib, sizeof lib, "GNUPLOT_LIB=%.*s", (int)(strlen(script) - strlen(SCRIPT)), script);
    char *const argv[] = {"/usr/bin/env", "LC_ALL=C.UTF-8",     lib, "gnuplot", "-c", script,
                          data,           slash ? folder : ".", NULL};
    status = bench_child_run(argv, GNUPLOT_S, &output);
    if (status == LS_OK && access(png, R_OK) != 0)
        status = ls_fail(LS_ERR_SYSTEM, "gnuplot did not write %s: %s", png, bench_last_line(output.err));
    if (status == LS_OK) printf("\nwritten: %s\n", png);
    return status;
}

ls_status fit_tn_check_files(const fit_tn_settings *settings) {
    static const char *const endings[] = {".png", ".svg", ".csv"};
    char path[BENCH_PATH_CAPACITY];
    ls_named_files files = {0};
    ls_named_files_add(&files, &(ls_named_file){.option = "--csv", .path = settings->csv});
    ls_named_files_add(&files, &(ls_named_file){.option = "--json", .path = settings->json, .is_output = true});
    for (int i = 0; settings->plot && i < 3; i++) {
        if (!name_beside(path, settings->plot, endings[i])) continue; /* draw refuses such a name */
        ls_named_files_add(&files, &(ls_named_file){.option = "--plot", .path = path, .is_output = true});
    }
    return ls_named_files_check(&files);
}

ls_status fit_tn_write(const fit_tn_result *result, const fit_tn_data *data, const fit_tn_settings *settings) {
    const struct everything all = {result, data, &settings->predict};
    ls_status status = settings->json ? bench_write_to(settings->json, put_json, &all) : LS_OK;
    return status == LS_OK && settings->plot ? draw(settings->plot, &all) : status;
}
