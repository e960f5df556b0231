/* bench_dp_vs_ddp — T_N of DP and DDP on 1, 2, 4, ... devices with a fixed global batch, and the parts of that time.
 *
 * It runs build/dp_train and build/ddp_train, round by round, and prints answers and tables; gnuplot draws from the CSV
 * (plots/dp_vs_ddp.gp). If a run fails, its row is left out, and the bench continues. Exit status 1 (or that of the
 * first failure) if a run failed, or if DP and DDP end with different weights where they must agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/results.h"
#include "labs/bench/dp_vs_ddp/bench.h"

/* Runs a few steps of each model, so that a misspelt name or missing data is reported before the long runs begin. */
static ls_status try_models(const bench_settings *settings, char device_name[BENCH_NAME_CAPACITY]) {
    ls_status status = LS_OK;
    for (int p = 0; status == LS_OK && p < settings->plan_count; p++) {
        bench_plan plan = settings->plans[p];
        bench_run run = {.mode = BENCH_SINGLE, .n = 1, .batch = plan.batch};
        plan.steps = settings->least_steps;
        status = bench_train(&run, &plan, settings);
        if (status == LS_OK && settings->gpus) memcpy(device_name, run.device_name, sizeof run.device_name);
    }
    return status;
}

typedef ls_status train_function(bench_run *run, const bench_plan *plan, const bench_settings *settings);

static void keep(ls_status *first, ls_status status) {
    if (*first == LS_OK) *first = status;
}

/* Runs every row once per round. Returns the first failure. */
static ls_status run_rows(bench_row *rows, int count, const bench_plan *plan, train_function *train,
                          const bench_settings *settings) {
    ls_progress progress = ls_progress_begin(settings->quiet);
    ls_status first = LS_OK;
    char what[BENCH_NAME_CAPACITY + 80];
    int total = settings->rounds * count;
    for (int done = 0; done < total; done++) {
        bench_row *row = &rows[done % count];
        bench_run run = {.mode = row->mode, .n = row->n, .batch = row->per_device_batch * row->n};
        if (row->failed) continue;
        snprintf(what, sizeof what, "%s, round %d of %d: %s on %d, run", plan->model, done / count + 1,
                 settings->rounds, bench_mode_name(row->mode), row->n);
        ls_progress_show(&progress, what, done + 1, total);
        ls_status status = train(&run, plan, settings);
        if (status == LS_OK) bench_add_run(row, &run);
        row->failed = status != LS_OK;
        keep(&first, status);
    }
    ls_progress_end(&progress);
    return first;
}

/* Returns the first failure. */
static ls_status run_model(bench_model *model, const bench_plan *plan, const bench_settings *settings) {
    bench_plan_rows(model, plan, settings);
    bench_plan_locked(model, settings);
    bench_plan_virtual(model, settings);
    ls_note("%s: %d runs", plan->model,
            settings->rounds * (model->row_count + model->locked_count + model->virtual_count));
    ls_status first = run_rows(model->rows, model->row_count, plan, bench_train, settings);
    keep(&first, run_rows(model->locked_rows, model->locked_count, &model->locked_plan, bench_train_locked, settings));
    keep(&first,
         run_rows(model->virtual_rows, model->virtual_count, &model->virtual_plan, bench_train_virtual, settings));
    keep(&first, bench_replay_model(model, settings));
    bench_assemble(model);
    return first;
}

static ls_status check_weights(const bench_model *model, const bench_settings *settings) {
    for (int i = 0; i < settings->n.count; i++) {
        int n = settings->n.values[i];
        if (!bench_must_agree(model, n) || !bench_have_weights(model, n) || bench_same_weights(model, n)) continue;
        return ls_fail(LS_ERR_INVALID, "%s on %d devices: DP and DDP ended with different weights; expected the same",
                       model->plan->model, n);
    }
    return LS_OK;
}

static ls_status bench(const bench_settings *settings, const bench_machine *machine, bench_model *models) {
    char device_name[BENCH_NAME_CAPACITY] = "";
    ls_status status = bench_prepare_files(settings->folder);
    if (status == LS_OK) status = try_models(settings, device_name);
    if (status != LS_OK) return status;
    bench_note_load(machine);
    ls_status first = LS_OK; /* failure of a run */
    for (int m = 0; m < settings->plan_count; m++) {
        keep(&first, run_model(&models[m], &settings->plans[m], settings));
    }
    const bench_results results = {machine, settings, device_name, settings->plan_count, models};
    status = bench_write_files(&results, settings->folder);
    if (status == LS_OK) status = bench_report(&results, settings->folder);
    for (int m = 0; m < settings->plan_count; m++) {
        keep(&first, check_weights(&models[m], settings));
    }
    return status == LS_OK ? first : status;
}

int main(int argc, char **argv) {
    bench_settings settings;
    bench_machine machine;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = bench_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    bench_describe_machine(&machine);
    bench_model *models = calloc(BENCH_MODELS_MAX, sizeof *models);
    status = models ? bench(&settings, &machine, models)
                    : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results");
    free(models);
    return ls_status_exit_code(ls_results_written(status));
}
