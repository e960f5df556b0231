/* tables: the first screen's tables, one per model: DP and DDP of each N below one another, measured times on the left,
 * virtual times on the right. */
#include <math.h>
#include <stdio.h>

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

/* DP or DDP on N devices, or the single device; its measured row or its virtual one may be missing. */
struct line {
    const bench_model *model;
    bench_mode mode;
    int n;
    const bench_row *row, *virtual_row;
};

static bool is_within_spread(const bench_row *dp, const bench_row *ddp) {
    if (!dp || !ddp) return false;
    bench_pair pair = bench_compare(dp, ddp);
    return !pair.failed && !isnan(pair.spread) && !pair.is_more_than_spread;
}

static const char *note_of(char cell[BENCH_CELL], const void *of) {
    const struct line *line = of;
    const bench_model *model = line->model;
    const bench_row *row = line->row, *virtual_row = line->virtual_row;
    const char *measured = "", *in_virtual_time = "";
    int n = line->n;
    if (line->mode == BENCH_SINGLE) return row->failed ? "failed" : "";
    if (row && row->oversubscribed) {
        measured = "oversubscribed";
    } else if (row && is_within_spread(bench_find(model, BENCH_DP, n), bench_find(model, BENCH_DDP, n))) {
        measured = "within spread";
    }
    if (row && row->failed) measured = "failed";
    if (is_within_spread(bench_find_virtual(model, BENCH_DP, n), bench_find_virtual(model, BENCH_DDP, n)))
        in_virtual_time = "virtual within spread";
    if (virtual_row && virtual_row->failed) in_virtual_time = "virtual failed";
    snprintf(cell, BENCH_CELL, "%s%s%s", measured, *measured && *in_virtual_time ? ", " : "", in_virtual_time);
    return cell;
}

BENCH_TEXT_OF(mode_of, struct line, bench_mode_name(row->mode))

static double samples_of(const void *of) {
    const struct line *line = of;
    const bench_plan *plan = line->model->plan;
    return (double)(plan->weak ? bench_global_batch(plan, line->n) : bench_device_batch(plan, line->n));
}

/* Percent of the median. */
static double spread_of(const void *of) {
    const bench_row *row = of;
    double spread = 100 * (row->step_ms_max - row->step_ms_min) / row->step_ms;
    return row->run_count > 1 ? spread : (double)NAN;
}

/* Columns of a row's times: under strong scaling, and under weak. */
#define AT(field) BENCH_AT(BENCH_DOUBLE, bench_row, field)
#define TIMES(step, speed_up, efficient)                                                                               \
    {                                                                                                                  \
        {.head = step, AT(step_ms), .decimals = 3}, {.head = "spread\n%", .number = spread_of, .decimals = 1},         \
            {.head = speed_up, AT(speedup), .decimals = 2}, {.head = efficient, AT(efficiency), .percent = true}, {    \
            .kind = BENCH_END                                                                                          \
        }                                                                                                              \
    }
#define STRONG(step) TIMES(step, "speed-up\nT1/T_N", "effic.\n%")
#define WEAK(step) TIMES(step, "speed-up\nN T1/T_N", "effic. %\nT1/T_N")
static const bench_column measured[2][5] = {STRONG("measured\nms"), WEAK("measured\nms")},
                          in_virtual_time[2][5] = {STRONG("virtual\nms"), WEAK("virtual\nms")};

/* Prints nothing if the model has neither a measured nor a virtual row. */
static void put_line(bench_table *table, const bench_model *model, bench_mode mode, int n) {
    const struct line line = {model, mode, n, bench_find(model, mode, n), bench_find_virtual(model, mode, n)};
    if (line.row || line.virtual_row) bench_table_line(table, &line);
}

static int greatest_n(const bench_model *model, const bench_settings *settings) {
    int most = settings->n.values[settings->n.count - 1];
    for (int i = 0; i < model->virtual_count; i++)
        if (model->virtual_rows[i].n > most) most = model->virtual_rows[i].n;
    return most;
}

ls_status bench_print_table(FILE *file, const bench_model *model, const bench_settings *settings) {
    bool weak = model->plan->weak;
    const bench_column columns[] = {
        {.head = "mode", .text = mode_of},
        {.head = "N", BENCH_AT(BENCH_INT, struct line, n)},
        {.head = weak ? "samples\nper step" : "samples per\ndevice", .number = samples_of},
        BENCH_OF(struct line, row, measured[weak]),
        BENCH_OF(struct line, virtual_row, model->virtual_count > 0 ? in_virtual_time[weak] : NULL),
        {.head = "", .text = note_of},
        {.kind = BENCH_END},
    };
    bench_table table = {.columns = columns};
    print_head(file, model, settings);
    put_line(&table, model, BENCH_SINGLE, 1);
    for (int n = 1; n <= greatest_n(model, settings); n++) {
        for (bench_mode mode = BENCH_DP; mode <= BENCH_DDP; mode++) put_line(&table, model, mode, n);
    }
    return bench_table_finish(&table, file);
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
