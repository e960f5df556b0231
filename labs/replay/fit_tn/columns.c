/* columns: the columns of a law, of a rival and of a line of N devices, in text and JSON. */
#include <math.h>
#include <stdio.h>

#include "labs/replay/fit_tn/fit_tn.h"

#define LONG_NUMBER 1e9 /* longer ones are written with a power of ten */

/* Unknown values stay empty. */
static void put_number(char cell[BENCH_CELL], int decimals, double value) {
    if (fabs(value) >= LONG_NUMBER) {
        snprintf(cell, BENCH_CELL, "%.6g", value);
    } else if (!isnan(value)) {
        snprintf(cell, BENCH_CELL, "%.*f", decimals, value);
    }
}

/* A number in text and JSON, and one in text only. */
#define NUMBER(what, title, places, type, field)                                                                       \
    BENCH_COLUMN(.name = what, .head = title, BENCH_AT(BENCH_DOUBLE, type, field), .decimals = places,                 \
                 .format = put_number)
#define SHOWN(title, places, type, field)                                                                              \
    BENCH_COLUMN(.head = title, BENCH_AT(BENCH_DOUBLE, type, field), .decimals = places, .format = put_number)
#define END BENCH_COLUMN(.kind = BENCH_END)

/* --- laws -------------------------------------------------------------------------------------------------------- */

BENCH_TEXT_OF(law_of, struct ls_fit, ls_law_name(row->law))
BENCH_TEXT_OF(formula_of, struct ls_fit, ls_law_formula(row->law))
BENCH_NUMBER_OF(degrees_of, struct ls_fit, row->points - row->coefficients)

/* A coefficient, or its standard error; Amdahl's share in percent. */
static const char *coefficient(char cell[BENCH_CELL], const struct ls_fit *fit, int index, double value) {
    if (index >= fit->coefficients || isnan(value)) return "";
    if (index == 1 && fit->law == LS_LAW_AMDAHL) {
        snprintf(cell, BENCH_CELL, "%.2f %%", 100 * value);
    } else {
        put_number(cell, 3, value);
    }
    return cell;
}

#define COEFFICIENT(field, index)                                                                                      \
    static const char *field##_of(char cell[BENCH_CELL], const void *fit) {                                            \
        return coefficient(cell, fit, index, ((const struct ls_fit *)fit)->field);                                     \
    }
COEFFICIENT(a_ms, 1)
COEFFICIENT(a_error_ms, 1)
COEFFICIENT(b_ms, 2)
COEFFICIENT(b_error_ms, 2)

static void put_half(char cell[BENCH_CELL], int decimals, double n) {
    (void)decimals;
    if (!isnan(n)) snprintf(cell, BENCH_CELL, isinf(n) ? "nowhere" : n < 100 ? "%.1f" : "%.0f", n);
}

const bench_column fit_tn_law_columns[] = {
    {.name = "law", .head = "law", .text = law_of},
    {.name = "tcomm", .head = "Tcomm(N), N > 1", .text = formula_of},
    NUMBER("t1_ms", "T1\nms", 3, struct ls_fit, t1_ms),
    NUMBER("t1_error_ms", "+-\nms", 3, struct ls_fit, t1_error_ms),
    {.head = "a\nms (s: %)", .text = a_ms_of, .align = LS_RIGHT},
    {.head = "+-", .text = a_error_ms_of, .align = LS_RIGHT},
    {.head = "b\nms", .text = b_ms_of, .align = LS_RIGHT},
    {.head = "+-\nms", .text = b_error_ms_of, .align = LS_RIGHT},
    END,
};
const bench_column fit_tn_quality_columns[] = {
    {.name = "degrees_of_freedom", .head = "free\ndegrees", .number = degrees_of},
    NUMBER("r_squared", "R2", 5, struct ls_fit, r_squared),
    NUMBER("rms_ms", "rms\nms", 3, struct ls_fit, rms_ms),
    NUMBER("left_out_ms", "left out\nms", 3, struct ls_fit, left_out_ms),
    {.name = "half_efficiency_n",
     .head = "50 %\nat N",
     BENCH_AT(BENCH_DOUBLE, struct ls_fit, half_efficiency_n),
     .format = put_half},
    END,
};

#define TEXT(what, title, field) BENCH_COLUMN(.name = what, .head = title, BENCH_AT(BENCH_CHARS, fit_tn_rival, field))
const bench_column fit_tn_rival_columns[] = {
    TEXT("law", "law", law),
    TEXT("coefficients", "coefficients", coefficients),
    {.name = "degrees_of_freedom", .head = "free\ndegrees", BENCH_AT(BENCH_INT, fit_tn_rival, degrees)},
    NUMBER("rms_ms", "rms\nms", 3, fit_tn_rival, rms_ms),
    NUMBER("left_out_ms", "left out\nms", 3, fit_tn_rival, left_out_ms),
    TEXT("supported", "do the points support it?", verdict),
    END,
};

/* --- N devices --------------------------------------------------------------------------------------------------- */

fit_tn_line fit_tn_line_of(const fit_tn_result *result, const fit_tn_data *data, int n, double ms) {
    double efficiency = fit_tn_efficiency(result, data, n, ms), ideal_ms = result->t1_ms / (data->weak ? 1 : n);
    fit_tn_line line = {.n = n,
                        .ms = ms,
                        .ideal_ms = ideal_ms,
                        .tcomm_ms = ms - ideal_ms,
                        .speedup = efficiency * n,
                        .efficiency = efficiency};
    snprintf(line.beyond, sizeof line.beyond, "%s", fit_tn_beyond(data, n));
    return line;
}

BENCH_NUMBER_OF(law_ms_of, fit_tn_line, row->ms - row->residual_ms)
BENCH_NUMBER_OF(residual_percent_of, fit_tn_line, 100 * row->residual_ms / row->ms)

#define STEP                                                                                                           \
    BENCH_COLUMN(.name = "n", .head = "N", BENCH_AT(BENCH_INT, fit_tn_line, n)),                                       \
        NUMBER("step_ms", "T_N\nms", 3, fit_tn_line, ms)
#define SPEED_UP                                                                                                       \
    NUMBER("speedup", "speed-up", 2, fit_tn_line, speedup),                                                            \
        BENCH_COLUMN(.name = "efficiency", .head = "efficiency\n%", BENCH_AT(BENCH_DOUBLE, fit_tn_line, efficiency),   \
                     .percent = true, .decimals = 1, .format = put_number)
#define POINT(ideal)                                                                                                   \
    STEP, SHOWN(ideal, 3, fit_tn_line, ideal_ms), SHOWN("= Tcomm\nms", 3, fit_tn_line, tcomm_ms),                      \
        BENCH_COLUMN(.head = "law says\nms", .number = law_ms_of, .decimals = 3, .format = put_number),                \
        SHOWN("residual\nms", 3, fit_tn_line, residual_ms),                                                            \
        BENCH_COLUMN(.head = "residual\n%", .number = residual_percent_of, .decimals = 2, .format = put_number),       \
        SPEED_UP, END
const bench_column fit_tn_strong_columns[] = {POINT("- T1/N\nms")}, fit_tn_weak_columns[] = {POINT("- T1\nms")};

const bench_column fit_tn_prediction_columns[] = {
    STEP,
    SPEED_UP,
    {.name = "beyond", .head = "", BENCH_AT(BENCH_CHARS, fit_tn_line, beyond)},
    END,
};
