/* What the parts of fit_tn share: the settings, the points and the fits.
 *
 *     fit_tn.c     command line -> fit_tn_settings       points.c   --points or a CSV file -> fit_tn_data
 *     csv.c        a CSV file -> cells                   laws.c     points -> fitted laws, and which of them hold
 *     columns.c    the columns of text and JSON
 *     tables.c     -> stdout                             files.c    -> JSON, CSV, and a picture by gnuplot */
#ifndef LABS_REPLAY_FIT_TN_FIT_TN_H
#define LABS_REPLAY_FIT_TN_FIT_TN_H

#include "common/base/options.h"
#include "labs/bench/shared/columns.h"
#include "labs/replay/engine/fit.h"

enum { FIT_TN_TEXT = 200, FIT_TN_RIVALS = 4 };

/* --- settings ---------------------------------------------------------------------------------------------------- */

typedef enum fit_tn_scaling { FIT_TN_AUTO, FIT_TN_STRONG, FIT_TN_WEAK } fit_tn_scaling;

typedef struct fit_tn_settings {
    const char *points, *csv; /* one of them */
    const char *model;        /* of the CSV; NULL: its only one */
    const char *mode;         /* "dp" or "ddp" */
    const char *how, *on;     /* NULL: as in the CSV */
    const char *title;        /* NULL: composed of the model and the mode */
    fit_tn_scaling scaling;
    bool oversubscribed; /* use such rows, too */
    ls_int_list predict;
    const char *json, *plot; /* NULL: none */
} fit_tn_settings;

/* --- points ------------------------------------------------------------------------------------------------------ */

typedef struct fit_tn_data {
    char what[FIT_TN_TEXT]; /* "DDP, convnet, 100 samples per step on every N" */
    char how[FIT_TN_TEXT];  /* "measured on ..., 2 cores" */
    bool weak;
    int count, left_out;                           /* left_out: rows of oversubscribed runs */
    struct ls_fit_point points[LS_FIT_MAX_POINTS]; /* by N */
    struct ls_fine_point finer[LS_FIT_MAX_POINTS]; /* of the same points; NAN if the CSV does not have it */
    bool has_finer;                                /* all points with N > 1 have it */
    double t1_ms;                                  /* mean of the points with N = 1; NAN without one */
} fit_tn_data;

/* LS_ERR_USAGE: --points is malformed; LS_ERR_IO, LS_ERR_INVALID: the CSV. */
ls_status fit_tn_take_points(fit_tn_data *data, const fit_tn_settings *settings);

/* A CSV file (RFC 4180) in memory: row 0 is the head. */
typedef struct fit_tn_csv {
    const char *path;
    int rows, columns;
    char **cells; /* rows x columns */
    int *lines;   /* the line of the file on which each row begins */
    char *text;   /* owns the cells */
} fit_tn_csv;

/* LS_ERR_IO; LS_ERR_INVALID ("FILE:LINE: ..."): a row with more or fewer cells than the head, an open quote, no row. */
ls_status fit_tn_csv_open(fit_tn_csv *csv, const char *path);
void fit_tn_csv_close(fit_tn_csv *csv);
int fit_tn_csv_column(const fit_tn_csv *csv, const char *name);                         /* -1: there is none */
const char *fit_tn_csv_cell(const fit_tn_csv *csv, int row, int column);                /* column -1: "" */
ls_status fit_tn_csv_number(double *value, const fit_tn_csv *csv, int row, int column); /* empty: NAN */

/* --- laws -------------------------------------------------------------------------------------------------------- */

/* An alternative explanation of the points. */
typedef struct fit_tn_rival {
    char law[FIT_TN_TEXT], coefficients[FIT_TN_TEXT];
    bool is_impossible; /* Amdahl's s is outside 0 .. 1 by more than its error */
    int degrees;        /* points - coefficients; without those of N = 1 in the finer law */
    double rms_ms, left_out_ms;
    char verdict[FIT_TN_TEXT];
} fit_tn_rival;

typedef struct fit_tn_result {
    size_t fit_count;
    struct ls_fit fits[LS_LAW_COUNT]; /* fits[0] is the chosen one */
    int rival_count;
    fit_tn_rival rivals[FIT_TN_RIVALS]; /* the chosen law, Amdahl's, the other scaling, the finer law */
    double t1_ms;                       /* the base of speed-ups: of the points, or the chosen law's */
} fit_tn_result;

ls_status fit_tn_fit(fit_tn_result *result, const fit_tn_data *data);

/* The mean time of the points. */
double fit_tn_mean_ms(const fit_tn_data *data);

/* Why the chosen law may be wrong, for both text and picture: no law fits well, or there are too few different N. "" if
 * there is no reason for doubt. Always terminated. */
void fit_tn_doubts(const fit_tn_result *result, const fit_tn_data *data, char text[FIT_TN_TEXT]);

/* Whether a law's value at N is beyond the points: "", "extrapolated", or "extrapolated far", FIT_TN_FAR times beyond
 * their largest N, which is too far to be reliable. */
enum { FIT_TN_FAR = 4 };
const char *fit_tn_beyond(const fit_tn_data *data, int n);

/* T1 / (N T_N), or T1 / T_N under weak scaling. */
double fit_tn_efficiency(const fit_tn_result *result, const fit_tn_data *data, int n, double ms);

/* --- output ------------------------------------------------------------------------------------------------------ */

/* The step of N devices: of a point, or predicted. */
typedef struct fit_tn_line {
    int n;
    double ms, ideal_ms, tcomm_ms, speedup, efficiency;
    double residual_ms; /* of a point, set by the caller from the law */
    char beyond[32];
} fit_tn_line;
fit_tn_line fit_tn_line_of(const fit_tn_result *result, const fit_tn_data *data, int n, double ms);

/* The columns of a fit_tn_line: a point under strong and under weak scaling, and a prediction. Those of a fit, in two
 * lists, between which JSON has its coefficients; and those of a rival. */
extern const bench_column fit_tn_strong_columns[], fit_tn_weak_columns[], fit_tn_prediction_columns[];
extern const bench_column fit_tn_law_columns[], fit_tn_quality_columns[], fit_tn_rival_columns[];

ls_status fit_tn_print(const fit_tn_result *result, const fit_tn_data *data, const fit_tn_settings *settings);

/* JSON, and the picture with the files beside it. The check refuses outputs that name an input, or one another. */
ls_status fit_tn_check_files(const fit_tn_settings *settings);
ls_status fit_tn_write(const fit_tn_result *result, const fit_tn_data *data, const fit_tn_settings *settings);

#endif
