/* rows: each mode on each N, compared with one device's step.
 *
 * Strong scaling (the batch b is shared): T1 is one device's step with b samples, the speed-up T1 / T_N, the efficiency
 * speed-up / N, and Tcomm = T_N - T1 / N. Weak scaling (b samples on each device): N devices do N times the work of T1,
 * so the speed-up is N T1 / T_N and Tcomm = T_N - T1. Each row also has T1(b/N), one device's time for the samples of
 * one of N devices, for the finer law of fit_tn. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "labs/replay/record/record.h"
#include "labs/replay/replay/replay.h"

static ls_status add_row(replay_rows *rows, const replay_row *row) {
    if (rows->count == rows->capacity) {
        int capacity = 2 * rows->capacity + 16;
        replay_row *more = realloc(rows->rows, (size_t)capacity * sizeof *more);
        if (!more) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %d rows", capacity);
        rows->rows = more;
        rows->capacity = capacity;
    }
    rows->rows[rows->count++] = *row;
    return LS_OK;
}

void replay_rows_free(replay_rows *rows) {
    free(rows->rows);
    rows->rows = NULL;
    rows->count = rows->capacity = 0;
}

static double batch_of(const replay_settings *settings, int n) {
    return settings->per_device_batch > 0 ? settings->per_device_batch * n : settings->batch;
}

/* One device's step with the share of one of n devices; the largest share, if n does not divide the batch. */
static ls_status add_single(replay_rows *rows, int n) {
    const replay_settings *settings = rows->settings;
    replay_row row = {.mode = LS_PLAN_SINGLE, .n = 1, .cap_mb = NAN};
    replay_run run;
    row.batch = settings->per_device_batch > 0 ? settings->per_device_batch : ceil(settings->batch / n);
    ls_status status = replay_run_row(&row, &run, rows->inputs, rows->settings);
    if (status != LS_OK) return status;
    replay_run_free(&run);
    row.n = n;
    return add_row(rows, &row);
}

static const replay_row *find_single(const replay_rows *rows, int n) {
    for (int i = 0; i < rows->count; i++)
        if (rows->rows[i].mode == LS_PLAN_SINGLE && rows->rows[i].n == n) return &rows->rows[i];
    return NULL;
}

/* Compares the row with one device's. */
static void compare(replay_row *row, const replay_rows *rows) {
    double parts = rows->settings->per_device_batch > 0 ? 1 : row->n;
    row->t1_ms = find_single(rows, 1)->step_ms;
    row->alone_ms = find_single(rows, row->n)->step_ms;
    row->ideal_ms = row->t1_ms / parts;
    row->over_ms = row->step_ms - row->ideal_ms;
    row->efficiency = row->ideal_ms / row->step_ms;
    row->speedup = row->efficiency * row->n;
    if (row->mode == LS_PLAN_SINGLE && row->n > 1) /* a part of the work: T1(b/N) is not a T_N */
        row->ideal_ms = row->over_ms = row->efficiency = row->speedup = NAN;
}

/* Whether the given trace is of the run that the row replays. */
static bool is_recorded(const replay_row *row, const replay_rows *rows) {
    if (!rows->inputs->trace) return false;
    const struct ls_trace_about *about = ls_trace_what(rows->inputs->trace);
    int micro_batches = about->micro_batches > 1 ? about->micro_batches : 1;
    return strcmp(about->mode, record_modes[row->mode].mode->option) == 0 && (double)about->batch_size == row->batch &&
           micro_batches == rows->settings->accumulate &&
           (about->world_size > about->devices ? about->world_size : about->devices) == row->n;
}

/* Of several bucket sizes and ways of transfer, only the first is drawn. */
static bool is_drawn(const replay_row *row, const replay_settings *settings) {
    if (row->mode == LS_PLAN_DP && row->by_collectives && settings->by_copies) return false;
    bool first_cap = row->mode != LS_PLAN_DDP || row->cap_mb == settings->caps_mb[0];
    return first_cap && row->n == settings->n.values[settings->n.count - 1];
}

static ls_status make_row(replay_rows *rows, replay_row row, bench_text *gantt) {
    const replay_inputs *inputs = rows->inputs;
    const replay_settings *settings = rows->settings;
    replay_run run;
    ls_status status = replay_run_row(&row, &run, rows->inputs, rows->settings);
    if (status != LS_OK) return status;
    compare(&row, rows);
    if (is_recorded(&row, rows)) row.recorded_ms = ls_trace_what(inputs->trace)->median_step_ms;
    bool drawn = is_drawn(&row, settings);
    if (drawn && gantt->file) {
        char on[REPLAY_TITLE + 64];
        snprintf(on, sizeof on, "%s; %g samples per step, %s", inputs->on, row.batch,
                 ls_dtype_name(settings->precision));
        replay_gantt_add(gantt, &run, &row, on);
    }
    if (drawn && settings->timeline) status = replay_write_timeline(&run, settings->timeline);
    replay_run_free(&run);
    return status == LS_OK ? add_row(rows, &row) : status;
}

static ls_status make_mode(replay_rows *rows, ls_plan_mode mode, bool by_collectives, bench_text *gantt) {
    const replay_settings *settings = rows->settings;
    ls_status status = LS_OK;
    for (int i = 0; i < settings->n.count; i++) {
        int n = settings->n.values[i];
        replay_row row = {
            .mode = mode, .n = n, .batch = batch_of(settings, n), .by_collectives = by_collectives, .cap_mb = NAN};
        for (int c = 0; status == LS_OK && c < (mode == LS_PLAN_DDP ? settings->cap_count : 1); c++) {
            if (mode == LS_PLAN_DDP) row.cap_mb = settings->caps_mb[c];
            status = make_row(rows, row, gantt);
        }
    }
    return status;
}

/* The rows of one device first: T1, then T1(b/N). */
static ls_status make_singles(replay_rows *rows) {
    const ls_int_list *n = &rows->settings->n;
    ls_status status = add_single(rows, 1);
    for (int i = 0; status == LS_OK && i < n->count; i++)
        if (n->values[i] > 1) status = add_single(rows, n->values[i]);
    for (int i = 0; status == LS_OK && i < rows->count; i++) {
        replay_row *row = &rows->rows[i];
        compare(row, rows);
        if (is_recorded(&(replay_row){.mode = LS_PLAN_SINGLE, .n = 1, .batch = row->batch}, rows))
            row->recorded_ms = ls_trace_what(rows->inputs->trace)->median_step_ms;
    }
    return status;
}

ls_status replay_make_rows(replay_rows *rows) {
    const replay_settings *settings = rows->settings;
    bench_text gantt = {.file = NULL};
    ls_status status = settings->gantt ? replay_gantt_open(&gantt) : LS_OK;
    if (status == LS_OK) status = make_singles(rows);
    if (status == LS_OK && settings->modes[LS_PLAN_SINGLE] && (settings->gantt || settings->timeline)) {
        replay_rows shown = {.inputs = rows->inputs,
                             .settings = settings}; /* the picture of T1, whose row exists already */
        status = add_row(&shown, &rows->rows[0]);
        if (status == LS_OK) status = make_mode(&shown, LS_PLAN_SINGLE, false, &gantt);
        replay_rows_free(&shown);
    }
    for (int way = 0; status == LS_OK && settings->modes[LS_PLAN_DP] && way < 2; way++)
        if (way == 0 ? settings->by_copies : settings->by_collectives)
            status = make_mode(rows, LS_PLAN_DP, way == 1, &gantt);
    if (status == LS_OK && settings->modes[LS_PLAN_DDP]) status = make_mode(rows, LS_PLAN_DDP, false, &gantt);
    ls_status closed = settings->gantt ? replay_gantt_close(&gantt, status == LS_OK ? settings->gantt : NULL) : LS_OK;
    return status == LS_OK ? closed : status;
}
