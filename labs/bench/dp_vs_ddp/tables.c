/* tables: the first screen's tables. One per model: DP and DDP of each N under one another, what was measured on the
 * left, virtual times on the right. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/train/loop.h"
#include "labs/bench/dp_vs_ddp/bench.h"

/* --- the head ---------------------------------------------------------------------------------------------------- */

static const char *plural(int count) { return count == 1 ? "" : "s"; }

static void print_head(FILE *file, const bench_model *model, const bench_settings *settings) {
    const bench_plan *plan = model->plan;
    fprintf(file, "\n%s: %s scaling, %lld samples per step on every %s,", plan->model, plan->weak ? "weak" : "strong",
            (long long)plan->batch, plan->weak ? "device" : "N");
    for (int i = 0; plan->recipe[i]; i++) fprintf(file, " %s", plan->recipe[i] + 2);
    fprintf(file, "\nmeasured: %d run%s of %d steps a row, on %d %s%s", settings->rounds, plural(settings->rounds),
            plan->steps, settings->processors, settings->gpus ? "GPU" : "core", plural(settings->processors));
    if (model->virtual_count > 0) {
        fprintf(file, "; virtual: a core for each device, replayed from %d run%s of %d steps", settings->rounds,
                plural(settings->rounds), model->virtual_plan.steps - LS_WARMUP_STEPS);
    }
    fprintf(file, "\n\n");
}

/* --- the rows ---------------------------------------------------------------------------------------------------- */

/* Percent of the median. */
static double spread_of(const bench_row *row) {
    double spread = 100 * (row->step_ms_max - row->step_ms_min) / row->step_ms;
    return row->run_count > 1 ? spread : (double)NAN;
}

static void put_times(ls_table *table, const bench_row *row) {
    double spread = row ? spread_of(row) : (double)NAN;
    ls_table_number(table, 3, row ? row->step_ms : (double)NAN);
    ls_table_number(table, 1, spread);
    ls_table_number(table, 2, row ? row->speedup : (double)NAN);
    ls_table_number(table, 0, row ? 100 * row->efficiency : (double)NAN);
}

static bool is_within_spread(const bench_row *dp, const bench_row *ddp) {
    if (!dp || !ddp) return false;
    bench_pair pair = bench_compare(dp, ddp);
    return !pair.failed && !isnan(pair.spread) && !pair.is_more_than_spread;
}

static void put_note(ls_table *table, const bench_model *model, const bench_row *row, const bench_row *virtual_row,
                     int n) {
    const char *measured = "", *in_virtual_time = "";
    if (row && row->oversubscribed) {
        measured = "oversubscribed";
    } else if (row && is_within_spread(bench_find(model, BENCH_DP, n), bench_find(model, BENCH_DDP, n))) {
        measured = "within spread";
    }
    if (row && row->failed) measured = "failed";
    if (is_within_spread(bench_find_virtual(model, BENCH_DP, n), bench_find_virtual(model, BENCH_DDP, n)))
        in_virtual_time = "virtual within spread";
    if (virtual_row && virtual_row->failed) in_virtual_time = "virtual failed";
    ls_table_cell(table, "%s%s%s", measured, *measured && *in_virtual_time ? ", " : "", in_virtual_time);
}

/* Nothing if the model has neither a measured nor a virtual row. */
static void put_row(ls_table *table, const bench_model *model, bench_mode mode, int n) {
    const bench_row *row = bench_find(model, mode, n), *virtual_row = bench_find_virtual(model, mode, n);
    if (!row && !virtual_row) return;
    int64_t samples = model->plan->weak ? bench_global_batch(model->plan, n) : bench_device_batch(model->plan, n);
    ls_table_cell(table, "%s", bench_mode_name(mode));
    ls_table_cell(table, "%d", n);
    ls_table_cell(table, "%lld", (long long)samples);
    put_times(table, row);
    if (model->virtual_count > 0) put_times(table, virtual_row);
    if (mode == BENCH_SINGLE) {
        ls_table_cell(table, "%s", row->failed ? "failed" : "");
    } else {
        put_note(table, model, row, virtual_row, n);
    }
}

static int greatest_n(const bench_model *model, const bench_settings *settings) {
    int most = settings->n.values[settings->n.count - 1];
    for (int i = 0; i < model->virtual_count; i++)
        if (model->virtual_rows[i].n > most) most = model->virtual_rows[i].n;
    return most;
}

ls_status bench_print_table(FILE *file, const bench_model *model, const bench_settings *settings) {
    bool weak = model->plan->weak;
    const char *samples = weak ? "samples\nper step" : "samples per\ndevice",
               *speedup = weak ? "speed-up\nN T1/T_N" : "speed-up\nT1/T_N",
               *efficiency = weak ? "effic. %\nT1/T_N" : "effic.\n%";
    const ls_column measured[] = {{"\nmode", LS_LEFT},        {"\nN", LS_RIGHT},       {samples, LS_RIGHT},
                                  {"measured\nms", LS_RIGHT}, {"spread\n%", LS_RIGHT}, {speedup, LS_RIGHT},
                                  {efficiency, LS_RIGHT}},
                    in_virtual_time[] = {{"virtual\nms", LS_RIGHT},
                                         {"spread\n%", LS_RIGHT},
                                         {speedup, LS_RIGHT},
                                         {efficiency, LS_RIGHT}};
    enum { MEASURED = sizeof measured / sizeof *measured, VIRTUAL = sizeof in_virtual_time / sizeof *in_virtual_time };
    ls_column columns[MEASURED + VIRTUAL + 1];
    size_t count = MEASURED;
    memcpy(columns, measured, sizeof measured);
    if (model->virtual_count > 0) {
        memcpy(columns + count, in_virtual_time, sizeof in_virtual_time);
        count += VIRTUAL;
    }
    columns[count++] = (ls_column){"", LS_LEFT};
    ls_table *table;
    ls_status status = ls_table_create(&table, columns, count);
    if (status != LS_OK) return status;
    print_head(file, model, settings);
    put_row(table, model, BENCH_SINGLE, 1);
    for (int n = 1; n <= greatest_n(model, settings); n++) {
        for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++) put_row(table, model, mode, n);
    }
    return ls_table_finish(table, file);
}

/* --- what stands below the tables -------------------------------------------------------------------------------- */

void bench_print_notes(FILE *file, const bench_results *results) {
    const bench_settings *settings = results->settings;
    bool is_oversubscribed = settings->n.values[settings->n.count - 1] > settings->processors;
    fputs("\nspread: slowest run minus fastest, in percent of the median\n"
          "within spread: the spread of DP or DDP is larger than their difference\n",
          file);
    if (is_oversubscribed) {
        fprintf(file, "oversubscribed: with more devices than %s, times only show time-slicing\n",
                settings->gpus ? "GPUs" : "cores");
    }
}
