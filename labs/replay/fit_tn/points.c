/* points: from --points, or from the rows of a CSV file.
 *
 * Columns that count: mode ("single", "DP", "DDP"), n, step_ms; and, if present, model, batch, per_device_batch,
 * exposed_ms, oversubscribed, bucket_cap_mb, how, and those of the machine (node and host_lock_us; or device_name, cpu
 * and cores). A row is of all devices of one N: a file with a column `device`, or with an N twice, is refused. T1 is
 * the row "single" of n = 1: the plain path on one device has the same time for both modes, so the mode's own row of N
 * = 1 is not used. The row "single" of n = 4 is T1(b/4). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/log.h"
#include "labs/replay/fit_tn/fit_tn.h"

/* --- --points ---------------------------------------------------------------------------------------------------- */

static ls_status add_point(fit_tn_data *data, int n, double ms) {
    if (data->count == LS_FIT_MAX_POINTS)
        return ls_fail(LS_ERR_INVALID, "too many points; expected at most %d", LS_FIT_MAX_POINTS);
    data->points[data->count] = (struct ls_fit_point){n, ms};
    data->finer[data->count++] = (struct ls_fine_point){n, ms, NAN, NAN};
    return LS_OK;
}

static ls_status parse_points(fit_tn_data *data, const char *text) {
    ls_status status = LS_OK;
    for (const char *at = text; status == LS_OK;) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || *end != ':' || n < 1 || n > 1000000) break;
        at = end + 1;
        double ms = strtod(at, &end);
        if (end == at || !isfinite(ms) || ms <= 0 || (*end != ',' && *end != '\0')) break;
        status = add_point(data, (int)n, ms);
        if (*end == '\0') return status;
        at = end + 1;
    }
    if (status != LS_OK) return status;
    return ls_fail(
        LS_ERR_USAGE,
        "--points: expected a list of N:MS with N = 1 .. 1e6 and a time above 0, as in 1:100,2:52, found '%s'", text);
}

/* --- the CSV ----------------------------------------------------------------------------------------------------- */

/* Columns by the names below; -1: not in the file. */
enum {
    MODE,
    N,
    STEP_MS,
    MODEL,
    BATCH,
    SHARE,
    EXPOSED_MS,
    SHARED,
    CAP,
    HOW,
    NODE,
    LOCK,
    DEVICE_NAME,
    CPU,
    CORES,
    COLUMNS
};
static const char *const names[COLUMNS] = {"mode",          "n",
                                           "step_ms",       "model",
                                           "batch",         "per_device_batch",
                                           "exposed_ms",    "oversubscribed",
                                           "bucket_cap_mb", "how",
                                           "node",          "host_lock_us",
                                           "device_name",   "cpu",
                                           "cores"};

struct rows {
    fit_tn_csv csv;
    int column[COLUMNS];
    const fit_tn_settings *settings;
    const char *model;
};

static const char *cell(const struct rows *rows, int row, int column) {
    return fit_tn_csv_cell(&rows->csv, row, rows->column[column]);
}

static ls_status number(double *value, const struct rows *rows, int row, int column) {
    return fit_tn_csv_number(value, &rows->csv, row, rows->column[column]);
}

static ls_status open_rows(struct rows *rows, const fit_tn_settings *settings) {
    *rows = (struct rows){.settings = settings, .model = settings->model};
    ls_status status = fit_tn_csv_open(&rows->csv, settings->csv);
    if (status == LS_OK && fit_tn_csv_column(&rows->csv, "parameters_bytes") >= 0) {
        fit_tn_csv_close(&rows->csv);
        return ls_fail(LS_ERR_INVALID, "%s has rows for each device; fit replay.csv, which has one for each N",
                       settings->csv);
    }
    for (int i = 0; status == LS_OK && i < COLUMNS; i++) {
        rows->column[i] = fit_tn_csv_column(&rows->csv, names[i]);
        if (rows->column[i] >= 0 || i > STEP_MS) continue;
        status = ls_fail(LS_ERR_INVALID, "%s:1: there is no column %s", settings->csv, names[i]);
        fit_tn_csv_close(&rows->csv);
    }
    return status;
}

/* The only model of the file, or the requested one. */
static ls_status settle_model(struct rows *rows) {
    const char *first = cell(rows, 1, MODEL);
    for (int row = 1; row < rows->csv.rows; row++) {
        const char *model = cell(rows, row, MODEL);
        if (rows->model && strcmp(model, rows->model) == 0) return LS_OK;
        if (!rows->model && strcmp(model, first) != 0)
            return ls_fail(LS_ERR_USAGE, "%s has the models %s, %s, ...; choose one with --model", rows->csv.path,
                           first, model);
    }
    if (rows->model) return ls_fail(LS_ERR_INVALID, "%s has no rows of the model %s", rows->csv.path, rows->model);
    rows->model = first;
    return LS_OK;
}

static bool is_of(const struct rows *rows, int row, const char *mode) {
    return strcmp(cell(rows, row, MODEL), rows->model) == 0 && strcasecmp(cell(rows, row, MODE), mode) == 0;
}

static ls_status read_n(int *n, const struct rows *rows, int row) {
    double value;
    ls_status status = number(&value, rows, row, N);
    if (status != LS_OK) return status;
    *n = value >= 1 && value <= 1e6 ? (int)value : 0;
    if (*n == value) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s:%d: n is '%s'; expected 1 to 1e6", rows->csv.path, rows->csv.lines[row],
                   cell(rows, row, N));
}

/* The step time of one device with the share of one of `wanted` devices, NAN: there is none. In replay's files that row
 * has the same n; in the bench's, whose rows of one device have n = 1, it is the row with that share (NULL: not
 * searched). The first with n = 1 is T1 in both. */
static ls_status alone(double *ms, const struct rows *rows, int wanted, const char *share) {
    *ms = NAN;
    int found = 0, like = 0;
    for (int row = 1; row < rows->csv.rows && !found; row++) {
        int n = 0;
        if (!is_of(rows, row, "single")) continue;
        ls_status status = read_n(&n, rows, row);
        if (status != LS_OK) return status;
        if (n == wanted) found = row;
        if (n == 1 && !like && share && *share && strcmp(cell(rows, row, SHARE), share) == 0) like = row;
    }
    if (!found) found = like;
    return found ? number(ms, rows, found, STEP_MS) : LS_OK;
}

/* Refuses a second value of a column among the rows of a curve: they are points of different curves. */
static ls_status expect_same(const struct rows *rows, int first, int row, int column, const char *advice) {
    if (strcmp(cell(rows, first, column), cell(rows, row, column)) == 0) return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s:%d: %s is %s, but line %d has %s; %s", rows->csv.path, rows->csv.lines[row],
                   names[column], cell(rows, row, column), rows->csv.lines[first], cell(rows, first, column), advice);
}

static ls_status add_row(fit_tn_data *data, const struct rows *rows, int row) {
    struct ls_fine_point point;
    double t1_ms;
    ls_status status = read_n(&point.n, rows, row);
    if (status == LS_OK) status = number(&point.ms, rows, row, STEP_MS);
    if (status == LS_OK) status = number(&point.exposed_ms, rows, row, EXPOSED_MS);
    if (status == LS_OK) status = alone(&point.alone_ms, rows, point.n, cell(rows, row, SHARE));
    if (status == LS_OK) status = alone(&t1_ms, rows, 1, NULL);
    if (status != LS_OK || (point.n == 1 && !isnan(t1_ms))) return status;
    if (point.n > 1 && !rows->settings->oversubscribed && strcmp(cell(rows, row, SHARED), "yes") == 0) {
        data->left_out++;
        return LS_OK;
    }
    status = add_point(data, point.n, point.ms);
    if (status == LS_OK) data->finer[data->count - 1] = point;
    return status;
}

/* Refuses two rows of one mode and N: a point would count twice. */
static ls_status expect_new(const struct rows *rows, int row, const char *mode) {
    int n = 0, earlier_n = 0;
    ls_status status = read_n(&n, rows, row);
    for (int earlier = 1; status == LS_OK && earlier < row; earlier++) {
        if (!is_of(rows, earlier, mode)) continue;
        status = read_n(&earlier_n, rows, earlier);
        if (status == LS_OK && earlier_n == n)
            status = ls_fail(LS_ERR_INVALID, "%s:%d: N = %d of %s is already in line %d; expected one row for each N",
                             rows->csv.path, rows->csv.lines[row], n, mode, rows->csv.lines[earlier]);
    }
    return status;
}

/* Whether two rows have the same batch per device, rather than the same total. */
static bool are_weak(const struct rows *rows, int first, int row) {
    return strcmp(cell(rows, first, SHARE), cell(rows, row, SHARE)) == 0 &&
           strcmp(cell(rows, first, BATCH), cell(rows, row, BATCH)) != 0;
}

static void describe(fit_tn_data *data, const struct rows *rows, int row) {
    char mode[8];
    snprintf(mode, sizeof mode, "%s", strcasecmp(rows->settings->mode, "dp") == 0 ? "DP" : "DDP");
    snprintf(data->what, sizeof data->what, "%s%s%s, %s samples per step on %s", mode, *rows->model ? ", " : "",
             rows->model, cell(rows, row, data->weak ? SHARE : BATCH), data->weak ? "every device" : "every N");
    if (!*cell(rows, row, BATCH)) snprintf(data->what, sizeof data->what, "%s, %s", mode, rows->model);
    const char *how = rows->settings->how ? rows->settings->how : cell(rows, row, HOW);
    const char *node = cell(rows, row, NODE), *gpu = cell(rows, row, DEVICE_NAME), *cpu = cell(rows, row, CPU);
    double lock_us = strtod(cell(rows, row, LOCK), NULL);
    if (rows->settings->on) {
        snprintf(data->how, sizeof data->how, "%s on %s", how, rows->settings->on);
    } else if (*node || *gpu) {
        snprintf(data->how, sizeof data->how, "%s on %s", how, *node ? node : gpu);
        size_t length = strlen(data->how);
        if (lock_us > 0)
            snprintf(data->how + length, sizeof data->how - length, ", a host lock of %g us per launch", lock_us);
    } else if (*cpu) {
        snprintf(data->how, sizeof data->how, "%s on %s, %s cores", how, cpu, cell(rows, row, CORES));
    } else {
        snprintf(data->how, sizeof data->how, "%s", *how ? how : "it is not said how they were found");
    }
}

static ls_status read_rows(fit_tn_data *data, struct rows *rows) {
    int first = 0;
    double t1_ms;
    ls_status status = settle_model(rows);
    if (status == LS_OK) status = alone(&t1_ms, rows, 1, NULL);
    if (status == LS_OK && !isnan(t1_ms)) status = add_point(data, 1, t1_ms);
    for (int row = 1; status == LS_OK && row < rows->csv.rows; row++) {
        if (!is_of(rows, row, rows->settings->mode)) continue;
        if (!first) first = row;
        data->weak = data->weak || are_weak(rows, first, row);
        status = expect_same(rows, first, row, CAP, "keep one of them in the file");
        if (status == LS_OK) status = expect_same(rows, first, row, HOW, "figures of two kinds are not one curve");
        if (status == LS_OK) status = expect_same(rows, first, row, NODE, "figures of two machines are not one curve");
        if (status == LS_OK && rows->settings->how && *cell(rows, row, HOW) &&
            strcmp(rows->settings->how, cell(rows, row, HOW)) != 0)
            status = ls_fail(LS_ERR_USAGE, "--how is %s, but %s has %s", rows->settings->how, rows->csv.path,
                             cell(rows, row, HOW));
        if (status == LS_OK) status = expect_new(rows, row, rows->settings->mode);
        if (status == LS_OK) status = add_row(data, rows, row);
    }
    if (status == LS_OK && !first)
        return ls_fail(LS_ERR_INVALID, "%s has no rows of mode %s", rows->csv.path, rows->settings->mode);
    if (status == LS_OK) describe(data, rows, first);
    return status;
}

static ls_status read_csv(fit_tn_data *data, const fit_tn_settings *settings) {
    struct rows rows;
    ls_status status = open_rows(&rows, settings);
    if (status != LS_OK) return status;
    status = read_rows(data, &rows);
    fit_tn_csv_close(&rows.csv);
    return status;
}

/* --- both -------------------------------------------------------------------------------------------------------- */

static int compare_points(const void *left, const void *right) {
    const struct ls_fine_point *a = left, *b = right;
    return a->n != b->n ? (a->n > b->n) - (a->n < b->n) : (a->ms > b->ms) - (a->ms < b->ms);
}

static void settle(fit_tn_data *data, const fit_tn_settings *settings) {
    double sum = 0;
    int ones = 0;
    if (settings->scaling != FIT_TN_AUTO) data->weak = settings->scaling == FIT_TN_WEAK;
    qsort(data->finer, (size_t)data->count, sizeof data->finer[0], compare_points);
    data->has_finer = data->count > 0 && data->finer[data->count - 1].n > 1;
    for (int i = 0; i < data->count; i++) {
        struct ls_fine_point *point = &data->finer[i];
        data->points[i] = (struct ls_fit_point){point->n, point->ms};
        if (point->n == 1) {
            sum += point->ms;
            ones++;
            point->alone_ms = point->ms;
            point->exposed_ms = 0;
        }
        data->has_finer = data->has_finer && isfinite(point->alone_ms + point->exposed_ms);
    }
    data->t1_ms = ones > 0 ? sum / ones : NAN;
}

ls_status fit_tn_take_points(fit_tn_data *data, const fit_tn_settings *settings) {
    *data = (fit_tn_data){.count = 0};
    ls_status status = settings->points ? parse_points(data, settings->points) : read_csv(data, settings);
    if (status != LS_OK) return status;
    if (settings->points) {
        snprintf(data->what, sizeof data->what, "the points of the command line");
        snprintf(data->how, sizeof data->how, "%s%s%s",
                 settings->how ? settings->how : "given; it is not said how they were found",
                 settings->on ? " on " : "", settings->on ? settings->on : "");
    }
    if (settings->title) snprintf(data->what, sizeof data->what, "%s", settings->title);
    settle(data, settings);
    if (data->left_out > 0)
        ls_note("%d row%s left out, with more devices than cores, whose times only show time-slicing (--oversubscribed "
                "takes them)",
                data->left_out, data->left_out == 1 ? " is" : "s are");
    return LS_OK;
}
