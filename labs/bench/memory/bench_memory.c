/* bench_memory — the savings and costs of techniques that save memory: plain DDP, activation checkpointing, ZeRO.
 *
 * It runs build/ddp_train, round by round, and replays the rows for which this machine has too few devices. gnuplot
 * draws from the CSV (plots/memory_techniques.gp). If a run fails, its row is left out, and the bench continues. Exit
 * status 1 (or that of the first failure) if a run failed, or if techniques end with different weights. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/results.h"
#include "labs/bench/memory/bench_memory.h"

static void keep(ls_status *first, ls_status status) {
    if (*first == LS_OK) *first = status;
}

static void run_row(memory_row *row, const memory_settings *settings, ls_status *first) {
    if (row->failed) return;
    ls_status status = row->is_measured ? memory_measure(row, settings) : memory_replay(row, settings);
    row->failed = status != LS_OK;
    keep(first, status);
}

/* Runs every measured row once per round, and the replayed ones once. Returns the first failure. */
static ls_status run_rows(memory_results *results) {
    const memory_settings *s = results->settings;
    ls_progress progress = ls_progress_begin(s->quiet);
    ls_status first = LS_OK;
    int done = 0;
    char what[160];
    for (int round = 0; round < s->rounds; round++) {
        for (memory_row *row = results->rows; row < results->rows + results->row_count; row++) {
            if (round > 0 && !row->is_measured) continue;
            snprintf(what, sizeof what, "round %d of %d: %s, %s on %d, run", round + 1, s->rounds, row->model->name,
                     row->technique->name, row->n);
            ls_progress_show(&progress, what, ++done, 0);
            run_row(row, s, &first);
        }
    }
    ls_progress_end(&progress);
    return first;
}

static ls_status check_weights(const memory_results *results) {
    const memory_settings *s = results->settings;
    for (int m = 0; m < s->model_count; m++)
        for (int i = 0; i < s->n.count; i++)
            if (!memory_same_weights(results, &s->models[m], s->n.values[i]))
                return ls_fail(LS_ERR_INVALID, "%s on %d devices: techniques ended with different weights",
                               s->models[m].name, s->n.values[i]);
    return LS_OK;
}

static ls_status bench(memory_results *results) {
    const memory_settings *s = results->settings;
    ls_status status = memory_prepare_files(s->folder);
    if (status != LS_OK) return status;
    bench_note_load(results->machine);
    memory_plan_rows(results);
    ls_status first = run_rows(results);
    memory_assemble(results);
    status = memory_write_files(results, s->folder);
    if (status == LS_OK) status = memory_report(results);
    keep(&first, check_weights(results));
    return status == LS_OK ? first : status;
}

int main(int argc, char **argv) {
    memory_settings settings;
    bench_machine machine;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = memory_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    bench_describe_machine(&machine);
    memory_results *results = calloc(1, sizeof *results);
    if (results) {
        results->machine = &machine;
        results->settings = &settings;
    }
    status = results ? bench(results) : ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the results");
    free(results);
    return ls_status_exit_code(ls_results_written(status));
}
